/* SPDX-License-Identifier: Apache-2.0 */
/* Admission by prediction in virtual time: good answers do not decrease beyond capacity, refusals are right,
 * an idle fleet refuses nothing, and both pools stay busy. */
#include "tests/unit/check.h"

#include <math.h>

#include "base/clock.h"
#include "base/rng.h"
#include "small_fleet.h"

struct arrivals { /* prompts of 512 to 1,024 tokens, answers of 64 */
    struct rng rng;
    double rate_per_s, factor;
    uint64_t next_ns, end_ns, n;
};

static bool arrivals_when(void *self, uint64_t *at_ns_out)
{
    struct arrivals *it = self;

    *at_ns_out = it->next_ns;
    return it->next_ns < it->end_ns;
}

static void arrivals_take(void *self, struct sim_request *out)
{
    struct arrivals *it = self;

    *out = (struct sim_request){.at_ns = it->next_ns,
                                .prompt_tokens = 512 + (uint32_t)rng_below(&it->rng, 513),
                                .answer_tokens = 64,
                                .salt = ++it->n};
    it->next_ns += (uint64_t)(-log(1 - rng_unit(&it->rng)) / it->rate_per_s * 1e9);
}

static struct sim_result run(const struct sim_opts *opts, double rate_per_s, double seconds)
{
    struct arrivals arrivals = {.rate_per_s = rate_per_s, .next_ns = 1, .end_ns = (uint64_t)(seconds * 1e9)};
    struct sim_load load = {
        .self = &arrivals, .when = arrivals_when, .take = arrivals_take, .span_ns = arrivals.end_ns};
    struct sim_result result;

    rng_init(&arrivals.rng, 5);
    assert_int_equal(sim_run(opts, &load, NULL, &result), 0);
    return result;
}

/* A tick looks only at requests whose deadline has passed, not at the whole queue. */
static void a_long_queue_costs_no_looks(void **state)
{
    struct sim_opts opts = small_fleet(false);
    struct sim_result result;
    const struct sim_class *kind = &result.classes[0];

    opts.queue_max = 1000000;
    opts.queue_timeout_ns = 3600 * NS_PER_S;
    result = run(&opts, 200, 20);
    assert_true(result.n_queued > 3000 && kind->n_done == kind->n_arrived);
    assert_int_equal(result.n_expiry_looks, 0);
    sim_result_fini(&result);

    opts.queue_timeout_ns = 5 * NS_PER_S;
    result = run(&opts, 200, 20);
    assert_true(kind->n_refused[REFUSED_TIMEOUT] > 2000);
    assert_int_equal(result.n_expiry_looks, kind->n_refused[REFUSED_TIMEOUT]);
    sim_result_fini(&result);
}

static double good_per_s(const struct sim_opts *opts, double rate_per_s, double seconds)
{
    struct sim_result result = run(opts, rate_per_s, seconds);
    double good = (double)result.classes[0].n_good / seconds;

    sim_result_fini(&result);
    return good;
}

static void good_answers_do_not_fall_beyond_capacity(void **state)
{
    static const double rates[] = {6, 12, 18, 36, 54, 90, 180};
    struct sim_opts opts = small_fleet(true);
    double best = 0;

    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        double good = good_per_s(&opts, rates[i], 60);

        best = good > best ? good : best;
        assert_true(rates[i] < 18 || good > 0.9 * best);
    }
    assert_true(best > 16);
    opts.refuses_early = false; /* without it: served late */
    assert_true(good_per_s(&opts, 36, 60) < 0.1 * best);
}

/* At and beyond capacity, good answers stay above 0.9 of the best rate, and of what arrives. */
static void hold_good_answers(const struct sim_opts *opts, double capacity, double seconds)
{
    double best = 0, good[4];

    for (unsigned i = 0; i < 4; i++) {
        static const double times[] = {1, 2, 5, 10};

        good[i] = good_per_s(opts, times[i] * capacity, seconds);
        best = good[i] > best ? good[i] : best;
    }
    print_message("%.0f s: good %.1f, %.1f, %.1f and %.1f/s at 1, 2, 5 and 10 times %.0f/s\n", seconds,
                  good[0], good[1], good[2], good[3], capacity);
    for (unsigned i = 0; i < 4; i++)
        assert_true(good[i] > 0.9 * (i == 0 && capacity < best ? capacity : best));
}

/* The first seconds of a load, when nothing is learned yet. */
static void a_sudden_load_is_served_well(void **state)
{
    struct sim_opts opts = small_fleet(true);

    hold_good_answers(&opts, 17, 12);
}

/* Steps are short here, so a decode worker runs out of seats before its steps miss the objective.  It computes few
 * prompts then; otherwise its steps become longer, its seats are taken for longer, and the prefill worker idles. */
static void prompts_do_not_take_the_seats(void **state)
{
    static const struct sim_times times = {.step_s = 0.002, .row_s = 0.00035, .token_s = 0.000035};
    struct sim_opts opts = small_fleet(true);
    struct sim_result result;

    opts.prefill_times = opts.decode_times = times;
    hold_good_answers(&opts, 36, 60);
    result = run(&opts, 180, 60);
    print_message("the prefill worker is busy for %.0f of 60 s, 1 of 100 tokens takes %.0f ms\n",
                  result.prefill_busy_s, 1e3 * sim_hist_quantile_s(&result.classes[0].itl, 0.99));
    assert_true(result.prefill_busy_s > 0.95 * 60);
    assert_true(sim_hist_quantile_s(&result.classes[0].itl, 0.99) < 0.036);
    sim_result_fini(&result);
}

/* The oracle: the same load without refusals by prediction.
 * The refused requests miss their objectives there. */
static void refusals_would_have_missed(void **state)
{
    struct sim_opts opts = small_fleet(true);
    unsigned n_asked = 0, n_good = 0;
    struct sim_result result;

    opts.max_refused = 400;
    result = run(&opts, 36, 15);
    assert_true(result.n_refused > 150);
    for (uint32_t i = 0; i < result.n_refused; i += result.n_refused / 100, n_asked++) {
        struct sim_result oracle;

        opts.spared = result.refused[i];
        opts.refuses_early = false;
        oracle = run(&opts, 36, 15);
        n_good += oracle.is_spared_good;
        sim_result_fini(&oracle);
    }
    sim_result_fini(&result);
    print_message("%u of %u refused requests would have kept both objectives\n", n_good, n_asked);
    assert_true(n_good * 20 <= n_asked);
}

static void a_light_load_is_not_refused(void **state)
{
    struct sim_opts opts = small_fleet(true);
    struct sim_result result = run(&opts, 6, 60);

    for (unsigned why = 0; why < REFUSAL_REASONS; why++)
        assert_int_equal(result.classes[0].n_refused[why], 0);
    sim_result_fini(&result);
    opts.itl_slo_ns = NS_PER_MS; /* no step can keep it, and every prompt takes longer than its objective */
    opts.ttft_slo_ns = NS_PER_MS;
    result = run(&opts, 0.02, 600); /* the fleet idles between two requests */
    for (unsigned why = 0; why < REFUSAL_REASONS; why++)
        assert_int_equal(result.classes[0].n_refused[why], 0);
    sim_result_fini(&result);
}

/* With an objective of a minute, a request waits for longer than the queue's timeout, and no other is let in and
 * refused later. */
static void a_long_objective_outlives_the_timeout(void **state)
{
    struct sim_opts opts = small_fleet(true);
    struct sim_result result;
    const struct sim_class *kind = &result.classes[0];

    opts.ttft_slo_ns = 60 * NS_PER_S;
    opts.itl_slo_ns = NS_PER_S;
    opts.queue_timeout_ns = NS_PER_S;
    result = run(&opts, 24, 30);
    assert_int_equal(kind->n_done, kind->n_arrived);
    assert_true(sim_hist_quantile_s(&kind->ttft, 0.9) > 2);
    sim_result_fini(&result);
}

/* The pools do not idle in turn: both work in each interval of an overload. */
static void pools_do_not_swing(void **state)
{
    struct sim_opts opts = small_fleet(true);
    struct sim_result result = run(&opts, 54, 60);
    double width_s = (double)result.column_ns / 1e9;

    for (uint32_t i = 1; (i + 1) * width_s <= 60; i++) {
        assert_true(result.columns[i].prefill_busy_s > 0.6 * width_s);
        assert_true(result.columns[i].decode_busy_s > 0.6 * width_s);
        assert_true((double)result.columns[i].n_good > 0.7 * 16 * width_s);
    }
    sim_result_fini(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_queue_costs_no_looks),
        cmocka_unit_test(good_answers_do_not_fall_beyond_capacity),
        cmocka_unit_test(a_sudden_load_is_served_well),
        cmocka_unit_test(prompts_do_not_take_the_seats),
        cmocka_unit_test(refusals_would_have_missed),
        cmocka_unit_test(a_light_load_is_not_refused),
        cmocka_unit_test(a_long_objective_outlives_the_timeout),
        cmocka_unit_test(pools_do_not_swing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
