/* SPDX-License-Identifier: Apache-2.0 */
/* Random events in the router.  Every client receives at most one end, and "accepted" at most once, before
 * its tokens. It receives the right tokens in order and, if wanted, their sampling results.  In the end the
 * ledgers are empty. */
#include "tests/unit/check.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "fleet/router/admission_priv.h"
#include "rig.h"

#define N_WORKERS 4
#define N_STEPS   3000

static struct rig rig;
static struct link *links[N_WORKERS];
static uint64_t next_epoch;
static struct rng dice;
static bool has_classes;
static uint32_t n_pauses; /* of all seeds together */

static void come_up(uint32_t at)
{
    static const char *const names[N_WORKERS] = {"p0", "p1", "d0", "d1"};

    links[at] = rig_worker(&rig, names[at], at < 2 ? PICKER_PREFILL : PICKER_DECODE, ++next_epoch, 1000);
    assert_non_null(links[at]);
}

static struct rig_client *any_client(void)
{
    struct rig_client *client = rig.n_clients > 0 ? &rig.clients[rng_below(&dice, rig.n_clients)] : NULL;

    return client != NULL && client->handle != NULL ? client : NULL;
}

static void begin(void)
{
    static const char *const tenants[] = {NULL, "few", "many", "many", "many"};
    static const char *const classes[] = {"high", "low", "low", NULL};
    struct rig_client *client;

    if (rig.n_clients == RIG_MAX_CLIENTS)
        return;
    rig.sample.wants_logprob = rng_below(&dice, 2);
    rig.tenant = tenants[rng_below(&dice, 5)];
    rig.weight = (uint32_t)rng_below(&dice, 3);
    rig.class_allowed = has_classes ? classes[rng_below(&dice, 4)] : NULL;
    rig.constraint = rng_below(&dice, 2) ? "{\"json\": {}}" : NULL;
    client = rig_submit(&rig, 1 + (uint32_t)rng_below(&dice, 300), 1 + (uint32_t)rng_below(&dice, 40));
    client->cancels_on_accepted = rng_below(&dice, 20) == 0;
    client->cancels_on_tokens = rng_below(&dice, 20) == 0;
    client->pauses_on_tokens = rng_below(&dice, 5) == 0;
    if (rng_below(&dice, 4) == 0 && rig.n_clients > 1)
        client->cancels_on_failure = &rig.clients[rng_below(&dice, rig.n_clients - 1)];
}

/* A worker sends a message about one of its requests, mostly a true one. */
static void speak(struct link *link, uint32_t at)
{
    static const Baton__Finish ends[] = {BATON__FINISH__FINISH_STOP, BATON__FINISH__FINISH_LENGTH,
                                         BATON__FINISH__FINISH_FAILED, BATON__FINISH__FINISH_HANDED_OFF};
    uint32_t n = 0, ids[8];
    Baton__Answer answer = BATON__ANSWER__INIT;
    struct rig_submit *sent;

    while (rig_sent(link, n) != NULL)
        n++;
    if (n == 0)
        return;
    sent = rig_sent(link, n - 1 - (uint32_t)rng_below(&dice, n < 20 ? n : 20));
    answer.request = sent->request;
    answer.is_accepted = rng_below(&dice, 3) == 0;
    answer.cached_tokens = (uint32_t)rng_below(&dice, 400);
    answer.first_index = sent->n_tokens - sent->n_prompt + (at < 2 ? 0 : (uint32_t)rng_below(&dice, 12));
    answer.n_ids = rng_below(&dice, 3) == 0 ? 0 : 1 + rng_below(&dice, at < 2 ? 1 : 8);
    answer.ids = ids;
    for (size_t i = 0; i < answer.n_ids; i++)
        ids[i] = 'a' + (answer.first_index + (uint32_t)i) % 16;
    if (sent->sample.wants_logprob)
        rig_put_draws(&answer);
    if (rng_below(&dice, 6) == 0) {
        answer.finish = ends[rng_below(&dice, 4)];
        answer.error = rng_below(&dice, 8) == 0 ? E_LIMIT : E_OVERLOADED;
    }
    rig_answer(&rig, link, &answer);
}

static void step(void)
{
    uint32_t at = (uint32_t)rng_below(&dice, N_WORKERS);
    struct rig_client *client = any_client();

    switch (rng_below(&dice, 16)) {
    case 0:
    case 1:
        begin();
        return;
    case 2:
        if (client != NULL)
            rig_cancel(client);
        return;
    case 3:
        if (client != NULL)
            rig_pause(client, rng_below(&dice, 2) == 0);
        return;
    case 4:
        if (links[at] != NULL && rng_below(&dice, 3) == 0) {
            rig_lose(&rig, links[at]);
            links[at] = NULL;
        }
        return;
    case 5:
        if (links[at] == NULL)
            come_up(at);
        else
            rig_fail_sends(links[at], rng_below(&dice, 4) == 0);
        return;
    case 6:
        rig.conf.queue_timeout_ns = rng_below(&dice, 10) == 0 ? 0 : UINT64_MAX / 2;
        router_place_queued(&rig.router);
        router_queue_fail_pushed(&rig.router);
        router_expire_queued(&rig.router);
        router_pause_tick(&rig.router);
        rig_flush(&rig);
        return;
    default:
        if (links[at] != NULL)
            speak(links[at], at);
    }
}

static void look(void)
{
    for (uint32_t i = 0; i < rig.n_clients; i++) {
        const struct rig_client *client = &rig.clients[i];

        assert_true(client->n_accepted <= 1);
        assert_true(client->n_tokens == 0 || client->n_accepted == 1);
        assert_false(client->has_ended && client->has_failed);
        assert_true(client->n_tokens <= 40);
        for (uint32_t k = 0; k < client->n_tokens; k++) {
            struct sample_result draw = rig_draw(k);

            assert_int_equal(client->tokens[k], 'a' + k % 16);
            if (client->wants_logprob)
                assert_memory_equal(&client->draws[k], &draw, sizeof(draw));
        }
    }
}

/* Streams of the class "low" are paused for "high". */
static void define_classes(void)
{
    static const char *const lines[] = {"high priority=10", "low may-be-paused=1min"};
    struct fault fault = {0};

    rig.conf.refuse = ROUTER_REFUSE_PREDICTED;
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        assert_int_equal(
            picker_classes_add(&rig.router.classes, bytes_of(lines[i], strlen(lines[i])), &fault), 0);
    router_admission_declare(&rig.router);
    router_pause_declare(&rig.router);
    rig.conf.classes.n = 2;
}

static void assert_empty(void)
{
    assert_true(list_is_empty(&rig.router.jobs));
    assert_true(list_is_empty(&rig.router.queue));
    assert_int_equal(rig.router.n_queued, 0);
    assert_true(list_is_empty(&rig.router.turns.pushed_out) && list_is_empty(&rig.router.turns.odd));
    assert_int_equal(rig.router.models[0].n_queued + rig.router.models[0].ahead.n, 0);
    for (uint32_t i = 0; i < rig.router.classes.n; i++) {
        if (rig.router.models[0].turns[i] != NULL)
            assert_int_equal(fair_n_waiting(rig.router.models[0].turns[i]), 0);
        assert_true(list_is_empty(&rig.router.pauses.models[0].paused[i]));
        assert_true(list_is_empty(&rig.router.pauses.models[0].seated[i]));
        assert_int_equal(rig.router.models[0].n_seated[i] + rig.router.models[0].n_paused[i], 0);
    }
    assert_int_equal(rig.router.pauses.n_paused, 0);
    assert_int_equal(hashmap_count(rig.router.by_number), 0);
    assert_true(rig_ledgers_are_empty(&rig));
}

/* Runs the seeds from first to last. */
static void run_seeds(uint64_t first, uint64_t last)
{
    for (uint64_t seed = first; seed <= last; seed++) {
        assert_int_equal(rig_open(&rig), 0);
        if (has_classes)
            define_classes();
        rng_init(&dice, seed);
        for (uint32_t i = 0; i < N_WORKERS; i++)
            come_up(i);
        for (uint32_t i = 0; i < N_STEPS; i++)
            step();
        look();
        for (uint32_t i = 0; i < rig.n_clients; i++)
            if (rig.clients[i].handle != NULL)
                rig_cancel(&rig.clients[i]);
        assert_empty();
        if (has_classes)
            n_pauses += (uint32_t)metric_value(rig.router.pauses.m_begun[2]);
        rig.conf.classes.n = 0;
        rig_close(&rig);
    }
}

static void everything_comes_back(void **state)
{
    has_classes = false;
    run_seeds(1, 20);
}

static void everything_comes_back_with_pauses(void **state)
{
    has_classes = true;
    run_seeds(1, 20);
    /* The loop's clock is real: how many streams a seed pauses differs from run to run. */
    for (uint64_t seed = 21; n_pauses <= 20 && seed <= 200; seed++)
        run_seeds(seed, seed);
    print_message("%u pauses\n", n_pauses);
    assert_true(n_pauses > 20);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_comes_back),
        cmocka_unit_test(everything_comes_back_with_pauses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
