/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of an hour and more, in virtual time: its place in the ledger of its worker lasts until it ends, over
 * thousands of reports, a lost link, and a router that goes on with it in place of the first one. */
#include "tests/unit/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "compute/order/submit.h"
#include "fleet/router/admission_priv.h"
#include "fleet/router/stream_priv.h"
#include "proto/token_list.h"
#include "rig.h"

#define STREAM_S      4500 /* an hour and a quarter */
#define TOKEN_EVERY_S 20
#define OTHER_EVERY_S 10

static uint64_t now_ns = NS_PER_S;

uint64_t __wrap_clock_now_ns(void);

uint64_t __wrap_clock_now_ns(void)
{
    return now_ns;
}

static struct rig rig;
static struct link *workers[2];

static int open_rig(void **state)
{
    now_ns = NS_PER_S;
    if (rig_open(&rig) < 0)
        return -1;
    rig.capabilities = CAPABILITY_STATED | CAPABILITY_RESUMES;
    workers[0] = rig_worker(&rig, "d0", PICKER_DECODE, 1, 1000);
    workers[1] = rig_worker(&rig, "d1", PICKER_DECODE, 2, 1000);
    return workers[0] == NULL || workers[1] == NULL;
}

static int close_rig(void **state)
{
    rig_close(&rig);
    return 0;
}

static uint32_t n_booked(uint32_t slot)
{
    return picker_fleet_ledger(rig.router.fleet, slot)->n_seqs;
}

/* Sends reports of a worker that always claims to be idle.  The router must count the stream all the same. */
static void report_idle(struct link *link)
{
    Baton__LoadReport load = BATON__LOAD_REPORT__INIT;

    load.blocks_free = load.blocks_total = 1000;
    load.age_us = 1;
    rig_beat(&rig, link, &load);
}

/* One second passes: reports, and ten ticks of the router. */
static void pass_second(void)
{
    now_ns += NS_PER_S;
    for (unsigned i = 0; i < 2; i++)
        if (workers[i] != NULL)
            report_idle(workers[i]);
    router_place_queued(&rig.router);
    router_expire_queued(&rig.router);
    router_pause_tick(&rig.router);
    router_stream_tick(&rig.router);
    rig_flush(&rig);
}

/* A short request comes and goes at the worker without the long stream. */
static void serve_another(uint32_t slot_of_stream)
{
    struct link *idle = workers[1 - slot_of_stream];
    uint32_t n_before = 0;
    struct rig_client *client;

    while (rig_sent(idle, n_before) != NULL)
        n_before++;
    client = rig_submit(&rig, 10, 2);
    assert_non_null(
        rig_sent(idle, n_before)); /* not on the stream's worker, although the reports show it idle */
    assert_int_equal(n_booked(1 - slot_of_stream), 1);
    rig_tokens(&rig, idle, 0, 2);
    rig_finish(&rig, idle, BATON__FINISH__FINISH_LENGTH, 0);
    assert_true(client->has_ended);
    assert_int_equal(n_booked(1 - slot_of_stream), 0);
}

/* Where the only booking is; fails if there is not exactly one. */
static uint32_t slot_of_booking(void)
{
    assert_int_equal(n_booked(0) + n_booked(1), 1);
    return n_booked(0) == 1 ? 0 : 1;
}

static void a_stream_stays_booked_until_it_ends(void **state)
{
    uint32_t n_tokens = STREAM_S / TOKEN_EVERY_S, n = 0, slot, n_others = 0;
    struct rig_client *client = rig_submit(&rig, 100, n_tokens);

    slot = slot_of_booking();
    rig_accept(&rig, workers[slot], 0);
    for (uint32_t second = 1; second <= STREAM_S; second++) {
        pass_second();
        assert_int_equal(slot_of_booking(), slot);
        if (second % OTHER_EVERY_S == 5 && n_others++ < 400)
            serve_another(slot);
        if (second % TOKEN_EVERY_S == 0)
            rig_tokens(&rig, workers[slot], n++, 1);
        if (second == STREAM_S / 3) { /* its worker is lost: the stream and its booking move */
            rig_lose(&rig, workers[slot]);
            workers[slot] = NULL;
            assert_int_equal(n_booked(slot), 0);
            slot = 1 - slot;
            assert_int_equal(slot_of_booking(), slot);
            rig_accept(&rig, workers[slot], 0);
            workers[1 - slot] = rig_worker(&rig, slot == 1 ? "d0" : "d1", PICKER_DECODE, 10 + second, 1000);
        }
    }
    assert_int_equal(client->n_tokens, n_tokens);
    assert_false(client->has_ended);
    rig_finish(&rig, workers[slot], BATON__FINISH__FINISH_LENGTH, 0);
    assert_true(client->has_ended);
    assert_true(rig_ledgers_are_empty(&rig));
}

/* Its link is lost again and again, and the worker comes back within a second: each time the stream moves, and is counted once. */
static void a_link_that_comes_back_leaves_one_booking(void **state)
{
    struct rig_client *client = rig_submit(&rig, 100, 200);
    uint32_t slot = slot_of_booking();

    rig_accept(&rig, workers[slot], 0);
    for (uint32_t n = 0; n < 100; n++) {
        pass_second();
        rig_tokens(&rig, workers[slot], n, 1);
        if (n % 10 != 9)
            continue;
        rig_lose(&rig, workers[slot]);
        workers[slot] = rig_worker(&rig, slot == 0 ? "d0" : "d1", PICKER_DECODE, slot + 1, 1000);
        assert_int_equal(slot_of_booking(), 1 - slot);
        slot = 1 - slot;
        rig_accept(&rig, workers[slot], 0);
    }
    assert_int_equal(client->n_tokens, 100);
    assert_false(client->has_failed); /* more losses than a request without progress may have */
    rig_cancel(client);
    assert_true(rig_ledgers_are_empty(&rig));
}

static const struct gen_events no_events;

static void order_of_long_stream(struct work_order *out)
{
    *out = (struct work_order){.n_tokens = 100,
                               .n_prompt = 100,
                               .tokens = calloc(100, sizeof(token_id)),
                               .work = {.max_new_tokens = 2000, .resume = {.is_kept = true}}};
    strcpy(out->work.request_id, "msg_1");
}

/* This router is new: the stream began at one that is gone, and its worker hands it over. */
static void a_resumed_stream_is_booked_like_any_other(void **state)
{
    struct router *router = &rig.router;
    struct gen_handle *handle;
    struct gen_failure failure;
    struct work_order order, worker_order;
    struct work_submit packed;
    struct job *job;
    Baton__Resumed resumed = BATON__RESUMED__INIT;

    order_of_long_stream(&order);
    order_of_long_stream(&worker_order);
    assert_int_equal(
        router_resume(router, &(struct gen_start){&router->models[0].gen, &order, &no_events, NULL, NULL},
                      &handle, &failure),
        0);
    job = job_of(handle);
    assert_int_equal(n_booked(0) + n_booked(1), 0);
    assert_int_equal(work_submit_pack(&worker_order, TOKEN_LIST_MAX_BYTES, &packed), 0);
    resumed.request = job->number;
    resumed.is_here = true;
    resumed.submit = &packed.submit;
    router_resume_answer(router, 0, &resumed);
    for (uint32_t second = 0; second < STREAM_S; second++) {
        pass_second();
        assert_int_equal(slot_of_booking(), 0);
        if (second % 30 == 0)
            serve_another(0);
    }
    router_backend(router).ops->cancel(router, handle, NULL);
    assert_true(rig_ledgers_are_empty(&rig));
    work_submit_fini(&packed);
    work_order_fini(&worker_order);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, open_rig, close_rig)
    static const struct CMUnitTest tests[] = {T(a_stream_stays_booked_until_it_ends),
                                              T(a_link_that_comes_back_leaves_one_booking),
                                              T(a_resumed_stream_is_booked_like_any_other)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
