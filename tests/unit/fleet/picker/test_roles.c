/* SPDX-License-Identifier: Apache-2.0 */
/* The policy of roles: what changes a worker's role, what does not, and how often. */
#include "tests/unit/check.h"

#include <math.h>

#include "base/rng.h"
#include "fleet/picker/roles.h"

#define S         UINT64_C(1000000000)
#define N_WORKERS 8
#define START     (1000 * S)

static const struct picker_roles_opts opts = {
    .ttft_slo_s = 0.5, .itl_slo_s = 0.05, .least = 1, .short_tokens = 128, .period_ns = 60 * S};

struct bench { /* a fleet of equal workers, and the policy */
    struct picker_fleet *fleet;
    struct picker_worker rows[N_WORKERS];
    struct picker_roles roles;
    struct picker_roles_plan plan;
    struct rng rng;
    uint64_t now_ns;
    uint32_t n_flips;
    uint32_t too_many; /* prefill workers, so that a third of the requests is refused; 0: none ever */
    bool is_full;      /* a third is refused under any roles */
};

static struct bench bench;

static void set_role(uint32_t slot, enum picker_role role)
{
    bench.rows[slot].role = role;
    assert_int_equal(picker_fleet_set(bench.fleet, slot, &bench.rows[slot]), 0);
}

static int open_bench(void **state)
{
    (void)state;
    bench = (struct bench){.now_ns = START};
    rng_init(&bench.rng, 7);
    assert_int_equal(picker_fleet_new(0, &bench.fleet), 0);
    for (uint32_t slot = 0; slot < N_WORKERS; slot++) {
        bench.rows[slot] = (struct picker_worker){.is_usable = true,
                                                  .block_tokens = 32,
                                                  .blocks_free = 100000,
                                                  .blocks_total = 100000,
                                                  .max_seqs = 64,
                                                  .prefill_tokens_per_s = 40000,
                                                  .decode_step_s = 0.012};
        set_role(slot, slot < N_WORKERS / 2 ? PICKER_PREFILL : PICKER_DECODE);
    }
    return 0;
}

static int close_bench(void **state)
{
    (void)state;
    picker_fleet_free(bench.fleet);
    return 0;
}

static uint32_t n_prefill(void)
{
    uint32_t n = 0;

    for (uint32_t slot = 0; slot < N_WORKERS; slot++)
        n += bench.rows[slot].role == PICKER_PREFILL;
    return n;
}

/* Plays seconds of a load, with the policy each second; changes take effect at once. */
static void play(uint32_t seconds, uint32_t per_s, uint32_t prompt, uint32_t answer)
{
    while (seconds-- > 0) {
        for (uint32_t i = 0; i < per_s; i++) {
            uint64_t at_ns = bench.now_ns + rng_below(&bench.rng, S);

            picker_demand_arrived(&bench.roles.demand, at_ns,
                                  prompt / 2 + (uint32_t)rng_below(&bench.rng, prompt));
            if ((bench.is_full || (bench.too_many > 0 && n_prefill() >= bench.too_many)) &&
                rng_below(&bench.rng, 3) == 0) {
                picker_demand_missed(&bench.roles.demand, at_ns);
                continue;
            }
            picker_demand_placed(&bench.roles.demand, prompt, prompt);
            picker_demand_ended(&bench.roles.demand, at_ns, answer);
        }
        bench.now_ns += S;
        picker_roles_decide(&bench.roles, &opts, bench.fleet, bench.now_ns, &bench.plan);
        if (bench.plan.flip == PICKER_NONE)
            continue;
        set_role(bench.plan.flip, bench.plan.to);
        bench.n_flips++;
    }
}

static void roles_follow_the_load(void **state)
{
    (void)state;
    play(600, 40, 4000, 50); /* prompts for four workers, hardly an answer */
    assert_in_range(n_prefill(), 6, 7);
    assert_int_equal(bench.plan.reason, PICKER_ROLES_ROOM);
    play(900, 20, 300, 1000); /* decode work for most workers, hardly a prompt */
    assert_in_range(n_prefill(), 1, 2);
    assert_in_range(bench.n_flips, 6, 9);
}

static void a_role_changes_once_a_period(void **state)
{
    (void)state;
    play(20, 40, 4000, 50);
    assert_int_equal(bench.n_flips, 1);
    play(35, 40, 4000, 50);
    assert_int_equal(bench.n_flips, 1);
    assert_int_equal(bench.plan.reason, PICKER_ROLES_RECENT);
    play(30, 40, 4000, 50);
    assert_int_equal(bench.n_flips, 2);
    picker_roles_changed(&bench.roles, bench.now_ns); /* by another router, or by an operator */
    play(300, 20, 300, 1000);
    assert_in_range(bench.n_flips, 4, 6);
}

/* The estimate wants more prefill workers than the network of the others can feed, say. */
static void a_change_for_the_worse_is_taken_back(void **state)
{
    uint32_t n_flips;

    (void)state;
    bench.too_many = 6;
    play(130, 40, 4000, 50);
    assert_int_equal(n_prefill(), 6); /* tried */
    play(120, 40, 4000, 50);
    assert_int_equal(n_prefill(), 5); /* taken back, a period later */
    assert_int_equal(bench.plan.reason, PICKER_ROLES_TRIED);
    n_flips = bench.n_flips;
    play(900, 40, 4000, 50); /* not at once again */
    assert_int_equal(n_prefill(), 5);
    assert_int_equal(bench.n_flips, n_flips);
    play(600, 20, 300, 1000); /* other loads move roles as ever */
    assert_in_range(n_prefill(), 1, 2);
}

static void refusals_under_another_load_judge_no_change(void **state)
{
    (void)state;
    play(130, 40, 4000, 50);
    assert_int_equal(n_prefill(), 6);
    bench.too_many = 1;
    play(300, 80, 4000, 50); /* too much for any split */
    assert_in_range(n_prefill(), 6, 7);
}

/* A new load that the roles cannot carry is refused in part, before the change and after it. */
static void refusals_that_a_change_meets_do_not_judge_it(void **state)
{
    (void)state;
    play(600, 40, 4000, 50);
    assert_in_range(n_prefill(), 6, 7);
    bench.is_full = true;
    play(400, 30, 300, 1000);
    assert_in_range(n_prefill(), 1, 2);
}

/* Both rooms suffice, and yet a third of the requests is refused: something limits a role that the rooms do not know. */
static void misses_despite_room_try_the_other_role(void **state)
{
    uint32_t n;

    (void)state;
    play(600, 40, 4000, 50);
    n = n_prefill();
    bench.too_many = n;
    play(200, 25, 4000, 50);
    assert_int_equal(n_prefill(), n - 1);
    bench.n_flips = 0;
    play(600, 25, 4000, 50);
    assert_int_equal(bench.n_flips, 0);
}

/* The same refusals under any roles: each role is tried, taken back, and tried less and less often. */
static void misses_under_any_roles_move_little(void **state)
{
    (void)state;
    play(600, 40, 4000, 50);
    bench.is_full = true;
    bench.n_flips = 0;
    play(7200, 25, 4000, 50);
    assert_in_range(bench.n_flips, 2, 24); /* of 120 periods */
}

static void a_change_elsewhere_counts(void **state)
{
    (void)state;
    picker_roles_changed(&bench.roles, START);
    play(58, 40, 4000, 50);
    assert_int_equal(bench.n_flips, 0);
    assert_int_equal(bench.plan.reason, PICKER_ROLES_RECENT);
}

static void a_cold_fleet_keeps_its_roles(void **state)
{
    (void)state;
    play(5, 3, 40000, 10); /* too few to decide, however long they are */
    assert_int_equal(bench.plan.reason, PICKER_ROLES_COLD);
    assert_int_equal(bench.plan.wanted_prefill, 0);
    for (uint32_t slot = 0; slot < N_WORKERS; slot++) {
        bench.rows[slot].prefill_tokens_per_s = 0;
        set_role(slot, bench.rows[slot].role);
    }
    bench.roles.demand = (struct picker_demand){0};
    play(100, 40, 4000, 50); /* no worker has measured itself */
    assert_int_equal(bench.plan.reason, PICKER_ROLES_COLD);
    assert_int_equal(bench.n_flips, 0);
}

static void one_infeasible_request_moves_nothing(void **state)
{
    double before;

    (void)state;
    play(120, 10, 1000, 100);
    assert_int_equal(bench.plan.reason, PICKER_ROLES_ROOM);
    before = bench.plan.prefill_room;
    picker_demand_arrived(&bench.roles.demand, bench.now_ns,
                          1000000); /* 25 s of a worker; the objective is 0.5 s */
    picker_demand_ended(&bench.roles.demand, bench.now_ns, 1000000);
    play(60, 10, 1000, 100);
    assert_int_equal(bench.n_flips, 0);
    assert_true(bench.plan.prefill_room > 0.8 * before);
}

static void minimum_and_roles_of_others_are_kept(void **state)
{
    struct picker_roles_opts strict = opts;

    (void)state;
    strict.least = 4;
    play(30, 1, 100, 1);
    for (uint32_t i = 0; i < 300; i++) {
        picker_demand_arrived(&bench.roles.demand, bench.now_ns, 200000);
        picker_demand_ended(&bench.roles.demand, bench.now_ns, 10);
    }
    bench.now_ns += 2 * S;
    picker_roles_decide(&bench.roles, &strict, bench.fleet, bench.now_ns, &bench.plan);
    assert_int_equal(bench.plan.reason, PICKER_ROLES_MINIMUM);
    for (uint32_t slot = 4; slot < N_WORKERS; slot++) { /* an operator's, or of an older version */
        bench.rows[slot].keeps_role = slot % 2 == 0;
        set_role(slot, slot % 2 ? PICKER_BOTH : PICKER_DECODE);
    }
    play(100, 40, 4000, 50);
    assert_int_equal(bench.n_flips, 0);
    assert_int_equal(bench.plan.reason, PICKER_ROLES_MINIMUM);
}

static void fixed_roles_are_only_shown(void **state)
{
    struct picker_roles_opts fixed = opts;

    (void)state;
    play(20, 40, 4000, 50);
    assert_int_equal(bench.n_flips, 1);
    fixed.only_shows = true;
    for (unsigned i = 0; i < 100; i++) {
        for (unsigned k = 0; k < 40; k++)
            picker_demand_arrived(&bench.roles.demand, bench.now_ns, 6000);
        bench.now_ns += S;
        picker_demand_ended(&bench.roles.demand, bench.now_ns, 50);
        picker_roles_decide(&bench.roles, &fixed, bench.fleet, bench.now_ns, &bench.plan);
        assert_int_equal(bench.plan.flip, PICKER_NONE);
    }
    assert_int_equal(bench.plan.reason, PICKER_ROLES_PREFILL); /* the decision of auto, each time */
}

static void a_missing_role_is_restored(void **state)
{
    (void)state;
    for (uint32_t slot = 0; slot < N_WORKERS; slot++)
        set_role(slot, PICKER_DECODE);
    play(4, 0, 1, 1);
    assert_int_equal(bench.n_flips, 0);
    play(6, 0, 1, 1);
    assert_int_equal(n_prefill(), 1);
}

/* Another router dispatches three times as much.  Its sequences appear in the workers' reports. */
static void load_of_other_routers_counts(void **state)
{
    double alone;

    (void)state;
    play(60, 10, 1000, 100);
    alone = bench.plan.load.rate_per_s;
    for (uint32_t slot = 0; slot < N_WORKERS; slot++) {
        bench.rows[slot].n_running = 20;
        set_role(slot, bench.rows[slot].role);
        for (uint32_t i = 0; i < 5; i++)
            picker_fleet_charge(bench.fleet, slot, &(struct picker_charge){0}, 0);
    }
    play(60, 10, 1000, 100);
    assert_true(bench.plan.load.rate_per_s > 3.5 * alone && bench.plan.load.rate_per_s < 4.5 * alone);
}

static void rooms_grow_with_workers(void **state)
{
    struct picker_load load = {.rate_per_s = 30, .prompt_s = 0.1, .cv2 = 1};
    double before = 0;

    (void)state;
    for (uint32_t n = 1; n < 200; n++) {
        double room = picker_prefill_room(&load, 0.5, n);

        assert_true(room > before && room < n / 3.0);
        assert_int_equal(room >= 1, n >= picker_prefill_wanted(&load, 0.5, 0));
        before = room;
    }
    for (uint32_t n = 0; n < 10; n++) { /* decode workers take the place of as many, but one stays */
        uint32_t wanted = picker_prefill_wanted(&load, 0.5, 0);

        assert_int_equal(picker_prefill_wanted(&load, 0.5, n + 0.9), wanted > n ? wanted - n : 1);
    }
    assert_int_equal(picker_prefill_wanted(&load, 0.5, INFINITY), 1);
    before = 0;
    for (uint32_t n = 1; n < 200; n++) {
        double room = picker_decode_room(500, 0.5, 50, n);

        assert_true(room > before && room < n / 10.5);
        assert_int_equal(room >= 1, n >= picker_decode_wanted(500, 0.5, 50));
        before = room;
    }
    load.rate_per_s = 0;
    assert_int_equal(picker_prefill_wanted(&load, 0.5, 0), 0);
    assert_true(picker_prefill_room(&load, 0.5, 0) > 100);
}

/* The share of prompts that wait too long, by Erlang's recursion with its division at each step. */
static double late_share(double busy, double decay, uint32_t n_workers)
{
    double blocked = 1;

    for (uint32_t n = 1; n <= n_workers; n++)
        blocked = busy * blocked / (n + busy * blocked);
    return blocked / (1 - busy / n_workers * (1 - blocked)) * exp(-(n_workers - busy) * decay);
}

/* One halving after another ends at the same number, or at its neighbour where rounding decides. */
static void a_room_is_where_one_in_twenty_waits_too_long(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 400; round++) {
        struct picker_load load = {.rate_per_s = (double)(1 + rng_below(&bench.rng, 2000)),
                                   .prompt_s = (double)(1 + rng_below(&bench.rng, 3000)) / 1000,
                                   .cv2 = (double)rng_below(&bench.rng, 40) / 10};
        double slo_s = (double)(1 + rng_below(&bench.rng, 5000)) / 1000;
        uint32_t n = 1 + (uint32_t)rng_below(&bench.rng, round % 4 == 0 ? 1000 : 20);
        double busy = load.rate_per_s * load.prompt_s, least = 0, most = n / busy, room;
        double wait_s = slo_s > 2 * load.prompt_s ? slo_s - load.prompt_s : load.prompt_s;
        double decay = wait_s / load.prompt_s * 2 / (1 + load.cv2), step = most / (1 << 24);

        for (uint32_t i = 0; i < 24; i++) {
            double middle = (least + most) / 2;

            *(late_share(middle * busy, decay, n) <= 0.05 ? &least : &most) = middle;
        }
        least = least < 1000 ? least : 1000;
        room = picker_prefill_room(&load, slo_s, n);
        assert_true(room >= least - 1.5 * step && room <= least + 1.5 * step);
    }
}

/* For any input, the policy's result is within its bounds. */
static void any_input_has_an_answer(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 3000; round++) {
        uint32_t slot = (uint32_t)rng_below(&bench.rng, N_WORKERS);
        struct picker_worker *row = &bench.rows[slot];

        row->is_usable = rng_below(&bench.rng, 8) > 0;
        row->n_running = (uint32_t)rng_u64(&bench.rng) >> rng_below(&bench.rng, 32);
        row->max_seqs = (uint32_t)rng_u64(&bench.rng) >> rng_below(&bench.rng, 32);
        row->decode_step_s = rng_unit(&bench.rng) * (rng_below(&bench.rng, 2) ? 1e9 : 1e-9);
        row->prefill_tokens_per_s = rng_below(&bench.rng, 3) ? 1e12 * rng_unit(&bench.rng) : 1e-300;
        row->prefill_pair_s = rng_below(&bench.rng, 3) ? 0 : 1e300;
        set_role(slot, (enum picker_role)rng_below(&bench.rng, 3));
        picker_demand_arrived(&bench.roles.demand, bench.now_ns, (uint32_t)rng_u64(&bench.rng));
        picker_demand_ended(&bench.roles.demand, bench.now_ns, rng_u64(&bench.rng) >> 8);
        bench.now_ns += rng_below(&bench.rng, 200) ? rng_below(&bench.rng, S / 4) : rng_u64(&bench.rng) >> 8;
        picker_roles_decide(&bench.roles, &opts, bench.fleet, bench.now_ns, &bench.plan);
        assert_true(bench.plan.flip == PICKER_NONE || bench.plan.flip < N_WORKERS);
        assert_true(bench.plan.prefill_room >= 0 && bench.plan.decode_room >= 0);
        assert_non_null(picker_roles_text(bench.plan.reason));
    }
}

/* The workers report the same line of step times at different points of it: which of them comes last in the pool does not
 * change the estimate. */
static uint32_t wanted_with_order(uint32_t busy_slot)
{
    close_bench(NULL);
    open_bench(NULL);
    for (uint32_t slot = 0; slot < N_WORKERS / 2; slot++) {
        bench.rows[slot].keeps_role = true;
        set_role(slot, PICKER_PREFILL);
    }
    for (uint32_t slot = N_WORKERS / 2; slot < N_WORKERS; slot++) {
        uint32_t n = slot == busy_slot ? 40 : 4;

        bench.rows[slot].n_running = bench.rows[slot].step_seqs = n;
        bench.rows[slot].keeps_role = true;
        bench.rows[slot].decode_row_s = 0.0005;
        bench.rows[slot].decode_step_s = 0.012 + 0.0005 * n;
        set_role(slot, PICKER_DECODE);
    }
    play(120, 10, 300, 600);
    return bench.plan.wanted_decode;
}

static void the_last_worker_does_not_decide(void **state)
{
    uint32_t wanted = wanted_with_order(N_WORKERS / 2);

    (void)state;
    assert_int_equal(bench.n_flips, 0);
    assert_true(wanted > 1);
    for (uint32_t slot = N_WORKERS / 2 + 1; slot < N_WORKERS; slot++)
        assert_int_equal(wanted_with_order(slot), wanted);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, open_bench, close_bench)
    const struct CMUnitTest tests[] = {
        T(roles_follow_the_load),
        T(a_role_changes_once_a_period),
        T(the_last_worker_does_not_decide),
        T(a_change_for_the_worse_is_taken_back),
        T(refusals_under_another_load_judge_no_change),
        T(refusals_that_a_change_meets_do_not_judge_it),
        T(misses_despite_room_try_the_other_role),
        T(misses_under_any_roles_move_little),
        T(a_change_elsewhere_counts),
        T(a_cold_fleet_keeps_its_roles),
        T(one_infeasible_request_moves_nothing),
        T(minimum_and_roles_of_others_are_kept),
        T(fixed_roles_are_only_shown),
        T(a_missing_role_is_restored),
        T(load_of_other_routers_counts),
        T(rooms_grow_with_workers),
        T(a_room_is_where_one_in_twenty_waits_too_long),
        T(any_input_has_an_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
