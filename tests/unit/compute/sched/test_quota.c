/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants' quotas of the pool in the scheduler.  A tenant with several sequences takes no block within other
 * tenants' quotas, waits only for itself, and makes progress. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/compute/sched/rig.h"
#include "cache/kv/pool_quota.h"

enum { CALM = 1, LOUD = 2, OTHER = 3, N_BLOCKS = 40, PROMPT = 40, FLOOD = 6 };

static struct rig rig;
static token_id prompts[10][160];

static int setup(void **state)
{
    for (uint32_t i = 0; i < 10; i++)
        rig_prompt(prompts[i], 160, 20 + i);
    rig_open(&rig, &(struct rig_opts){.n_blocks = N_BLOCKS, .max_seqs = 8, .max_queue = 32});
    return 0;
}

static int teardown(void **state)
{
    rig_close(&rig);
    return 0;
}

static void submit(kv_tenant tenant, uint32_t text, uint32_t n_tokens, uint32_t n_new, struct track *track)
{
    struct seq_spec spec = rig_spec(prompts[text], n_tokens, n_new, text);

    spec.tenant = tenant;
    assert_int_equal(rig_submit(&rig, spec, track), 0);
}

static void ask_calmly(struct track *track)
{
    submit(CALM, 0, PROMPT, 1, track);
    rig_run(&rig);
    assert_true(track->is_done);
}

/* Prompts that take the whole pool at once, with growing answers. */
static void a_flood_leaves_the_cached_prefix(void **state)
{
    struct track calm = {0}, again = {0}, loud[FLOOD] = {0}, alone = {0};

    (void)state;
    ask_calmly(&calm);
    for (uint32_t i = 0; i < FLOOD; i++)
        submit(LOUD, 1 + i, PROMPT, 40, &loud[i]);
    rig_run(&rig);
    for (uint32_t i = 0; i < FLOOD; i++) {
        struct seq_spec spec = rig_spec(prompts[1 + i], PROMPT, 40, 1 + i);

        assert_true(loud[i].is_done && loud[i].n_answer == 40);
        rig_alone(&spec, 0, 0, &alone);
        rig_assert_same(&loud[i], &alone);
    }
    ask_calmly(&again);
    assert_int_equal(again.stats.n_reused, PROMPT - RIG_BLOCK_TOKENS);
}

static void others_pass_who_waits_for_itself(void **state)
{
    struct track calm = {0}, loud[FLOOD] = {0}, other = {0};
    uint32_t n_waiting = 0;

    (void)state;
    ask_calmly(&calm);
    for (uint32_t i = 0; i < FLOOD; i++)
        submit(LOUD, 1 + i, PROMPT, 60, &loud[i]);
    submit(OTHER, 9, 12, 2, &other);
    while (!other.is_done)
        rig_step(&rig);
    for (uint32_t i = 0; i < FLOOD; i++)
        n_waiting += loud[i].n_admitted == 0;
    assert_true(n_waiting > 0);
    rig_run(&rig);
    for (uint32_t i = 0; i < FLOOD; i++)
        assert_true(loud[i].is_done && loud[i].n_answer == 60);
}

/* A single sequence may use the whole pool, because it could not run otherwise. */
static void a_single_one_is_no_flood(void **state)
{
    struct track calm = {0}, big = {0};

    (void)state;
    ask_calmly(&calm);
    submit(LOUD, 1, 140, 10, &big);
    rig_run(&rig);
    assert_true(big.is_done && big.n_answer == 10);
    assert_int_equal(big.stats.n_preempted, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_flood_leaves_the_cached_prefix, setup, teardown),
        cmocka_unit_test_setup_teardown(others_pass_who_waits_for_itself, setup, teardown),
        cmocka_unit_test_setup_teardown(a_single_one_is_no_flood, setup, teardown)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
