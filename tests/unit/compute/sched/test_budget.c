/* SPDX-License-Identifier: Apache-2.0 */
/* The prompt tokens of a step, from step times that are known exactly. */
#include "compute/sched/budget.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"

static const double TOKEN_S = 0.001;

static double linear_s(const void *arg, uint32_t n)
{
    const struct sched_budget *budget = arg;

    return budget->decode_s + n * TOKEN_S;
}

static double endless_s(const void *arg, uint32_t n)
{
    return n == 0 ? 0 : 1e9;
}

static struct sched_budget some_budget(void)
{
    return (struct sched_budget){.n_rows = 4,
                                 .max_batch_tokens = 1000,
                                 .chunk_tokens = 200,
                                 .itl_ns = 50 * NS_PER_MS,
                                 .knows_prompts = true,
                                 .decode_s = 0.010,
                                 .per_token_s = TOKEN_S,
                                 .margin = 1,
                                 .step_s = linear_s};
}

static uint32_t tokens_of(struct sched_budget *budget)
{
    budget->arg = budget;
    return sched_budget_tokens(budget);
}

static void the_objective_bounds_the_step(void **state)
{
    struct sched_budget budget = some_budget();

    budget.itl_ns += 1; /* half a token more, so that rounding does not decide */
    assert_int_equal(tokens_of(&budget), 40);
    budget.margin = 1.25;
    assert_int_equal(tokens_of(&budget), 30);
    budget.itl_ns = NS_PER_S;
    assert_int_equal(tokens_of(&budget), 200); /* a chunk at most */
    budget.itl_ns = 0;
    assert_int_equal(tokens_of(&budget), 200);
    budget.max_batch_tokens = 104;
    assert_int_equal(tokens_of(&budget), 100); /* the engine takes no more */
}

static void prompts_always_progress(void **state)
{
    struct sched_budget budget = some_budget();

    budget.decode_s = 0.080; /* steps already exceed the objective: prompts get a quarter of its time */
    assert_int_equal(tokens_of(&budget), 20);
    budget.decode_s = 0.004;
    budget.step_s = endless_s;
    assert_int_equal(tokens_of(&budget), 8);
    budget.decode_s = 1e30;
    assert_int_equal(tokens_of(&budget), 200);
}

static void without_decoding_only_the_longest_step_counts(void **state)
{
    struct sched_budget budget = some_budget();

    budget.n_rows = 0;
    budget.decode_s = 0;
    assert_int_equal(tokens_of(&budget), 1000);
    budget.max_step_ns = 300 * NS_PER_MS + 1;
    assert_int_equal(tokens_of(&budget), 300);
    budget.knows_prompts = false;
    assert_int_equal(tokens_of(&budget), 200);
}

static void a_chunk_ends_on_a_block(void **state)
{
    assert_int_equal(sched_budget_chunk(100, 70, 5, 32, true), 70);    /* it ends its prompt */
    assert_int_equal(sched_budget_chunk(100, 500, 0, 32, true), 96);   /* cuts 4 tokens */
    assert_int_equal(sched_budget_chunk(100, 500, 10, 32, true), 100); /* would cut 14: more than an eighth */
    assert_int_equal(sched_budget_chunk(100, 500, 10, 32, false), 86);
    assert_int_equal(sched_budget_chunk(10, 500, 12, 32, false), 10); /* no boundary within reach */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_objective_bounds_the_step),
        cmocka_unit_test(prompts_always_progress),
        cmocka_unit_test(without_decoding_only_the_longest_step_counts),
        cmocka_unit_test(a_chunk_ends_on_a_block),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
