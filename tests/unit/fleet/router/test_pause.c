/* SPDX-License-Identifier: Apache-2.0 */
/* Streams that are paused for a higher class: which streams pause, when they continue, and that no token is lost or repeated. */
#include "fleet/router/admission_priv.h"
#include "tests/unit/check.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "rig.h"

static struct rig rig;
static struct link *d;

static void define(const char *text)
{
    struct fault fault = {0};

    assert_int_equal(picker_classes_add(&rig.router.classes, bytes_of(text, strlen(text)), &fault), 0);
}

static void report(struct link *link, uint32_t running, double step_s)
{
    Baton__LoadReport load = BATON__LOAD_REPORT__INIT;

    load.blocks_free = load.blocks_total = 10000;
    load.prefill_tokens_per_s = 100000;
    load.decode_step_s = load.decode_now_s = step_s;
    load.decode_row_s = step_s / 10;
    load.running = load.decode_seqs = running;
    rig_beat(&rig, link, &load);
}

static int open_rig(void **state)
{
    int rc = rig_open(&rig);

    rig.conf.refuse = ROUTER_REFUSE_PREDICTED;
    rig.conf.ttft_slo_ns = 500 * NS_PER_MS;
    rig.conf.itl_slo_ns = 50 * NS_PER_MS;
    define("high priority=10");
    define("low may-be-paused=1min");
    router_admission_declare(&rig.router);
    router_pause_declare(&rig.router);
    rig.conf.classes.n = 2;
    for (uint32_t i = 0; i < 3; i++) {
        rig.router.classes.all[i].ttft_slo_ns = 500 * NS_PER_MS;
        rig.router.classes.all[i].itl_slo_ns = 50 * NS_PER_MS;
    }
    d = rig_worker(&rig, "d", PICKER_DECODE, 1, 10000);
    report(d, 0, 0.001);
    return rc;
}

static int close_rig(void **state)
{
    rig.conf.classes.n = 0;
    rig_close(&rig);
    return 0;
}

static struct rig_client *ask(const char *class, uint32_t n_tokens, uint32_t max_new_tokens)
{
    rig.class_allowed = class;
    return rig_submit(&rig, n_tokens, max_new_tokens);
}

static enum job_state state_of(const struct rig_client *client)
{
    return job_of(client->handle)->state;
}

/* Streams of the low class take all seats of the worker. */
static void fill(uint32_t n_seats, uint32_t max_new_tokens)
{
    for (uint32_t i = 0; i < n_seats; i++) {
        ask("low", 100 + i, max_new_tokens);
        rig_tokens(&rig, d, 0, 3);
    }
    report(d, n_seats, 0.001);
}

static uint32_t n_sent(void)
{
    uint32_t n = 0;

    while (rig_sent(d, n) != NULL)
        n++;
    return n;
}

static uint32_t seats(void)
{
    return rig.router.workers[0].max_seqs;
}

static void a_stream_gives_its_seat_and_goes_on(void **state)
{
    uint32_t n = seats();
    struct rig_client *low = NULL, *high;
    struct rig_submit *again;

    fill(n, 50);
    high = ask("high", 500, 5);
    assert_false(high->has_failed);
    assert_int_equal(rig_last(d)->n_tokens, 500);
    for (uint32_t i = 0; i < n; i++)
        low = state_of(&rig.clients[i]) == JOB_PAUSED ? &rig.clients[i] : low;
    assert_ptr_equal(low, &rig.clients[n - 1]); /* the youngest */
    assert_true(rig_sent(d, n - 1)->is_over);   /* its worker got the CANCEL */
    assert_int_equal(rig.router.pauses.n_paused, 1);
    assert_true(metric_value(rig.router.pauses.m_begun[2]) == 1);
    assert_false(low->has_failed || low->has_ended);
    assert_int_equal(low->n_tokens, 3);
    rig_tokens(&rig, d, 0, 5);
    rig_finish(&rig, d, BATON__FINISH__FINISH_LENGTH, 0);
    assert_true(high->has_ended);
    again = rig_last(d);
    assert_int_equal(again->n_tokens, 100 + n - 1 + 3); /* with the tokens answered so far */
    assert_int_equal(again->max_new_tokens, 47);
    assert_int_equal(rig.router.pauses.n_paused, 0);
    rig_tokens(&rig, d, 3, 4);
    assert_int_equal(low->n_tokens, 7);
    assert_int_equal(job_of(low->handle)->sum.n_preempted, 1);
    assert_int_equal(job_of(low->handle)->sum.n_redispatched, 0);
}

static void equal_and_protected_streams_are_not_paused(void **state)
{
    uint32_t n = seats();

    for (uint32_t i = 0; i < n; i++) {
        ask(i % 2 ? "high" : NULL, 100, 50); /* default has no may-be-paused */
        rig_tokens(&rig, d, 0, 3);
    }
    report(d, n, 0.001);
    ask("high", 500, 5);
    assert_int_equal(n_sent(), n);
    assert_int_equal(rig.router.pauses.n_paused, 0);
}

static void a_low_request_pauses_nothing(void **state)
{
    uint32_t n = seats();

    fill(n, 50);
    ask("low", 500, 5);
    ask(NULL, 500, 5);
    assert_int_equal(n_sent(), n);
    assert_int_equal(rig.router.pauses.n_paused, 0);
}

/* It comes from the engine again before it may lose its seat again. */
static void a_stream_progresses_between_pauses(void **state)
{
    uint32_t n = seats();
    struct rig_client *low = &rig.clients[n - 1];

    fill(n, 200);
    ask("high", 500, 5);
    assert_int_equal(state_of(low), JOB_PAUSED);
    rig_tokens(&rig, d, 0, 5);
    rig_finish(&rig, d, BATON__FINISH__FINISH_LENGTH, 0);
    assert_int_equal(state_of(low), JOB_ANSWERING);
    rig_tokens(&rig, d, 3, 10);
    ask("high", 501, 5);
    assert_int_equal(state_of(low), JOB_ANSWERING);
    assert_int_equal(state_of(&rig.clients[n - 2]), JOB_PAUSED); /* the next youngest */
}

static void paused_for_long_it_goes_on_in_any_case(void **state)
{
    uint32_t n = seats();
    struct rig_client *low = &rig.clients[n - 1];

    fill(n, 200);
    ask("high", 500, 50);
    assert_int_equal(state_of(low), JOB_PAUSED);
    router_pause_tick(&rig.router);
    assert_int_equal(state_of(low), JOB_PAUSED);
    job_of(low->handle)->paused_ns -= 61 * NS_PER_S;
    router_pause_tick(&rig.router);
    router_place_queued(&rig.router);
    assert_int_equal(state_of(low), JOB_ANSWERING);
    assert_int_equal(rig_last(d)->n_tokens, 100 + n - 1 + 3);
    rig_tokens(&rig, d, 3, 60);
    ask("high", 502, 50); /* it has been paused for long enough */
    assert_int_equal(state_of(low), JOB_ANSWERING);
}

static void a_paused_stream_may_be_cancelled(void **state)
{
    uint32_t n = seats();

    fill(n, 200);
    ask("high", 500, 5);
    assert_int_equal(state_of(&rig.clients[n - 1]), JOB_PAUSED);
    rig_cancel(&rig.clients[n - 1]);
    assert_int_equal(rig.router.pauses.n_paused, 0);
    rig_tokens(&rig, d, 0, 5);
    rig_finish(&rig, d, BATON__FINISH__FINISH_LENGTH, 0);
    assert_int_equal(n_sent(), n + 1);
}

static void without_workers_it_waits_as_a_lost_one(void **state)
{
    uint32_t n = seats();
    struct rig_client *low = &rig.clients[n - 1];

    fill(n, 200);
    ask("high", 500, 5);
    rig_lose(&rig, d);
    router_pause_tick(&rig.router);
    assert_true(job_is_in(job_of(low->handle), JOB_BIT(REQUEUED) | JOB_BIT(FORSAKEN)));
    assert_false(low->has_failed);
    d = rig_worker(&rig, "d", PICKER_DECODE, 7, 10000);
    report(d, 0, 0.001);
    router_place_queued(&rig.router);
    assert_int_equal(state_of(low), JOB_ANSWERING);
}

/* Low streams keep the time between tokens of the high ones that run, or they would come back at once. */
static void it_does_not_come_back_beside_a_stricter_class(void **state)
{
    rig.conf.local_prefill_tokens = 1000;
    rig.router.classes.all[2].itl_slo_ns = 10 * NS_PER_S;
    rig.router.classes.all[1].itl_slo_ns = 20 * NS_PER_MS;
    fill(4, 200);
    report(d, 4, 0.021); /* with one less it is 18.9 ms */
    ask("high", 500, 50);
    assert_int_equal(rig.router.pauses.n_paused, 1);
    router_place_queued(&rig.router);
    assert_int_equal(rig.router.pauses.n_paused, 1);
    rig_tokens(&rig, d, 0, 5);
    rig_finish(&rig, d, BATON__FINISH__FINISH_STOP, 0);
    assert_int_equal(rig.router.pauses.n_paused, 0);
}

static uint32_t n_paused_of(uint32_t n)
{
    uint32_t n_paused = 0;

    for (uint32_t i = 0; i < n; i++)
        n_paused += state_of(&rig.clients[i]) == JOB_PAUSED;
    return n_paused;
}

/* Ten requests in one turn of the loop may not try hundreds of placements: the sixth waits for the next budget, and is
 * not refused although its prediction is bad. */
static void one_turn_pauses_a_few_streams(void **state)
{
    enum { PER_BUDGET = 5, MORE = 2 };
    struct rig_client *last = NULL;
    uint32_t n = seats();

    fill(n, 200);
    rig.router.pauses.budget.since_ns =
        clock_now_ns() + 3600 * NS_PER_S; /* it does not end while the test runs */
    for (uint32_t i = 0; i < PER_BUDGET + MORE; i++) {
        last = ask("high", 500 + i, 5);
        assert_false(last->has_failed);
    }
    assert_int_equal(n_paused_of(n), PER_BUDGET);
    assert_int_equal(state_of(last), JOB_QUEUED);
    rig.router.pauses.models[0].failed_ns = rig.router.pauses.budget.since_ns = 0;
    router_place_queued(&rig.router);
    assert_int_equal(n_paused_of(n), PER_BUDGET + MORE);
    assert_int_equal(state_of(last), JOB_PLACED);
}

/* The worker came back too small for the stream: it waits as a lost one, not as long as it may be paused. */
static void a_stream_that_fits_no_worker_waits_as_lost(void **state)
{
    uint32_t n = seats();
    struct rig_client *low = &rig.clients[n - 1];

    fill(n, 200);
    ask("high", 500, 5);
    assert_int_equal(state_of(low), JOB_PAUSED);
    rig_lose(&rig, d);
    d = rig_worker(&rig, "d", PICKER_DECODE, 7, 2); /* blocks */
    router_place_queued(&rig.router);
    assert_true(job_is_in(job_of(low->handle), JOB_BIT(REQUEUED) | JOB_BIT(FORSAKEN)));
    assert_int_equal(rig.router.pauses.n_paused, 0);
    assert_false(low->has_failed);
}

/* Another model has other workers: its streams hold no placement to their objectives, and those that are paused let
 * requests of this one pass. */
static void other_models_hold_nothing_back(void **state)
{
    struct router_model *other = &rig.router.models[1];
    struct rig_client *low;

    rig.router.classes.all[2].itl_slo_ns = 10 * NS_PER_S;
    rig.router.classes.all[1].itl_slo_ns = 20 * NS_PER_MS;
    ask("high", 100, 50);
    low = ask("low", 100, 50);
    assert_int_equal(router_pause_itl_ns(job_of(low->handle)), 20 * NS_PER_MS);
    low = rig_submit_model(&rig, 1, 100, 50);
    assert_int_equal(router_pause_itl_ns(job_of(low->handle)), 10 * NS_PER_S);
    rig_cancel(low);

    fill(seats() - 2, 50);
    ask("high", 500, 5);
    assert_int_equal(rig.router.pauses.n_paused, 1);
    rig.class_allowed = "low";
    low = rig_submit_model(&rig, 1, 101, 50);
    assert_false(router_pause_is_first(job_of(low->handle)));
    for (uint32_t at = 0; at < rig.router.classes.n; at++)
        assert_int_equal(other->n_seated[at] + other->n_paused[at], 0);
}

/* All seats of a model have streams of the high class.  Its request has nothing to pause, though another model has: it takes
 * nothing from the budget of attempts, and bars none of the other model's. */
static void a_model_without_lower_streams_tries_no_pause(void **state)
{
    struct router_model *other = &rig.router.models[1];
    struct rig_client *low;
    struct link *b;

    rig.fingerprint = other->gen.fingerprint;
    b = rig_worker(&rig, "b", PICKER_DECODE, 1, 10000);
    report(b, 0, 0.001);
    rig.class_allowed = "low";
    low = rig_submit_model(&rig, 1, 100, 50);
    rig_tokens(&rig, b, 0, 3);
    assert_int_equal(state_of(low), JOB_ANSWERING);
    for (uint32_t i = 0; i < seats(); i++) {
        ask("high", 100 + i, 50);
        rig_tokens(&rig, d, 0, 3);
    }
    report(d, seats(), 0.001);
    ask("high", 500, 5);
    router_place_queued(&rig.router);
    assert_int_equal(rig.router.pauses.n_paused, 0);
    assert_int_equal(rig.router.pauses.budget.n_tried, 0);
    assert_int_equal(rig.router.pauses.models[0].failed_ns, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_stream_gives_its_seat_and_goes_on, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(equal_and_protected_streams_are_not_paused, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(a_low_request_pauses_nothing, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(a_stream_progresses_between_pauses, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(paused_for_long_it_goes_on_in_any_case, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(a_paused_stream_may_be_cancelled, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(without_workers_it_waits_as_a_lost_one, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(it_does_not_come_back_beside_a_stricter_class, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(other_models_hold_nothing_back, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(a_model_without_lower_streams_tries_no_pause, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(one_turn_pauses_a_few_streams, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(a_stream_that_fits_no_worker_waits_as_lost, open_rig, close_rig),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
