/* SPDX-License-Identifier: Apache-2.0 */
/* Workers of several versions: a worker gets no message that it does not know.  A request is refused by
 * name if no worker knows a feature that it needs.  Prompt logprobs: which worker computes them, which are accepted,
 * which continue elsewhere. */
#include "tests/unit/check.h"

#include <string.h>

#include "base/err.h"
#include "rig_fixture.h"

static struct link *worker(const char *node, uint64_t epoch, uint64_t capabilities)
{
    rig.capabilities = capabilities;
    return rig_worker(&rig, node, PICKER_DECODE, epoch, 1000);
}

static void ask_scores(void)
{
    rig.scores_prompt = true;
    rig.sample.wants_logprob = true;
    rig.sample.n_top = 2;
}

static void stated_capabilities_are_read(void **state)
{
    uint64_t older = CAPABILITY_GRAMMARS | CAPABILITY_LOGPROBS | CAPABILITY_ASKED;

    assert_int_equal(capabilities_read(0), older);
    assert_int_equal(capabilities_read(CAPABILITY_SCORES), older); /* no capabilities without the first bit */
    assert_int_equal(capabilities_read(CAPABILITY_STATED), CAPABILITY_STATED);
    assert_int_equal(capabilities_read(UINT64_MAX), UINT64_MAX);
    assert_int_equal(capabilities_own(), (1u << CAPABILITY_N) - 1);
    assert_string_equal(capability_text(CAPABILITY_ASKED), "asked pushes");
    assert_string_equal(capability_text(UINT64_C(1) << 60), "");
}

/* Each need passes over the worker that lacks it, which would be the better one otherwise. */
static void a_worker_that_lacks_a_bit_is_passed_over(void **state)
{
    uint64_t all = capabilities_own();
    struct link *no_grammars = worker("d0", 1, all & ~(uint64_t)CAPABILITY_GRAMMARS);
    struct link *no_logprobs = worker("d1", 2, all & ~(uint64_t)CAPABILITY_LOGPROBS);
    /* It knows none of our bits. */
    struct link *newer = worker("d2", 3, CAPABILITY_STATED | UINT64_C(1) << 63);

    rig.constraint = "{\"json\": {}}";
    for (int i = 0; i < 5; i++) {
        rig_submit(&rig, 10, 20);
        assert_int_equal(rig_last(no_logprobs)->n_tokens, 10);
    }
    rig.constraint = NULL;
    rig.sample.wants_logprob = true;
    for (int i = 0; i < 5; i++)
        rig_submit(&rig, 11, 20);
    assert_null(rig_sent(no_grammars, 5));
    assert_non_null(rig_sent(no_grammars, 4));
    assert_null(rig_sent(no_logprobs, 5));
    assert_null(rig_sent(newer, 0));
    rig.sample.wants_logprob = false;
    rig_submit(&rig, 12, 20); /* any worker */
    assert_int_equal(rig_last(newer)->n_tokens, 12);
}

static void a_feature_unknown_to_all_workers_is_refused_by_name(void **state)
{
    struct link *old = worker("d0", 1, 0);
    struct rig_client *client;

    ask_scores();
    client = rig_submit(&rig, 10, 1);
    assert_true(client->has_failed);
    assert_int_equal(client->status, 503);
    assert_string_equal(client->message,
                        "no worker of this model knows log probabilities of the prompt: they are "
                        "of an older version");
    assert_null(rig_sent(old, 0));
    rig.scores_prompt = false;
    rig_submit(&rig, 10, 1); /* an older worker has log probabilities of sampled tokens */
    assert_int_equal(rig_last(old)->n_tokens, 10);
    rig.constraint = "{\"json\": {}}";
    rig.sample.wants_logprob = false;
    rig_lose(&rig, old);
    worker("d0", 2, CAPABILITY_STATED); /* the same node with fewer capabilities */
    client = rig_submit(&rig, 10, 1);
    assert_string_equal(client->message, "no worker of this model knows constrained answers: they are of an "
                                         "older version");
    rig_lose(&rig, worker("d1", 3, capabilities_own()));
    client = rig_submit(&rig, 10, 1); /* a worker that knows it was connected, but is not now */
    assert_int_equal(client->status, 503);
    rig.constraint = NULL;
    client = rig_submit(&rig, 10, 1);
    assert_false(client->has_failed);
}

/* Without any worker the request waits like any other, and does not delay requests that others can serve. */
static void a_request_that_waits_for_a_capability_blocks_no_other(void **state)
{
    struct rig_client *scored, *plain;
    struct link *old, *able;

    ask_scores();
    scored = rig_submit(&rig, 10, 1);
    rig.scores_prompt = rig.sample.wants_logprob = false;
    plain = rig_submit(&rig, 11, 1);
    assert_false(scored->has_failed || plain->has_failed);
    old = worker("d0", 1, 0);
    router_place_queued(&rig.router);
    rig_flush(&rig);
    assert_int_equal(rig_last(old)->n_tokens, 11);
    able = worker("d1", 2, capabilities_own());
    router_place_queued(&rig.router);
    rig_flush(&rig);
    assert_int_equal(rig_last(able)->n_tokens, 10);
    assert_int_equal(rig_last(able)->score_from, 1);
    assert_null(rig_sent(old, 1));
}

/* Checks the request that the worker received: so many bytes for each id (0: 4), and the same ids. */
static void assert_sent(struct link *link, uint32_t token_bytes, uint64_t digest)
{
    assert_int_equal(rig_last(link)->n_tokens, 500);
    assert_int_equal(rig_last(link)->n_prompt, 500);
    assert_int_equal(rig_last(link)->token_bytes, token_bytes);
    assert_true(rig_last(link)->tokens_digest == digest);
}

static void tokens_go_in_few_bytes_to_who_can_read_them(void **state)
{
    static const struct {
        uint32_t from, token_bytes;
    } prompts[] = {{0, 2}, {65436, 2}, {65437, 3}, {(1 << 24) - 100, 3}, {(1 << 24) - 99, 0}};

    rig.has_same_prompts = true;
    for (size_t i = 0; i < ARRAY_LEN(prompts); i++) {
        struct link *old, *able;
        uint64_t digest;

        rig.tokens_from = prompts[i].from;
        old = worker("d0", 2 * i + 1, capabilities_own() & ~(uint64_t)CAPABILITY_NARROW);
        rig_submit(&rig, 500, 5);
        digest = rig_last(old)->tokens_digest;
        assert_sent(old, 0, digest);
        rig_lose(&rig, old);
        able = worker("d0", 2 * i + 2, capabilities_own()); /* the worker that receives the request again */
        router_place_queued(&rig.router);
        rig_flush(&rig);
        assert_sent(able, prompts[i].token_bytes, digest);
        rig_lose(&rig, able);
        for (uint32_t k = 0; k < rig.n_clients; k++)
            if (rig.clients[k].handle != NULL)
                rig_cancel(&rig.clients[k]);
    }
}

static void a_pair_of_two_versions_gets_the_same_work(void **state)
{
    struct link *p, *d;

    rig.has_same_prompts = true;
    rig.capabilities = CAPABILITY_STATED;
    p = rig_worker(&rig, "p0", PICKER_PREFILL, 1, 1000);
    rig.capabilities = capabilities_own();
    d = rig_worker(&rig, "d0", PICKER_DECODE, 2, 1000);
    rig_submit(&rig, 500, 5);
    assert_sent(p, 0, rig_last(d)->tokens_digest);
    assert_sent(d, 0, rig_last(p)->tokens_digest);
    rig_lose(&rig, p);
    p = rig_worker(&rig, "p0", PICKER_PREFILL, 3, 1000);
    rig_submit(&rig, 500, 5);
    assert_sent(p, 2, rig_last(d)->tokens_digest);
    assert_sent(d, 2, rig_last(p)->tokens_digest);
}

#define N_LONG ((uint32_t)(3 * FRAME_PIECE_TOKENS + 7))

static uint32_t n_turns_to_send(void)
{
    uint32_t n = 1;

    while (router_jobs_send(&rig.router))
        n++;
    return n;
}

/* One turn of the loop packs and sends one piece, for prompts of any length. */
static void a_long_prompt_goes_in_pieces(void **state)
{
    struct link *old, *p, *d;
    struct rig_client *client;
    uint64_t digest;

    rig.has_same_prompts = true;
    old = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100000);
    rig_submit(&rig, N_LONG, 5);
    assert_int_equal(rig_last(old)->n_tokens, N_LONG);
    assert_false(router_jobs_send(&rig.router));
    digest = rig_last(old)->tokens_digest;
    rig_cancel(&rig.clients[0]);
    rig_lose(&rig, old);

    rig.capabilities = capabilities_own();
    p = rig_worker(&rig, "p0", PICKER_PREFILL, 2, 100000);
    d = rig_worker(&rig, "d0", PICKER_DECODE, 3, 100000);
    client = rig_submit(&rig, N_LONG, 5);
    assert_int_equal(rig_last(d)->mode, BATON__SUBMIT_MODE__SUBMIT_DECODE);
    assert_int_equal(rig_last(d)->n_tokens, FRAME_PIECE_TOKENS);
    assert_int_equal(rig_last(d)->n_prompt, N_LONG);
    assert_int_equal(n_turns_to_send(), 3);
    assert_int_equal(rig_last(p)->n_pieces, 3);
    assert_int_equal(rig_last(p)->n_tokens, N_LONG);
    assert_true(rig_last(p)->tokens_digest == digest && rig_last(d)->tokens_digest == digest);
    assert_false(client->has_failed);
}

static void pieces_stop_with_their_job(void **state)
{
    struct link *a, *b;
    struct rig_client *gone, *moved;

    rig.capabilities = capabilities_own();
    a = rig_worker(&rig, "a", PICKER_DECODE, 1, 100000);
    gone = rig_submit(&rig, N_LONG, 5);
    assert_true(router_jobs_send(&rig.router));
    rig_cancel(gone);
    assert_false(router_jobs_send(&rig.router));
    assert_int_equal(rig_last(a)->n_pieces, 1);

    moved = rig_submit(&rig, N_LONG, 5);
    assert_true(router_jobs_send(&rig.router));
    b = rig_worker(&rig, "b", PICKER_DECODE, 2, 100000);
    rig_lose(&rig, a); /* in the middle of it: the other worker receives all of it */
    router_place_queued(&rig.router);
    rig_flush(&rig);
    assert_int_equal(rig_last(b)->n_tokens, FRAME_PIECE_TOKENS);
    assert_int_equal(n_turns_to_send(), 3);
    assert_int_equal(rig_last(b)->n_tokens, N_LONG);
    assert_false(moved->has_failed);
}

/* Each turn serves another job, so a short one does not wait for a long one. */
static void long_prompts_take_turns(void **state)
{
    struct link *a, *b;

    rig.capabilities = capabilities_own();
    a = rig_worker(&rig, "a", PICKER_DECODE, 1, 100000);
    rig_submit(&rig, N_LONG, 5);
    assert_int_equal(rig_last(a)->n_tokens, FRAME_PIECE_TOKENS);
    b = rig_worker(&rig, "b", PICKER_DECODE, 2, 100000);
    rig_submit(&rig, FRAME_PIECE_TOKENS + 1, 5);
    assert_int_equal(rig_last(b)->n_tokens, FRAME_PIECE_TOKENS);
    assert_true(router_jobs_send(&rig.router));
    assert_true(router_jobs_send(&rig.router));
    assert_int_equal(rig_last(a)->n_pieces, 1);
    assert_int_equal(rig_last(b)->n_tokens, FRAME_PIECE_TOKENS + 1);
    assert_int_equal(n_turns_to_send(), 2);
}

#define FULL ((size_t)16 << 20)

/* Large requests to a worker that does not read must not fill the queue of its link, which would go down. */
static void a_full_link_gets_no_more_requests(void **state)
{
    struct link *a, *b;
    struct rig_client *clients[3], *other;

    rig.capabilities = capabilities_own();
    a = rig_worker(&rig, "a", PICKER_DECODE, 1, 100000);
    rig_queue_bytes(a, FULL);
    for (int i = 0; i < 3; i++)
        clients[i] = rig_submit(&rig, i == 2 ? N_LONG : 50, 5);
    assert_null(rig_last(a));
    assert_false(router_jobs_send(&rig.router));
    b = rig_worker(&rig, "b", PICKER_DECODE, 2, 100000);
    other = rig_submit(&rig, 500, 5);
    assert_non_null(rig_last(b));
    rig_cancel(clients[1]);

    rig_queue_bytes(a, 0);
    assert_int_equal(n_turns_to_send(), 5); /* two SUBMITs and three pieces */
    assert_int_equal(rig_sent(a, 0)->n_tokens, 50);
    assert_int_equal(rig_sent(a, 1)->n_tokens, N_LONG);
    assert_null(rig_sent(a, 2));
    assert_false(clients[0]->has_failed || clients[2]->has_failed || other->has_failed);
}

static void what_a_full_link_did_not_get_goes_elsewhere_after_its_loss(void **state)
{
    struct link *p, *d;
    struct rig_client *client;

    rig.capabilities = capabilities_own();
    p = rig_worker(&rig, "p", PICKER_PREFILL, 1, 100000);
    d = rig_worker(&rig, "d", PICKER_DECODE, 2, 100000);
    rig_queue_bytes(p, FULL);
    client = rig_submit(&rig, 500, 5);
    assert_null(rig_last(d));
    rig_lose(&rig, p);
    n_turns_to_send();
    assert_int_equal(rig_last(d)->mode, BATON__SUBMIT_MODE__SUBMIT_LOCAL);
    assert_int_equal(rig_last(d)->n_tokens, 500);
    rig_finish(&rig, d, BATON__FINISH__FINISH_LENGTH, 0);

    rig_queue_bytes(d, FULL);
    client = rig_submit(&rig, 400, 5);
    rig_lose(&rig, d);
    d = rig_worker(&rig, "d", PICKER_DECODE, 3, 100000);
    router_place_queued(&rig.router);
    n_turns_to_send();
    assert_int_equal(rig_last(d)->n_tokens, 400);
    assert_false(client->has_failed);
}

static void scores_come_from_one_worker_of_either_role(void **state)
{
    struct link *p, *d;
    struct rig_client *client;

    rig.capabilities = capabilities_own();
    p = rig_worker(&rig, "p0", PICKER_PREFILL, 1, 1000);
    d = rig_worker(&rig, "d0", PICKER_DECODE, 2, 1000);
    rig_submit(&rig, 500, 20);
    assert_int_equal(rig_last(d)->mode, BATON__SUBMIT_MODE__SUBMIT_DECODE);
    assert_int_equal(rig_last(d)->score_from, 0);
    ask_scores();
    client = rig_submit(&rig, 501, 2);
    struct link *chosen = rig_last(p)->n_tokens == 501 ? p : d, *other = chosen == p ? d : p;
    assert_int_equal(rig_last(chosen)->mode, BATON__SUBMIT_MODE__SUBMIT_LOCAL);
    assert_int_equal(rig_last(other)->n_tokens, 500);
    rig_accept(&rig, chosen, 0);
    rig_scores(&rig, chosen, 1, 100);
    assert_int_equal(client->n_scores, 100);
    rig_lose(&rig, chosen); /* another worker continues after them */
    assert_int_equal(rig_last(other)->n_tokens, 501);
    assert_int_equal(rig_last(other)->score_from, 101);
    rig_scores(&rig, other, 99, 5); /* two of them were received before */
    assert_int_equal(client->n_scores, 103);
    for (uint32_t i = 0; i < 103; i++) {
        struct sample_result draw = rig_draw(i + 1);

        assert_int_equal(client->scores[i].id, (i + 1 + rig.n_clients) % 100);
        assert_true(client->scores[i].logprob == draw.logprob && client->scores[i].n_top == draw.n_top);
    }
}

static void impossible_logprobs_are_a_fault(void **state)
{
    static const struct {
        uint32_t index, n;
        bool has_same_prompts; /* otherwise the ids belong to another prompt */
    } bad[] = {{3, 2, false}, {1, 20, false}, {1, 2, true}, {500, 1, false}};

    ask_scores();
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct link *d = worker("d0", i + 1, capabilities_own());
        struct rig_client *client = rig_submit(&rig, 10, 5);

        rig_accept(&rig, d, 0);
        rig.has_same_prompts = bad[i].has_same_prompts;
        rig_scores(&rig, d, bad[i].index, bad[i].n);
        rig.has_same_prompts = false;
        assert_true(rig_last(d)->is_over); /* the worker was abandoned */
        assert_true(client->n_scores <= 9);
        rig_cancel(client);
        rig_lose(&rig, d);
    }
    struct link *d = worker("d0", 99, capabilities_own());
    struct rig_client *client = rig_submit(&rig, 10, 5);
    rig_accept(&rig, d, 0);
    rig_tokens(&rig, d, 0, 1); /* an answer before the prompt's scores */
    assert_true(rig_last(d)->is_over);
    assert_int_equal(client->n_tokens, 0);
}

static void a_paused_client_gets_them_in_order(void **state)
{
    struct link *d = worker("d0", 1, capabilities_own());
    Baton__Answer answer = BATON__ANSWER__INIT;
    struct rig_client *client;
    uint32_t id = 3;

    ask_scores();
    client = rig_submit(&rig, 10, 5);
    rig_accept(&rig, d, 0);
    rig_pause(client, true);
    rig_scores(&rig, d, 1, 4);
    rig_scores(&rig, d, 5, 5);
    rig_tokens(&rig, d, 0, 2);
    answer.request = rig_last(d)->request;
    answer.is_prompt_logprobs = true;
    answer.first_index = 12; /* the stop id behind prompt and answer */
    answer.ids = &id;
    answer.n_ids = 1;
    rig_put_draws(&answer);
    rig_answer(&rig, d, &answer);
    rig_finish(&rig, d, BATON__FINISH__FINISH_STOP, 0);
    assert_int_equal(client->n_scores, 0);
    rig_pause(client, false);
    assert_int_equal(client->n_scores, 10);
    assert_int_equal(client->n_tokens, 2);
    assert_int_equal(client->scores[9].id, 3);
    assert_true(client->has_ended);
}

#define T(name) cmocka_unit_test_setup_teardown(name, open_rig, close_rig)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        T(stated_capabilities_are_read),
        T(a_worker_that_lacks_a_bit_is_passed_over),
        T(a_feature_unknown_to_all_workers_is_refused_by_name),
        T(a_request_that_waits_for_a_capability_blocks_no_other),
        T(tokens_go_in_few_bytes_to_who_can_read_them),
        T(a_pair_of_two_versions_gets_the_same_work),
        T(a_long_prompt_goes_in_pieces),
        T(pieces_stop_with_their_job),
        T(long_prompts_take_turns),
        T(a_full_link_gets_no_more_requests),
        T(what_a_full_link_did_not_get_goes_elsewhere_after_its_loss),
        T(scores_come_from_one_worker_of_either_role),
        T(impossible_logprobs_are_a_fault),
        T(a_paused_client_gets_them_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
