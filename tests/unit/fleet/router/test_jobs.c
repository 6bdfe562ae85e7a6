/* SPDX-License-Identifier: Apache-2.0 */
/* A job in the router: placed, answered and ended, for any events of clients and sound workers meanwhile. */
#include "tests/unit/check.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "rig_fixture.h"

/* ---- placement and the way of an answer ---- */

static void a_pair_answers(void **state)
{
    struct link *p = rig_worker(&rig, "p0", PICKER_PREFILL, 1, 100);
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 2, 100);
    struct rig_client *client = rig_submit(&rig, 500, 20);

    assert_int_equal(rig_last(p)->mode, BATON__SUBMIT_MODE__SUBMIT_PREFILL);
    assert_int_equal(rig_last(d)->mode, BATON__SUBMIT_MODE__SUBMIT_DECODE);
    assert_int_equal(rig_last(p)->request, rig_last(d)->request);
    assert_int_equal(rig_last(p)->seed, rig_last(d)->seed);
    rig_accept(&rig, p, 64);
    rig_tokens(&rig, p, 0, 1);
    rig_tokens(&rig, d, 0, 3); /* the first token again */
    rig_finish(&rig, p, BATON__FINISH__FINISH_HANDED_OFF, 0);
    rig_tokens(&rig, d, 3, 2);
    rig_finish(&rig, d, BATON__FINISH__FINISH_STOP, 0);
    assert_true(client->has_ended);
    assert_int_equal(client->end, WORK_END_STOP_TOKEN);
    assert_int_equal(client->n_accepted, 1);
    assert_int_equal(client->cached_tokens, 64);
    rig_assert_answer(client, 5);
    assert_true(rig_ledgers_are_empty(&rig));
}

/* The decode worker's whole answer may overtake the prefill worker's report.  Its tokens wait until the
 * client knows the reused tokens from that report, and its end waits for the serving stats. */
static void a_short_answer_waits_for_its_serving_stats(void **state)
{
    struct link *p = rig_worker(&rig, "p", PICKER_PREFILL, 1, 1000);
    struct link *d = rig_worker(&rig, "d", PICKER_DECODE, 1, 1000);

    for (int is_lost = 0; is_lost < 2; is_lost++) {
        struct rig_client *client = rig_submit(&rig, 200 + is_lost, 4);
        Baton__Serving serving = BATON__SERVING__INIT;
        Baton__Answer first = BATON__ANSWER__INIT;
        uint32_t id = 'a';

        rig_tokens(&rig, d, 0, 4);
        rig_finish(&rig, d, BATON__FINISH__FINISH_LENGTH, 0);
        assert_int_equal(client->n_accepted, 0);
        assert_int_equal(client->n_tokens, 0);
        assert_false(client->has_ended);
        serving.computed = 136;
        serving.reused = 64;
        first.request = rig_last(p)->request;
        first.n_ids = 1;
        first.ids = &id;
        first.serving = &serving;
        if (is_lost)
            rig_lose(&rig, p);
        else
            rig_answer(&rig, p, &first);
        assert_true(client->has_ended);
        assert_int_equal(client->n_tokens, 4);
        assert_int_equal(client->n_accepted, 1);
        assert_int_equal(client->cached_tokens, is_lost ? 0 : 64);
        assert_int_equal(client->serving.computed_tokens, is_lost ? 0 : 136);
    }
    assert_true(rig_ledgers_are_empty(&rig));
}

/* The prefill worker sends nothing, and is not lost either: decoded tokens are not held for long. */
static void a_silent_worker_does_not_delay_the_answer_for_long(void **state)
{
    rig_worker(&rig, "p", PICKER_PREFILL, 1, 1000);
    struct link *d = rig_worker(&rig, "d", PICKER_DECODE, 1, 1000);
    struct rig_client *client = rig_submit(&rig, 200, 40);

    rig_tokens(&rig, d, 0, 4);
    assert_int_equal(client->n_tokens, 0);
    clock_sleep_ns(600 * NS_PER_MS);
    router_stream_tick(&rig.router);
    rig_flush(&rig);
    assert_int_equal(client->n_accepted, 1);
    assert_int_equal(client->n_tokens, 4);
    rig_cancel(client);
    assert_true(rig_ledgers_are_empty(&rig));
}

/* Tokens wait for the prefill worker's report, and the decode worker is lost with only the final message
 * missing: the client gets the tokens before the end. */
static void held_tokens_come_before_the_end(void **state)
{
    struct link *d;
    struct rig_client *client;

    rig_worker(&rig, "p", PICKER_PREFILL, 1, 1000);
    d = rig_worker(&rig, "d", PICKER_DECODE, 1, 1000);
    client = rig_submit(&rig, 200, 4);
    rig_tokens(&rig, d, 0, 4);
    assert_int_equal(job_of(client->handle)->state, JOB_HOLDING);
    rig_lose(&rig, d);
    assert_int_equal(client->n_accepted, 1);
    assert_int_equal(client->n_tokens, 4);
    assert_true(client->has_ended);
    assert_true(list_is_empty(&rig.router.timed));
    assert_true(rig_ledgers_are_empty(&rig));
}

static void a_model_without_workers_delays_no_other_model(void **state)
{
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);
    struct rig_client *lonely = rig_submit_model(&rig, 1, 10, 5);
    struct rig_client *client = rig_submit(&rig, 10, 5);

    assert_int_equal(rig.router.n_queued, 1);
    assert_non_null(rig_last(d));
    rig_cancel(client);
    rig_cancel(lonely);
    assert_int_equal(rig.router.n_queued, 0);
}

static void a_request_that_all_workers_failed_delays_no_other(void **state)
{
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);
    struct rig_client *bad = rig_submit(&rig, 10, 5);

    rig_finish(&rig, d, BATON__FINISH__FINISH_FAILED, E_INTERNAL);
    assert_int_equal(rig.router.n_queued, 1);
    rig_submit(&rig, 10, 5);
    assert_non_null(rig_sent(d, 1));
    assert_int_equal(rig.router.n_queued, 1);
    rig_cancel(bad);
}

static void a_request_that_fits_no_worker_is_refused_at_once(void **state)
{
    struct rig_client *client;

    rig_worker(&rig, "d0", PICKER_DECODE, 1, 4);
    client = rig_submit(&rig, 128, 5);
    assert_true(client->has_failed);
    assert_int_equal(client->status, 400);
    assert_int_equal(rig.router.n_queued, 0);
    assert_false(rig_submit(&rig, 40, 5)->has_failed);
}

/* Others wait: it needs no turn.  The large worker leaves: it waits until that could have come back. */
static void a_request_that_fits_no_worker_does_not_wait(void **state)
{
    struct link *large = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);
    struct rig_client *client = rig_submit(&rig, 10, 5), *waiting, *late;

    while (job_of(client->handle)->state == JOB_PLACED)
        client = rig_submit(&rig, 10, 5);
    assert_true(rig.router.models[0].n_queued > 0);
    client = rig_submit(&rig, 100 * 32, 5);
    assert_true(client->has_failed);
    assert_int_equal(client->status, 400);

    rig.tenant = "other";
    waiting = rig_submit(&rig, 200, 5);
    assert_false(waiting->has_failed);
    rig_worker(&rig, "d1", PICKER_DECODE, 1, 4);
    rig.conf.link_return_ns = 3600 * NS_PER_S;
    rig_lose(&rig, large);
    rig_flush(&rig);
    assert_false(waiting->has_failed);
    late = rig_submit(&rig, 201, 5);
    assert_false(late->has_failed);
    large = rig_worker(&rig, "d0", PICKER_DECODE, 2, 100);
    rig_flush(&rig);
    assert_int_equal(job_of(waiting->handle)->state, JOB_PLACED);
    rig_cancel(late);

    rig.conf.link_return_ns = 0;
    rig_lose(&rig, large);
    rig_flush(&rig);
    assert_false(waiting->has_failed); /* it had a worker, which may return later */
    late = rig_submit(&rig, 202, 5);
    assert_true(late->has_failed);
    assert_int_equal(late->status, 400);
}

static void no_queue_means_no_waiting(void **state)
{
    rig.conf.queue_max = 0;
    assert_int_equal(rig_submit(&rig, 10, 5)->status, 529);
    rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);
    assert_false(rig_submit(&rig, 10, 5)->has_failed);
}

static void the_queue_ends_by_time(void **state)
{
    struct rig_client *a = rig_submit(&rig, 10, 5), *b = rig_submit(&rig, 10, 5);
    struct rig_client *c = rig_submit(&rig, 10, 5);

    rig.conf.queue_timeout_ns = 0;
    a->cancels_on_failure = b; /* the next client in the list leaves during the iteration */
    router_expire_queued(&rig.router);
    rig_flush(&rig);
    assert_int_equal(a->status, 529);
    assert_false(b->has_failed);
    assert_int_equal(c->status, 529);
    assert_int_equal(rig.router.n_queued, 0);
}

/* ---- workers that seem slow, and streams that have begun ---- */

static void report_step(struct link *link, double decode_step_s, uint32_t running)
{
    Baton__LoadReport load = BATON__LOAD_REPORT__INIT;

    load.blocks_free = load.blocks_total = 100;
    load.decode_step_s = decode_step_s;
    load.prefill_tokens_per_s = 1000;
    load.running = running;
    rig_beat(&rig, link, &load);
}

static void slow_steps_refuse_no_request(void **state)
{
    struct link *p = rig_worker(&rig, "p", PICKER_PREFILL, 1, 100);
    struct link *d = rig_worker(&rig, "d", PICKER_DECODE, 2, 100);

    rig.conf.itl_slo_ns = 50 * NS_PER_MS;
    report_step(p, 0.1926, 0);
    report_step(d, 0.1926, 0);
    assert_non_null(rig_submit(&rig, 500, 20)->handle);
    assert_int_equal(rig.router.n_queued, 0);
    assert_non_null(rig_last(d));
    rig_cancel(&rig.clients[0]);
}

/* The objective could be kept once other sequences end.  The request waits for that, but not longer than the
 * objective for the first token, and not without room in the queue. */
static void waiting_for_better_ends(void **state)
{
    struct link *d = rig_worker(&rig, "d", PICKER_DECODE, 2, 100);

    rig.conf.itl_slo_ns = 50 * NS_PER_MS;
    rig.conf.ttft_slo_ns = 50 * NS_PER_MS;
    report_step(d, 0.045, 4);
    rig_submit(&rig, 10, 20);
    assert_int_equal(rig.router.n_queued, 1);
    rig.conf.queue_max = 1;
    clock_sleep_ns(60 * NS_PER_MS);
    router_place_queued(&rig.router);
    rig_flush(&rig);
    assert_int_equal(rig.router.n_queued, 0);
    assert_non_null(rig_last(d));
    rig.conf.queue_max = 0;
    assert_false(rig_submit(&rig, 10, 20)->has_failed);
    rig_cancel(&rig.clients[0]);
    rig_cancel(&rig.clients[1]);
}

static void a_begun_answer_is_not_bound_by_the_queue(void **state)
{
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100), *other;
    struct rig_client *client = rig_submit(&rig, 10, 20), *fresh;

    rig_tokens(&rig, d, 0, 3);
    rig_lose(&rig, d);
    fresh = rig_submit(&rig, 10, 20);
    assert_int_equal(rig.router.n_queued, 2);
    rig.conf.queue_timeout_ns = 0;
    router_expire_queued(&rig.router);
    rig_flush(&rig);
    assert_int_equal(fresh->status, 503); /* all its workers are away */
    assert_false(client->has_failed);
    other = rig_worker(&rig, "d1", PICKER_DECODE, 2, 100);
    assert_int_equal(rig_last(other)->n_tokens, 13);
    rig_tokens(&rig, other, 3, 17);
    rig_finish(&rig, other, BATON__FINISH__FINISH_LENGTH, 0);
    assert_true(client->has_ended);
    rig_assert_answer(client, 20);
}

static void a_forsaken_answer_ends(void **state)
{
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);
    struct rig_client *client = rig_submit(&rig, 10, 20);

    rig.conf.queue_resume_ns = 20 * NS_PER_MS;
    rig_tokens(&rig, d, 0, 3);
    rig_lose(&rig, d);
    router_expire_queued(&rig.router);
    rig_flush(&rig);
    assert_false(client->has_failed);
    clock_sleep_ns(30 * NS_PER_MS);
    router_expire_queued(&rig.router);
    rig_flush(&rig);
    assert_int_equal(client->status, 529);
    assert_non_null(strstr(client->message, "go on with this answer"));
    assert_true(rig_ledgers_are_empty(&rig));
}

/* Two faults at once: every worker that could take the job has failed it once.
 * A second later that is forgotten. */
static void a_worker_that_failed_once_is_tried_again(void **state)
{
    struct link *d = rig_worker(&rig, "d0", PICKER_DECODE, 1, 100);
    struct rig_client *client = rig_submit(&rig, 10, 20);

    rig_tokens(&rig, d, 0, 3);
    rig_finish(&rig, d, BATON__FINISH__FINISH_FAILED, E_INTERNAL);
    router_place_queued(&rig.router);
    rig_flush(&rig);
    assert_int_equal(rig.router.n_queued, 1);
    clock_sleep_ns(1100 * NS_PER_MS);
    router_place_queued(&rig.router);
    router_place_queued(&rig.router);
    rig_flush(&rig);
    assert_int_equal(rig.router.n_queued, 0);
    assert_int_equal(rig_last(d)->n_tokens, 13);
    rig_cancel(client);
    assert_true(rig_ledgers_are_empty(&rig));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, open_rig, close_rig)
    static const struct CMUnitTest tests[] = {
        T(a_pair_answers),
        T(a_short_answer_waits_for_its_serving_stats),
        T(a_silent_worker_does_not_delay_the_answer_for_long),
        T(held_tokens_come_before_the_end),
        T(a_model_without_workers_delays_no_other_model),
        T(a_request_that_all_workers_failed_delays_no_other),
        T(a_request_that_fits_no_worker_is_refused_at_once),
        T(a_request_that_fits_no_worker_does_not_wait),
        T(no_queue_means_no_waiting),
        T(the_queue_ends_by_time),
        T(slow_steps_refuse_no_request),
        T(waiting_for_better_ends),
        T(a_begun_answer_is_not_bound_by_the_queue),
        T(a_forsaken_answer_ends),
        T(a_worker_that_failed_once_is_tried_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
