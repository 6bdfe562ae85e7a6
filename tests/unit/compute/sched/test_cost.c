/* SPDX-License-Identifier: Apache-2.0 */
/* The cost model learns the step times of a simulated machine, and keeps them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <cmocka.h>

#include "base/rng.h"
#include "compute/sched/cost.h"

static struct rng rng;
static struct cost_model model;

static double uniform(double from, double to)
{
    return from + (to - from) * (double)(rng_u64(&rng) >> 11) / (double)(UINT64_C(1) << 53);
}

/* 25 ms of reading, up to four rows free, prompts at 500 tokens/s, and attention. */
static double machine(const struct cost_step *step)
{
    double rows = step->n_rows > 4 ? step->n_rows - 4 : 0;

    return 0.025 + 0.002 * rows + 0.002 * step->n_prompt + 2e-8 * step->n_pairs;
}

static struct cost_step random_step(void)
{
    struct cost_step step = {.n_rows = (uint32_t)rng_below(&rng, 12)};
    double context = uniform(1, 4000);

    if (step.n_rows == 0 || rng_below(&rng, 3) == 0)
        step.n_prompt = 16 + (uint32_t)rng_below(&rng, 500);
    step.n_pairs = (step.n_rows + step.n_prompt) * context;
    return step;
}

static double error_of(const struct cost_step *step)
{
    return fabs(cost_predict(&model, step) / machine(step) - 1);
}

static void begin(uint64_t seed)
{
    rng_init(&rng, seed);
    model = (struct cost_model){0};
}

static void learn(uint32_t n, double noise)
{
    for (uint32_t i = 0; i < n; i++) {
        struct cost_step step = random_step();

        cost_observe(&model, &step, machine(&step) * uniform(1 - noise, 1 + noise));
    }
}

static void nothing_seen_is_nothing_known(void **state)
{
    begin(1);
    assert_true(cost_predict(&model, &(struct cost_step){.n_rows = 1}) == 0);
    assert_false(cost_knows_prompts(&model));
    cost_observe(&model, &(struct cost_step){.n_rows = 1}, 0.025);
    assert_false(cost_knows_prompts(&model));
    assert_true(fabs(cost_predict(&model, &(struct cost_step){.n_rows = 1}) - 0.025) < 0.002);
}

static void steps_are_predicted(void **state)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        double sum = 0;

        begin(seed);
        learn(400, 0.05);
        for (uint32_t i = 0; i < 200; i++) {
            struct cost_step step = random_step();

            sum += error_of(&step);
        }
        assert_true(sum / 200 < 0.10);
        assert_true(cost_margin(&model) > 1.04 && cost_margin(&model) < 1.3);
    }
}

/* Hours of decoding one sequence do not change the learned cost of prompts. */
static void unmeasured_parts_keep_their_estimate(void **state)
{
    struct cost_step prompt = {.n_prompt = 256, .n_pairs = 256 * 500.0},
                     rows = {.n_rows = 8, .n_pairs = 8000};

    begin(3);
    learn(400, 0.02);
    for (uint32_t i = 0; i < 20000; i++) {
        struct cost_step step = {.n_rows = 1, .n_pairs = 100 + i % 3000};

        cost_observe(&model, &step, machine(&step) * uniform(0.97, 1.03));
    }
    assert_true(error_of(&prompt) < 0.15);
    assert_true(error_of(&rows) < 0.25);
    assert_true(error_of(&(struct cost_step){.n_rows = 1, .n_pairs = 1000}) < 0.03);
}

static void outliers_do_not_count_for_much(void **state)
{
    struct cost_step step = {.n_rows = 2, .n_pairs = 1000};

    begin(4);
    learn(400, 0.02);
    double before = cost_predict(&model, &step);
    cost_observe(&model, &step, 5.0); /* the machine was suspended */
    assert_true(cost_predict(&model, &step) < 2 * before);
    learn(100, 0.02);
    assert_true(error_of(&step) < 0.15);
}

static void a_new_machine_is_learned_soon(void **state)
{
    struct cost_step step = {.n_rows = 1, .n_pairs = 500};

    begin(5);
    learn(400, 0.02);
    for (uint32_t i = 0; i < 60; i++)
        cost_observe(&model, &step, 4 * machine(&step));
    assert_true(fabs(cost_predict(&model, &step) / (4 * machine(&step)) - 1) < 0.1);
}

static void costs_stay_finite_and_never_negative(void **state)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        begin(seed);
        for (uint32_t i = 0; i < 500; i++) {
            struct cost_step step = random_step();

            cost_observe(&model, &step, rng_below(&rng, 4) ? pow(10, uniform(-12, 4)) : 0);
            step = random_step();
            double predicted = cost_predict(&model, &step);
            assert_true(isfinite(predicted) && predicted >= 0);
        }
    }
}

/* Without attention the term for pairs comes out negative.  It is 0 then, and the others fit without it. */
static void a_negative_term_spoils_no_other(void **state)
{
    const struct cost_step prompt = {.n_prompt = 128, .n_pairs = 8256};

    (void)state;
    begin(1);
    cost_observe(&model, &(struct cost_step){.n_prompt = 32, .n_pairs = 528}, 0.0126);
    for (uint32_t i = 0; i < 7; i++)
        cost_observe(&model, &(struct cost_step){.n_rows = 1, .n_pairs = 33 + i}, 0.0118);
    cost_observe(&model, &prompt, 0.0149);
    /* the sum of the terms, without the correction for this size */
    assert_true(fabs(model.terms[0] + 128 * model.terms[2] + 8.256 * model.terms[3] - 0.0149) <
                0.15 * 0.0149);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_negative_term_spoils_no_other),
        cmocka_unit_test(nothing_seen_is_nothing_known),
        cmocka_unit_test(steps_are_predicted),
        cmocka_unit_test(unmeasured_parts_keep_their_estimate),
        cmocka_unit_test(outliers_do_not_count_for_much),
        cmocka_unit_test(a_new_machine_is_learned_soon),
        cmocka_unit_test(costs_stay_finite_and_never_negative),
    };

    return cmocka_run_group_tests_name("cost model", tests, NULL, NULL);
}
