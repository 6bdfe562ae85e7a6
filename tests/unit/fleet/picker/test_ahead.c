/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that go ahead to workers which cannot begin them yet, and margins and service that routers tell each other. */
#include "tests/unit/check.h"

#include "fleet/picker/admit.h"
#include "fleet/picker/ahead.h"
#include "fleet/picker/served.h"
#include "fleet/picker/turn.h"

enum { PREFILL, DECODE };

static struct picker_fleet *fleet;
static struct picker_ahead ahead;
static struct picker_lines lines;
static uint32_t n_own;

static int setup(void **state)
{
    struct picker_worker worker = {.is_usable = true,
                                   .role = PICKER_PREFILL,
                                   .layout = 7,
                                   .block_tokens = 32,
                                   .blocks_free = 1000,
                                   .blocks_total = 1000,
                                   .n_running = 10,
                                   .prefill_tokens_per_s = 1000,
                                   .decode_step_s = 0.02};

    ahead = (struct picker_ahead){0};
    lines = (struct picker_lines){0};
    n_own = 0;
    assert_int_equal(picker_fleet_new(0, &fleet), 0);
    assert_int_equal(picker_fleet_set(fleet, PREFILL, &worker), 0);
    worker.role = PICKER_DECODE;
    worker.max_seqs = 16;
    assert_int_equal(picker_fleet_set(fleet, DECODE, &worker), 0);
    return 0;
}

static int teardown(void **state)
{
    picker_fleet_free(fleet);
    return 0;
}

/* Prompts of 100 tokens take 0.1 s, and the workers' queue 0.6 s. */
static const struct picker_choice pair = {
    .prefill = PREFILL, .decode = DECODE, .ttft_s = 0.7, .alone_s = 0.1, .uncached_tokens = 100};
static const struct picker_choice local = {
    .prefill = PICKER_NONE, .decode = DECODE, .ttft_s = 0.7, .alone_s = 0.1, .uncached_tokens = 100};

static struct picker_ahead_turn turn(uint32_t n_routers)
{
    return (struct picker_ahead_turn){.fleet = fleet,
                                      .lines = &lines,
                                      .choice = &pair,
                                      .ahead = ahead,
                                      .n_own = n_own,
                                      .ttft_slo_s = 1,
                                      .n_routers = n_routers,
                                      .is_refused_early = true};
}

static void enter(uint32_t *tenant, uint32_t reads)
{
    const struct picker_ahead_entry entry = {
        .decode = DECODE, .reads = reads, .max_seqs = 16, .n_own = tenant};

    picker_ahead_enter(&ahead, &lines, &entry);
}

static void leave(uint32_t *tenant, uint32_t reads)
{
    const struct picker_ahead_entry entry = {
        .decode = DECODE, .reads = reads, .max_seqs = 16, .n_own = tenant};

    picker_ahead_leave(&ahead, &lines, &entry);
}

static bool goes(struct picker_ahead_turn it)
{
    return picker_ahead_goes(&it);
}

static void lines_are_counted(void **state)
{
    uint32_t other = 0;

    enter(&n_own, PREFILL);
    enter(&n_own, DECODE);
    assert_false(picker_slots_has(&lines.full, DECODE));
    enter(&other, PREFILL); /* one and two of 16 seats */
    assert_true(picker_slots_has(&lines.full, DECODE));
    assert_int_equal(ahead.n, 3);
    assert_int_equal(ahead.n_tenants, 2);
    assert_int_equal(lines.n_reads[PREFILL], 2);
    leave(&other, PREFILL);
    leave(&n_own, PREFILL);
    leave(&n_own, DECODE);
    assert_false(picker_slots_has(&lines.full, DECODE));
    assert_int_equal(ahead.n + ahead.n_tenants + lines.n_reads[PREFILL] + lines.n_reads[DECODE], 0);
}

/* A tenant without a request at the workers gets its turn at once, if nothing is refused for its prediction. */
static void the_first_of_a_tenant_goes(void **state)
{
    struct picker_ahead_turn it = turn(1);
    uint32_t other = 0;

    it.is_refused_early = false;
    assert_false(goes(it)); /* no backlog of others: the objectives are at fault */
    for (unsigned i = 0; i < 4; i++)
        enter(&other, PREFILL);
    it.ahead = ahead;
    assert_true(goes(it));
    it.n_own = 1;
    assert_false(goes(it));
    it.n_own = 0;
    it.is_refused_early = true; /* a flood would have one there all the time */
    assert_false(goes(it));
}

/* A router with less than its part of the sequences sends one for each worker. */
static void a_router_that_is_crowded_out_sends_one(void **state)
{
    struct picker_ahead_turn it = turn(2);

    assert_false(goes(it)); /* it did not wait yet */
    it.has_waited = true;
    assert_true(goes(it));
    it.margin = 0.4;
    assert_false(goes(it));
    it.margin = 0;
    for (unsigned i = 0; i < 5; i++)
        picker_fleet_charge(fleet, DECODE, &(struct picker_charge){0}, 0);
    assert_false(goes(it)); /* it has a half of them */
    it.n_routers = 1;
    assert_false(goes(it));
}

static void full_seats_get_a_line(void **state)
{
    struct picker_worker worker;
    struct picker_ahead_turn it;
    uint32_t other = 0;

    picker_fleet_row(fleet, DECODE, &worker);
    worker.n_running = 16;
    assert_int_equal(picker_fleet_set(fleet, DECODE, &worker), 0);
    n_own = 1;
    it = turn(2);
    it.has_waited = true;
    assert_true(goes(it));
    for (unsigned i = 0; i < 3; i++)
        enter(&other, PREFILL);
    assert_false(goes(it));
    it.n_routers = 1;
    assert_false(goes(it));
}

static void a_tenant_that_is_behind_goes(void **state)
{
    struct picker_ahead_turn it = turn(3);

    it.behind = PICKER_TURN_CREDIT / 2 - 1;
    it.is_judged = true;
    assert_false(goes(it));
    it.behind++;
    assert_true(goes(it)); /* also if the queue predicts a late turn */
    it.n_routers = 1;
    assert_false(goes(it));
}

/* Its own prompts come before, and as many of others: 2 * 0.3 + 0.1 s of a second. */
static void it_does_not_go_when_it_would_be_late(void **state)
{
    struct picker_ahead_turn it;

    for (unsigned i = 0; i < 3; i++)
        enter(&n_own, PREFILL);
    it = turn(3);
    it.behind = PICKER_TURN_CREDIT;
    it.is_judged = true;
    it.margin = 0.25;
    assert_true(goes(it));
    it.margin = 0.35;
    assert_false(goes(it));
    it.is_judged = false;
    it.has_waited = true; /* it was admitted: the limit itself counts */
    assert_true(goes(it));
    it.waited_s = 0.4;
    assert_false(goes(it));
    it.waited_s = it.margin = 0;
    it.before_tokens = 200; /* two of its requests wait for a placement */
    assert_false(goes(it));
}

/* A worker gives a tenant its turns only while one of its requests waits there. */
static void requests_of_a_tenant_are_spread(void **state)
{
    struct picker_slots excluded = {{0}};
    struct picker_ahead_turn it;

    for (unsigned i = 0; i < 4; i++)
        enter(&n_own, PREFILL);
    it = turn(3);
    it.ttft_slo_s = 5;
    it.behind = PICKER_TURN_CREDIT;
    assert_false(goes(it));
    assert_true(picker_ahead_other(&it, &excluded));
    assert_true(picker_slots_has(&excluded, PREFILL));
    assert_false(picker_slots_has(&excluded, DECODE));
    it.choice = &local;
    assert_true(goes(it));
    assert_false(picker_ahead_other(&it, &excluded));
}

static void full_lines_are_left_out(void **state)
{
    struct picker_slots excluded = {{0}};
    struct picker_ahead_turn it;

    for (unsigned i = 0; i < 3; i++)
        enter(&n_own, PREFILL);
    it = turn(2);
    assert_true(picker_ahead_other(&it, &excluded));
    assert_true(picker_slots_has(&excluded, DECODE));
    it.n_routers = 1;
    assert_false(picker_ahead_other(&it, &excluded));
}

/* ---- margins and service of other routers ---- */

static void margins_approach_each_other(void **state)
{
    struct picker_lateness late = {.share = 0.6, .least = -0.1};

    picker_lateness_approach(&late, 0.2);
    assert_float_equal(picker_lateness_margin(&late), 0.5, 1e-9);
    picker_lateness_approach(&late, 0.9); /* no router has such a margin */
    picker_lateness_approach(&late, -0.2);
    assert_float_equal(picker_lateness_margin(&late), 0.5, 1e-9);
    for (unsigned i = 0; i < 50; i++)
        picker_lateness_approach(&late, -0.1);
    assert_float_equal(picker_lateness_margin(&late), -0.1, 1e-3);
}

static void service_elsewhere_counts_in_turns(void **state)
{
    const struct picker_served_key key = {.model = 1, .tenant = 2}, next = {.model = 1, .tenant = 3};
    static struct picker_served served;
    struct fair_flow *flow, *waits;
    struct fair_item item;
    struct fair *fair;

    served = (struct picker_served){0};
    picker_served_note(&served, &key, 10, 2);
    picker_served_note(&served, &next, 10, 0);
    picker_served_note(&served, &key, 20, 2);
    assert_int_equal(served.n, 2);
    assert_int_equal(served.rows[0].n_milli, 15 * FAIR_MAX_WEIGHT);
    assert_int_equal(served.rows[1].n_milli, 10 * FAIR_MAX_WEIGHT);

    assert_int_equal(fair_new(8, &fair), 0);
    fair_set_credit(fair, PICKER_TURN_CREDIT);
    waits = fair_hold(fair, 9); /* it holds the queue's virtual time */
    fair_item_init(&item);
    fair_wait(fair, waits, &item, 0, 1);
    picker_served_charge(fair, key.tenant, served.rows[0].n_milli);
    flow = fair_hold(fair, key.tenant);
    assert_int_equal(fair_debt(fair, flow), 15);
    assert_int_equal(fair_credit(fair, waits), 0);
    assert_int_equal(fair_behind(fair, waits), 15);
    for (unsigned i = 0; i < 100; i++) /* a bounded debt */
        picker_served_charge(fair, key.tenant, UINT64_C(1000) * FAIR_MAX_WEIGHT);
    assert_in_range(fair_debt(fair, flow), PICKER_TURN_CREDIT - 1, PICKER_TURN_CREDIT);
    fair_drop(fair, flow);
    fair_leave(fair, &item);
    fair_drop(fair, waits);
    fair_free(fair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines_are_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(the_first_of_a_tenant_goes, setup, teardown),
        cmocka_unit_test_setup_teardown(a_router_that_is_crowded_out_sends_one, setup, teardown),
        cmocka_unit_test_setup_teardown(full_seats_get_a_line, setup, teardown),
        cmocka_unit_test_setup_teardown(a_tenant_that_is_behind_goes, setup, teardown),
        cmocka_unit_test_setup_teardown(it_does_not_go_when_it_would_be_late, setup, teardown),
        cmocka_unit_test_setup_teardown(requests_of_a_tenant_are_spread, setup, teardown),
        cmocka_unit_test_setup_teardown(full_lines_are_left_out, setup, teardown),
        cmocka_unit_test(margins_approach_each_other),
        cmocka_unit_test(service_elsewhere_counts_in_turns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
