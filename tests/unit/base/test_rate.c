/* SPDX-License-Identifier: Apache-2.0 */
/* Learned rates are right from the first sample,
 * robust against a bad one, quick to recover, and able to change. */
#include "tests/unit/check.h"

#include <math.h>

#include "base/clock.h"
#include "base/rate.h"
#include "base/rng.h"

static struct rng rng;
static uint64_t now_ns;

static double noisy(double value)
{
    return value * (0.9 + 0.2 * (double)(rng_u64(&rng) >> 11) / (double)(UINT64_C(1) << 53));
}

static void learn(struct rate *rate, uint32_t n, double value, double alpha)
{
    for (uint32_t i = 0; i < n; i++) {
        now_ns += 10 * NS_PER_MS;
        rate_learn(rate, noisy(value), alpha, 1, now_ns);
    }
}

static bool is_near(const struct rate *rate, double value, double share)
{
    return fabs(log(rate_level(rate) / value)) <= log1p(share);
}

static const double alphas[] = {0.02, 0.05, 0.2, 0.3, 1};
static const double bads[] = {1000, 0.001, 1e9, 1e-9};

#define FOR_EACH_CASE(a, b)                                                                                  \
    for (size_t a = 0; a < sizeof(alphas) / sizeof(alphas[0]); a++)                                          \
        for (size_t b = 0; b < sizeof(bads) / sizeof(bads[0]); b++)

static void the_first_sample_is_the_level(void **state)
{
    struct rate rate = {0};

    assert_true(rate_level(&rate) == 0);
    rate_learn(&rate, 0, 0.1, 1, 1);
    rate_learn(&rate, -3, 0.1, 1, 1);
    rate_learn(&rate, (double)NAN, 0.1, 1, 1);
    rate_learn(&rate, (double)INFINITY, 0.1, 1, 1);
    rate_learn(&rate, 7, 0.1, 0, 1);
    assert_true(rate_level(&rate) == 0);
    rate_learn(&rate, 7, 0.1, 1, 1);
    assert_true(rate_level(&rate) == 7);
}

/* A sample a thousand times too large moves the rate by its share of a factor of two.  Ten samples later the
 * effect is gone. */
static void one_bad_sample_moves_little(void **state)
{
    FOR_EACH_CASE(a, b)
    {
        struct rate rate = {0};

        rng_init(&rng, a + 10 * b);
        learn(&rate, 100, 50, alphas[a]);
        rate_learn(&rate, 50 * bads[b], alphas[a], 1, now_ns += NS_PER_MS);
        assert_true(is_near(&rate, 50, 0.12 + exp2(alphas[a]) - 1));
        learn(&rate, 10, 50, alphas[a]);
        assert_true(is_near(&rate, 50, 0.12));
    }
}

/* The same after a long time without samples, and when the bad sample is the first. */
static void a_bad_sample_at_a_bad_time_is_forgotten(void **state)
{
    FOR_EACH_CASE(a, b)
    {
        struct rate old = {0}, first = {0};

        rng_init(&rng, a + 10 * b);
        learn(&old, 100, 50, alphas[a]);
        now_ns += 3600 * NS_PER_S;
        rate_learn(&old, 50 * bads[b], alphas[a], 1, now_ns);
        assert_true(is_near(&old, 50, 1.3));
        learn(&old, 8, 50, alphas[a]);
        assert_true(is_near(&old, 50, 0.2));

        rate_learn(&first, 50 * bads[b], alphas[a], 1, now_ns);
        learn(&first, 5, 50, alphas[a]);
        assert_true(is_near(&first, 50, 0.12));
    }
}

static void a_change_is_learned_in_a_few_samples(void **state)
{
    FOR_EACH_CASE(a, b)
    {
        struct rate rate = {0};

        rng_init(&rng, a + 10 * b);
        learn(&rate, 100, 50, alphas[a]);
        learn(&rate, 6, 50 * bads[b], alphas[a]);
        assert_true(is_near(&rate, 50 * bads[b], 0.12));
    }
}

/* One sample in ten is a thousand times too long, without end. */
static void many_bad_samples_are_a_small_part(void **state)
{
    struct rate rate = {0};

    rng_init(&rng, 3);
    for (int i = 0; i < 200; i++) {
        learn(&rate, 9, 50, 0.05);
        rate_learn(&rate, 50000, 0.05, 1, now_ns += NS_PER_MS);
        if (i > 10)
            assert_true(is_near(&rate, 50, 0.25));
    }
}

static void small_samples_say_little(void **state)
{
    struct rate rate = {0};

    rng_init(&rng, 4);
    learn(&rate, 100, 50, 0.25);
    for (int i = 0; i < 20; i++)
        rate_learn(&rate, 10, 0.25, 0.03, now_ns += NS_PER_MS);
    assert_true(is_near(&rate, 50, 0.2));
}

static void old_samples_lose_weight(void **state)
{
    struct rate fresh = {0}, old = {0};

    rng_init(&rng, 5);
    learn(&fresh, 100, 50, 0.05);
    old = fresh;
    learn(&fresh, 3, 80, 0.05);
    now_ns += 600 * NS_PER_S;
    learn(&old, 3, 80, 0.05);
    assert_true(is_near(&old, 80, 0.15));
    assert_true(rate_level(&fresh) < 60);
}

static void a_slow_estimate_is_tried_again(void **state)
{
    struct rate rate = {0};

    assert_true(rate_hope(&rate, 100, 5) == 100);
    rate_learn(&rate, 1, 0.5, 1, NS_PER_S);
    assert_true(rate_hope(&rate, 100, NS_PER_S) == 1);
    assert_true(fabs(rate_hope(&rate, 100, 61 * NS_PER_S) - 10) < 0.01);
    assert_true(rate_hope(&rate, 100, 3600 * NS_PER_S) > 99);
    assert_true(rate_hope(&rate, 0.5, 3600 * NS_PER_S) == 1);
    assert_true(rate_level(&rate) == 1);
}

/* ---- pauses ---- */

static bool spoils(struct rate_pause *pause, double wall_s, double cpu_s)
{
    return rate_pause_spoils(pause,
                             &(struct rate_step){.wall_s = wall_s, .cpu_s = cpu_s, .expected_s = 0.003});
}

static void a_stopped_step_and_those_after_it_do_not_count(void **state)
{
    struct rate_pause pause = {0};

    assert_false(spoils(&pause, 0.003, 0.003));
    assert_true(spoils(&pause, 4.003, 0.003));
    assert_true(spoils(&pause, 0.007, 0.007)); /* caches are cold */
    assert_false(spoils(&pause, 0.003, 0.003));
    assert_false(spoils(&pause, 0.007, 0.007)); /* no longer one of the first */
}

static void a_slow_step_counts(void **state)
{
    struct rate_pause pause = {0};

    assert_false(spoils(&pause, 3.0, 2.9));   /* the thread ran all the time */
    assert_false(spoils(&pause, 3.0, -1));    /* CPU time is unknown */
    assert_false(spoils(&pause, 0.008, 0.0)); /* the engine sleeps by design */
}

static void a_lasting_change_is_no_pause(void **state)
{
    struct rate_pause pause = {0};
    uint32_t n = 0;

    for (int i = 0; i < 50; i++)
        n += spoils(&pause, 1.0, 0.001);
    assert_int_equal(n, 3);
    assert_false(spoils(&pause, 0.003, 0.001));
    assert_true(spoils(&pause, 1.0, 0.001));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_sample_is_the_level),
        cmocka_unit_test(one_bad_sample_moves_little),
        cmocka_unit_test(a_bad_sample_at_a_bad_time_is_forgotten),
        cmocka_unit_test(a_change_is_learned_in_a_few_samples),
        cmocka_unit_test(many_bad_samples_are_a_small_part),
        cmocka_unit_test(small_samples_say_little),
        cmocka_unit_test(old_samples_lose_weight),
        cmocka_unit_test(a_slow_estimate_is_tried_again),
        cmocka_unit_test(a_stopped_step_and_those_after_it_do_not_count),
        cmocka_unit_test(a_slow_step_counts),
        cmocka_unit_test(a_lasting_change_is_no_pause),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
