/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator's promises: equal runs give equal results, every request is accounted for, queues follow
 * theory, the order of eviction matches a plain model, and quantiles are right within a bucket. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "fleet/sim/agenda_priv.h"
#include "fleet/sim/generate.h"
#include "tests/unit/trials.h"

static void about(double a, double b, double within)
{
    if (!(fabs(a - b) <= within * fabs(b)))
        fail_msg("%g is not about %g", a, b);
}

static struct sim_opts options(void)
{
    return (struct sim_opts){
        .n_prefill = 2,
        .n_decode = 2,
        .prefill_times = {.step_s = 0.002, .row_s = 1e-4, .token_s = 5e-5},
        .decode_times = {.step_s = 0.005, .row_s = 1e-4, .context_s = 1e-8, .token_s = 5e-5},
        .block_tokens = 32,
        .max_seqs = 32,
        .chunk_tokens = 256,
        .batch_tokens = 512,
        .sched_itl_ns = 50 * NS_PER_MS,
        .kv_tokens = 200000,
        .kv_bytes_per_token = 65536,
        .nic_bytes_per_s = 1e10,
        .n_layers = 32,
        .latency_ns = 100 * NS_PER_US,
        .heartbeat_ns = NS_PER_S,
        .ttft_slo_ns = 500 * NS_PER_MS,
        .itl_slo_ns = 50 * NS_PER_MS,
        .queue_timeout_ns = 10 * NS_PER_S,
        .queue_max = 64,
        .local_prefill_tokens = 64,
        .local_prefill_ns = 100 * NS_PER_MS,
        .index_entries = 100000,
        .prefix_fetch = PICKER_FETCH_AUTO,
        .seed = 7,
        .n_columns = 10};
}

static struct generate_opts load_of(enum generate_kind kind)
{
    return (struct generate_opts){.kind = kind,
                                  .rate_per_s = 12,
                                  .duration_s = 60,
                                  .prompt_tokens = 600,
                                  .answer_tokens = 60,
                                  .n_tenants = 4,
                                  .block_tokens = 32,
                                  .turns = 5,
                                  .wait_s = 1,
                                  .period_s = 30,
                                  .other_rate_per_s = 20,
                                  .other_prompt_tokens = 60,
                                  .other_answer_tokens = 200,
                                  .seed = 7};
}

static struct sim_result run(const struct sim_opts *opts, const struct generate_opts *generate_opts)
{
    struct generate *generate;
    struct sim_result result;
    struct sim_load load;

    assert_int_equal(generate_new(generate_opts, &generate), 0);
    load = generate_load(generate);
    assert_int_equal(sim_run(opts, &load, NULL, &result), 0);
    generate_free(generate);
    return result;
}

static uint64_t n_ended(const struct sim_class *kind)
{
    uint64_t n = kind->n_done + kind->n_cancelled;

    for (unsigned i = 0; i < REFUSAL_REASONS; i++)
        n += kind->n_refused[i];
    return n;
}

static void every_request_ends(void **state)
{
    for (enum generate_kind kind = GENERATE_POISSON; kind <= GENERATE_SESSIONS; kind++) {
        struct generate_opts load = load_of(kind);
        struct sim_opts opts = options();
        struct sim_result result;
        uint64_t n_arrived = 0, n_good = 0;

        opts.cancel_share = 0.1;
        opts.crash_every_s = 10;
        opts.start_ns = 2 * NS_PER_S;
        result = run(&opts, &load);
        assert_true(result.classes[0].n_arrived > 200);
        assert_true(result.classes[0].n_cancelled > 0);
        assert_true(result.n_crashes > 0);
        assert_int_equal(n_ended(&result.classes[0]), result.classes[0].n_arrived);
        for (uint32_t i = 0; i < result.n_columns; i++) {
            n_arrived += result.columns[i].n_arrived;
            n_good += result.columns[i].n_good;
        }
        assert_int_equal(n_arrived, result.classes[0].n_arrived);
        assert_int_equal(n_good, result.classes[0].n_good);
        sim_result_fini(&result);
    }
}

/* Four tenants take turns at workers with the memory of about three sequences.  A prompt that has begun goes on when another
 * tenant's, without room, comes before it. */
static void scarce_memory_lets_tenants_go_on(void **state)
{
    struct generate_opts load = load_of(GENERATE_POISSON);
    struct sim_opts opts = options();
    struct sim_result result;

    (void)state;
    load.rate_per_s = 2;
    load.prompt_tokens = 8000;
    load.answer_tokens = 500;
    opts.prefill_times = opts.decode_times =
        (struct sim_times){.step_s = 0.002, .row_s = 5e-4, .token_s = 2e-4};
    opts.kv_tokens = 30000;
    for (uint64_t seed = 1; seed <= trials(5, 2); seed++) {
        load.seed = opts.seed = seed;
        result = run(&opts, &load);
        assert_true(result.classes[0].n_done > 20);
        assert_int_equal(n_ended(&result.classes[0]), result.classes[0].n_arrived);
        sim_result_fini(&result);
    }
}

static void equal_lengths_are_the_mean(void **state)
{
    struct generate_opts opts = load_of(GENERATE_STEPS);
    struct generate *generate;
    struct sim_request request;
    struct sim_load load;
    uint32_t n[2] = {0};
    uint64_t at_ns;

    opts.has_equal_lengths = true;
    assert_int_equal(generate_new(&opts, &generate), 0);
    load = generate_load(generate);
    while (load.when(load.self, &at_ns)) {
        load.take(load.self, &request);
        bool is_other = request.at_ns / NS_PER_S % 30 >= 15;

        assert_int_equal(request.prompt_tokens, is_other ? 60 : 600);
        assert_int_equal(request.answer_tokens, is_other ? 200 : 60);
        n[is_other]++;
    }
    assert_true(n[0] > 200 && n[1] > 400);
    generate_free(generate);
}

static void equal_runs_are_equal(void **state)
{
    struct generate_opts load = load_of(GENERATE_SESSIONS);
    struct sim_opts opts = options();
    struct sim_result a, b, c;

    opts.costs = SIM_COSTS_LEARNED;
    opts.cancel_share = 0.05;
    opts.crash_every_s = 20;
    opts.disk_tokens = 100000;
    opts.disk_bytes_per_s = 1e9;
    opts.kv_tokens = 30000;
    a = run(&opts, &load);
    b = run(&opts, &load);
    assert_memory_equal(a.classes, b.classes, sizeof(a.classes));
    assert_int_equal(a.end_ns, b.end_ns);
    assert_int_equal(a.n_events, b.n_events);
    load.seed = opts.seed = 8;
    c = run(&opts, &load);
    assert_int_not_equal(a.end_ns, c.end_ns);
    sim_result_fini(&a);
    sim_result_fini(&b);
    sim_result_fini(&c);
}

/* One prefill worker with a constant time is M/D/1: the mean wait is rho s / 2 (1 - rho). */
static void a_queue_follows_theory(void **state)
{
    struct generate_opts load = load_of(GENERATE_POISSON);
    struct sim_opts opts = options();
    double service = 0.05, rho = 0.6;
    struct sim_result result;

    opts.n_prefill = opts.n_decode = 1;
    opts.policy = SIM_LOAD;
    opts.prefill_times = (struct sim_times){.step_s = service, .token_s = 1e-12};
    opts.batch_tokens = 0;
    opts.latency_ns = 0;
    opts.max_seqs = 1000;
    opts.kv_tokens = 1000000000;
    load.rate_per_s = rho / service;
    load.duration_s = 20000;
    result = run(&opts, &load);
    about(sim_hist_mean_s(&result.classes[0].ttft), service + rho * service / (2 * (1 - rho)), 0.02);
    about(result.prefill_busy_s / ((double)result.end_ns / 1e9), rho, 0.02);
    sim_result_fini(&result);
}

static void conversations_hit_the_cache(void **state)
{
    struct generate_opts load = load_of(GENERATE_SESSIONS);
    struct sim_opts opts = options();
    struct sim_result result = run(&opts, &load);

    assert_true(result.cached_tokens + result.pushed_tokens > result.computed_tokens);
    sim_result_fini(&result);
}

static void a_slow_disk_and_a_fast_one(void **state)
{
    struct generate_opts load = load_of(GENERATE_SESSIONS);
    struct sim_opts opts = options();
    struct sim_result result;

    opts.kv_tokens = 20000;
    opts.prefix_fetch = PICKER_FETCH_OFF;
    opts.disk_tokens = 10000000;
    opts.disk_bytes_per_s = 1e11;
    result = run(&opts, &load);
    assert_true(result.read_tokens > 0);
    sim_result_fini(&result);
    opts.disk_bytes_per_s = 1e6;
    result = run(&opts, &load);
    assert_int_equal(result.read_tokens, 0); /* computing is faster */
    sim_result_fini(&result);
}

static void options_are_checked(void **state)
{
    struct generate_opts load_opts = load_of(GENERATE_POISSON);
    struct sim_opts opts = options();
    struct generate *generate;
    struct sim_result result;
    struct fault fault = {0};
    struct sim_load load;

    assert_int_equal(generate_new(&load_opts, &generate), 0);
    load = generate_load(generate);
    opts.n_prefill = PICKER_MAX_WORKERS;
    assert_int_equal(sim_run(&opts, &load, &fault, &result), E_INVAL);
    assert_non_null(strstr(fault.text, "1024"));
    opts = options();
    opts.n_decode = 0;
    assert_int_equal(sim_run(&opts, &load, NULL, &result), E_INVAL);
    opts = options();
    opts.kv_tokens = 1;
    assert_int_equal(sim_run(&opts, &load, &fault, &result), E_INVAL);
    assert_non_null(strstr(fault.text, "1 tokens, and a block has 32"));
    generate_free(generate);
}

/* ---- the parts ---- */

static void quantiles_are_right_within_a_bucket(void **state)
{
    static struct sim_hist hist;

    assert_true(sim_hist_quantile_s(&hist, 0.5) == 0);
    for (uint64_t i = 1; i <= 100000; i++)
        sim_hist_add(&hist, i * 1000, 1);
    about(sim_hist_mean_s(&hist), 0.0500005, 1e-9);
    for (double q = 0.01; q < 1; q += 0.07)
        about(sim_hist_quantile_s(&hist, q), q * 0.1, 0.022);
    about(sim_hist_quantile_s(&hist, 1), 0.1, 1e-9);
}

static void events_come_in_order(void **state)
{
    struct sim_agenda agenda = {0};
    struct sim_event before = {0};
    struct rng rng;

    rng_init(&rng, 1);
    for (uint32_t i = 0; i < 5000; i++)
        assert_int_equal(
            sim_agenda_add(&agenda, (struct sim_event){.at_ns = rng_below(&rng, 500), .what = i}), 0);
    for (uint32_t i = 0; i < 5000; i++) {
        struct sim_event event = sim_agenda_take(&agenda);

        assert_true(i == 0 || before.at_ns < event.at_ns ||
                    (before.at_ns == event.at_ns && before.what < event.what));
        before = event;
    }
    sim_agenda_fini(&agenda);
}

/* The same prompts of 600 tokens, more than two of four workers read in time, then answers: auto serves more than the
 * fleet with fixed roles, and every worker's time is booked once. */
static void roles_follow_the_load(void **state)
{
    struct generate_opts load = load_of(GENERATE_STEPS);
    struct sim_opts opts = options();
    struct sim_result fixed, moved;

    (void)state;
    load.rate_per_s = 75;
    load.answer_tokens = 8;
    load.duration_s = 1200;
    load.period_s = 1200;
    opts.decodes_only = true;
    opts.local_prefill_tokens = 0;
    opts.local_prefill_ns = 0;
    opts.roles_least = 1;
    opts.roles_period_ns = 60 * NS_PER_S;
    fixed = run(&opts, &load);
    opts.has_auto_roles = true;
    moved = run(&opts, &load);
    assert_int_equal(fixed.n_flips, 0);
    assert_in_range(moved.n_flips, 1, 10);
    assert_true(moved.classes[0].n_good > 1.1 * (double)fixed.classes[0].n_good);
    assert_int_equal(n_ended(&moved.classes[0]), moved.classes[0].n_arrived);
    assert_true(fabs(moved.prefill_worker_s + moved.decode_worker_s - 4e-9 * (double)moved.end_ns) < 1e-3);
    assert_true(moved.prefill_busy_s <= moved.prefill_worker_s &&
                moved.decode_busy_s <= moved.decode_worker_s);
    sim_result_fini(&fixed);
    sim_result_fini(&moved);
}

/* Three routers over workers that crash.  All requests end, and each router finds prefixes that another one placed. */
static void routers_share_the_workers(void **state)
{
    struct generate_opts load = load_of(GENERATE_SESSIONS);
    struct sim_opts opts = options();
    struct sim_result one, three;

    (void)state;
    load.rate_per_s = 30;
    opts.cancel_share = 0.05;
    opts.start_ns = 0;
    for (uint64_t seed = 1; seed <= trials(5, 2); seed++) {
        load.seed = opts.seed = seed;
        opts.n_routers = 1;
        opts.crash_every_s = 0;
        one = run(&opts, &load);
        opts.n_routers = 3;
        opts.crash_every_s = 20;
        three = run(&opts, &load);
        assert_int_equal(n_ended(&three.classes[0]), three.classes[0].n_arrived);
        assert_true(three.classes[0].n_arrived > 500 && three.n_crashes > 0);
        assert_true((double)three.cached_tokens > 0.5 * (double)one.cached_tokens);
        sim_result_fini(&one);
        sim_result_fini(&three);
    }
}

/* Workers tell the other routers at once what one dispatches.  Five seeds together, with known costs, and with learned
 * ones under admission by prediction. */
static void several_routers_place_as_well_as_one(void **state)
{
    struct generate_opts load = load_of(GENERATE_POISSON);
    struct sim_opts opts = options();

    (void)state;
    load.rate_per_s = 16;
    load.prompt_tokens = 3000;
    load.answer_tokens = 100;
    load.duration_s = 300;
    opts.n_prefill = 5;
    opts.n_decode = 3;
    for (unsigned costs = SIM_COSTS_EXACT; costs <= SIM_COSTS_LEARNED; costs++) {
        double one_s = 0;

        opts.costs = (enum sim_costs)costs;
        opts.refuses_early = costs == SIM_COSTS_LEARNED;
        for (opts.n_routers = 1; opts.n_routers <= 4; opts.n_routers *= 2) {
            double sum_s = 0;

            for (uint64_t seed = 1; seed <= trials(5, 2); seed++) {
                struct sim_result result;

                load.seed = opts.seed = seed;
                result = run(&opts, &load);
                sum_s += sim_hist_mean_s(&result.classes[0].ttft);
                sim_result_fini(&result);
            }
            one_s = opts.n_routers == 1 ? sum_s : one_s;
            print_message("costs %u, %u routers: mean TTFT %.2f ms\n", costs, opts.n_routers,
                          sum_s / 5 * 1e3);
            if (sum_s > 1.05 * one_s)
                fail_msg("%u routers: mean TTFT %.4f s, %.4f s with one", opts.n_routers, sum_s / 5,
                         one_s / 5);
        }
    }
}

/* A quarter of what the prefill workers can read, in prompts that a decode worker may read itself: nothing is refused,
 * whether decode workers read prompts or not. */
static void an_idle_fleet_refuses_nothing(void **state)
{
    struct generate_opts load = load_of(GENERATE_POISSON);
    struct sim_opts opts = options();

    (void)state;
    load.rate_per_s = 8;
    load.prompt_tokens = 2000;
    load.duration_s = 300;
    opts.n_prefill = opts.n_decode = 4;
    opts.prefill_times.step_s = opts.decode_times.step_s = 0.012;
    opts.batch_tokens = 8192;
    opts.kv_tokens = 1000000;
    opts.local_prefill_ns = 500 * NS_PER_MS;
    opts.refuses_early = true;
    for (unsigned is_rigid = 0; is_rigid < 2; is_rigid++) {
        struct sim_result result;

        opts.decodes_only = is_rigid != 0;
        result = run(&opts, &load);
        print_message("rigid %u: %.0f of %.0f served\n", is_rigid, (double)result.classes[0].n_done,
                      (double)result.classes[0].n_arrived);
        assert_true((double)result.classes[0].n_done > 0.995 * (double)result.classes[0].n_arrived);
        sim_result_fini(&result);
    }
}

/* Workers that learn their costs are placed about as well as workers whose costs are known, also where they have
 * large fixed costs.  Five seeds together. */
static void learned_costs_place_as_well_as_known_ones(void **state)
{
    struct generate_opts load = load_of(GENERATE_POISSON);
    struct sim_opts opts = options();
    double ttft_s[2] = {0}, n_good[2] = {0};

    (void)state;
    load.rate_per_s = 20;
    load.prompt_tokens = 1500;
    load.duration_s = 300;
    opts.prefill_times.step_s = opts.decode_times.step_s = 0.012;
    opts.batch_tokens = 8192;
    opts.refuses_early = true;
    for (unsigned run_at = 0; run_at < 10; run_at++) {
        enum sim_costs costs = run_at % 2 == 0 ? SIM_COSTS_EXACT : SIM_COSTS_LEARNED;
        struct sim_result result;

        opts.costs = costs;
        load.seed = opts.seed = 1 + run_at / 2;
        result = run(&opts, &load);
        ttft_s[costs] += sim_hist_mean_s(&result.classes[0].ttft) / 5;
        assert_int_equal(n_ended(&result.classes[0]), result.classes[0].n_arrived);
        n_good[costs] += (double)result.classes[0].n_good / 5;
        sim_result_fini(&result);
    }
    print_message("mean TTFT %.2f ms, %.0f good with known costs; %.2f ms, %.0f with learned ones\n",
                  ttft_s[0] * 1e3, n_good[0], ttft_s[1] * 1e3, n_good[1]);
    assert_true(ttft_s[1] < 1.1 * ttft_s[0] && n_good[1] > 0.98 * n_good[0]);
}

/* Workers of both roles compute prompts of any length themselves, as the picker has it for the daemons.  Decode workers of
 * the same speed leave long prompts to the prefill workers. */
static void workers_of_both_roles_read_and_write(void **state)
{
    struct sim_opts opts = options();
    struct generate_opts load = load_of(GENERATE_POISSON);
    struct sim_result decode, both, alone;
    struct fault fault;

    load.prompt_tokens = 4000;
    load.rate_per_s = 4;
    opts.decodes_only = false;
    decode = run(&opts, &load);
    opts.n_both = opts.n_decode;
    opts.n_decode = 0;
    both = run(&opts, &load);
    assert_true(decode.n_pairs > 0);
    assert_true(both.n_alone > decode.n_alone);
    assert_int_equal(both.classes[0].n_done, both.classes[0].n_arrived);
    opts.n_prefill = 0;
    alone = run(&opts, &load);
    assert_int_equal(alone.n_pairs, 0);
    assert_int_equal(alone.n_alone, alone.classes[0].n_arrived);
    assert_int_equal(alone.classes[0].n_done, alone.classes[0].n_arrived);
    sim_result_fini(&decode);
    sim_result_fini(&both);
    sim_result_fini(&alone);

    opts.decodes_only = true; /* holds for decode workers only */
    alone = run(&opts, &load);
    assert_int_equal(alone.classes[0].n_done, alone.classes[0].n_arrived);
    sim_result_fini(&alone);
    opts.policy = SIM_RANDOM;
    assert_int_equal(sim_run(&opts, &(struct sim_load){0}, &fault, &alone), E_INVAL);
    opts.policy = SIM_OURS;
    opts.n_both = 0;
    assert_int_equal(sim_run(&opts, &(struct sim_load){0}, &fault, &alone), E_INVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_of_both_roles_read_and_write),
        cmocka_unit_test(every_request_ends),
        cmocka_unit_test(scarce_memory_lets_tenants_go_on),
        cmocka_unit_test(equal_lengths_are_the_mean),
        cmocka_unit_test(equal_runs_are_equal),
        cmocka_unit_test(a_queue_follows_theory),
        cmocka_unit_test(conversations_hit_the_cache),
        cmocka_unit_test(a_slow_disk_and_a_fast_one),
        cmocka_unit_test(roles_follow_the_load),
        cmocka_unit_test(routers_share_the_workers),
        cmocka_unit_test(several_routers_place_as_well_as_one),
        cmocka_unit_test(learned_costs_place_as_well_as_known_ones),
        cmocka_unit_test(an_idle_fleet_refuses_nothing),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(quantiles_are_right_within_a_bucket),
        cmocka_unit_test(events_come_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
