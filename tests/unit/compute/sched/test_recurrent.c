/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent state in the scheduler, with real forward passes of tiny hybrid models.  Checks which prefixes
 * hit, and that no hit, chunk, snapshot, preemption or hand-off changes a bit of the answer.
 *
 * The expected answer is that of the sequence alone, in an empty pool, on one thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"
#include "base/rng.h"
#include "cache/kv/pool_cache.h"
#include "compute/engine/engine_cpu.h"
#include "compute/sched/sched.h"
#include "tests/unit/compute/model/tiny.h"

enum { BLOCK_TOKENS = 16, CONTEXT = 512, N_BLOCKS = 128, MOST_TOKENS = 400, MOST_ANSWER = 80, VOCAB = 300 };

struct answer {
    struct sample_result tokens[MOST_ANSWER];
    uint32_t n;
    struct seq_stats stats;
    enum seq_finish finish;
};

struct rig { /* a worker's engine, pool and scheduler */
    struct engine engine;
    struct kv_pool *pool;
    struct sched *sched;
    uint8_t *arena;
    uint32_t chunk_tokens;
    struct seq *held, *arriving;
};

struct world {
    struct model *model;
    struct team *team;
    struct rng rng;
};

static struct world world;

static void on_token(void *arg, struct seq *seq, const struct sample_result *token)
{
    struct answer *answer = seq_spec(seq)->user;

    (void)arg;
    assert_true(answer->n < MOST_ANSWER);
    answer->tokens[answer->n++] = *token;
}

static void on_done(void *arg, struct seq *seq, enum seq_finish finish)
{
    struct answer *answer = seq_spec(seq)->user;

    (void)arg;
    answer->finish = finish;
    answer->stats = *seq_stats(seq);
}

static void on_held(void *arg, struct seq *seq)
{
    ((struct rig *)arg)->held = seq;
}

static void rig_open(struct rig *rig, uint32_t n_blocks, uint32_t chunk_tokens)
{
    const struct kv_layout *layout = model_kv_layout(world.model);

    memset(rig, 0, sizeof(*rig));
    rig->arena = malloc(n_blocks * kv_layout_block_bytes(layout));
    assert_non_null(rig->arena);
    memset(rig->arena, 0xff, n_blocks * kv_layout_block_bytes(layout)); /* NaN */
    assert_int_equal(engine_cpu_new(&(struct engine_cpu_opts){.model = world.model,
                                                              .team = world.team,
                                                              .kv_arena = rig->arena,
                                                              .n_blocks = n_blocks,
                                                              .max_batch_tokens = MOST_TOKENS,
                                                              .max_items = 4,
                                                              .max_draws = 16},
                                    &rig->engine),
                     0);
    assert_int_equal(
        kv_pool_new(&(struct kv_pool_opts){.n_blocks = n_blocks, .block_tokens = BLOCK_TOKENS}, &rig->pool),
        0);
    assert_int_equal(
        sched_new(
            &(struct sched_opts){.engine = &rig->engine,
                                 .pool = rig->pool,
                                 .max_seqs = 4,
                                 .max_queue = 8,
                                 .chunk_tokens = chunk_tokens,
                                 .itl_ns = 0,
                                 .speculate = SPECULATE_AUTO,
                                 .max_drafts = 8,
                                 .events = {.on_token = on_token, .on_done = on_done, .on_held = on_held},
                                 .events_arg = rig},
            &rig->sched),
        0);
}

static void rig_close(struct rig *rig)
{
    struct kv_pool_counts counts;

    kv_pool_counts(rig->pool, &counts); /* no block is lost */
    assert_int_equal(counts.n_filling + counts.n_sealed + counts.n_zombie, 0);
    sched_free(rig->sched);
    kv_pool_free(rig->pool);
    engine_free(&rig->engine);
    free(rig->arena);
}

static struct seq_spec spec_of(const token_id *tokens, uint32_t n, uint32_t n_new, struct answer *answer)
{
    memset(answer, 0, sizeof(*answer));
    return (struct seq_spec){.tokens = tokens,
                             .n_tokens = n,
                             .n_prompt = n,
                             .user = answer,
                             .work = {.max_new_tokens = n_new,
                                      .sample = {.top_p = 1, .temperature = 0.5f, .wants_logprob = true}}};
}

static void run(struct rig *rig, const struct seq_spec *spec)
{
    struct seq *seq;

    assert_int_equal(sched_submit(rig->sched, spec, &seq), 0);
    while (sched_has_work(rig->sched))
        assert_true(sched_run_step(rig->sched) > 0);
}

static void complete(struct rig *rig, const token_id *tokens, uint32_t n, uint32_t n_new,
                     struct answer *answer)
{
    struct seq_spec spec = spec_of(tokens, n, n_new, answer);

    run(rig, &spec);
}

static void expect_same(const struct answer *got, const token_id *tokens, uint32_t n, uint32_t n_new)
{
    struct answer alone;
    struct rig rig;

    rig_open(&rig, N_BLOCKS, 1);
    complete(&rig, tokens, n, n_new, &alone);
    rig_close(&rig);
    assert_int_equal(got->n, alone.n);
    assert_int_equal(got->finish, alone.finish);
    assert_memory_equal(got->tokens, alone.tokens, alone.n * sizeof(alone.tokens[0]));
}

static void draw(token_id *tokens, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        tokens[i] = (token_id)rng_below(&world.rng, VOCAB);
}

/* ---- the cases, each for every model ---- */

/* A conversation: each turn continues the previous one and its answer. */
static void check_turns(void)
{
    token_id tokens[MOST_TOKENS];
    struct answer answer;
    struct rig rig;
    uint32_t n = 70, n_before = 0;

    rig_open(&rig, N_BLOCKS, 64);
    draw(tokens, 0, n);
    for (uint32_t turn = 0; turn < 4; turn++) {
        complete(&rig, tokens, n, 30, &answer);
        expect_same(&answer, tokens, n, 30);
        /* All full blocks of the previous turn are reused: the state after the last one was kept. */
        assert_int_equal(answer.stats.n_reused, n_before / BLOCK_TOKENS * BLOCK_TOKENS);
        for (uint32_t i = 0; i < answer.n; i++)
            tokens[n + i] = answer.tokens[i].id;
        n_before = n + answer.n - 1; /* the last token was never fed */
        draw(tokens, n + answer.n, n + answer.n + 25);
        n += answer.n + 25;
    }
    rig_close(&rig);
}

/* The same prompt again, with every length near a block's end. */
static void check_again(void)
{
    token_id tokens[MOST_TOKENS];
    struct answer answer;

    draw(tokens, 0, 100);
    for (uint32_t n = 60; n <= 66; n++) {
        struct rig rig;

        rig_open(&rig, N_BLOCKS, 1 + (uint32_t)rng_below(&world.rng, 40));
        complete(&rig, tokens, n, 3, &answer);
        complete(&rig, tokens, n, 20, &answer);
        assert_int_equal(answer.stats.n_reused, (n - 1) / BLOCK_TOKENS * BLOCK_TOKENS);
        expect_same(&answer, tokens, n, 20);
        rig_close(&rig);
    }
}

/* Prompts with a common first half: the second leaves a snapshot at the fork, and the third finds it. */
static void check_fork(void)
{
    enum { SHARED = 7 * BLOCK_TOKENS };
    token_id tokens[3][200];
    struct answer answer;
    struct rig rig;

    rig_open(&rig, N_BLOCKS, 512);
    for (uint32_t i = 0; i < 3; i++) {
        draw(tokens[i], 0, 200);
        memcpy(tokens[i], tokens[0], (SHARED + 5) * sizeof(token_id));
        complete(&rig, tokens[i], 200, 12, &answer);
        expect_same(&answer, tokens[i], 200, 12);
        if (i == 2)
            assert_int_equal(answer.stats.n_reused, SHARED);
    }
    rig_close(&rig);
}

/* A pool for little more than two sequences: preemptions and evictions, and no snapshot at all. */
static void check_crowd(void)
{
    uint32_t n_state = kv_layout_state_blocks(model_kv_layout(world.model));
    token_id tokens[4][100];
    struct answer answers[4];
    uint32_t n_preempted = 0;
    struct rig rig;

    rig_open(&rig, 4 * n_state + 16, 23);
    for (uint32_t i = 0; i < 4; i++) {
        struct seq_spec spec;
        struct seq *seq;

        draw(tokens[i], 0, 50 + i);
        spec = spec_of(tokens[i], 50 + i, MOST_ANSWER, &answers[i]);
        assert_int_equal(sched_submit(rig.sched, &spec, &seq), 0);
    }
    while (sched_has_work(rig.sched))
        assert_true(sched_run_step(rig.sched) > 0);
    for (uint32_t i = 0; i < 4; i++) {
        n_preempted += answers[i].stats.n_preempted;
        expect_same(&answers[i], tokens[i], 50 + i, MOST_ANSWER);
    }
    assert_true(n_preempted > 0);
    rig_close(&rig);
}

/* ---- hand-off ---- */

static void copy_block(struct rig *from, kv_block_id source, struct rig *to, kv_block_id target,
                       uint32_t n_blocks)
{
    const struct kv_layout *layout = model_kv_layout(world.model);

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
    struct rig p, d;
    struct seq *sent, *got;
    uint32_t n = 90, n_p, n_d, n_reused, n_state;

    draw(tokens, 0, n);
    rig_open(&p, N_BLOCKS, 33);
    rig_open(&d, N_BLOCKS, 33);
    struct seq_spec departs = spec_of(tokens, n, 40, &first), arrives = spec_of(tokens, n, 40, &answer);
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
    expect_same(&answer, tokens, n, 40);
    assert_int_equal(answer.stats.n_transferred, with_state ? n : 0);

    /* The next turn begins at its prompt's end on both workers, because each kept its snapshots. */
    for (uint32_t i = 0; i < answer.n; i++)
        tokens[n + i] = answer.tokens[i].id;
    draw(tokens, n + answer.n, n + answer.n + 9);
    n += answer.n + 9;
    complete(&d, tokens, n, 10, &answer);
    expect_same(&answer, tokens, n, 10);
    assert_int_equal(answer.stats.n_reused, (n - 10) / BLOCK_TOKENS * BLOCK_TOKENS);
    rig_close(&p);
    rig_close(&d);
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
        rng_init(&world.rng, i + 1);
        assert_int_equal(team_new(&(struct team_opts){.n_threads = 2}, &world.team), 0);
        world.model =
            tiny_model(&shape, world.team,
                       &(struct model_opts){.kv_type = i ? KV_F16 : KV_F32, .block_tokens = BLOCK_TOKENS});
        assert_true(kv_layout_state_blocks(model_kv_layout(world.model)) == (i ? 6 : 1));
        check();
        model_free(world.model);
        team_free(world.team);
    }
}

static void every_turn_reuses_all_full_blocks(void **state)
{
    (void)state;
    for_each_model(check_turns);
}

static void a_prompt_again_computes_one_block(void **state)
{
    (void)state;
    for_each_model(check_again);
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
        cmocka_unit_test(a_handoff_takes_the_state_along),
        cmocka_unit_test(keys_without_their_state_are_not_used),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
