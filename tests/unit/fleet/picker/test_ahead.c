/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that go ahead to workers which cannot begin them yet, and margins and service that routers tell each other. */
#include "tests/unit/check.h"

#include <math.h>

#include "base/clock.h"
#include "fleet/picker/admit.h"
#include "fleet/picker/ahead.h"
#include "fleet/picker/service.h"
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
    it.margin = 0.4; /* it was admitted with the margin, and did not come later by its wait */
    assert_true(goes(it));
    it.waited_s = 0.31; /* 0.7 s more of a second */
    assert_false(goes(it));
    it.waited_s = it.margin = 0;
    for (unsigned i = 0; i < 5; i++)
        picker_fleet_charge(fleet, DECODE, &(struct picker_charge){0}, 0);
    assert_false(goes(it)); /* it has a half of them */
    it.n_routers = 1;
    assert_false(goes(it));
}

/* Each prompt of the queue of 0.6 s lets two others pass: 1.8 s and its own 0.1 s. */
static void others_may_overtake_it(void **state)
{
    struct picker_ahead_turn it = turn(2);

    it.has_waited = true;
    it.service = (struct picker_service_view){.own = 8000, .most = 8000, .others = 1000};
    assert_true(goes(it)); /* they had hardly any service */
    it.service.others++;
    assert_false(goes(it));
    it.ttft_slo_s = 1.91;
    assert_true(goes(it));
}

/* One sequence more makes all answers of its worker late.  So such a request goes only while the margin allows, and one of a
 * tenant that is behind only where a tenth is missing. */
static void the_time_between_tokens_counts(void **state)
{
    struct picker_choice slow = pair;
    struct picker_ahead_turn it = turn(2);

    slow.itl_s = 0.051;
    it.choice = &slow;
    it.itl_slo_s = 0.05;
    it.has_waited = true;
    it.margin = 0.4;
    assert_false(goes(it));
    it.margin = 0.2;
    assert_true(goes(it));
    it.margin = 0.4;
    it.service.most = PICKER_TURN_CREDIT;
    assert_true(goes(it));
    slow.itl_s = 0.056;
    assert_false(goes(it));
    it.is_refused_early = false; /* all are served in their turn */
    assert_true(goes(it));
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

    it.service.most = PICKER_TURN_CREDIT / 4 - 1;
    it.is_judged = true;
    assert_false(goes(it));
    it.service.most++;
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
    it.service.most = PICKER_TURN_CREDIT;
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
    it.service.most = PICKER_TURN_CREDIT;
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

/* Two routers that each learn from half of the first tokens have the margin of one that learns from all. */
static void routers_learn_from_all_first_tokens(void **state)
{
    struct picker_lateness one = {.least = 0}, two[2] = {{.least = 0}, {.least = 0}};

    for (unsigned i = 0; i < 200; i++) {
        double actual_s = i % 10 < 2 ? 0.6 : 0.1;

        picker_lateness_learn(&one, 0.1, actual_s, 0.5);
        picker_lateness_learn(&two[i % 2], 0.1, actual_s, 0.5);
        picker_lateness_join(&two[!(i % 2)], picker_lateness_take(&two[i % 2]));
        assert_float_equal(picker_lateness_margin(&two[0]), picker_lateness_margin(&one), 1e-6);
        assert_float_equal(picker_lateness_margin(&two[1]), picker_lateness_margin(&one), 1e-6);
    }
    one.share = two[0].share;
    picker_lateness_join(&two[0], -3); /* no router's samples move so far */
    assert_float_equal(picker_lateness_margin(&two[0]), picker_lateness_margin(&one), 1e-9);
    picker_lateness_join(&two[0], -1);
    assert_float_equal(picker_lateness_margin(&two[0]), 0, 1e-9);
    picker_lateness_join(&two[0], (double)NAN);
    assert_float_equal(picker_lateness_margin(&two[0]), 0, 1e-9);
}

/* ---- service of tenants ---- */

static struct picker_service service;

static struct picker_service_view view_of(uint64_t tenant, uint64_t now_ns)
{
    const struct picker_served_key key = {.model = 1, .tenant = tenant};
    struct picker_service_view view;

    picker_service_view(&service, &key, now_ns, &view);
    return view;
}

static void served(uint64_t model, uint64_t tenant, uint64_t n_tokens, uint64_t now_ns)
{
    const struct picker_served_key key = {.model = model, .tenant = tenant};

    picker_service_add(&service, &key, picker_served_milli(n_tokens, 1), now_ns);
}

static void service_of_tenants_is_compared(void **state)
{
    uint64_t now_ns = 5 * NS_PER_S;

    service = (struct picker_service){0};
    assert_int_equal(view_of(1, now_ns).own + view_of(1, now_ns).most, 0);
    served(1, 1, 1000, now_ns);
    served(1, 2, 3000, now_ns);
    served(2, 3, 9000, now_ns); /* another model */
    assert_int_equal(view_of(1, now_ns).own, 1000);
    assert_int_equal(view_of(1, now_ns).most, 3000);
    assert_int_equal(view_of(1, now_ns).others, 3000);
    assert_int_equal(view_of(2, now_ns).others, 1000);
    assert_int_equal(view_of(7, now_ns).own, 0);
    now_ns += 20 * NS_PER_S;
    assert_in_range(view_of(1, now_ns).most, 1100, 1104); /* a third of it */
    assert_in_range(view_of(1, now_ns + 600 * NS_PER_S).most, 0, 0);
    assert_int_equal(service.n, 0);
}

/* A router that heard nothing for a while agrees with the others again: both accounts fade. */
static void accounts_that_differ_meet(void **state)
{
    uint64_t least, now_ns = 0;

    service = (struct picker_service){0};
    served(1, 1, 1000000, 0); /* it missed as much of the other tenant */
    for (; now_ns < 120 * NS_PER_S; now_ns += 100 * NS_PER_MS) {
        served(1, 1, 700, now_ns);
        served(1, 2, 700, now_ns);
    }
    least = view_of(2, now_ns).own;
    assert_in_range(view_of(2, now_ns).most - least, 0, PICKER_TURN_CREDIT / 4 - 1);
}

/* Among more tenants than there are rows those with least are forgotten. */
static void many_tenants_leave_the_greatest(void **state)
{
    service = (struct picker_service){0};
    served(1, 1, 5000, 0);
    served(1, 2, UINT64_MAX, 0); /* no router serves so much in a report */
    for (uint64_t tenant = 10; tenant < 10 + 4ul * PICKER_SERVICE_ROWS; tenant++)
        served(1, tenant, 100, 0);
    assert_int_equal(service.n, PICKER_SERVICE_ROWS);
    assert_int_equal(view_of(1, 0).own, 5000);
    assert_int_equal(view_of(1, 0).most, PICKER_TURN_CREDIT);
}

static void service_elsewhere_counts_in_turns(void **state)
{
    const struct picker_served_key key = {.model = 1, .tenant = 2}, next = {.model = 1, .tenant = 3};
    static struct picker_served since;
    struct fair_flow *flow, *waits;
    struct fair_item item;
    struct fair *fair;

    since = (struct picker_served){0};
    picker_served_note(&since, &key, 10, 2);
    picker_served_note(&since, &next, 10, 0);
    picker_served_note(&since, &key, 20, 2);
    assert_int_equal(since.n, 2);
    assert_int_equal(since.rows[0].n_milli, 15 * FAIR_MAX_WEIGHT);
    assert_int_equal(since.rows[1].n_milli, 10 * FAIR_MAX_WEIGHT);

    assert_int_equal(fair_new(8, &fair), 0);
    fair_set_credit(fair, PICKER_TURN_CREDIT);
    waits = fair_hold(fair, 9); /* it holds the queue's virtual time */
    fair_item_init(&item);
    fair_wait(fair, waits, &item, 0, 1);
    picker_served_charge(fair, key.tenant, since.rows[0].n_milli);
    flow = fair_hold(fair, key.tenant);
    assert_int_equal(fair_debt(fair, flow), 15);
    assert_int_equal(fair_credit(fair, waits), 0);
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
        cmocka_unit_test_setup_teardown(others_may_overtake_it, setup, teardown),
        cmocka_unit_test_setup_teardown(the_time_between_tokens_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(full_seats_get_a_line, setup, teardown),
        cmocka_unit_test_setup_teardown(a_tenant_that_is_behind_goes, setup, teardown),
        cmocka_unit_test_setup_teardown(it_does_not_go_when_it_would_be_late, setup, teardown),
        cmocka_unit_test_setup_teardown(requests_of_a_tenant_are_spread, setup, teardown),
        cmocka_unit_test_setup_teardown(full_lines_are_left_out, setup, teardown),
        cmocka_unit_test(margins_approach_each_other),
        cmocka_unit_test(routers_learn_from_all_first_tokens),
        cmocka_unit_test(service_of_tenants_is_compared),
        cmocka_unit_test(accounts_that_differ_meet),
        cmocka_unit_test(many_tenants_leave_the_greatest),
        cmocka_unit_test(service_elsewhere_counts_in_turns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
