/* SPDX-License-Identifier: Apache-2.0 */
/* Work over many jobs in slices: here one job in each turn.  Between two of them jobs are cancelled, new ones come, and
 * workers return. */
#include "tests/unit/check.h"

#include "base/clock.h"
#include "base/err.h"
#include "rig.h"

#define N     8 /* seats of a worker */
#define TURNS 1000

static struct rig rig;
static struct link *quiet; /* counts what is sent to it */
static uint32_t n_cancels;

static void on_send(struct link *link, enum frame_type type, const ProtobufCMessage *message)
{
    n_cancels += link == quiet && type == FRAME_CANCEL;
}

static int open_rig(void **state)
{
    int rc = rig_open(&rig);

    rig.conf.queue_max = 100;
    quiet = NULL;
    n_cancels = 0;
    rig_on_send = on_send;
    return rc;
}

static int close_rig(void **state)
{
    rig_on_send = NULL;
    rig_close(&rig);
    return 0;
}

static uint32_t slices_n_sent(struct link *link)
{
    uint32_t n = 0;

    while (link != NULL && rig_sent(link, n) != NULL)
        n++;
    return n;
}

static void begin_streams(struct link *link)
{
    for (uint32_t i = 0; i < N; i++) {
        assert_false(rig_submit(&rig, 10, 50)->has_failed);
        rig_accept(&rig, link, 0);
        rig_tokens(&rig, link, 0, 1);
    }
}

static uint64_t number_of(uint32_t client)
{
    return job_of(rig.clients[client].handle)->number;
}

static bool slices_are_due(void)
{
    return (rig.router.slices.asked | rig.router.slices.begun) != 0;
}

/* Runs turns until nothing is left.  Each places at most one job.  b: NULL if there is one worker. */
static void run_turns(struct link *a, struct link *b)
{
    for (unsigned turn = 0; slices_are_due(); turn++) {
        uint32_t before = slices_n_sent(a) + slices_n_sent(b);

        assert_true(turn < TURNS);
        router_slices_go(&rig.router);
        rig_flush(&rig);
        assert_true(slices_n_sent(a) + slices_n_sent(b) <= before + 1);
    }
}

static void end_all(void)
{
    rig.router.slices.most_ns = 0;
    for (uint32_t i = 0; i < rig.n_clients; i++)
        if (rig.clients[i].handle != NULL)
            rig_cancel(&rig.clients[i]);
    assert_true(list_is_empty(&rig.router.jobs));
    assert_true(rig_ledgers_are_empty(&rig));
}

static void cancel(uint32_t client)
{
    rig_cancel(&rig.clients[client]);
    rig.clients[client].handle = NULL;
}

static void a_lost_worker_is_left_in_slices(void **state)
{
    struct link *d0 = rig_worker(&rig, "d0", PICKER_DECODE, 1, 1000), *d1;
    uint64_t least = UINT64_MAX;

    begin_streams(d0);
    d1 = rig_worker(&rig, "d1", PICKER_DECODE, 2, 1000);
    rig.router.slices.most_ns = 1;
    rig_lose(&rig, d0);
    assert_int_equal(slices_n_sent(d1), 1);
    cancel(1); /* the next one of the sweep */
    cancel(5);
    cancel(0); /* it has moved */
    rig_submit(&rig, 10, 50);
    assert_int_equal(slices_n_sent(d1), 1);
    assert_int_equal(rig.router.n_queued, 1); /* it comes after the streams */
    quiet = d0 = rig_worker(&rig, "d0", PICKER_DECODE, 3, 1000);
    cancel(6); /* of the worker's earlier life */
    run_turns(d0, d1);
    assert_int_equal(n_cancels, 0);
    assert_int_equal(slices_n_sent(d0) + slices_n_sent(d1), 1 + N - 4 + 1);
    for (uint32_t i = 2; i < N; i++) {
        if (rig.clients[i].handle == NULL)
            continue;
        assert_false(rig.clients[i].has_failed);
        assert_false(
            router_part_is_lost(job_of(rig.clients[i].handle), &job_of(rig.clients[i].handle)->decode));
        assert_true(number_of(i) < number_of(N));
        assert_true(least == UINT64_MAX || number_of(i) > least); /* the order of their arrival */
        least = number_of(i);
    }
    end_all();
}

/* A worker is lost again before the sweep has ended. */
static void a_loss_during_the_sweep_is_seen(void **state)
{
    struct link *d0 = rig_worker(&rig, "d0", PICKER_DECODE, 1, 1000), *d1, *d2;

    begin_streams(d0);
    d1 = rig_worker(&rig, "d1", PICKER_DECODE, 2, 1000);
    rig.router.slices.most_ns = 1;
    rig_lose(&rig, d0);
    for (unsigned turn = 0; turn < N / 2; turn++)
        router_slices_go(&rig.router);
    assert_in_range(slices_n_sent(d1), N / 2, N - 1);
    rig_lose(&rig, d1);
    d2 = rig_worker(&rig, "d2", PICKER_DECODE, 3, 1000);
    run_turns(d2, NULL);
    assert_int_equal(slices_n_sent(d2), N);
    end_all();
}

static void waiting_streams_are_placed_in_slices(void **state)
{
    struct link *d0 = rig_worker(&rig, "d0", PICKER_DECODE, 1, 1000);

    begin_streams(d0);
    rig_lose(&rig, d0);
    assert_int_equal(rig.router.n_queued, N);
    rig.router.slices.most_ns = 1;
    d0 = rig_worker(&rig, "d0", PICKER_DECODE, 2, 1000);
    for (unsigned turn = 0; slices_n_sent(d0) < 3; turn++) {
        assert_true(turn < TURNS);
        router_slices_go(&rig.router);
    }
    cancel(3); /* the next one */
    cancel(6);
    run_turns(d0, NULL);
    assert_int_equal(slices_n_sent(d0), N - 2);
    assert_int_equal(rig.router.n_queued, 0);
    for (uint32_t i = 1; i < N; i++)
        if (rig.clients[i].handle != NULL && rig.clients[i - 1].handle != NULL)
            assert_true(number_of(i) > number_of(i - 1));
    end_all();
}

static void waits_end_in_slices(void **state)
{
    uint32_t n_failed = 0;

    for (uint32_t i = 0; i < N; i++)
        assert_false(rig_submit(&rig, 10, 50)->has_failed);
    rig.conf.queue_timeout_ns = 0;
    rig.router.slices.most_ns = 1;
    router_slices_go(&rig.router);
    router_expire_queued(&rig.router);
    rig_flush(&rig);
    for (uint32_t i = 0; i < N; i++)
        n_failed += rig.clients[i].has_failed;
    assert_in_range(n_failed, 0, 1);
    cancel(1);
    for (unsigned turn = 0; slices_are_due(); turn++) {
        assert_true(turn < TURNS);
        router_slices_go(&rig.router);
        rig_flush(&rig);
    }
    for (uint32_t i = 0; i < N; i++)
        assert_true(rig.clients[i].has_failed == (i != 1));
    assert_int_equal(rig.router.n_queued, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_lost_worker_is_left_in_slices, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(a_loss_during_the_sweep_is_seen, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(waiting_streams_are_placed_in_slices, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(waits_end_in_slices, open_rig, close_rig),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
