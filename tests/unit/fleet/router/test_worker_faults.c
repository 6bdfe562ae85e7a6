/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that are gone, fail, or send nonsense: their jobs move or end, and the failure counts where it belongs. */
#include "tests/unit/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "rig_fixture.h"

/* 529 says that a retry helps soon.
 * If all workers of a model are away, the answer is 503 with the reason. */
static void a_model_whose_workers_are_gone_is_away(void **state)
{
    struct backend backend = router_backend(&rig.router);
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);
    struct rig_client *waits;

    rig_lose(&rig, d);
    waits = rig_submit(&rig, 10, 5);
    assert_false(waits->has_failed); /* the worker may return at once */
    rig.conf.queue_timeout_ns = 0;
    router_expire_queued(&rig.router);
    rig_flush(&rig);
    assert_int_equal(waits->status, 503);
    assert_non_null(strstr(waits->message, "No worker"));
    rig.conf.queue_max = 0;
    assert_int_equal(rig_submit(&rig, 10, 5)->status, 503);
    assert_non_null(backend.ops->model(backend.self, "sim"));
    assert_null(backend.ops->model(backend.self, "unheard"));
    assert_null(backend.ops->why_not_yet(backend.self, "unheard"));
}

/* A worker reports that it returns, so this router was restarted: other models may still come. */
static void names_are_not_unknown_before_the_fleet_is_back(void **state)
{
    struct backend backend = router_backend(&rig.router);

    rig.conf.link_return_ns = 3600 * NS_PER_S;
    rig.router.started_ns = clock_now_ns();
    assert_null(backend.ops->why_not_yet(backend.self, "unheard"));
    rig.router.is_restarted = true;
    assert_non_null(strstr(backend.ops->why_not_yet(backend.self, "unheard"), "may still come back"));
    assert_non_null(backend.ops->model(backend.self, "sim"));
    rig.conf.link_return_ns = 0;
    assert_null(backend.ops->why_not_yet(backend.self, "unheard"));
}

static void names_are_not_known_before_the_first_model(void **state)
{
    struct backend backend = router_backend(&rig.router);
    uint32_t n = rig.router.n_models;
    struct link *other;

    rig.router.n_models = 0;
    assert_non_null(strstr(backend.ops->why_not_yet(backend.self, "sim"), "no worker has registered"));
    assert_non_null(backend.ops->why_not_yet(backend.self, NULL));
    rig.router.n_models = n;
    rig.router.models[1].is_ready = false; /* its vocabulary is arriving, and another model is served */
    rig.fingerprint = rig.router.models[1].gen.fingerprint;
    other = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);
    assert_null(backend.ops->model(backend.self, "other"));
    assert_non_null(strstr(backend.ops->why_not_yet(backend.self, "other"), "vocabulary"));
    assert_null(backend.ops->why_not_yet(backend.self, "unheard"));
    rig.router.models[1].is_failed = true;
    assert_null(backend.ops->why_not_yet(backend.self, "other"));
    rig.router.models[0].is_ready = false;
    assert_non_null(backend.ops->why_not_yet(backend.self, "unheard"));
    rig.router.models[0].is_ready = true;
    rig_lose(&rig, other);
}

/* Its worker left before the vocabulary was complete; another model came later and is served. */
static void a_model_that_does_not_come_makes_no_name_wait(void **state)
{
    struct backend backend = router_backend(&rig.router);
    struct link *first = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);

    rig.router.models[0].is_ready = false;
    assert_null(backend.ops->why_not_yet(backend.self, "unheard")); /* the other one is ready */
    assert_non_null(backend.ops->why_not_yet(backend.self, "sim"));
    rig_lose(&rig, first);
    assert_null(backend.ops->why_not_yet(backend.self, "sim"));
    rig.router.models[1].is_ready = false;
    assert_non_null(strstr(backend.ops->why_not_yet(backend.self, "sim"), "no worker"));
    rig.router.models[0].is_ready = rig.router.models[1].is_ready = true;
}

static void gaps_and_foreign_ids_move_the_job(void **state)
{
    static const uint32_t foreign = 1u << 20;
    struct link *d0 = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);
    struct link *d1 = rig_worker(&rig, "d1", PICKER_DECODE, 2, 100);
    struct link *d2 = rig_worker(&rig, "d2", PICKER_DECODE, 3, 100);
    struct rig_client *client = rig_submit(&rig, 10, 20);
    Baton__Answer answer = BATON__ANSWER__INIT;

    rig_tokens(&rig, d0, 0, 2);
    rig_tokens(&rig, d0, 4, 1); /* 2 and 3 are missing */
    assert_true(rig_last(d0)->is_over);
    assert_int_equal(rig_last(d1)->n_tokens, 12);
    assert_int_equal(rig_last(d1)->n_prompt, 10);
    assert_int_equal(rig_last(d1)->max_new_tokens, 18);
    assert_int_equal(rig_last(d1)->seed, rig_last(d0)->seed);
    rig_tokens(&rig, d0, 2, 1); /* a message of an earlier attempt is ignored */
    answer.request = rig_last(d1)->request;
    answer.first_index = 2;
    answer.n_ids = 1;
    answer.ids = (uint32_t *)&foreign;
    rig_answer(&rig, d1, &answer);
    rig_tokens(&rig, d2, 2, 3);
    rig_finish(&rig, d2, BATON__FINISH__FINISH_STOP, 0);
    assert_true(client->has_ended);
    rig_assert_answer(client, 5);
    assert_int_equal(client->serving.n_redispatched, 2);
    assert_int_equal(rig.router.workers[0].n_failed, 1);
    assert_int_equal(rig.router.workers[0].last_error, E_PROTO);
    assert_int_equal(rig.router.workers[1].n_failed, 1);
    assert_int_equal(rig.router.workers[2].n_failed, 0);
    assert_true(rig_ledgers_are_empty(&rig));
}

/* The decode worker computes the prompt then, so no job is placed again; the failure is the prefill worker's. */
static void a_failed_prefill_counts_for_its_worker(void **state)
{
    struct link *p = rig_worker(&rig, "p0", PICKER_PREFILL, 1, 100);
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 2, 100);
    struct rig_client *client = rig_submit(&rig, 500, 20);

    rig_finish(&rig, p, BATON__FINISH__FINISH_FAILED, E_INTERNAL);
    assert_int_equal(rig.router.workers[0].n_failed, 1);
    assert_int_equal(rig.router.workers[0].last_error, E_INTERNAL);
    rig_tokens(&rig, d, 0, 3);
    rig_finish(&rig, d, BATON__FINISH__FINISH_STOP, 0);
    assert_true(client->has_ended);
    assert_int_equal(client->serving.n_redispatched, 0);
    assert_int_equal(rig.router.workers[1].n_failed, 0);
    assert_true(rig_ledgers_are_empty(&rig));
    rig_lose(&rig, p);
    rig_worker(&rig, "p0", PICKER_PREFILL, 1, 100); /* its link returns */
    assert_int_equal(rig.router.workers[0].n_failed, 1);
    assert_int_equal(rig.router.workers[0].last_error, E_INTERNAL);
}

static void a_refused_hand_off_is_no_failure(void **state)
{
    struct link *p = rig_worker(&rig, "p0", PICKER_PREFILL, 1, 100);
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 2, 100);
    struct rig_client *client = rig_submit(&rig, 500, 20);
    Baton__Answer answer = BATON__ANSWER__INIT;

    answer.request = rig_last(p)->request;
    answer.finish = BATON__FINISH__FINISH_FAILED;
    answer.error = E_FULL;
    answer.is_handoff_refused = true;
    rig_answer(&rig, p, &answer);
    assert_true(rig_last(d)->may_proceed);
    rig_tokens(&rig, d, 0, 3);
    rig_finish(&rig, d, BATON__FINISH__FINISH_STOP, 0);
    assert_true(client->has_ended);
    assert_int_equal(client->serving.n_redispatched, 0);
    assert_int_equal(rig.router.workers[0].n_failed, 0);
    assert_int_equal(rig.router.workers[1].n_failed, 0);
    assert_true(rig_ledgers_are_empty(&rig));
}

/* Such as a grammar that is wrong: the decode worker says so too. */
static void an_error_of_the_request_is_no_failure(void **state)
{
    static const int errors[] = {E_FORMAT, E_CONSTRAINT, E_LIMIT};
    struct link *p = rig_worker(&rig, "p0", PICKER_PREFILL, 1, 100);
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 2, 100);

    for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
        rig_submit(&rig, 500, 20);
        rig_finish(&rig, p, BATON__FINISH__FINISH_FAILED, errors[i]);
        rig_finish(&rig, d, BATON__FINISH__FINISH_FAILED, errors[i]);
        assert_int_equal(rig.router.workers[0].n_failed, 0);
        assert_int_equal(rig.router.workers[1].n_failed, 0);
    }
    assert_true(rig_ledgers_are_empty(&rig));
}

static void an_answer_is_never_longer_than_asked(void **state)
{
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);
    struct rig_client *client = rig_submit(&rig, 10, 4);

    rig_tokens(&rig, d, 0, 9);
    rig_tokens(&rig, d, 0, 9);
    assert_true(client->n_tokens <= 4);
    assert_true(rig_ledgers_are_empty(&rig));
}

static void an_end_that_is_none_moves_the_job(void **state)
{
    struct link *d0 = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);
    struct rig_client *client;

    rig_worker(&rig, "d1", PICKER_DECODE, 2, 100);
    client = rig_submit(&rig, 10, 4);
    rig_finish(&rig, d0, BATON__FINISH__FINISH_HANDED_OFF, 0);
    assert_false(client->has_ended);
    rig_cancel(client);
}

/* A worker of a later release may know ends that this router does not. */
static void an_unknown_end_is_an_ordinary_one(void **state)
{
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);
    struct rig_client *client = rig_submit(&rig, 10, 4);

    rig_tokens(&rig, d, 0, 2);
    rig_finish(&rig, d, (Baton__Finish)99, 0);
    assert_true(client->has_ended);
    assert_int_equal(client->end, WORK_END_STOP_TOKEN);
    assert_int_equal(client->n_tokens, 2);
    assert_true(rig_ledgers_are_empty(&rig));
}

static void absurd_serving_stats_are_cut(void **state)
{
    struct link *p = rig_worker(&rig, "p0", PICKER_PREFILL, 1, 100);
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 2, 100);
    struct rig_client *client = rig_submit(&rig, 500, 20);
    Baton__Answer answer = BATON__ANSWER__INIT;
    Baton__Serving serving = BATON__SERVING__INIT;
    uint32_t id = 'a';

    rig_lose(&rig, p);
    assert_true(rig_last(d)->may_proceed);
    answer.request = rig_last(d)->request;
    answer.ids = &id;
    answer.n_ids = 1;
    answer.serving = &serving;
    serving.reused = 1u << 30;
    serving.transport = (char *)"x\r\nset-cookie: y";
    rig_answer(&rig, d, &answer);
    assert_int_equal(client->n_accepted, 1);
    assert_true(client->cached_tokens <= 500);
    rig_finish(&rig, d, BATON__FINISH__FINISH_STOP, 0);
    assert_string_equal(client->serving.transport, "");
}

static void absurd_reports_are_cut(void **state)
{
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);
    Baton__LoadReport load = BATON__LOAD_REPORT__INIT;
    struct picker_worker row;

    load.prefill_tokens_per_s = (double)INFINITY;
    load.decode_step_s = (double)NAN;
    load.transfer_bytes_per_s = -1;
    load.waiting = load.running = UINT32_MAX;
    rig_beat(&rig, d, &load);
    picker_fleet_row(rig.router.fleet, 0, &row);
    assert_true(row.is_usable);
    assert_true(row.prefill_tokens_per_s == 0 && row.decode_step_s == 0 && row.transfer_bytes_per_s == 0);
    assert_int_equal(row.n_running, UINT32_MAX);
    assert_true(picker_itl_s(&row) > 1);
}

/* Each worker gets the same number of requests.  When one is lost, the others get its requests. */
static void many_workers_share_the_work(void **state)
{
    enum { N = 99 }; /* the rig's prompts differ up to there */
    static struct link *links[N];
    char node[16];

    for (uint32_t i = 0; i < N; i++) {
        snprintf(node, sizeof(node), "d%u", i);
        links[i] = rig_worker(&rig, node, PICKER_DECODE, i + 1, 100);
        assert_non_null(links[i]);
    }
    for (uint32_t i = 0; i < N; i++)
        assert_non_null(rig_submit(&rig, 40, 20)->handle);
    for (uint32_t i = 0; i < N; i++) {
        assert_non_null(rig_sent(links[i], 0));
        assert_null(rig_sent(links[i], 1));
    }
    rig_lose(&rig, links[N - 1]);
    assert_int_equal(rig.router.n_queued, 0);
    for (uint32_t i = 0; i < N; i++)
        rig_cancel(&rig.clients[i]);
    assert_true(rig_ledgers_are_empty(&rig));
}

static void hellos_are_looked_at(void **state)
{
    static const char *const bad[] = {"", "a b", "x\r\ny",
                                      "0123456789012345678901234567890123456789012345678901234567890123"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_null(rig_worker(&rig, bad[i], PICKER_DECODE, 1, 100));
        router_workers_close(&rig.router);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, open_rig, close_rig)
    static const struct CMUnitTest tests[] = {
        T(a_model_whose_workers_are_gone_is_away),
        T(names_are_not_unknown_before_the_fleet_is_back),
        T(names_are_not_known_before_the_first_model),
        T(a_model_that_does_not_come_makes_no_name_wait),
        T(gaps_and_foreign_ids_move_the_job),
        T(an_error_of_the_request_is_no_failure),
        T(an_answer_is_never_longer_than_asked),
        T(a_failed_prefill_counts_for_its_worker),
        T(a_refused_hand_off_is_no_failure),
        T(an_end_that_is_none_moves_the_job),
        T(an_unknown_end_is_an_ordinary_one),
        T(absurd_serving_stats_are_cut),
        T(absurd_reports_are_cut),
        T(many_workers_share_the_work),
        T(hellos_are_looked_at),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
