/* SPDX-License-Identifier: Apache-2.0 */
/* The promise of exactness as a property: the logits of a sequence are the same bits however it was computed.
 *
 * For each of several random tiny models and each kernel table this CPU runs, every sequence is first
 * computed alone, one token at a time, on one thread, in blocks that lie in order.  That gives the expected
 * logits after each of its tokens.  Then the same sequences are computed together again and again, by dice:
 *
 *     which sequences a step holds      any subset, in any order
 *     how much each feeds               1, 7, 64 tokens or all that is left
 *     where its blocks lie              any permutation, and moved to other blocks between steps
 *     what lies in unused memory        NaN
 *     how many threads                  1 to 4, which share all work or only what is worth it
 *
 * and after each chunk the logits must equal the expected ones, compared with memcmp.  Tables that claim the
 * same numerics must also agree with each other. */
#include "base/check.h"
#include "base/rng.h"
#include "engine/engine_cpu.h"
#include "tensor/tensor.h"
#include "tests/unit/model/tiny.h"

#include <stdlib.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

enum {
    N_SEQUENCES = 3,
    MAX_TOKENS = 600,
    MAX_TABLE = 40,
    MANY_TRIALS = 4,
    FEW_TRIALS = 2,
    MAX_THREADS = 4,
    ARENA_BLOCKS = 256
};

struct sequence {
    token_id tokens[MAX_TOKENS];
    uint32_t n_tokens;
    float *expected; /* [n_tokens][vocab] */
    /* of the trial */
    kv_block_id blocks[MAX_TABLE];
    uint32_t n_blocks;
    uint32_t fed;
};

struct bench { /* one model, and an engine over an arena */
    struct model *model;
    struct team *teams[MAX_THREADS]; /* of 1, 2, 3 and 4 ranks */
    const struct kv_layout *layout;
    uint32_t vocab;
    uint8_t *arena;
    bool is_used[ARENA_BLOCKS];
    struct sequence sequences[N_SEQUENCES];
    uint32_t n_trials;
    struct rng rng;
};

/* ---- blocks ---- */

static kv_block_id take_block(struct bench *b)
{
    for (;;) {
        kv_block_id id = (kv_block_id)rng_below(&b->rng, ARENA_BLOCKS);

        if (!b->is_used[id]) {
            b->is_used[id] = true;
            return id;
        }
    }
}

static uint8_t *layer_block(struct bench *b, uint32_t layer, kv_block_id id)
{
    return b->arena + kv_layout_offset(b->layout, ARENA_BLOCKS, layer, id);
}

/* Moves a block elsewhere, as a transfer would, and spoils the place it leaves. */
static void move_block(struct bench *b, kv_block_id *id)
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

static void begin_trial(struct bench *b, bool in_order)
{
    memset(b->arena, 0xff, ARENA_BLOCKS * kv_layout_block_bytes(b->layout)); /* NaN in both types */
    memset(b->is_used, 0, sizeof(b->is_used));
    for (uint32_t s = 0; s < N_SEQUENCES; s++) {
        struct sequence *sequence = &b->sequences[s];

        sequence->fed = 0;
        sequence->n_blocks = (sequence->n_tokens + b->layout->block_tokens - 1) / b->layout->block_tokens;
        ASSERT(sequence->n_blocks <= MAX_TABLE);
        for (uint32_t i = 0; i < sequence->n_blocks; i++)
            sequence->blocks[i] = in_order ? s * MAX_TABLE + i : take_block(b);
    }
}

static struct engine new_engine(struct bench *b, unsigned n_threads)
{
    struct engine engine;

    assert_int_equal(engine_cpu_new(&(struct engine_cpu_opts){.model = b->model,
                                                              .team = b->teams[n_threads - 1],
                                                              .kv_arena = b->arena,
                                                              .n_blocks = ARENA_BLOCKS,
                                                              .max_batch_tokens = N_SEQUENCES * MAX_TOKENS,
                                                              .max_items = N_SEQUENCES,
                                                              .share_from_bytes = rng_below(&b->rng, 4) > 0},
                                    &engine),
                     0);
    return engine;
}

static struct engine_item next_item(struct sequence *sequence, uint32_t n_tokens)
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

static void compute_expected(struct bench *b)
{
    struct engine engine = new_engine(b, 1);
    struct sample_result drawn;

    begin_trial(b, true);
    for (uint32_t s = 0; s < N_SEQUENCES; s++) {
        struct sequence *sequence = &b->sequences[s];

        for (; sequence->fed < sequence->n_tokens; sequence->fed++) {
            struct engine_item item = next_item(sequence, 1);

            assert_int_equal(
                engine_step(&engine, &(struct engine_batch){.items = &item, .n_items = 1}, &drawn), 0);
            memcpy(sequence->expected + (size_t)sequence->fed * b->vocab, engine.ops->logits(engine.self, 0),
                   b->vocab * sizeof(float));
        }
    }
    for (uint32_t i = 0; i < b->sequences[0].n_tokens * b->vocab; i++)
        assert_true(b->sequences[0].expected[i] == b->sequences[0].expected[i]); /* no NaN came out */
    engine_free(&engine);
}

/* A step over a random subset in random order; returns whether anything is left. */
static bool random_step(struct bench *b, struct engine *engine)
{
    static const uint32_t CHUNKS[] = {1, 7, 64, MAX_TOKENS};
    struct engine_item items[N_SEQUENCES];
    struct sequence *whose[N_SEQUENCES];
    struct sample_result drawn[N_SEQUENCES];
    uint32_t n = 0, first = (uint32_t)rng_below(&b->rng, N_SEQUENCES), n_left = 0;

    for (uint32_t i = 0; i < N_SEQUENCES; i++) {
        struct sequence *sequence = &b->sequences[(first + i) % N_SEQUENCES];

        if (sequence->fed == sequence->n_tokens)
            continue;
        n_left++;
        if (rng_below(&b->rng, 3) == 0)
            continue;
        items[n] = next_item(sequence, CHUNKS[rng_below(&b->rng, 4)]);
        whose[n++] = sequence;
    }
    assert_int_equal(engine_step(engine, &(struct engine_batch){.items = items, .n_items = n}, drawn), 0);
    for (uint32_t i = 0; i < n; i++) {
        whose[i]->fed += items[i].n_tokens;
        assert_memory_equal(engine->ops->logits(engine->self, i),
                            whose[i]->expected + (size_t)(whose[i]->fed - 1) * b->vocab,
                            b->vocab * sizeof(float));
    }
    return n_left > 0;
}

static void random_trial(struct bench *b)
{
    struct engine engine = new_engine(b, 1 + (unsigned)rng_below(&b->rng, MAX_THREADS));

    begin_trial(b, false);
    while (random_step(b, &engine)) {
        struct sequence *sequence = &b->sequences[rng_below(&b->rng, N_SEQUENCES)];

        if (rng_below(&b->rng, 2) == 0)
            move_block(b, &sequence->blocks[rng_below(&b->rng, sequence->n_blocks)]);
    }
    engine_free(&engine);
}

static uint64_t digest_of_expected(const struct bench *b)
{
    uint64_t digest = 1;

    for (uint32_t s = 0; s < N_SEQUENCES; s++) {
        const struct sequence *sequence = &b->sequences[s];

        for (size_t i = 0; i < (size_t)sequence->n_tokens * b->vocab; i++) {
            uint32_t bits;

            memcpy(&bits, &sequence->expected[i], sizeof(bits));
            digest = (digest ^ bits) * UINT64_C(0x100000001b3);
        }
    }
    return digest;
}

/* Returns a digest of the expected logits. */
static uint64_t check_model(struct bench *b, const struct tiny_shape *shape, uint32_t longest,
                            const struct model_opts *opts)
{
    uint64_t digest;

    rng_init(&b->rng, shape->seed);
    b->model = tiny_model(shape, b->teams[1], opts);
    b->layout = model_kv_layout(b->model);
    b->vocab = shape->vocab;
    b->arena = calloc(ARENA_BLOCKS, kv_layout_block_bytes(b->layout));
    assert_non_null(b->arena);
    for (uint32_t s = 0; s < N_SEQUENCES; s++) {
        struct sequence *sequence = &b->sequences[s];

        sequence->n_tokens = longest - (uint32_t)rng_below(&b->rng, longest / 2);
        for (uint32_t i = 0; i < sequence->n_tokens; i++)
            sequence->tokens[i] = (token_id)rng_below(&b->rng, shape->vocab);
        sequence->expected = calloc((size_t)sequence->n_tokens * b->vocab, sizeof(float));
        assert_non_null(sequence->expected);
    }
    compute_expected(b);
    digest = digest_of_expected(b);
    for (uint32_t i = 0; i < b->n_trials; i++)
        random_trial(b);
    for (uint32_t s = 0; s < N_SEQUENCES; s++)
        free(b->sequences[s].expected);
    free(b->arena);
    model_free(b->model);
    return digest;
}

/* ---- the models ---- */

struct variant {
    const char *arch;
    enum dtype types[3];
    uint32_t n_heads, n_kv_heads, head_dim, ffn;
    bool is_tied;
    enum kv_type kv;
    uint32_t block_tokens;
    uint32_t n_layers, longest;
};

static const struct variant VARIANTS[] = {
    {"llama", {DTYPE_F32, DTYPE_F32, DTYPE_F32}, 4, 4, 16, 100, false, KV_F32, 32, 2, 70},
    {"llama", {DTYPE_F16, DTYPE_F16, DTYPE_F16}, 4, 2, 16, 96, true, KV_F16, 16, 2, 70},
    {"llama", {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16}, 6, 1, 10, 70, false, KV_F16, 32, 2, 70},
    {"llama", {DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_Q8_0}, 4, 1, 32, 160, true, KV_F16, 32, 2, 70},
    {"qwen2", {DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_Q8_0}, 8, 2, 64, 64, false, KV_F16, 16, 2, 70},
    {"qwen2", {DTYPE_F32, DTYPE_Q8_0, DTYPE_F16}, 2, 2, 32, 128, false, KV_F32, 48, 2, 70},
    {"qwen2", {DTYPE_BF16, DTYPE_F32, DTYPE_Q8_0}, 4, 2, 16, 96, true, KV_F16, 64, 2, 70},
    /* long enough for attention to split the context among ranks */
    {"llama", {DTYPE_F32, DTYPE_F32, DTYPE_F32}, 2, 1, 16, 32, true, KV_F16, 32, 1, MAX_TOKENS},
};

/* Models with experts, and with latent attention; the shape is tiny_experts' but for these. */
struct expert_variant {
    const char *arch;
    enum dtype types[3];
    uint32_t n_experts, n_used, n_shared, q_latent;
    bool is_split;
    enum kv_type kv;
    uint32_t block_tokens, n_layers, longest;
};

static const struct expert_variant EXPERTS[] = {
    {"llama", {DTYPE_F32, DTYPE_F32, DTYPE_F32}, 4, 2, 0, 0, false, KV_F32, 32, 2, 70},
    {"llama", {DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_Q8_0}, 8, 8, 0, 0, false, KV_F16, 16, 2, 70},
    {"qwen3moe", {DTYPE_Q8_0, DTYPE_F16, DTYPE_BF16}, 13, 4, 0, 0, false, KV_F16, 32, 2, 70},
    {"qwen3moe", {DTYPE_F16, DTYPE_Q8_0, DTYPE_Q8_0}, 100, 1, 0, 0, false, KV_F16, 32, 1, 300},
    {"deepseek2", {DTYPE_F32, DTYPE_F32, DTYPE_F32}, 8, 3, 2, 0, false, KV_F32, 32, 2, 70},
    {"deepseek2", {DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_Q8_0}, 8, 3, 1, 32, false, KV_F16, 16, 2, 70},
    {"deepseek2", {DTYPE_BF16, DTYPE_F32, DTYPE_Q8_0}, 9, 2, 3, 64, true, KV_F16, 32, 2, 70},
    {"deepseek2", {DTYPE_F16, DTYPE_F16, DTYPE_F16}, 4, 2, 0, 0, true, KV_F16, 32, 1, MAX_TOKENS},
};

struct claim { /* what the first table with some numerics gave */
    uint64_t numerics_id;
    uint64_t digests[ARRAY_LEN(VARIANTS) + ARRAY_LEN(EXPERTS)];
};

static void check_variants(struct bench *b, const char *kernels, uint64_t digests_out[])
{
    for (size_t i = 0; i < ARRAY_LEN(VARIANTS); i++) {
        const struct variant *v = &VARIANTS[i];
        struct tiny_shape shape = tiny_shape(v->arch);
        struct model_opts opts = {.kernels = kernels, .kv_type = v->kv, .block_tokens = v->block_tokens};

        memcpy(shape.types, v->types, sizeof(shape.types));
        shape.n_heads = v->n_heads;
        shape.n_kv_heads = v->n_kv_heads;
        shape.head_dim = v->head_dim;
        shape.ffn = v->ffn;
        shape.is_tied = v->is_tied;
        shape.n_layers = v->n_layers;
        shape.context = MAX_TOKENS;
        shape.seed = i + 1;
        digests_out[i] = check_model(b, &shape, v->longest, &opts);
    }
}

static void check_experts(struct bench *b, const char *kernels, uint64_t digests_out[])
{
    for (size_t i = 0; i < ARRAY_LEN(EXPERTS); i++) {
        const struct expert_variant *v = &EXPERTS[i];
        struct tiny_shape shape = tiny_experts(v->arch);
        struct model_opts opts = {.kernels = kernels, .kv_type = v->kv, .block_tokens = v->block_tokens};

        memcpy(shape.types, v->types, sizeof(shape.types));
        shape.n_experts = v->n_experts;
        shape.n_used = v->n_used;
        shape.n_shared = v->n_shared;
        shape.n_dense = v->n_layers > 1 && shape.latent ? 1 : 0;
        shape.q_latent = v->q_latent;
        shape.is_split = v->is_split;
        shape.n_layers = v->n_layers;
        shape.context = MAX_TOKENS;
        shape.seed = 100 + i;
        digests_out[i] = check_model(b, &shape, v->longest, &opts);
    }
}

static void logits_are_the_same_bits_however_computed(void **state)
{
    static struct bench b;
    struct claim claims[16];
    const struct kern_table *table;
    uint32_t n_claims = 0;

    (void)state;
    for (unsigned i = 0; i < MAX_THREADS; i++)
        assert_int_equal(team_new(&(struct team_opts){.n_threads = i + 1}, &b.teams[i]), 0);
    for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++) {
        struct claim claim = {.numerics_id = kern_numerics_id(table)};
        uint32_t same = 0;

        print_message("%s kernels\n", kern_table_name(table));
        b.n_trials = i == 0 ? MANY_TRIALS : FEW_TRIALS;
        check_variants(&b, kern_table_name(table), claim.digests);
        check_experts(&b, kern_table_name(table), claim.digests + ARRAY_LEN(VARIANTS));
        while (same < n_claims && claims[same].numerics_id != claim.numerics_id)
            same++;
        assert_true(same < ARRAY_LEN(claims));
        if (same == n_claims)
            claims[n_claims++] = claim;
        assert_memory_equal(claims[same].digests, claim.digests, sizeof(claim.digests));
    }
    for (unsigned i = 0; i < MAX_THREADS; i++)
        team_free(b.teams[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_the_same_bits_however_computed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
