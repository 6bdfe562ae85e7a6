/* SPDX-License-Identifier: Apache-2.0 */
/* Exactness for chosen models: the logits of a sequence have the same bits, however it was computed
 * (trial.h), with each kernel table that this CPU runs.  Tables that claim the same numerics agree with each
 * other. test_property.c does the same for random models of every architecture. */
#include "base/check.h"
#include "compute/tensor/tensor.h"
#include "tests/unit/compute/engine/trial.h"

#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

enum { MANY_TRIALS = 4, FEW_TRIALS = 2 };

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
    {"llama", {DTYPE_F32, DTYPE_F32, DTYPE_F32}, 4, 2, 24, 96, true, KV_BF16, 48, 2, 70},
    {"llama", {DTYPE_F32, DTYPE_F32, DTYPE_F32}, 4, 2, 32, 96, true, KV_Q8_0, 32, 2, 70},
    {"qwen2", {DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_Q8_0}, 6, 2, 64, 64, false, KV_Q4_0, 16, 2, 70},
    {"llama", {DTYPE_F32, DTYPE_F32, DTYPE_F32}, 4, 1, 40, 64, true, KV_Q4_0, 128, 1, 200},
    /* long enough for attention to split the context among ranks */
    {"llama", {DTYPE_F32, DTYPE_F32, DTYPE_F32}, 2, 1, 16, 32, true, KV_F16, 32, 1, TRIAL_MAX_TOKENS},
    {"llama", {DTYPE_F32, DTYPE_F32, DTYPE_F32}, 2, 1, 16, 32, true, KV_Q8_0, 32, 1, TRIAL_MAX_TOKENS},
};

/* Models with experts and with latent attention.  Their shape is tiny_experts' except for these fields. */
struct expert_variant {
    const char *arch;
    enum dtype types[3];
    uint32_t n_experts, n_used, n_shared, q_latent;
    enum kv_type kv;
    uint32_t block_tokens, n_layers, longest;
};

static const struct expert_variant EXPERTS[] = {
    {"llama", {DTYPE_F32, DTYPE_F32, DTYPE_F32}, 4, 2, 0, 0, KV_F32, 32, 2, 70},
    {"llama", {DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_Q8_0}, 8, 8, 0, 0, KV_F16, 16, 2, 70},
    {"qwen3moe", {DTYPE_Q8_0, DTYPE_F16, DTYPE_BF16}, 13, 4, 0, 0, KV_F16, 32, 2, 70},
    {"qwen3moe", {DTYPE_F16, DTYPE_Q8_0, DTYPE_Q8_0}, 100, 1, 0, 0, KV_F16, 32, 1, 300},
    {"deepseek2", {DTYPE_F32, DTYPE_F32, DTYPE_F32}, 8, 3, 2, 0, KV_F32, 32, 2, 70},
    {"deepseek2", {DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_Q8_0}, 8, 3, 1, 32, KV_F16, 16, 2, 70},
    {"deepseek2", {DTYPE_BF16, DTYPE_F32, DTYPE_Q8_0}, 9, 2, 3, 64, KV_F16, 32, 2, 70},
    {"deepseek2", {DTYPE_F16, DTYPE_F16, DTYPE_F16}, 4, 2, 0, 0, KV_F16, 32, 1, TRIAL_MAX_TOKENS},
};

struct claim { /* digest of the first table with these numerics */
    uint64_t numerics_id;
    uint64_t digests[ARRAY_LEN(VARIANTS) + ARRAY_LEN(EXPERTS)];
};

/* Alternates, so that both lists have some of each with BF16 weights. */
static enum bf16_math math_at(size_t index)
{
    return index % 3 == 0 ? BF16_DOTS : BF16_TILES;
}

static void check_variants(struct trial_bench *b, const char *kernels, uint64_t digests_out[])
{
    for (size_t i = 0; i < ARRAY_LEN(VARIANTS); i++) {
        const struct variant *v = &VARIANTS[i];
        struct tiny_shape shape = tiny_shape(v->arch);
        struct model_opts opts = {
            .kernels = kernels, .kv_type = v->kv, .block_tokens = v->block_tokens, .bf16 = math_at(i)};

        memcpy(shape.types, v->types, sizeof(shape.types));
        shape.n_heads = v->n_heads;
        shape.n_kv_heads = v->n_kv_heads;
        shape.head_dim = v->head_dim;
        shape.ffn = v->ffn;
        shape.is_tied = v->is_tied;
        shape.n_layers = v->n_layers;
        shape.context = TRIAL_MAX_TOKENS;
        shape.seed = i + 1;
        digests_out[i] = trial_model(b, &shape, v->longest, &opts);
    }
}

static void check_experts(struct trial_bench *b, const char *kernels, uint64_t digests_out[])
{
    for (size_t i = 0; i < ARRAY_LEN(EXPERTS); i++) {
        const struct expert_variant *v = &EXPERTS[i];
        struct tiny_shape shape = tiny_experts(v->arch);
        struct model_opts opts = {
            .kernels = kernels, .kv_type = v->kv, .block_tokens = v->block_tokens, .bf16 = math_at(i)};

        memcpy(shape.types, v->types, sizeof(shape.types));
        shape.n_experts = v->n_experts;
        shape.n_used = v->n_used;
        shape.n_shared = v->n_shared;
        shape.n_dense = v->n_layers > 1 && shape.latent ? 1 : 0;
        shape.q_latent = v->q_latent;
        shape.n_layers = v->n_layers;
        shape.context = TRIAL_MAX_TOKENS;
        shape.seed = 100 + i;
        digests_out[i] = trial_model(b, &shape, v->longest, &opts);
    }
}

static void logits_are_the_same_bits_however_computed(void **state)
{
    static struct trial_bench b;
    struct claim claims[16];
    const struct kern_table *table;
    uint32_t n_claims = 0;

    (void)state;
    trial_init(&b);
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
    trial_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_the_same_bits_however_computed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
