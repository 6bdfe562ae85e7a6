/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent state in the scheduler, with real forward passes of tiny hybrid models.  Checks which prefixes
 * hit, and that no hit, chunk, snapshot, preemption or hand-off changes a bit of the answer.
 *
 * The expected answer: the sequence alone, in an empty pool, on one thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu_rig.h"

#include "base/check.h"
#include "base/err.h"
#include "base/rng.h"
#include "cache/kv/pool_cache.h"
#include "compute/engine/engine_cpu.h"
#include "compute/sched/sched.h"
#include "tests/unit/compute/check_team.h"
#include "tests/unit/compute/model/tiny.h"

enum { N_BLOCKS = 128 };

/* ---- the cases, each for every model ---- */

/* Prompts with a common first half: the second leaves a snapshot at the fork, and the third finds it. */
static void check_fork(void)
{
    enum { SHARED = 7 * BLOCK_TOKENS };
    token_id tokens[3][200];
    struct answer answer;
    struct cpu_rig rig;

    cpu_rig_open(&rig, N_BLOCKS, 512);
    for (uint32_t i = 0; i < 3; i++) {
        cpu_rig_draw(tokens[i], 0, 200);
        memcpy(tokens[i], tokens[0], (SHARED + 5) * sizeof(token_id));
        cpu_rig_complete(&rig, tokens[i], 200, 12, &answer);
        cpu_rig_expect_same(&answer, tokens[i], 200, 12);
        if (i == 2)
            assert_int_equal(answer.stats.n_reused, SHARED);
    }
    cpu_rig_close(&rig);
}

/* A pool for little more than two sequences: preemptions and evictions, and no snapshot at all. */
static void check_crowd(void)
{
    uint32_t n_state = kv_layout_state_blocks(model_kv_layout(cpu_world.model));
    token_id tokens[4][100];
    struct answer answers[4];
    uint32_t n_preempted = 0;
    struct cpu_rig rig;

    cpu_rig_open(&rig, 4 * n_state + 16, 23);
    for (uint32_t i = 0; i < 4; i++) {
        struct seq_spec spec;
        struct seq *seq;

        cpu_rig_draw(tokens[i], 0, 50 + i);
        spec = cpu_rig_spec(tokens[i], 50 + i, MOST_ANSWER, &answers[i]);
        assert_int_equal(sched_submit(rig.sched, &spec, &seq), 0);
    }
    while (sched_has_work(rig.sched))
        assert_true(sched_run_step(rig.sched) > 0);
    for (uint32_t i = 0; i < 4; i++) {
        n_preempted += answers[i].stats.n_preempted;
        cpu_rig_expect_same(&answers[i], tokens[i], 50 + i, MOST_ANSWER);
    }
    assert_true(n_preempted > 0);
    cpu_rig_close(&rig);
}

/* ---- hand-off ---- */

static void copy_block(struct cpu_rig *from, kv_block_id source, struct cpu_rig *to, kv_block_id target,
                       uint32_t n_blocks)
{
    const struct kv_layout *layout = model_kv_layout(cpu_world.model);

    for (uint32_t layer = 0; layer < layout->n_layers; layer++)
        memcpy(to->arena + kv_layout_offset(layout, n_blocks, layer, target),
               from->arena + kv_layout_offset(layout, n_blocks, layer, source),
               kv_layout_layer_block_bytes(layout));
}

/* with_state false: keys and values arrive without the state, so none of them may be used. */
static void check_handoff(bool with_state)
{
    token_id tokens[MOST_TOKENS];
    struct answer first, answer;
    struct cpu_rig p, d;
    struct seq *sent, *got;
    uint32_t n = 90, n_p, n_d, n_reused, n_state;

    cpu_rig_draw(tokens, 0, n);
    cpu_rig_open(&p, N_BLOCKS, 33);
    cpu_rig_open(&d, N_BLOCKS, 33);
    struct seq_spec departs = cpu_rig_spec(tokens, n, 40, &first),
                    arrives = cpu_rig_spec(tokens, n, 40, &answer);
    departs.departs = true;
    arrives.arrives = true;
    assert_int_equal(sched_submit(d.sched, &arrives, &got), 0);
    assert_int_equal(sched_submit(p.sched, &departs, &sent), 0);
    while (p.held == NULL)
        assert_true(sched_run_step(p.sched) > 0);

    const kv_block_id *from = seq_blocks(sent, &n_p, NULL), *to = seq_blocks(got, &n_d, &n_reused);
    for (uint32_t i = 0; i < (n + BLOCK_TOKENS - 1) / BLOCK_TOKENS; i++)
        copy_block(&p, from[i], &d, to[i], N_BLOCKS);
    from = seq_state_blocks(p.sched, sent, &n_state);
    to = seq_state_blocks(d.sched, got, &n_state);
    for (uint32_t i = 0; with_state && i < n_state; i++)
        copy_block(&p, from[i], &d, to[i], N_BLOCKS);
    assert_int_equal(sched_arrived(d.sched, got, with_state ? n : n - n % BLOCK_TOKENS,
                                   with_state ? &first.tokens[0] : NULL, true),
                     0);
    assert_int_equal(sched_release(p.sched, p.held), 0);
    while (sched_has_work(d.sched))
        assert_true(sched_run_step(d.sched) > 0);
    cpu_rig_expect_same(&answer, tokens, n, 40);
    assert_int_equal(answer.stats.n_transferred, with_state ? n : 0);

    /* The next turn begins at its prompt's end on both workers, because each kept its snapshots. */
    for (uint32_t i = 0; i < answer.n; i++)
        tokens[n + i] = answer.tokens[i].id;
    cpu_rig_draw(tokens, n + answer.n, n + answer.n + 9);
    n += answer.n + 9;
    cpu_rig_complete(&d, tokens, n, 10, &answer);
    cpu_rig_expect_same(&answer, tokens, n, 10);
    assert_int_equal(answer.stats.n_reused, (n - 10) / BLOCK_TOKENS * BLOCK_TOKENS);
    cpu_rig_close(&p);
    cpu_rig_close(&d);
}

/* ---- the models ---- */

static const char *const LFM2[] = {"attention.head_count_kv=0,2,0", "shortconv.l_cache=3", NULL};
static const char *const QWEN35[] = {"ssm.conv_kernel=4",
                                     "ssm.inner_size=64",
                                     "ssm.state_size=16",
                                     "ssm.time_step_rank=4",
                                     "ssm.group_count=2",
                                     "full_attention_interval=2",
                                     NULL};

static void for_each_model(void (*check)(void))
{
    for (uint32_t i = 0; i < 2; i++) {
        struct tiny_shape shape = tiny_shape(i ? "qwen35" : "lfm2");

        shape.set = i ? QWEN35 : LFM2;
        shape.n_layers = 3;
        shape.vocab = VOCAB;
        shape.context = CONTEXT;
        shape.seed = i + 3;
        rng_init(&cpu_world.rng, i + 1);
        cpu_world.team = check_team(2);
        cpu_world.model =
            tiny_model(&shape, cpu_world.team,
                       &(struct model_opts){.kv_type = i ? KV_F16 : KV_F32, .block_tokens = BLOCK_TOKENS});
        cpu_world.whole = cpu_world.model;
        cpu_world.n_blocks = N_BLOCKS;
        assert_true(kv_layout_state_blocks(model_kv_layout(cpu_world.model)) == (i ? 6 : 1));
        check();
        model_free(cpu_world.model);
        team_free(cpu_world.team);
    }
}

static void every_turn_reuses_all_full_blocks(void **state)
{
    (void)state;
    for_each_model(cpu_rig_check_turns);
}

static void a_prompt_again_computes_one_block(void **state)
{
    (void)state;
    for_each_model(cpu_rig_check_again);
}

static void a_fork_gets_a_snapshot(void **state)
{
    (void)state;
    for_each_model(check_fork);
}

static void preemption_changes_no_token(void **state)
{
    (void)state;
    for_each_model(check_crowd);
}

/* A pool of exactly the blocks that one sequence needs, or a few more.  The snapshot of its own answer must
 * give way.  Otherwise the sequence waits for ever for blocks that only the snapshot has. */
static void check_tight_pool(void)
{
    uint32_t n_state = kv_layout_state_blocks(model_kv_layout(cpu_world.model));
    token_id tokens[40];

    cpu_rig_draw(tokens, 0, 40);
    cpu_world.max_seqs = 1; /* so that snapshots leave only two blocks free */
    for (uint32_t n_more = 0; n_more <= 3 * n_state + 2; n_more++) {
        struct answer answer;
        struct cpu_rig rig;

        cpu_rig_open(&rig, (40 + MOST_ANSWER) / BLOCK_TOKENS + 1 + n_state + n_more, 32);
        for (uint32_t again = 0; again < 2; again++) {
            cpu_rig_complete(&rig, tokens, 40, MOST_ANSWER, &answer);
            cpu_rig_expect_same(&answer, tokens, 40, MOST_ANSWER);
        }
        cpu_rig_close(&rig);
    }
    cpu_world.max_seqs = 0;
}

static void a_tight_pool_holds_one_sequence(void **state)
{
    for_each_model(check_tight_pool);
}

static void handoff_with_state(void)
{
    check_handoff(true);
}

static void handoff_without_state(void)
{
    check_handoff(false);
}

static void a_handoff_takes_the_state_along(void **state)
{
    (void)state;
    for_each_model(handoff_with_state);
}

static void keys_without_their_state_are_not_used(void **state)
{
    (void)state;
    for_each_model(handoff_without_state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_turn_reuses_all_full_blocks),
        cmocka_unit_test(a_prompt_again_computes_one_block),
        cmocka_unit_test(a_fork_gets_a_snapshot),
        cmocka_unit_test(preemption_changes_no_token),
        cmocka_unit_test(a_tight_pool_holds_one_sequence),
        cmocka_unit_test(a_handoff_takes_the_state_along),
        cmocka_unit_test(keys_without_their_state_are_not_used),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
