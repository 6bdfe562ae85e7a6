/* SPDX-License-Identifier: Apache-2.0 */
/* Building models.  Each fault of a bad file ends in one error that names it. */
#include "base/err.h"
#include "base/rng.h"
#include "compute/model/model_priv.h"
#include "compute/tensor/tensor.h"
#include "tests/unit/compute/model/tiny.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/compute/check_team.h"

static void reads_the_shape(void **state)
{
    struct tiny_shape shape = tiny_shape("qwen2");
    const struct model_config *config;
    struct model *model;

    shape.is_tied = true;
    shape.head_dim = 24; /* wider than hidden / heads */
    model = tiny_model(&shape, *state, &(struct model_opts){.kv_type = KV_F16});
    config = model_config(model);
    assert_string_equal(config->arch, "qwen2");
    assert_int_equal(config->n_layers, 2);
    assert_int_equal(config->hidden, 64);
    assert_int_equal(config->head_dim, 24);
    assert_int_equal(config->rope_dims, 24);
    assert_int_equal(config->vocab, 50);
    assert_int_equal(config->context_length, 256);
    assert_true(config->is_tied);
    assert_string_equal(config->rope_scaling, "none");
    assert_string_equal(config->weight_type, "F32");
    /* embedding and final norm; per layer two norms, q k v and their biases, out, gate up down */
    assert_int_equal(config->n_parameters,
                     50 * 64 + 64 +
                         2 * (2 * 64 + 64 * 96 + 2 * 64 * 48 + 96 + 48 + 48 + 64 * 96 + 3 * 64 * 96));
    assert_true(config->weight_bytes >= config->n_parameters * 4);
    assert_int_equal(model_kv_layout(model)->block_tokens, 32);
    assert_int_equal(model_kv_layout(model)->n_kv_heads, 2);
    model_free(model);
}

static void a_context_may_be_shorter_only(void **state)
{
    struct tiny_shape shape = tiny_shape("llama");
    struct gguf *gguf = tiny_gguf(&shape, NULL);
    struct model *model = NULL;
    struct fault fault = {0};

    assert_int_equal(model_new(gguf, *state, &(struct model_opts){.context_length = 257}, &fault, &model),
                     E_RANGE);
    assert_non_null(strstr(fault.text, "257"));
    assert_int_equal(model_new(gguf, *state, &(struct model_opts){.context_length = 64}, &fault, &model), 0);
    assert_int_equal(model_config(model)->context_length, 64);
    model_free(model);
    assert_int_equal(model_new(gguf, *state, &(struct model_opts){.kernels = "quantum"}, &fault, &model),
                     E_UNSUPPORTED);
    assert_non_null(strstr(fault.text, "quantum"));
    gguf_close(gguf);
}

static void numerics_differ_with_the_sines(void **state)
{
    struct tiny_shape shape = tiny_shape("llama");
    struct tiny_twist base = {.fault = TINY_KEY_F32, .name = "llama.rope.freq_base", .number = 500000};
    struct gguf *gguf = tiny_gguf(&shape, &base);
    struct model *plain = tiny_model(&shape, *state, &(struct model_opts){.kernels = "scalar"});
    struct model *again =
        tiny_model(&shape, *state, &(struct model_opts){.kernels = "scalar", .context_length = 99});
    struct model *other = NULL;

    assert_int_equal(model_new(gguf, *state, &(struct model_opts){.kernels = "scalar"}, NULL, &other), 0);
    assert_true(model_numerics_id(plain) == model_numerics_id(again));
    assert_true(model_numerics_id(plain) != model_numerics_id(other));
    gguf_close(gguf);
    model_free(plain);
    model_free(again);
    model_free(other);
}

struct hostile {
    struct tiny_twist twist;
    int code;
    const char *says; /* must be in the fault's text */
};

static const struct hostile HOSTILE[] = {
    {{.fault = TINY_NO_KEY, .name = "general.architecture"}, E_FORMAT, "general.architecture"},
    {{.fault = TINY_KEY_STR, .name = "general.architecture", .text = "mamba\033[2J"},
     E_UNSUPPORTED,
     "is not supported"},
    {{.fault = TINY_NO_KEY, .name = "llama.block_count"}, E_FORMAT, "llama.block_count"},
    {{.fault = TINY_KEY_U32, .name = "llama.block_count", .value = 0}, E_FORMAT, "llama.block_count"},
    {{.fault = TINY_KEY_U32, .name = "llama.block_count", .value = 1u << 31}, E_FORMAT, "2147483648"},
    {{.fault = TINY_KEY_U32, .name = "llama.block_count", .value = 4096}, E_FORMAT, "4096 layers"},
    {{.fault = TINY_KEY_U32, .name = "llama.block_count", .value = 1}, E_UNSUPPORTED, "blk.1."},
    {{.fault = TINY_KEY_STR, .name = "llama.block_count", .text = "two"}, E_FORMAT, "llama.block_count"},
    {{.fault = TINY_KEY_U32, .name = "llama.embedding_length", .value = UINT32_MAX},
     E_FORMAT,
     "embedding_length"},
    {{.fault = TINY_KEY_U32, .name = "llama.embedding_length", .value = 128},
     E_FORMAT,
     "token_embd.weight is 50 x 64"},
    {{.fault = TINY_KEY_U32, .name = "llama.embedding_length", .value = 65}, E_FORMAT, "multiple"},
    {{.fault = TINY_NO_KEY, .name = "llama.feed_forward_length"}, E_FORMAT, "llama.feed_forward_length"},
    {{.fault = TINY_KEY_U32, .name = "llama.feed_forward_length", .value = 95}, E_FORMAT, "ffn_gate.weight"},
    {{.fault = TINY_KEY_U32, .name = "llama.attention.head_count", .value = 0}, E_FORMAT, "head_count"},
    {{.fault = TINY_KEY_U32, .name = "llama.attention.head_count", .value = 64}, E_FORMAT, "even"},
    {{.fault = TINY_KEY_U32, .name = "llama.attention.head_count_kv", .value = 3}, E_FORMAT, "head_count_kv"},
    {{.fault = TINY_KEY_U32, .name = "llama.attention.key_length", .value = 2000}, E_FORMAT, "key_length"},
    {{.fault = TINY_KEY_U32, .name = "llama.attention.value_length", .value = 8},
     E_UNSUPPORTED,
     "values of 8"},
    {{.fault = TINY_KEY_U32, .name = "llama.context_length", .value = UINT32_MAX},
     E_FORMAT,
     "context_length"},
    {{.fault = TINY_NO_KEY, .name = "llama.attention.layer_norm_rms_epsilon"}, E_FORMAT, "rms_epsilon"},
    {{.fault = TINY_KEY_F32, .name = "llama.attention.layer_norm_rms_epsilon", .number = 2},
     E_FORMAT,
     "epsilon"},
    {{.fault = TINY_KEY_U32, .name = "llama.vocab_size", .value = 51}, E_FORMAT, "vocab_size"},
    {{.fault = TINY_KEY_U32, .name = "llama.rope.dimension_count", .value = 17}, E_FORMAT, "dimension_count"},
    {{.fault = TINY_KEY_U32, .name = "llama.rope.dimension_count", .value = 18}, E_FORMAT, "dimension_count"},
    {{.fault = TINY_KEY_F32, .name = "llama.rope.freq_base", .number = -1}, E_FORMAT, "freq_base"},
    {{.fault = TINY_KEY_STR, .name = "llama.rope.scaling.type", .text = "dynamic"}, E_UNSUPPORTED, "dynamic"},
    {{.fault = TINY_KEY_STR, .name = "llama.rope.scaling.type", .text = "longrope"},
     E_FORMAT,
     "rope_factors_short.weight is missing"},
    {{.fault = TINY_KEY_U32, .name = "llama.expert_count", .value = 8}, E_FORMAT, "expert_used_count"},
    {{.fault = TINY_KEY_STR, .name = "llama.attention.sliding_window", .text = "16"},
     E_UNSUPPORTED,
     "not one number"},
    {{.fault = TINY_KEY_F32, .name = "llama.residual_scale", .number = 0.5f},
     E_UNSUPPORTED,
     "residual_scale"},
    {{.fault = TINY_KEY_F32, .name = "llama.final_logit_softcapping", .number = 30},
     E_UNSUPPORTED,
     "softcapping"},
    {{.fault = TINY_KEY_BOOL, .name = "llama.attention.causal", .value = 0}, E_UNSUPPORTED, "causal"},
    {{.fault = TINY_NO_TENSOR, .name = "token_embd.weight"}, E_FORMAT, "token_embd.weight"},
    {{.fault = TINY_NO_TENSOR, .name = "output_norm.weight"}, E_FORMAT, "output_norm.weight"},
    {{.fault = TINY_NO_TENSOR, .name = "blk.1.attn_v.weight"}, E_FORMAT, "blk.1.attn_v.weight is missing"},
    {{.fault = TINY_TENSOR_ROWS, .name = "output.weight", .value = 49}, E_FORMAT, "output.weight is 49 x 64"},
    {{.fault = TINY_TENSOR_COLS, .name = "blk.0.attn_norm.weight", .value = 63}, E_FORMAT, "attn_norm"},
    {{.fault = TINY_TENSOR_ROWS, .name = "blk.0.attn_norm.weight", .value = 2}, E_FORMAT, "attn_norm"},
    {{.fault = TINY_TENSOR_ROWS, .name = "blk.0.attn_k.weight", .value = 64}, E_FORMAT, "attn_k"},
    {{.fault = TINY_TENSOR_TYPE, .name = "blk.0.attn_q.weight", .value = DTYPE_F64},
     E_UNSUPPORTED,
     "stored as F64"},
    {{.fault = TINY_TENSOR_TYPE, .name = "blk.0.ffn_up.weight", .value = DTYPE_Q8_1}, E_UNSUPPORTED, "Q8_1"},
    {{.fault = TINY_TENSOR_TYPE, .name = "output_norm.weight", .value = DTYPE_Q8_0},
     E_UNSUPPORTED,
     "output_norm"},
    {{.fault = TINY_MORE_TENSOR, .name = "blk.0.attn_q_norm.weight"}, E_UNSUPPORTED, "attn_q_norm"},
    {{.fault = TINY_MORE_TENSOR, .name = "blk.2.attn_norm.weight"}, E_UNSUPPORTED, "blk.2.attn_norm"},
    {{.fault = TINY_MORE_TENSOR, .name = "blk.0.attn_q.bias"}, E_FORMAT, "biases"},
    {{.fault = TINY_MORE_TENSOR, .name = "rope_freqs.weight"}, E_FORMAT, "rope_freqs.weight"},
};

static void every_wrong_file_is_refused_by_name(void **state)
{
    struct tiny_shape shape = tiny_shape("llama");

    for (size_t i = 0; i < sizeof(HOSTILE) / sizeof(HOSTILE[0]); i++) {
        struct gguf *gguf = tiny_gguf(&shape, &HOSTILE[i].twist);
        struct model *model = NULL;
        struct fault fault = {0};
        int rc = model_new(gguf, *state, &(struct model_opts){0}, &fault, &model);

        gguf_close(gguf);
        if (rc != HOSTILE[i].code || strstr(fault.text, HOSTILE[i].says) == NULL)
            fail_msg("%zu %s: code %s, \"%s\"", i, HOSTILE[i].twist.name, err_name(rc), fault.text);
        assert_null(model);
        assert_null(strchr(fault.text, '\n'));
        assert_null(strchr(fault.text, '\033'));
    }
}

static void harmless_keys_are_harmless(void **state)
{
    static const struct tiny_twist HARMLESS[] = {
        {.fault = TINY_KEY_U32, .name = "llama.expert_count", .value = 0},
        {.fault = TINY_KEY_U32, .name = "llama.attention.sliding_window", .value = 256},
        {.fault = TINY_KEY_F32, .name = "llama.rope.scaling.factor", .number = 0},
        {.fault = TINY_KEY_U32, .name = "llama.rope.freq_base", .value = 10000},
        {.fault = TINY_KEY_BOOL, .name = "llama.attention.causal", .value = 1},
        {.fault = TINY_KEY_U32, .name = "llama.something_new", .value = 7},
        {.fault = TINY_NO_TENSOR, .name = "output.weight"},
    };
    struct tiny_shape shape = tiny_shape("llama");

    for (size_t i = 0; i < sizeof(HARMLESS) / sizeof(HARMLESS[0]); i++) {
        struct gguf *gguf = tiny_gguf(&shape, &HARMLESS[i]);
        struct model *model = NULL;
        struct fault fault = {0};

        if (model_new(gguf, *state, &(struct model_opts){0}, &fault, &model) < 0)
            fail_msg("%s: %s", HARMLESS[i].name, fault.text);
        gguf_close(gguf);
        model_free(model);
    }
}

static void all_missing_keys_are_named_together(void **state)
{
    struct tiny_shape shape = tiny_shape("llama");
    struct tiny_twist twist = {.fault = TINY_KEY_STR, .name = "general.architecture", .text = "qwen2"};
    struct gguf *gguf = tiny_gguf(&shape, &twist); /* its keys begin with "llama." */
    struct model *model = NULL;
    struct fault fault = {0};

    assert_int_equal(model_new(gguf, *state, &(struct model_opts){0}, &fault, &model), E_FORMAT);
    assert_non_null(strstr(fault.text, "qwen2.block_count"));
    assert_non_null(strstr(fault.text, "qwen2.embedding_length"));
    assert_non_null(strstr(fault.text, "qwen2.attention.head_count is"));
    gguf_close(gguf);
}

static const char *const WINDOW[] = {"attention.sliding_window=16", NULL};

/* Each tensor that the loader names is needed, and no tensor of another architecture is accepted. */
static void each_architecture_needs_its_tensors(void **state)
{
    static const struct {
        const char *arch, *missing, *strange;
    } CASES[] = {
        {"llama", "blk.1.ffn_gate.weight", "blk.0.attn_k_norm.weight"},
        {"qwen2", "blk.0.attn_k.weight", "blk.1.post_attention_norm.weight"},
        {"qwen3", "blk.1.attn_q_norm.weight", "blk.0.ffn_up.bias"},
        {"gemma", "blk.1.ffn_norm.weight", "blk.0.attn_q_norm.weight"},
        {"gemma3", "blk.0.post_ffw_norm.weight", "blk.0.attn_v.bias"},
        {"phi3", "blk.0.attn_qkv.weight", "blk.0.attn_q_norm.weight"},
        {"granite", "blk.0.ffn_down.weight", "blk.1.attn_sinks.weight"},
        {"olmo2", "blk.0.attn_k_norm.weight", "blk.0.attn_norm.weight"},
        {"smollm3", "blk.0.attn_output.weight", "blk.0.post_ffw_norm.weight"},
        {"glm4", "blk.0.post_attention_norm.weight", "blk.0.ffn_gate.weight"},
        {"internlm2", "blk.1.attn_q.weight", "blk.0.attn_q_norm.weight"},
        {"ernie4_5", "blk.1.ffn_up.weight", "blk.0.attn_q_norm.weight"},
        {"llama", "blk.0.ffn_norm.weight", "output_norm.bias"},
        {"gemma2", "blk.1.post_ffw_norm.weight", "position_embd.weight"},
        {"starcoder2", "blk.0.ffn_norm.bias", "blk.0.ffn_gate.weight"},
        {"phi2", "output.bias", "blk.0.ffn_norm.weight"},
        {"gpt2", "position_embd.weight", "output.bias"},
        {"falcon", "output_norm.bias", "blk.0.attn_qkv.bias"},
    };

    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct tiny_shape shape = tiny_shape(CASES[i].arch);
        const struct tiny_twist twists[] = {{.fault = TINY_NO_TENSOR, .name = CASES[i].missing},
                                            {.fault = TINY_MORE_TENSOR, .name = CASES[i].strange}};

        model_free(tiny_model(&shape, *state, &(struct model_opts){0}));
        for (size_t k = 0; k < 2; k++) {
            struct gguf *gguf = tiny_gguf(&shape, &twists[k]);
            struct model *model = NULL;
            struct fault fault = {0};
            int rc = model_new(gguf, *state, &(struct model_opts){0}, &fault, &model);

            gguf_close(gguf);
            if (rc != (k == 0 ? E_FORMAT : E_UNSUPPORTED) || strstr(fault.text, twists[k].name) == NULL)
                fail_msg("%s %s: code %s, \"%s\"", CASES[i].arch, twists[k].name, err_name(rc), fault.text);
        }
    }
}

static void a_window_is_for_those_that_know_it(void **state)
{
    struct tiny_shape shape = tiny_shape("qwen2");
    struct model *model = NULL;
    struct fault fault = {0};
    struct gguf *gguf;

    shape.set = WINDOW;
    shape.arch = "llama";
    model = tiny_model(&shape, *state, &(struct model_opts){0});
    assert_int_equal(model_config(model)->window, 16);
    model_free(model);
    shape.set = NULL;
    shape.arch = "qwen2";
    gguf = tiny_gguf(
        &shape,
        &(struct tiny_twist){.fault = TINY_KEY_U32, .name = "qwen2.attention.sliding_window", .value = 16});
    model = NULL;
    assert_int_equal(model_new(gguf, *state, &(struct model_opts){0}, &fault, &model), E_UNSUPPORTED);
    assert_non_null(strstr(fault.text, "sliding windows are not supported in qwen2"));
    gguf_close(gguf);
}

/* Which layers have a window: by the architecture's period,
 * by the file's period, or by a flag for each layer. */
static void the_pattern_of_windows_is_read(void **state)
{
    static const struct {
        const char *arch;
        struct tiny_twist twist;
        uint32_t n_layers, n_windows;
    } CASES[] = {
        {"llama", {.fault = TINY_WHOLE}, 7, 7},
        {"gemma3", {.fault = TINY_WHOLE}, 13, 11},
        {"olmo2", {.fault = TINY_WHOLE}, 9, 7},
        {"gemma2", {.fault = TINY_WHOLE}, 5, 3},
        {"starcoder2", {.fault = TINY_WHOLE}, 3, 3},
        {"gemma3", {TINY_KEY_U32, "gemma3.attention.sliding_window_pattern", 2, 0, NULL}, 7, 4},
        {"olmo2", {TINY_KEY_FLAGS, "olmo2.attention.sliding_window_pattern", 0, 0, "10010"}, 5, 2},
    };
    struct tiny_twist wrong = {TINY_KEY_FLAGS, "olmo2.attention.sliding_window_pattern", 0, 0, "101"};
    struct tiny_shape shape = tiny_shape("olmo2");
    struct model *model = NULL;
    struct fault fault = {0};
    struct gguf *gguf;

    shape.set = WINDOW;
    shape.n_layers = 5;
    gguf = tiny_gguf(&shape, &wrong);
    assert_int_equal(model_new(gguf, *state, &(struct model_opts){0}, &fault, &model), E_FORMAT);
    assert_non_null(strstr(fault.text, "no list of 5 flags"));
    gguf_close(gguf);
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        shape = tiny_shape(CASES[i].arch);
        shape.set = WINDOW;
        shape.n_layers = CASES[i].n_layers;
        gguf = tiny_gguf(&shape, &CASES[i].twist);
        assert_int_equal(model_new(gguf, *state, &(struct model_opts){0}, &fault, &model), 0);
        assert_int_equal(model_config(model)->n_window_layers, CASES[i].n_windows);
        model_free(model);
        gguf_close(gguf);
    }
}

/* The context length decides which list of divisors applies, and changes the sines. */
static void longrope_takes_the_list_that_suits_the_context(void **state)
{
    static const char *const SET[] = {"rope.scaling.original_context_length=64", NULL};
    struct tiny_shape shape = tiny_shape("phi3");
    struct model_opts opts = {.kernels = "scalar"};
    struct model *models[3];

    shape.set = SET;
    shape.has_rope_freqs = true;
    for (uint32_t i = 0; i < 3; i++) {
        opts.context_length = 63 + i;
        models[i] = tiny_model(&shape, *state, &opts);
        assert_string_equal(model_config(models[i])->rope_scaling, "longrope");
    }
    assert_true(model_numerics_id(models[0]) == model_numerics_id(models[1]));
    assert_true(model_numerics_id(models[1]) != model_numerics_id(models[2]));
    for (uint32_t i = 0; i < 3; i++)
        model_free(models[i]);
}

static bool seen(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    uint64_t *last = arg;

    assert_true(done_bytes >= last[0] && done_bytes <= total_bytes);
    last[0] = done_bytes;
    last[1] = total_bytes;
    return true;
}

static void progress_ends_at_the_end(void **state)
{
    struct tiny_shape shape = tiny_shape("llama");
    uint64_t last[2] = {0, 0};

    model_free(tiny_model(&shape, *state, &(struct model_opts){.on_progress = seen, .progress_arg = last}));
    assert_true(last[0] == last[1] && last[0] > 0);
}

static bool refuse_at_third(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    unsigned *n = arg;

    assert_true(done_bytes <= total_bytes);
    return ++*n < 3;
}

static void packing_can_be_cancelled(void **state)
{
    struct tiny_shape shape = tiny_shape("llama");
    unsigned n_calls = 0;
    struct model_opts opts = {.on_progress = refuse_at_third, .progress_arg = &n_calls};
    struct gguf *gguf = tiny_gguf(&shape, NULL);
    struct model *model = NULL;
    struct fault fault = {0};

    assert_int_equal(model_new(gguf, *state, &opts, &fault, &model), E_CANCELLED);
    assert_null(model);
    assert_int_equal(n_calls, 3); /* no more of the file was read */
    gguf_close(gguf);
}

static uint64_t numerics_of(struct tiny_shape *shape, enum dtype type, struct model_opts opts,
                            struct team *team)
{
    for (unsigned i = 0; i < 3; i++)
        shape->types[i] = type;
    struct model *model = tiny_model(shape, team, &opts);
    uint64_t id = model_numerics_id(model);

    assert_int_equal(model_bf16_math(model),
                     type == DTYPE_BF16 || opts.converts_f16
                         ? kern_bf16_math(kern_table_get(opts.kernels ? opts.kernels : "auto"), opts.bf16)
                         : BF16_EXACT);
    model_free(model);
    return id;
}

/* BF16 tiles, BF16 dots and exact products are three arithmetics.  Each gives the same bits with all kernels.
 * Weights of other types do not depend on the choice. */
static void numerics_name_the_arithmetic(void **state)
{
    struct tiny_shape shape = tiny_shape("llama");
    const enum bf16_math maths[] = {BF16_TILES, BF16_DOTS};
    const struct kv_layout layout = {
        .n_layers = 1, .n_kv_heads = 1, .k_dim = 8, .v_dim = 8, .block_tokens = 32};
    struct model_opts exact = {.bf16 = BF16_EXACT}, fastest = {.bf16 = BF16_AUTO};
    uint64_t exact_id = numerics_of(&shape, DTYPE_BF16, exact, *state), ids[2];

    for (int i = 0; i < 2; i++) {
        struct model_opts plain = {.bf16 = maths[i], .kernels = "scalar"}, fast = {.bf16 = maths[i]},
                          converted = {.bf16 = maths[i], .converts_f16 = true};

        ids[i] = numerics_of(&shape, DTYPE_BF16, fast, *state);
        assert_int_equal(ids[i] != exact_id, kern_has_dots(kern_table_get("auto")));
        assert_true(ids[i] == numerics_of(&shape, DTYPE_BF16, plain, *state));
        assert_true(ids[i] == numerics_of(&shape, DTYPE_F16, converted, *state));
        assert_true(numerics_of(&shape, DTYPE_F16, fast, *state) == exact_id);
    }
    assert_int_equal(ids[0] != ids[1], kern_has_dots(kern_table_get("auto")));
    assert_int_equal(kv_layout_fingerprint(&layout, ids[0]) != kv_layout_fingerprint(&layout, ids[1]),
                     kern_has_dots(kern_table_get("auto"))); /* a peer with the other arithmetic is refused */
    uint64_t auto_id = numerics_of(&shape, DTYPE_BF16, fastest, *state);
    assert_true(auto_id == ids[kern_has_fast_tiles(kern_table_get("auto")) ? 0 : 1]);
    assert_true(numerics_of(&shape, DTYPE_F16, exact, *state) == exact_id);
}

static void the_halves_of_a_layer_share_memory(void **state)
{
    struct tiny_shape shape = tiny_shape("llama");
    struct model *model = tiny_model(&shape, *state, &(struct model_opts){0});
    struct model_state_opts opts = {.max_tokens = 64, .max_items = 1};
    struct model_state *scratch;

    assert_int_equal(model_state_new(model, *state, &opts, &scratch), 0);
    assert_ptr_equal(scratch->qkv, scratch->gate_up);
    assert_true((char *)scratch->qkv > (char *)scratch->matmul_scratch); /* the last buffer that both need */
    model_state_free(scratch);
    model_free(model);
}

/* Runs a model from an arbitrary file, which may be refused or run. */
static void run_once(struct model *model, struct team *team)
{
    const struct kv_layout *layout = model_kv_layout(model);
    const kv_block_id block = 0;
    const uint32_t token = 0;
    struct model_item item = {.tokens = &token, .n_tokens = 1, .blocks = &block, .n_logits = 1};
    struct model_state *state = NULL;
    void *arena = calloc(1, kv_layout_block_bytes(layout));

    assert_non_null(arena);
    assert_int_equal(
        model_state_new(model, team,
                        &(struct model_state_opts){.max_tokens = 1, .max_items = 1, .max_context = 32},
                        &state),
        0);
    model_forward(
        model, state,
        &(struct model_pass){.team = team, .kv_arena = arena, .n_blocks = 1, .items = &item, .n_items = 1});
    assert_non_null(model_logits(state, 0, 0));
    model_state_free(state);
    free(arena);
}

/* Changes bytes of keys and tensor directory, one at a time.  Returns how many files still ran. */
static unsigned mutate(struct team *team, const struct tiny_shape *shape, unsigned n_trials)
{
    struct buf image = {0};
    struct rng rng;
    unsigned n_ran = 0;

    tiny_image(shape, NULL, &image);
    rng_init(&rng, 42);
    for (unsigned i = 0; i < n_trials; i++) {
        size_t at = (size_t)rng_below(&rng, 3000);
        uint8_t was = image.data[at];
        struct gguf *gguf = NULL;
        struct model *model = NULL;
        struct fault fault = {0};

        image.data[at] =
            rng_below(&rng, 2) ? (uint8_t)rng_u64(&rng) : (uint8_t)(was ^ (1u << rng_below(&rng, 8)));
        if (gguf_open_memory(buf_view(&image), &fault, &gguf) == 0 &&
            model_new(gguf, team, &(struct model_opts){.kv_type = KV_F16}, &fault, &model) == 0) {
            run_once(model, team);
            n_ran++;
        } else {
            assert_true(fault.code < 0 && fault.text[0] != '\0');
        }
        model_free(model);
        gguf_close(gguf);
        image.data[at] = was;
    }
    buf_fini(&image);
    return n_ran;
}

static void mutated_files_are_refused_or_run(void **state)
{
    static const char *const SCALES[] = {"embedding_scale=2.5", "residual_scale=0.5", "logit_scale=2.0",
                                         "attention.scale=0.25", NULL};
    static const char *const YARN[] = {"attention.sliding_window=16", "rope.scaling.type=yarn",
                                       "rope.scaling.factor=4.0", "rope.scaling.original_context_length=64",
                                       NULL};
    static const struct {
        const char *arch;
        const char *const *set;
    } CASES[] = {{"qwen2", NULL},  {"llama", YARN},     {"gemma3", WINDOW},
                 {"phi3", WINDOW}, {"granite", SCALES}, {"olmo2", YARN}};

    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct tiny_shape shape = tiny_shape(CASES[i].arch);
        unsigned n_trials = 400, n_ran;

        shape.set = CASES[i].set;
        shape.has_rope_freqs = true;
        shape.types[1] = DTYPE_Q8_0;
        n_ran = mutate(*state, &shape, n_trials);
        assert_true(n_ran > 0 && n_ran < n_trials);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reads_the_shape, check_team_open, check_team_close),
        cmocka_unit_test_setup_teardown(a_context_may_be_shorter_only, check_team_open, check_team_close),
        cmocka_unit_test_setup_teardown(numerics_differ_with_the_sines, check_team_open, check_team_close),
        cmocka_unit_test_setup_teardown(every_wrong_file_is_refused_by_name, check_team_open,
                                        check_team_close),
        cmocka_unit_test_setup_teardown(harmless_keys_are_harmless, check_team_open, check_team_close),
        cmocka_unit_test_setup_teardown(all_missing_keys_are_named_together, check_team_open,
                                        check_team_close),
        cmocka_unit_test_setup_teardown(each_architecture_needs_its_tensors, check_team_open,
                                        check_team_close),
        cmocka_unit_test_setup_teardown(a_window_is_for_those_that_know_it, check_team_open,
                                        check_team_close),
        cmocka_unit_test_setup_teardown(the_pattern_of_windows_is_read, check_team_open, check_team_close),
        cmocka_unit_test_setup_teardown(longrope_takes_the_list_that_suits_the_context, check_team_open,
                                        check_team_close),
        cmocka_unit_test_setup_teardown(progress_ends_at_the_end, check_team_open, check_team_close),
        cmocka_unit_test_setup_teardown(packing_can_be_cancelled, check_team_open, check_team_close),
        cmocka_unit_test_setup_teardown(numerics_name_the_arithmetic, check_team_open, check_team_close),
        cmocka_unit_test_setup_teardown(the_halves_of_a_layer_share_memory, check_team_open,
                                        check_team_close),
        cmocka_unit_test_setup_teardown(mutated_files_are_refused_or_run, check_team_open, check_team_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
