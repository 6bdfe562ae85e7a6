/* SPDX-License-Identifier: Apache-2.0 */
/* See cpu_rig.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu_rig.h"

#include "cache/kv/pool.h"
#include "compute/engine/engine_cpu.h"

struct cpu_world cpu_world;

static void cpu_rig_on_token(void *arg, struct seq *seq, const struct sample_result *token)
{
    struct answer *answer = seq_spec(seq)->user;

    (void)arg;
    assert_true(answer->n < MOST_ANSWER);
    answer->tokens[answer->n++] = *token;
}

static void cpu_rig_on_done(void *arg, struct seq *seq, enum seq_finish finish)
{
    struct answer *answer = seq_spec(seq)->user;

    (void)arg;
    answer->finish = finish;
    answer->stats = *seq_stats(seq);
}

static void cpu_rig_on_held(void *arg, struct seq *seq)
{
    ((struct cpu_rig *)arg)->held = seq;
}

void cpu_rig_open_for(struct cpu_rig *rig, struct model *model, uint32_t n_blocks, uint32_t chunk_tokens)
{
    const struct kv_layout *layout = model_kv_layout(model);

    memset(rig, 0, sizeof(*rig));
    rig->n_blocks = n_blocks;
    rig->arena = malloc(n_blocks * kv_layout_block_bytes(layout));
    assert_non_null(rig->arena);
    memset(rig->arena, 0xff, n_blocks * kv_layout_block_bytes(layout)); /* NaN */
    assert_int_equal(engine_cpu_new(&(struct engine_cpu_opts){.model = model,
                                                              .team = cpu_world.team,
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
        sched_new(&(struct sched_opts){.engine = &rig->engine,
                                       .pool = rig->pool,
                                       .max_seqs = cpu_world.max_seqs > 0 ? cpu_world.max_seqs : 4,
                                       .max_queue = 8,
                                       .chunk_tokens = chunk_tokens,
                                       .itl_ns = 0,
                                       .speculate = SPECULATE_AUTO,
                                       .max_drafts = 8,
                                       .events = {.on_token = cpu_rig_on_token,
                                                  .on_done = cpu_rig_on_done,
                                                  .on_held = cpu_rig_on_held},
                                       .events_arg = rig},
                  &rig->sched),
        0);
}

void cpu_rig_open(struct cpu_rig *rig, uint32_t n_blocks, uint32_t chunk_tokens)
{
    cpu_rig_open_for(rig, cpu_world.model, n_blocks, chunk_tokens);
}

void cpu_rig_close(struct cpu_rig *rig)
{
    struct kv_pool_counts counts;

    kv_pool_counts(rig->pool, &counts); /* no block is lost */
    assert_int_equal(counts.n_filling + counts.n_sealed + counts.n_zombie, 0);
    sched_free(rig->sched);
    kv_pool_free(rig->pool);
    engine_free(&rig->engine);
    free(rig->arena);
}

struct seq_spec cpu_rig_spec(const token_id *tokens, uint32_t n, uint32_t n_new, struct answer *answer)
{
    memset(answer, 0, sizeof(*answer));
    return (struct seq_spec){.tokens = tokens,
                             .n_tokens = n,
                             .n_prompt = n,
                             .user = answer,
                             .work = {.max_new_tokens = n_new,
                                      .sample = {.top_p = 1, .temperature = 0.5f, .wants_logprob = true}}};
}

void cpu_rig_run(struct cpu_rig *rig, const struct seq_spec *spec)
{
    struct seq *seq;

    assert_int_equal(sched_submit(rig->sched, spec, &seq), 0);
    while (sched_has_work(rig->sched))
        assert_true(sched_run_step(rig->sched) > 0);
}

void cpu_rig_complete(struct cpu_rig *rig, const token_id *tokens, uint32_t n, uint32_t n_new,
                      struct answer *answer)
{
    struct seq_spec spec = cpu_rig_spec(tokens, n, n_new, answer);

    cpu_rig_run(rig, &spec);
}

void cpu_rig_expect_same(const struct answer *got, const token_id *tokens, uint32_t n, uint32_t n_new)
{
    struct answer alone;
    struct cpu_rig rig;

    cpu_rig_open_for(&rig, cpu_world.whole, cpu_world.n_blocks, 1);
    cpu_rig_complete(&rig, tokens, n, n_new, &alone);
    cpu_rig_close(&rig);
    assert_int_equal(got->n, alone.n);
    assert_int_equal(got->finish, alone.finish);
    assert_memory_equal(got->tokens, alone.tokens, alone.n * sizeof(alone.tokens[0]));
}

void cpu_rig_draw(token_id *tokens, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        tokens[i] = (token_id)rng_below(&cpu_world.rng, VOCAB);
}

void cpu_rig_check_turns(void)
{
    token_id tokens[MOST_TOKENS];
    struct answer answer;
    struct cpu_rig rig;
    uint32_t n = 70, n_before = 0;

    cpu_rig_open(&rig, cpu_world.n_blocks, 64);
    cpu_rig_draw(tokens, 0, n);
    for (uint32_t turn = 0; turn < 4; turn++) {
        cpu_rig_complete(&rig, tokens, n, 30, &answer);
        cpu_rig_expect_same(&answer, tokens, n, 30);
        /* All full blocks of the previous turn are reused, with the state or the windows after them. */
        assert_int_equal(answer.stats.n_reused, n_before / BLOCK_TOKENS * BLOCK_TOKENS);
        for (uint32_t i = 0; i < answer.n; i++)
            tokens[n + i] = answer.tokens[i].id;
        n_before = n + answer.n - 1; /* the last token was never fed */
        cpu_rig_draw(tokens, n + answer.n, n + answer.n + 25);
        n += answer.n + 25;
    }
    cpu_rig_close(&rig);
}

void cpu_rig_check_again(void)
{
    token_id tokens[MOST_TOKENS];
    struct answer answer;

    cpu_rig_draw(tokens, 0, 100);
    for (uint32_t n = 60; n <= 66; n++) {
        struct cpu_rig rig;

        cpu_rig_open(&rig, cpu_world.n_blocks, 1 + (uint32_t)rng_below(&cpu_world.rng, 40));
        cpu_rig_complete(&rig, tokens, n, 3, &answer);
        cpu_rig_complete(&rig, tokens, n, 20, &answer);
        assert_int_equal(answer.stats.n_reused, (n - 1) / BLOCK_TOKENS * BLOCK_TOKENS);
        cpu_rig_expect_same(&answer, tokens, n, 20);
        cpu_rig_close(&rig);
    }
}
