/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the trials of trial.h: blocks move, chunks vary, and memcmp compares. */
#include "tests/unit/compute/engine/trial.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

/* ---- blocks ---- */

static kv_block_id take_block(struct trial_bench *b)
{
    for (;;) {
        kv_block_id id = (kv_block_id)rng_below(&b->rng, TRIAL_ARENA_BLOCKS);

        if (!b->is_used[id]) {
            b->is_used[id] = true;
            return id;
        }
    }
}

static uint8_t *layer_block(struct trial_bench *b, uint32_t layer, kv_block_id id)
{
    return b->arena + kv_layout_offset(b->layout, TRIAL_ARENA_BLOCKS, layer, id);
}

/* Moves a block elsewhere, as a transfer would, and spoils its old place. */
static void move_block(struct trial_bench *b, kv_block_id *id)
{
    size_t len_bytes = kv_layout_layer_block_bytes(b->layout);
    kv_block_id to = take_block(b);

    for (uint32_t layer = 0; layer < b->layout->n_layers; layer++) {
        memcpy(layer_block(b, layer, to), layer_block(b, layer, *id), len_bytes);
        memset(layer_block(b, layer, *id), 0xff, len_bytes);
    }
    b->is_used[*id] = false;
    *id = to;
}

static void begin_trial(struct trial_bench *b, bool in_order)
{
    /* NaN, or random numbers. */
    memset(b->arena, 0xff, TRIAL_ARENA_BLOCKS * kv_layout_block_bytes(b->layout));
    memset(b->is_used, 0, sizeof(b->is_used));
    b->n_shared = 0;
    b->has_snapshot = false;
    for (uint32_t s = 0; s < TRIAL_SEQUENCES; s++) {
        struct trial_sequence *sequence = &b->sequences[s];

        sequence->fed = 0;
        sequence->owns_state = false;
        sequence->n_blocks = (sequence->n_tokens + b->layout->block_tokens - 1) / b->layout->block_tokens;
        ASSERT(sequence->n_blocks <= TRIAL_MAX_TABLE);
        for (uint32_t i = 0; i < sequence->n_blocks; i++) {
            sequence->blocks[i] = in_order ? s * TRIAL_MAX_TABLE + i : take_block(b);
            b->is_used[sequence->blocks[i]] = true;
        }
    }
}

static struct engine new_engine(struct trial_bench *b, unsigned n_threads)
{
    struct engine engine;

    assert_int_equal(
        engine_cpu_new(&(struct engine_cpu_opts){.model = b->model,
                                                 .team = b->teams[n_threads - 1],
                                                 .kv_arena = b->arena,
                                                 .n_blocks = TRIAL_ARENA_BLOCKS,
                                                 .max_batch_tokens = TRIAL_SEQUENCES * TRIAL_MAX_TOKENS,
                                                 .max_items = TRIAL_SEQUENCES,
                                                 .team_from_bytes = rng_below(&b->rng, 4) > 0},
                       &engine),
        0);
    return engine;
}

/* ---- recurrent state ---- */

struct state_plan { /* of one item */
    struct kv_state_cut cuts[TRIAL_MAX_CUTS];
    kv_block_id ids[TRIAL_MAX_CUTS][TRIAL_MAX_STATE];
    kv_block_id before[TRIAL_MAX_STATE];
};

static void take_state(struct trial_bench *b, kv_block_id ids_out[])
{
    for (uint32_t i = 0; i < b->n_state; i++)
        ids_out[i] = take_block(b);
}

/* Frees and spoils the blocks of a state. */
static void drop_state(struct trial_bench *b, const kv_block_id ids[])
{
    for (uint32_t i = 0; i < b->n_state; i++) {
        for (uint32_t layer = 0; layer < b->layout->n_layers; layer++)
            memset(layer_block(b, layer, ids[i]), 0xff, kv_layout_layer_block_bytes(b->layout));
        b->is_used[ids[i]] = false;
    }
}

/* Sets where the item's state comes from and goes to.
 * The first sequence leaves a snapshot after the prefix. */
static void plan_state(struct trial_bench *b, struct trial_sequence *sequence, struct engine_item *item,
                       struct state_plan *plan)
{
    bool passes = sequence == b->sequences && !b->has_snapshot && b->prefix_tokens > sequence->fed &&
                  b->prefix_tokens <= sequence->fed + item->n_tokens;
    bool in_place = sequence->owns_state && rng_below(&b->rng, 2) == 0;
    uint32_t n = 0;

    if (b->n_state == 0)
        return;
    memcpy(plan->before, sequence->state, sizeof(plan->before));
    item->recurrent = sequence->fed > 0 ? plan->before : NULL;
    item->cuts = plan->cuts;
    if (passes) {
        take_state(b, b->snapshot);
        memcpy(plan->ids[n], b->snapshot, sizeof(b->snapshot));
        plan->cuts[n++].n_tokens = b->prefix_tokens - sequence->fed;
        b->has_snapshot = true;
    }
    if (in_place)
        memcpy(plan->ids[n], sequence->state, sizeof(sequence->state));
    else
        take_state(b, plan->ids[n]);
    plan->cuts[n++].n_tokens = item->n_tokens;
    for (uint32_t i = 0; i < n; i++)
        plan->cuts[i].blocks = plan->ids[i];
    item->n_cuts = n;
}

static void end_state(struct trial_bench *b, struct trial_sequence *sequence, const struct engine_item *item)
{
    const kv_block_id *now;

    if (b->n_state == 0)
        return;
    now = item->cuts[item->n_cuts - 1].blocks;
    if (sequence->owns_state && memcmp(now, sequence->state, b->n_state * sizeof(*now)) != 0)
        drop_state(b, sequence->state);
    memcpy(sequence->state, now, b->n_state * sizeof(*now));
    sequence->owns_state = true;
}

static struct engine_item next_item(struct trial_sequence *sequence, uint32_t n_tokens)
{
    uint32_t left = sequence->n_tokens - sequence->fed;

    return (struct engine_item){.tokens = sequence->tokens + sequence->fed,
                                .n_tokens = n_tokens < left ? n_tokens : left,
                                .position = sequence->fed,
                                .blocks = sequence->blocks,
                                .n_blocks = sequence->n_blocks,
                                .wants_token = true,
                                .sample = {.top_p = 1}};
}

/* ---- expected, and random ---- */

static void compute_expected(struct trial_bench *b)
{
    struct engine engine = new_engine(b, 1);
    struct sample_result drawn;

    begin_trial(b, true);
    for (uint32_t s = 0; s < TRIAL_SEQUENCES; s++) {
        struct trial_sequence *sequence = &b->sequences[s];

        for (; sequence->fed < sequence->n_tokens; sequence->fed++) {
            struct engine_item item = next_item(sequence, 1);
            struct state_plan states;

            plan_state(b, sequence, &item, &states);

            assert_int_equal(
                engine_step(&engine, &(struct engine_batch){.items = &item, .n_items = 1}, &drawn), 0);
            memcpy(sequence->expected + (size_t)sequence->fed * b->vocab, engine.ops->logits(engine.self, 0),
                   b->vocab * sizeof(float));
            end_state(b, sequence, &item);
        }
    }
    for (uint32_t i = 0; i < b->sequences[0].n_tokens * b->vocab; i++)
        assert_true(b->sequences[0].expected[i] == b->sequences[0].expected[i]); /* not NaN */
    engine_free(&engine);
}

/* Runs a step over a random subset in random order.  Returns whether anything is left. */
static bool random_step(struct trial_bench *b, struct engine *engine)
{
    static const uint32_t CHUNKS[] = {1, 7, 64, 512, TRIAL_MAX_TOKENS};
    struct engine_item items[TRIAL_SEQUENCES];
    struct trial_sequence *whose[TRIAL_SEQUENCES];
    struct sample_result drawn[TRIAL_SEQUENCES];
    struct state_plan states[TRIAL_SEQUENCES];
    uint32_t n = 0, first = (uint32_t)rng_below(&b->rng, TRIAL_SEQUENCES), n_left = 0;

    for (uint32_t i = 0; i < TRIAL_SEQUENCES; i++) {
        struct trial_sequence *sequence = &b->sequences[(first + i) % TRIAL_SEQUENCES];

        if (sequence->fed == sequence->n_tokens)
            continue;
        n_left++;
        if (rng_below(&b->rng, 3) == 0)
            continue;
        items[n] = next_item(sequence, CHUNKS[rng_below(&b->rng, ARRAY_LEN(CHUNKS))]);
        plan_state(b, sequence, &items[n], &states[n]);
        whose[n++] = sequence;
    }
    assert_int_equal(engine_step(engine, &(struct engine_batch){.items = items, .n_items = n}, drawn), 0);
    for (uint32_t i = 0; i < n; i++) {
        whose[i]->fed += items[i].n_tokens;
        assert_memory_equal(engine->ops->logits(engine->self, i),
                            whose[i]->expected + (size_t)(whose[i]->fed - 1) * b->vocab,
                            b->vocab * sizeof(float));
        end_state(b, whose[i], &items[i]);
    }
    return n_left > 0;
}

/* A sequence that has not begun takes the prefix that the first one has computed. */
static void hit_cache(struct trial_bench *b)
{
    uint32_t n = b->prefix_tokens / b->layout->block_tokens;
    struct trial_sequence *sequence = &b->sequences[1 + rng_below(&b->rng, TRIAL_SEQUENCES - 1)];

    if (n == 0 || sequence->fed > 0 || (b->n_state > 0 && !b->has_snapshot) ||
        b->sequences[0].fed < b->prefix_tokens)
        return;
    for (uint32_t i = 0; i < n; i++) {
        b->is_used[sequence->blocks[i]] = false;
        sequence->blocks[i] = b->sequences[0].blocks[i];
    }
    memcpy(sequence->state, b->snapshot, sizeof(b->snapshot));
    sequence->fed = b->prefix_tokens;
    b->n_shared = n;
}

static void random_trial(struct trial_bench *b)
{
    struct engine engine = new_engine(b, 1 + (unsigned)rng_below(&b->rng, TRIAL_MAX_THREADS));
    bool has_cache = rng_below(&b->rng, 2) == 0;

    begin_trial(b, false);
    while (random_step(b, &engine)) {
        struct trial_sequence *sequence = &b->sequences[rng_below(&b->rng, TRIAL_SEQUENCES)];
        uint32_t at = (uint32_t)rng_below(&b->rng, sequence->n_blocks);

        if (has_cache)
            hit_cache(b);
        if (at >= b->n_shared && rng_below(&b->rng, 2) == 0)
            move_block(b, &sequence->blocks[at]);
    }
    engine_free(&engine);
}

static uint64_t digest_of_expected(const struct trial_bench *b)
{
    uint64_t digest = 1;

    for (uint32_t s = 0; s < TRIAL_SEQUENCES; s++) {
        const struct trial_sequence *sequence = &b->sequences[s];

        for (size_t i = 0; i < (size_t)sequence->n_tokens * b->vocab; i++) {
            uint32_t bits;

            memcpy(&bits, &sequence->expected[i], sizeof(bits));
            digest = (digest ^ bits) * UINT64_C(0x100000001b3);
        }
    }
    return digest;
}

static void draw_sequences(struct trial_bench *b, uint32_t longest)
{
    uint32_t block_tokens = b->layout->block_tokens;

    for (uint32_t s = 0; s < TRIAL_SEQUENCES; s++) {
        struct trial_sequence *sequence = &b->sequences[s];

        sequence->n_tokens = longest - (uint32_t)rng_below(&b->rng, longest / 2);
        for (uint32_t i = 0; i < sequence->n_tokens; i++)
            sequence->tokens[i] = (token_id)rng_below(&b->rng, b->vocab);
        sequence->expected = calloc((size_t)sequence->n_tokens * b->vocab, sizeof(float));
        assert_non_null(sequence->expected);
    }
    /* Shorter than the shortest possible sequence, so that each continues after it. */
    b->prefix_tokens = (longest / 2 - 1) / block_tokens * block_tokens;
    for (uint32_t s = 1; s < TRIAL_SEQUENCES; s++)
        memcpy(b->sequences[s].tokens, b->sequences[0].tokens, b->prefix_tokens * sizeof(token_id));
}

uint64_t trial_model(struct trial_bench *b, const struct tiny_shape *shape, uint32_t longest,
                     const struct model_opts *opts)
{
    uint64_t digest;

    rng_init(&b->rng, shape->seed);
    b->model = tiny_model(shape, b->teams[shape->seed % 2 == 0 ? 1 : 3], opts);
    b->layout = model_kv_layout(b->model);
    b->vocab = shape->vocab;
    b->n_state = kv_layout_state_blocks(b->layout);
    assert_true(b->n_state <= TRIAL_MAX_STATE);
    b->arena = calloc(TRIAL_ARENA_BLOCKS, kv_layout_block_bytes(b->layout));
    assert_non_null(b->arena);
    draw_sequences(b, longest);
    compute_expected(b);
    digest = digest_of_expected(b);
    b->numerics_id = model_numerics_id(b->model);
    b->bf16 = model_bf16_math(b->model);
    for (uint32_t i = 0; i < b->n_trials; i++)
        random_trial(b);
    for (uint32_t s = 0; s < TRIAL_SEQUENCES; s++)
        free(b->sequences[s].expected);
    free(b->arena);
    model_free(b->model);
    return digest;
}

void trial_init(struct trial_bench *b)
{
    /* The larger teams lie on two memory nodes, real or not. */
    static const struct team_node nodes[2][2] = {{{.id = 0, .n_ranks = 1}, {.id = 1, .n_ranks = 2}},
                                                 {{.id = 0, .n_ranks = 2}, {.id = 1, .n_ranks = 2}}};

    memset(b, 0, sizeof(*b));
    for (unsigned i = 0; i < TRIAL_MAX_THREADS; i++)
        assert_int_equal(team_new(&(struct team_opts){.n_threads = i + 1,
                                                      .nodes = i < 2 ? NULL : nodes[i - 2],
                                                      .n_nodes = 2,
                                                      .is_mirrored = i == 3},
                                  &b->teams[i]),
                         0);
}

void trial_fini(struct trial_bench *b)
{
    for (unsigned i = 0; i < TRIAL_MAX_THREADS; i++)
        team_free(b->teams[i]);
}
