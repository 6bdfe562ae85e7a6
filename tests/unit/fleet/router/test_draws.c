/* SPDX-License-Identifier: Apache-2.0 */
/* A job's sampling options, on their way to all of its workers,
 * and the sampling results on their way back. */
#include "tests/unit/check.h"

#include <string.h>

#include "base/err.h"
#include "rig_fixture.h"

static void assert_draws(const struct rig_client *client, uint32_t n)
{
    rig_assert_answer(client, n);
    for (uint32_t i = 0; i < n; i++) {
        struct sample_result draw = rig_draw(i);

        assert_memory_equal(&client->draws[i], &draw, sizeof(draw));
    }
}

/* A pair, then its decode worker dies, then one worker alone: all receive the same options. */
static void all_workers_are_asked_for_the_same(void **state)
{
    static const struct sample_bias bias[] = {{.id = 3, .bias = -100}, {.id = 70, .bias = 2.5f}};
    struct link *p = rig_worker(&rig, "p0", PICKER_PREFILL, 1, 100);
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 2, 100), *other;
    struct rig_client *client;
    struct rig_submit asked;

    rig.sample = (struct sample_opts){.wants_logprob = true,
                                      .n_top = 2,
                                      .frequency_penalty = -1.5f,
                                      .presence_penalty = 0.5f,
                                      .repetition_penalty = 1.25f,
                                      .min_tokens = 6,
                                      .bias = bias,
                                      .n_bias = 2};
    rig.constraint = "{\"json\": {}}";
    rig.pin_tokens[WORK_PIN_5M] = 320;
    rig.pin_tokens[WORK_PIN_1H] = 64;
    client = rig_submit(&rig, 500, 20);
    asked = *rig_last(d);
    assert_true(asked.sample.wants_logprob && asked.sample.n_top == 2 && asked.sample.n_bias == 2);
    assert_true(asked.sample.frequency_penalty == -1.5f && asked.sample.presence_penalty == 0.5f);
    assert_true(asked.sample.repetition_penalty == 1.25f && asked.sample.min_tokens == 6);
    assert_int_equal(asked.pin_tokens[WORK_PIN_5M], 320);
    assert_int_equal(asked.pin_tokens[WORK_PIN_1H], 64);
    assert_int_equal(rig_last(p)->digest, asked.digest);
    assert_memory_equal(&rig_last(p)->sample, &asked.sample, sizeof(asked.sample));
    rig_accept(&rig, p, 0);
    rig_tokens(&rig, p, 0, 1);
    rig_tokens(&rig, d, 0, 4); /* the first one again */
    assert_draws(client, 4);
    other = rig_worker(&rig, "d1", PICKER_DECODE, 3, 100);
    rig_lose(&rig, d);
    assert_int_equal(rig_last(other)->n_tokens, 504);
    assert_int_equal(rig_last(other)->n_prompt, 500);
    assert_int_equal(rig_last(other)->max_new_tokens, 16);
    assert_int_equal(rig_last(other)->digest, asked.digest);
    assert_memory_equal(&rig_last(other)->sample, &asked.sample, sizeof(asked.sample));
    rig_tokens(&rig, other, 4, 3);
    rig_finish(&rig, other, BATON__FINISH__FINISH_STOP, 0);
    assert_draws(client, 7);
}

static void a_paused_client_gets_its_draws_later(void **state)
{
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);
    struct rig_client *client;

    rig.sample.wants_logprob = true;
    client = rig_submit(&rig, 10, 60);
    rig_tokens(&rig, d, 0, 2);
    rig_pause(client, true);
    for (uint32_t i = 2; i < 50; i += 3)
        rig_tokens(&rig, d, i, 3);
    assert_draws(client, 2);
    rig_pause(client, false);
    assert_draws(client, 50);
    rig_cancel(client);
}

/* A worker that omits requested results does not know the option: another one is tried. */
static void a_worker_that_says_nothing_of_its_draws_is_left(void **state)
{
    struct link *old = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100), *new;
    struct rig_client *client;
    Baton__Answer answer = BATON__ANSWER__INIT;
    uint32_t id = 'a', wrong = 1u << 30;

    rig.sample.wants_logprob = true;
    client = rig_submit(&rig, 10, 60);
    new = rig_worker(&rig, "d1", PICKER_DECODE, 2, 100);
    answer.request = rig_last(old)->request;
    answer.ids = &id;
    answer.n_ids = 1;
    rig_answer(&rig, old, &answer);
    assert_int_equal(client->n_tokens, 0);
    assert_non_null(rig_last(new));
    rig_tokens(&rig, new, 0, 3);
    assert_draws(client, 3);
    answer.request = rig_last(new)->request;
    answer.first_index = 5; /* with the two likeliest tokens, one of them beyond the vocabulary */
    id = 'a' + 5;
    rig_put_draws(&answer);
    answer.top_ids = (uint32_t[]){'b', wrong};
    rig_answer(&rig, new, &answer);
    assert_int_equal(client->n_tokens, 3);
    rig_cancel(client);
}

static void a_shape_that_a_worker_refuses_is_the_request_s_end(void **state)
{
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);

    rig_worker(&rig, "d1", PICKER_DECODE, 2, 100);
    for (int has_text = 0; has_text < 2; has_text++) {
        struct rig_client *client;
        Baton__Answer answer = BATON__ANSWER__INIT;
        struct link *asked;

        rig.constraint = "{\"json\": {\"new\": 1}}";
        client = rig_submit(&rig, 10, 60);
        asked = rig_last(d) != NULL && !rig_last(d)->is_over ? d : NULL;
        for (uint32_t slot = 0; asked == NULL && slot < PICKER_MAX_WORKERS; slot++)
            if (rig.router.workers[slot].link != NULL && rig.router.workers[slot].link != d)
                asked = rig.router.workers[slot].link;
        answer.request = rig_last(asked)->request;
        answer.finish = BATON__FINISH__FINISH_FAILED;
        answer.error = has_text ? E_FORMAT : E_CONSTRAINT;
        answer.error_text = has_text ? "$.new: no such keyword" : "";
        rig_answer(&rig, asked, &answer);
        assert_true(client->has_failed);
        assert_int_equal(client->status, has_text ? 400 : 500);
        assert_string_equal(client->message, has_text ? "$.new: no such keyword" : err_text(E_CONSTRAINT));
        rig_last(asked)->is_over = true;
    }
    assert_true(rig_ledgers_are_empty(&rig));
}

static void drafts_are_in_the_serving_stats(void **state)
{
    struct link *p = rig_worker(&rig, "p0", PICKER_PREFILL, 1, 100);
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 2, 100);
    struct rig_client *client = rig_submit(&rig, 500, 20);
    Baton__Serving serving = BATON__SERVING__INIT;
    Baton__Answer answer = BATON__ANSWER__INIT;

    rig_tokens(&rig, p, 0, 1);
    rig_tokens(&rig, d, 0, 5);
    answer.request = rig_last(d)->request;
    answer.serving = &serving;
    rig_answer(&rig, p, &answer);
    serving.drafted = 9;
    serving.accepted = 4;
    answer.finish = BATON__FINISH__FINISH_STOP;
    rig_answer(&rig, d, &answer);
    assert_true(client->has_ended);
    assert_int_equal(client->serving.drafted_tokens, 9);
    assert_int_equal(client->serving.accepted_tokens, 4);
}

#define T(name) cmocka_unit_test_setup_teardown(name, open_rig, close_rig)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        T(all_workers_are_asked_for_the_same),
        T(a_paused_client_gets_its_draws_later),
        T(a_worker_that_says_nothing_of_its_draws_is_left),
        T(a_shape_that_a_worker_refuses_is_the_request_s_end),
        T(drafts_are_in_the_serving_stats),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
