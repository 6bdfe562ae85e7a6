/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of experts: worked examples of each gate, ties, groups, and the results of broken scores. */
#include "compute/model/moe_route_priv.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static struct route_rule plain_rule(uint32_t n_experts, uint32_t n_used)
{
    return (struct route_rule){.gate = ROUTE_SOFTMAX,
                               .n_experts = n_experts,
                               .n_used = n_used,
                               .n_groups = 1,
                               .n_groups_used = 1,
                               .is_normed = true,
                               .scale = 1};
}

static void softmax_over_the_chosen(void **state)
{
    static const float SCORES[4] = {1.0f, 3.0f, -2.0f, 2.0f};
    struct route_rule rule = plain_rule(4, 2);
    uint32_t experts[2];
    float weights[2], also[2];
    double all = exp(1) + exp(3) + exp(-2) + exp(2);

    (void)state;
    route_token(&rule, SCORES, NULL, experts, weights);
    assert_int_equal(experts[0], 1);
    assert_int_equal(experts[1], 3);
    assert_true(fabs(weights[0] - 1 / (1 + exp(-1))) < 1e-7);
    assert_true(fabs(weights[1] - 1 / (1 + exp(1))) < 1e-7);
    rule.gate = ROUTE_SOFTMAX_CHOSEN;
    rule.is_normed = false;
    route_token(&rule, SCORES, NULL, experts, also);
    assert_memory_equal(weights, also, sizeof(also));
    rule.gate = ROUTE_SOFTMAX;
    rule.scale = 3;
    route_token(&rule, SCORES, NULL, experts, weights);
    assert_true(fabs(weights[0] - 3 * exp(3) / all) < 1e-6);
    assert_true(fabs(weights[1] - 3 * exp(2) / all) < 1e-6);
}

/* Each choice has a softmax over the experts that are left and at most a fiftieth worse. */
static void sparsemixer_weighs_each_choice_by_itself(void **state)
{
    static const float SCORES[5] = {2.0f, 1.99f, -3.0f, 1.97f, 1.0f}, BELOW[3] = {-1.0f, -1.01f, -2.0f};
    struct route_rule rule = plain_rule(5, 2);
    uint32_t experts[2];
    float weights[2];

    (void)state;
    rule.gate = ROUTE_SPARSEMIXER;
    route_token(&rule, SCORES, NULL, experts, weights);
    assert_int_equal(experts[0], 0);
    assert_int_equal(experts[1], 1);
    assert_true(fabs(weights[0] - 1 / (1 + exp(-0.01) + exp(-0.03))) < 1e-6);
    assert_true(fabs(weights[1] - 1 / (1 + exp(-0.02))) < 1e-6);
    rule.n_experts = 3;
    route_token(&rule, BELOW, NULL, experts, weights);
    assert_int_equal(experts[0], 0);
    assert_int_equal(experts[1], 1);
    assert_true(fabs(weights[0] - 1 / (1 + exp(-0.01))) < 1e-6);
    assert_true(fabs(weights[1] - 1) < 1e-6);
}

static void ties_go_to_the_lower_index(void **state)
{
    static const float SCORES[6] = {0, 5, 5, 1, 5, 5};
    struct route_rule rule = plain_rule(6, 3);
    uint32_t experts[3];
    float weights[3];

    (void)state;
    route_token(&rule, SCORES, NULL, experts, weights);
    assert_int_equal(experts[0], 1);
    assert_int_equal(experts[1], 2);
    assert_int_equal(experts[2], 4);
    assert_true(weights[0] == weights[1] && weights[1] == weights[2]);
}

static void a_bias_chooses_but_does_not_weigh(void **state)
{
    static const float SCORES[4] = {0, 1, 2, 3}, BIAS[4] = {1, 0, 0, 0};
    struct route_rule rule = plain_rule(4, 2);
    uint32_t experts[2];
    float weights[2];
    double a = 0.5, b = 1 / (1 + exp(-3));

    (void)state;
    rule.gate = ROUTE_SIGMOID;
    rule.scale = 2.5f;
    route_token(&rule, SCORES, BIAS, experts, weights);
    assert_int_equal(experts[0], 0);
    assert_int_equal(experts[1], 3);
    assert_true(fabs(weights[0] - 2.5 * a / (a + b)) < 1e-6);
    assert_true(fabs(weights[1] - 2.5 * b / (a + b)) < 1e-6);
}

/* Groups of two: {9, 0} has the best expert, {6, 5} the best pair. */
static void groups_count_by_one_or_two(void **state)
{
    static const float SCORES[6] = {0.9f, 0.0f, 0.1f, 0.1f, 0.6f, 0.5f};
    struct route_rule rule = plain_rule(6, 2);
    uint32_t experts[2];
    float weights[2];

    (void)state;
    rule.n_groups = 3;
    route_token(&rule, SCORES, NULL, experts, weights);
    assert_int_equal(experts[0], 0);
    assert_int_equal(experts[1], 1);
    rule.gate = ROUTE_SIGMOID;
    route_token(&rule, SCORES, NULL, experts, weights);
    assert_int_equal(experts[0], 4);
    assert_int_equal(experts[1], 5);
    rule.n_groups_used = 2;
    route_token(&rule, SCORES, NULL, experts, weights);
    assert_int_equal(experts[0], 0);
    assert_int_equal(experts[1], 4);
}

static void any_scores_give_different_experts(void **state)
{
    static const float ODD[] = {NAN, INFINITY, -INFINITY, 1e38f, -1e38f, 0, 1e-40f};
    struct rng rng;

    (void)state;
    rng_init(&rng, 5);
    for (unsigned trial = 0; trial < 3000; trial++) {
        struct route_rule rule = plain_rule(32, 8);
        float scores[32], weights[8];
        uint32_t experts[8], seen = 0;

        rule.gate = (enum route_gate)(1 + rng_below(&rng, 3));
        rule.is_normed = rng_below(&rng, 2);
        rule.n_groups = 1u << rng_below(&rng, 3);
        rule.n_groups_used = 1 + (uint32_t)rng_below(&rng, rule.n_groups);
        for (unsigned i = 0; i < 32; i++)
            scores[i] = rng_below(&rng, 2) ? ODD[rng_below(&rng, 7)] : (float)(rng_unit(&rng) * 200 - 100);
        route_token(&rule, scores, NULL, experts, weights);
        for (unsigned i = 0; i < 8; i++) {
            assert_true(experts[i] < 32 && !(seen >> experts[i] & 1));
            seen |= 1u << experts[i];
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_over_the_chosen),
        cmocka_unit_test(sparsemixer_weighs_each_choice_by_itself),
        cmocka_unit_test(ties_go_to_the_lower_index),
        cmocka_unit_test(a_bias_chooses_but_does_not_weigh),
        cmocka_unit_test(groups_count_by_one_or_two),
        cmocka_unit_test(any_scores_give_different_experts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
