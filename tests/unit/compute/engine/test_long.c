/* SPDX-License-Identifier: Apache-2.0 */
/* A context of 131072 tokens: the last few are computed, the others are in the cache.
 *
 * It checks properties that a short context cannot show.  Attention merges hundreds of parts, and the bits do
 * not depend on chunks or on the places of blocks.  It reads every key once.  The memory is bounded. */
#include "base/check.h"
#include "base/rng.h"
#include "compute/engine/engine_cpu.h"
#include "compute/tensor/tensor.h"
#include "tests/unit/compute/model/tiny.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/compute/check_team.h"

enum { CONTEXT = 131072, BLOCK = 32, N_BLOCKS = CONTEXT / BLOCK, FED = 48 };

struct stage {
    struct model *model;
    const struct kv_layout *layout;
    struct team *team;
    uint16_t *arena;
    kv_block_id table[N_BLOCKS];
    token_id tokens[FED];
};

/* Fills each position with the same content, wherever its block lies. */
static void fill_arena(struct stage *stage)
{
    size_t half = kv_layout_k_bytes(stage->layout) / sizeof(uint16_t);

    for (uint32_t i = 0; i < N_BLOCKS; i++)
        for (uint32_t layer = 0; layer < stage->layout->n_layers; layer++) {
            uint16_t *at = stage->arena + kv_layout_offset(stage->layout, N_BLOCKS, layer, stage->table[i]) /
                                              sizeof(uint16_t);
            struct rng rng;

            rng_init(&rng, (uint64_t)layer * N_BLOCKS + i);
            for (size_t k = 0; k < 2 * half; k++)
                at[k] = f32_to_f16((float)(rng_unit(&rng) * 2 - 1));
        }
}

static void set_table(struct stage *stage, bool is_reversed)
{
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        stage->table[i] = is_reversed ? N_BLOCKS - 1 - i : i;
}

/* Feeds the last tokens of the context in chunks.  logits_out: after the last one. */
static void feed(struct stage *stage, uint32_t chunk, float *logits_out)
{
    struct engine engine;
    struct sample_result drawn;

    assert_int_equal(engine_cpu_new(&(struct engine_cpu_opts){.model = stage->model,
                                                              .team = stage->team,
                                                              .kv_arena = stage->arena,
                                                              .n_blocks = N_BLOCKS,
                                                              .max_batch_tokens = FED,
                                                              .max_items = 1},
                                    &engine),
                     0);
    for (uint32_t fed = 0; fed < FED; fed += chunk) {
        struct engine_item item = {.tokens = stage->tokens + fed,
                                   .n_tokens = chunk < FED - fed ? chunk : FED - fed,
                                   .position = CONTEXT - FED + fed,
                                   .blocks = stage->table,
                                   .n_blocks = N_BLOCKS,
                                   .wants_token = true,
                                   .sample = {.top_p = 1}};

        assert_int_equal(engine_step(&engine, &(struct engine_batch){.items = &item, .n_items = 1}, &drawn),
                         0);
    }
    memcpy(logits_out, engine.ops->logits(engine.self, 0), 50 * sizeof(float));
    engine_free(&engine);
}

static void set_up(struct stage *stage, const char *const *set)
{
    struct tiny_shape shape = tiny_shape("llama");

    shape.context = CONTEXT;
    shape.set = set;
    stage->team = check_team(3);
    stage->model = tiny_model(&shape, stage->team, &(struct model_opts){.kv_type = KV_F16});
    stage->layout = model_kv_layout(stage->model);
    stage->arena = calloc(N_BLOCKS, kv_layout_block_bytes(stage->layout));
    assert_non_null(stage->arena);
    for (uint32_t i = 0; i < FED; i++)
        stage->tokens[i] = i * 7 % 50;
}

static void tear_down(struct stage *stage)
{
    free(stage->arena);
    model_free(stage->model);
    team_free(stage->team);
}

static void check_bits(const char *const *set)
{
    static const uint32_t CHUNKS[] = {7, FED, 16};
    static struct stage stage;
    float expected[50], got[50];

    set_up(&stage, set);
    set_table(&stage, false);
    fill_arena(&stage);
    feed(&stage, 1, expected);
    for (size_t i = 0; i < ARRAY_LEN(CHUNKS); i++) {
        set_table(&stage, i % 2 == 0);
        fill_arena(&stage);
        feed(&stage, CHUNKS[i], got);
        assert_memory_equal(got, expected, sizeof(got));
    }
    tear_down(&stage);
}

static void bits_are_the_same_at_128k(void **state)
{
    static const char *const WINDOW[] = {"attention.sliding_window=5000", NULL};

    (void)state;
    check_bits(NULL);
    check_bits(WINDOW);
}

enum { DIM = 16, QUERIES = 3 };

/* Softmax over all keys that a query attends to, in float64. */
static void attend_exactly(const float *q, const float *kv, uint32_t n_keys, uint32_t window, double *out)
{
    double sum = 0;

    memset(out, 0, DIM * sizeof(*out));
    for (uint32_t j = window && window < n_keys ? n_keys - window : 0; j < n_keys; j++) {
        const float *k = kv + (size_t)j * 2 * DIM;
        double score = 0;

        for (uint32_t i = 0; i < DIM; i++)
            score += (double)q[i] * k[i];
        score = exp(score / 4);
        sum += score;
        for (uint32_t i = 0; i < DIM; i++)
            out[i] += score * k[DIM + i];
    }
    for (uint32_t i = 0; i < DIM; i++)
        out[i] /= sum;
}

/* Values rise along the context, so that a skipped key moves the mean. */
static float *draw_keys_and_values(struct rng *rng)
{
    size_t n = (size_t)CONTEXT * 2 * DIM;
    float *kv = calloc(n, sizeof(*kv));

    assert_non_null(kv);
    rng_init(rng, 128);
    for (size_t i = 0; i < n; i++)
        kv[i] = (float)(rng_unit(rng) * 2 - 1) + (i % (2 * DIM) < DIM ? 0 : (float)i / (float)n);
    return kv;
}

/* Compares each query's outputs with float64. */
static void compare(const float *q, const float *kv, const float *out, uint32_t first, uint32_t window)
{
    for (uint32_t t = 0; t < QUERIES; t++) {
        double exact[DIM];

        attend_exactly(q + t * DIM, kv, first + t + 1, window, exact);
        for (uint32_t i = 0; i < DIM; i++)
            assert_true(fabs(out[t * DIM + i] - exact[i]) < 2e-6);
    }
}

static void check_attention(struct team *team, uint32_t window)
{
    struct attn_sizes sizes = {.max_tokens = QUERIES,
                               .max_context = CONTEXT,
                               .n_heads = 1,
                               .k_dim = DIM,
                               .v_dim = DIM,
                               .n_ranks = 3};
    struct rng rng;
    float *kv = draw_keys_and_values(&rng), *arena = calloc((size_t)CONTEXT * 2 * DIM, sizeof(float));
    float q[QUERIES * DIM], out[QUERIES * DIM];
    kv_block_id table[N_BLOCKS];
    struct attn_item item = {.n_tokens = QUERIES, .position = CONTEXT - QUERIES, .blocks = table};
    void *scratch = aligned_alloc(64, (attn_scratch_bytes(&sizes) + 63) / 64 * 64);
    struct kv_store_args store = {.table = kern_table_get("auto"),
                                  .kv_layer = arena,
                                  .block_bytes = BLOCK * 2 * DIM * sizeof(float),
                                  .kv_type = DTYPE_F32,
                                  .n_kv_heads = 1,
                                  .k_dim = DIM,
                                  .v_dim = DIM,
                                  .block_tokens = BLOCK,
                                  .blocks = table,
                                  .n = CONTEXT,
                                  .k = kv,
                                  .v = kv + DIM,
                                  .k_stride = 2 * DIM,
                                  .v_stride = 2 * DIM};

    for (uint32_t i = 0; i < N_BLOCKS; i++)
        table[i] = N_BLOCKS - 1 - i;
    for (uint32_t i = 0; i < QUERIES * DIM; i++)
        q[i] = (float)(rng_unit(&rng) * 2 - 1);
    kv_store(&store);
    attention(team, &(struct attn_args){.table = store.table,
                                        .q = q,
                                        .q_stride = DIM,
                                        .out = out,
                                        .out_stride = DIM,
                                        .kv_layer = arena,
                                        .block_bytes = store.block_bytes,
                                        .kv_type = DTYPE_F32,
                                        .n_heads = 1,
                                        .n_kv_heads = 1,
                                        .k_dim = DIM,
                                        .v_dim = DIM,
                                        .block_tokens = BLOCK,
                                        .window = window,
                                        .scale = 0.25f,
                                        .items = &item,
                                        .n_items = 1,
                                        .scratch = scratch,
                                        .scratch_bytes = attn_scratch_bytes(&sizes)});
    compare(q, kv, out, item.position, window);
    free(scratch);
    free(arena);
    free(kv);
}

static void every_key_of_128k_counts_once(void **state)
{
    struct team *team;

    (void)state;
    team = check_team(3);
    check_attention(team, 0);
    check_attention(team, 70001);
    team_free(team);
}

/* Beyond the weights, a pass needs memory that grows little with the context, and never with its square. */
static void scratch_is_modest(void **state)
{
    struct attn_sizes sizes = {.max_tokens = 2048, .n_heads = 64, .k_dim = 128, .v_dim = 128, .n_ranks = 64};
    size_t at_64k, at_128k;

    (void)state;
    sizes.max_context = 65536;
    at_64k = attn_scratch_bytes(&sizes);
    sizes.max_context = 131072;
    at_128k = attn_scratch_bytes(&sizes);
    print_message("scratch of attention over 131072 tokens, 64 heads of 128: %zu KiB\n", at_128k / 1024);
    assert_true(at_128k < 2 * at_64k && at_128k < (size_t)256 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_the_same_at_128k),
        cmocka_unit_test(every_key_of_128k_counts_once),
        cmocka_unit_test(scratch_is_modest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
