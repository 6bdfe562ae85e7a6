/* SPDX-License-Identifier: Apache-2.0 */
/* Exactness as a property of every known architecture: random shapes, weight types and KV types, windows
 * shorter than the sequences, kernel tables in turns, and the trials of trial.h.
 *
 * BATON_PROPERTY_SEED=N draws other shapes, BATON_PROPERTY_ROUNDS=N more of them; a failure names both.
 * BATON_PROPERTY_ARCH=NAME,.. checks only these architectures, with the same shapes.
 * BATON_FULL=1 checks every kernel table with every model. */
#include "base/check.h"
#include "compute/tensor/tensor.h"
#include "tests/unit/compute/engine/trial.h"
#include "tests/unit/trials.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

enum { ROUNDS = 1, TRIALS = 2, MAX_SET = 12, SHORT = 100, MAX_TABLES = 16 };

struct drawn { /* a model */
    struct tiny_shape shape;
    struct model_opts opts;
    uint32_t longest;
    uint32_t unit; /* widths are multiples of this: weights of a qblk */
    char text[MAX_SET][64];
    const char *set[MAX_SET + 1];
    uint32_t n_set;
};

static uint32_t pick(struct rng *rng, const uint32_t *from, uint32_t n)
{
    return from[rng_below(rng, n)];
}
#define PICK(rng, ...)                                                                                       \
    pick(rng, (const uint32_t[]){__VA_ARGS__}, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

static void draw_text(struct drawn *d, const char *text)
{
    assert_true(d->n_set < MAX_SET);
    snprintf(d->text[d->n_set], sizeof(d->text[0]), "%s", text);
    d->set[d->n_set] = d->text[d->n_set];
    d->n_set++;
}

static void draw_key(struct drawn *d, const char *key, uint32_t value)
{
    char text[64];

    snprintf(text, sizeof(text), "%s=%u", key, value);
    draw_text(d, text);
}

/* Draws types; the first one takes turns.
 * Returns the multiple for widths along which a matrix may be quantised. */
static uint32_t draw_types(struct rng *rng, uint64_t turn, enum dtype types[3])
{
    static const enum dtype deck[] = {
        DTYPE_Q4_0, DTYPE_Q4_K, DTYPE_BF16, DTYPE_Q6_K,  DTYPE_IQ4_NL, DTYPE_Q5_K, DTYPE_Q5_1,   DTYPE_Q2_K,
        DTYPE_F16,  DTYPE_Q8_0, DTYPE_Q3_K, DTYPE_MXFP4, DTYPE_Q4_1,   DTYPE_Q5_0, DTYPE_IQ4_XS, DTYPE_F32};

    types[0] = deck[turn % (sizeof(deck) / sizeof(deck[0]))];
    const uint32_t unit = dtype_info(types[0])->qblk_weights == 256 ? 256 : 32;

    for (unsigned i = 1; i < 3; i++)
        do
            types[i] = deck[rng_below(rng, sizeof(deck) / sizeof(deck[0]))];
        while (dtype_info(types[i])->qblk_weights > unit);
    return unit;
}

static bool is_sparse(const char *arch)
{
    return strcmp(arch, "deepseek32") == 0 || strcmp(arch, "glm-dsa") == 0;
}

static bool is_latent(const char *arch)
{
    return strcmp(arch, "deepseek2") == 0 || strcmp(arch, "kimi-linear") == 0 || is_sparse(arch);
}

static bool has_windows(const char *arch)
{
    static const char *const NAMES[] = {"llama",      "gemma2",  "gemma3",  "gemma3n",   "gemma4",
                                        "phi3",       "olmo2",   "gpt-oss", "exaone4",   "mistral3",
                                        "starcoder2", "cohere2", "llama4",  "phimoe",    "afmoe",
                                        "cohere2moe", "mimo2",   "step35",  "exaone-moe"};

    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
        if (strcmp(arch, NAMES[i]) == 0)
            return true;
    return false;
}

/* No model of these has all layers alike. */
static bool needs_window(const char *arch)
{
    return strcmp(arch, "afmoe") == 0 || strcmp(arch, "cohere2moe") == 0 || strcmp(arch, "mimo2") == 0 ||
           strcmp(arch, "step35") == 0 || strcmp(arch, "exaone-moe") == 0;
}

/* A number for each layer: the value if the layer's bit is set, else 0. */
static void draw_list(struct drawn *d, const char *key, uint32_t bits, uint32_t value)
{
    char *text = d->text[d->n_set];
    int len = snprintf(text, sizeof(d->text[0]), "%s=", key);

    assert_true(d->n_set < MAX_SET);
    for (uint32_t i = 0; i < d->shape.n_layers; i++)
        len += snprintf(text + len, sizeof(d->text[0]) - (size_t)len, "%u,", bits >> i & 1 ? value : 0);
    d->set[d->n_set++] = text;
}

/* A number for each layer: one if the layer's bit is set, another if it is not. */
static void draw_either(struct drawn *d, const char *key, uint32_t bits, uint32_t set, uint32_t unset)
{
    char *text = d->text[d->n_set];
    int len = snprintf(text, sizeof(d->text[0]), "%s=", key);

    assert_true(d->n_set < MAX_SET);
    for (uint32_t i = 0; i < d->shape.n_layers; i++)
        len += snprintf(text + len, sizeof(d->text[0]) - (size_t)len, "%u,", bits >> i & 1 ? set : unset);
    d->set[d->n_set++] = text;
}

/* Layers with a window have other heads than the others. */
static void draw_kinds(struct rng *rng, const char *arch, struct drawn *d)
{
    struct tiny_shape *s = &d->shape;
    uint32_t bits = (uint32_t)rng_below(rng, 128);

    draw_list(d, "attention.sliding_window_pattern", bits, 1);
    draw_key(d, "rope.freq_base_swa", 500);
    if (strcmp(arch, "mimo2") == 0) {
        draw_either(d, "attention.head_count_kv", bits, s->n_kv_heads, 1);
        if (s->head_dim > 32 && s->n_heads * 32 % d->unit == 0)
            s->value_dim = 32;
        draw_text(d, "attention.value_scale=0.7");
        return;
    }
    draw_either(d, "attention.head_count", bits, s->n_heads * 2, s->n_heads);
    draw_text(d, "swiglu_clamp_exp=0.25");
    if (s->n_dense == 0)
        draw_text(d, "swiglu_clamp_shexp=0.125");
}

/* Layers with KV heads: one for sure, and some of the others. */
static uint32_t draw_attention(struct rng *rng, struct drawn *d)
{
    uint32_t bits = 1u << rng_below(rng, d->shape.n_layers);

    for (uint32_t i = 0; i < d->shape.n_layers; i++)
        bits |= (uint32_t)(rng_below(rng, 3) == 0) << i;
    draw_list(d, "attention.head_count_kv", bits, d->shape.n_kv_heads);
    return bits;
}

static void draw_recurrent(struct rng *rng, struct drawn *d)
{
    draw_attention(rng, d);
    draw_key(d, "shortconv.l_cache", 1 + (uint32_t)rng_below(rng, 8));
}

/* Few heads, whose values are whole qblks together. */
static void draw_state_heads(struct rng *rng, struct drawn *d)
{
    uint32_t n_keys = 1 + (uint32_t)rng_below(rng, 2), n_heads = n_keys * (1 + (uint32_t)rng_below(rng, 2));

    draw_key(d, "ssm.conv_kernel", 1 + (uint32_t)rng_below(rng, 5));
    draw_key(d, "ssm.state_size", PICK(rng, 5, 16, 24));
    draw_key(d, "ssm.group_count", n_keys);
    draw_key(d, "ssm.time_step_rank", n_heads);
    draw_key(d, "ssm.inner_size", n_heads * (d->unit == 32 ? 32 : 256));
}

static bool has_mamba(const char *arch)
{
    return strcmp(arch, "granitehybrid") == 0 || strncmp(arch, "nemotron_h", 10) == 0 ||
           strcmp(arch, "falcon-h1") == 0 || strcmp(arch, "mamba2") == 0;
}

/* Mamba 2 instead of attention, beside it, or in layers without a feed-forward network. */
static void draw_mamba(struct rng *rng, const char *arch, struct drawn *d)
{
    uint32_t bits = 0, others = (uint32_t)rng_below(rng, 16);

    d->shape.has_bias = rng_below(rng, 2) == 0;
    const bool has_one_half = strncmp(arch, "nemotron_h", 10) == 0;

    if (strcmp(arch, "granitehybrid") == 0 || has_one_half)
        bits = draw_attention(rng, d);
    if (has_one_half && (others & ~bits & ((1u << d->shape.n_layers) - 1)) != 0)
        draw_list(d, "feed_forward_length", others & ~bits, d->shape.ffn);
    else if (has_one_half) {
        d->shape.n_layers++; /* its last layer is the feed-forward network */
        d->n_set--;
        draw_list(d, "attention.head_count_kv", bits, d->shape.n_kv_heads);
        draw_list(d, "feed_forward_length", 1u << (d->shape.n_layers - 1), d->shape.ffn);
    }
    draw_state_heads(rng, d);
}

/* Gated delta nets in all layers but the last of each interval. */
static void draw_delta(struct rng *rng, struct drawn *d)
{
    d->shape.n_layers = d->shape.n_layers < 2 ? 2 : d->shape.n_layers;
    draw_key(d, "full_attention_interval", 2 + (uint32_t)rng_below(rng, d->shape.n_layers - 1));
    draw_state_heads(rng, d);
}

/* Narrower heads with a window, layers that read the keys of others, and embeddings of their own. */
static void draw_gemma4(struct rng *rng, struct drawn *d)
{
    struct tiny_shape *s = &d->shape;
    uint32_t narrow = s->head_dim > d->unit || s->n_heads % 2 != 0 ? s->head_dim : s->head_dim / 2;

    if (s->n_heads * narrow % d->unit == 0 && narrow % 2 == 0)
        draw_key(d, "attention.key_length_swa", narrow);
    draw_key(d, "attention.sliding_window_pattern", 2);
    if (s->n_layers > 3)
        draw_key(d, "attention.shared_kv_layers", 1 + (uint32_t)rng_below(rng, s->n_layers - 2));
    if (rng_below(rng, 2))
        draw_key(d, "embedding_length_per_layer_input", d->unit);
}

/* Several streams; layers that read the keys of others. */
static void draw_gemma3n(struct rng *rng, struct drawn *d)
{
    d->shape.n_layers += 3; /* all of them with most gates cut off */
    draw_key(d, "attention.sliding_window_pattern", 2);
    draw_key(d, "attention.shared_kv_layers", (uint32_t)rng_below(rng, d->shape.n_layers - 1));
    draw_key(d, "laurel_rank", d->unit);
    draw_key(d, "altup.num_inputs", 2 + (uint32_t)rng_below(rng, 4));
    draw_key(d, "embedding_length_per_layer_input", d->unit);
}

static void draw_xielu(struct drawn *d)
{
    draw_text(d, "xielu.alpha_p=0.3");
    draw_text(d, "xielu.alpha_n=0.7");
    draw_text(d, "xielu.beta=0.5");
    draw_text(d, "xielu.eps=0.0");
}

static void draw_shape(struct rng *rng, uint64_t turn, const char *arch, struct drawn *d)
{
    struct tiny_shape *s = &d->shape;
    bool is_windowed = has_windows(arch);

    *s = tiny_shape(arch);
    d->unit = draw_types(rng, turn, s->types);
    s->n_kv_heads = 1 + (uint32_t)rng_below(rng, 3);
    s->n_heads = s->n_kv_heads * (1 + (uint32_t)rng_below(rng, 4));
    s->head_dim = d->unit == 32 ? PICK(rng, 16, 20, 32, 40, 64, 128) : PICK(rng, 32, 64, 128);
    while (s->n_heads * s->head_dim % d->unit != 0)
        if (s->head_dim < 128)
            s->head_dim *= 2;
        else
            s->n_heads += s->n_kv_heads;
    s->hidden = d->unit * (1 + (uint32_t)rng_below(rng, d->unit == 32 ? 4 : 2));
    s->ffn = d->unit * (1 + (uint32_t)rng_below(rng, d->unit == 32 ? 5 : 2));
    s->vocab = 20 + (uint32_t)rng_below(rng, 60);
    s->n_layers = is_windowed ? 1 + (uint32_t)rng_below(rng, 7) : 1 + (uint32_t)rng_below(rng, 4);
    s->context = TRIAL_MAX_TOKENS;
    s->is_tied = rng_below(rng, 2) == 0;
    s->has_bias = s->has_bias || strncmp(arch, "qwen2", 5) == 0 ||
                  (strcmp(arch, "llama") == 0 && rng_below(rng, 2) == 0);
    s->has_rope_freqs = rng_below(rng, 3) == 0;
    if (strcmp(arch, "mistral3") == 0) { /* its queries grow along the sequence */
        draw_key(d, "rope.scaling.original_context_length", 16);
        draw_key(d, "attention.temperature_scale", 1);
    }
    if (strcmp(arch, "gemma2") == 0)
        draw_key(d, "attn_logit_softcapping", 1);
    if (strcmp(arch, "olmo") == 0)
        draw_key(d, "attention.clamp_kqv", 1);
    if (strcmp(arch, "hunyuan_vl") == 0)
        draw_key(d, "rope.scaling.alpha", 50);
    if (strcmp(arch, "gptneox") == 0 || strcmp(arch, "stablelm") == 0)
        draw_text(d, rng_below(rng, 2) ? "use_parallel_residual=true" : "use_parallel_residual=false");
    if (strcmp(arch, "apertus") == 0)
        draw_xielu(d);
    if (strcmp(arch, "command-r") == 0 || strncmp(arch, "cohere2", 7) == 0)
        draw_key(d, "logit_scale", 2);
    if (rng_below(rng, 4) == 0 && !is_latent(arch) && strcmp(arch, "step35") != 0)
        draw_key(d, "rope.dimension_count", s->head_dim / 4 * 2);
    if (is_windowed && strcmp(arch, "llama4") != 0 && (rng_below(rng, 4) > 0 || needs_window(arch)))
        draw_key(d, "attention.sliding_window", 1 + (uint32_t)rng_below(rng, SHORT));
}

static bool has_only_experts(const char *arch)
{
    static const char *const NAMES[] = {
        "qwen3moe",       "gpt-oss",      "qwen2moe", "olmoe",     "granitemoe", "minimax-m2",  "hunyuan-moe",
        "glm4moe",        "ernie4_5-moe", "lfm2moe",  "qwen35moe", "qwen3next",  "bailingmoe2", "llama4",
        "nemotron_h_moe", "qwen3vlmoe",   "hy_v3",    "dots1",     "phimoe",     "afmoe",       "bailingmoe",
        "cohere2moe",     "mimo2",        "step35",   "exaone-moe"};

    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
        if (strcmp(arch, NAMES[i]) == 0)
            return true;
    return false;
}

/* Draws experts, always if the architecture needs them. */
static void draw_experts(struct rng *rng, const char *arch, struct drawn *d)
{
    struct tiny_shape *s = &d->shape;
    const uint32_t unit = d->unit;
    if (!is_latent(arch) && !has_only_experts(arch) &&
        ((strcmp(arch, "llama") != 0 && strcmp(arch, "granitehybrid") != 0 && strcmp(arch, "gemma4") != 0) ||
         rng_below(rng, 2)))
        return;
    s->n_experts = 1 + (uint32_t)rng_below(rng, 40);
    s->n_used = 1 + (uint32_t)rng_below(rng, s->n_experts < 9 ? s->n_experts : 9);
    s->expert_ffn = is_latent(arch) || strcmp(arch, "llama") != 0
                        ? unit * (1 + (uint32_t)rng_below(rng, unit == 32 ? 3 : 1))
                        : s->ffn;
    if (strcmp(arch, "qwen2moe") == 0 || strcmp(arch, "hunyuan-moe") == 0 || strcmp(arch, "qwen35moe") == 0 ||
        strcmp(arch, "qwen3next") == 0)
        s->n_shared = (uint32_t)rng_below(rng, 3);
    if (strcmp(arch, "glm4moe") == 0 || strncmp(arch, "bailingmoe", 10) == 0 || strcmp(arch, "afmoe") == 0 ||
        strcmp(arch, "step35") == 0 || strcmp(arch, "cohere2moe") == 0 || strcmp(arch, "ernie4_5-moe") == 0) {
        s->n_shared = (uint32_t)rng_below(rng, 3);
        s->n_dense = (uint32_t)rng_below(rng, s->n_layers + 1);
    }
    if (strcmp(arch, "ernie4_5-moe") == 0)
        draw_key(d, "interleave_moe_layer_step", 1 + (uint32_t)rng_below(rng, s->n_layers));
    if (strcmp(arch, "nemotron_h_moe") == 0) {
        s->n_shared = 1 + (uint32_t)rng_below(rng, 2);
        if (rng_below(rng, 4) > 0) /* narrower than the model, or wider */
            draw_key(d, "moe_latent_size", unit * PICK(rng, 1, 16, 17));
    }
    if (strcmp(arch, "llama4") == 0)
        draw_key(d, "interleave_moe_layer_step", 1 + (uint32_t)rng_below(rng, s->n_layers < 2 ? 1 : 2));
    if (!is_latent(arch))
        return;
    s->n_shared = (uint32_t)rng_below(rng, 3);
    s->n_dense = (uint32_t)rng_below(rng, s->n_layers + 1);
    s->latent = unit * (1 + (uint32_t)rng_below(rng, unit == 32 ? 4 : 1));
    s->q_latent = is_sparse(arch) || rng_below(rng, 2) ? unit : 0;
    s->rope_dims = PICK(rng, 8, 16, 32);
    s->head_dim = s->rope_dims + 32 * (1 + (uint32_t)rng_below(rng, 2));
    s->value_dim = 32;
    while (s->n_heads * s->head_dim == s->hidden || s->n_heads * s->value_dim % unit != 0)
        s->n_heads++;
    s->n_kv_heads = 1;
}

/* Keys chosen by an indexer: few, or more than there are. */
static void draw_indexer(struct rng *rng, const char *arch, struct drawn *d)
{
    draw_key(d, "attention.indexer.head_count", 1 + (uint32_t)rng_below(rng, 4));
    draw_key(d, "attention.indexer.key_length", PICK(rng, 32, 40, 64));
    draw_key(d, "attention.indexer.top_k", PICK(rng, 1, 7, 16, 33, 50, 400));
    if (strcmp(arch, "glm-dsa") == 0)
        draw_list(d, "attention.indexer.types", 1 | (uint32_t)rng_below(rng, 16), 1);
}

/* Chunks are whole blocks. */
static void draw_chunks(struct rng *rng, struct drawn *d)
{
    draw_key(d, "attention.sliding_window", d->opts.block_tokens * (1 + (uint32_t)rng_below(rng, 3)));
    draw_key(d, "attention.temperature_length", 16);
}

static void draw(struct rng *rng, uint64_t turn, const char *arch, struct drawn *d)
{
    memset(d, 0, sizeof(*d));
    draw_shape(rng, turn, arch, d);
    d->longest = SHORT;
    const bool is_long = rng_below(rng, 5) == 0;
    const bool is_narrow = is_long && rng_below(rng, 4) != 0;
    if (is_long) { /* long enough that attention splits it among ranks, with chunks of 512 */
        d->longest = TRIAL_MAX_TOKENS;
        d->shape.n_layers = 1;
    }
    if (is_narrow) { /* most of the long ones, because plain C takes seconds for the others */
        d->shape.hidden = d->unit;
        d->shape.ffn = d->unit;
    }
    if (strncmp(arch, "lfm2", 4) == 0)
        draw_recurrent(rng, d);
    if (strncmp(arch, "qwen35", 6) == 0 || strcmp(arch, "qwen3next") == 0)
        draw_delta(rng, d);
    if (has_mamba(arch))
        draw_mamba(rng, arch, d);
    draw_experts(rng, arch, d);
    if (is_narrow && d->shape.n_used > 2)
        d->shape.n_used = 2;
    if (strcmp(arch, "gemma4") == 0)
        draw_gemma4(rng, d);
    if (strcmp(arch, "gemma3n") == 0)
        draw_gemma3n(rng, d);
    if (strcmp(arch, "kimi-linear") == 0) {
        draw_attention(rng, d);
        draw_key(d, "kda.head_dim", d->unit);
        draw_key(d, "ssm.conv_kernel", 1 + (uint32_t)rng_below(rng, 5));
    }
    if (strcmp(arch, "mimo2") == 0 || strcmp(arch, "step35") == 0)
        draw_kinds(rng, arch, d);
    d->shape.set = d->set;
    d->shape.seed = rng_u64(rng) >> 33;
    d->opts.kv_type = (enum kv_type)PICK(rng, KV_F32, KV_F16, KV_F16, KV_BF16, KV_Q8_0, KV_Q4_0);
    d->opts.block_tokens = PICK(rng, 16, 32, 32, 48, 64);
    if (is_sparse(arch))
        draw_indexer(rng, arch, d);
    if (strcmp(arch, "llama4") == 0)
        draw_chunks(rng, d);
    d->opts.bf16 = (enum bf16_math)PICK(rng, BF16_TILES, BF16_TILES, BF16_DOTS, BF16_EXACT);
    d->opts.converts_f16 = rng_below(rng, 2) == 0;
}

/* The table that this processor uses is checked with every model, the others take turns: each table meets every third
 * model, the scalar one (which takes ten times as long) every sixth.  BATON_FULL=1 checks all tables with all models.
 * Sanitizers check the code, not the figures, and not the kernels. */
static bool table_is_checked(uint32_t i, uint64_t turn)
{
    const struct kern_table *table = kern_table_at(i);
    const char *full = getenv("BATON_FULL");

    if (table == kern_table_get("auto"))
        return true;
    if (trials_are_sanitized())
        return false;
    if (full && *full)
        return true;
    return (turn + i) % (strcmp(kern_table_name(table), "scalar") == 0 ? 6 : 3) == 0;
}

/* Checks that the logits' bits do not depend on neighbours, and are equal for tables that multiply BF16 matrices alike.
 * F16 matrices that are converted use the tiles of a table that has them, whatever opts.bf16 is. */
static void check_drawn(struct trial_bench *b, struct drawn *d, uint64_t turn)
{
    struct {
        enum bf16_math bf16;
        uint64_t numerics_id, digest;
    } seen[MAX_TABLES];
    const struct kern_table *table;
    uint32_t n_seen = 0;

    for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++) {
        uint64_t digest;
        uint32_t k = 0;

        if (!table_is_checked(i, turn))
            continue;
        d->opts.kernels = kern_table_name(table);
        b->n_trials = trials_are_sanitized() || strcmp(kern_table_name(table), "scalar") == 0 ? 1 : TRIALS;
        digest = trial_model(b, &d->shape, d->longest, &d->opts);
        while (k < n_seen && seen[k].bf16 != b->bf16)
            k++;
        assert_true(k < MAX_TABLES);
        if (k == n_seen) {
            seen[n_seen].bf16 = b->bf16;
            seen[n_seen].numerics_id = b->numerics_id;
            seen[n_seen++].digest = digest;
        }
        assert_true(seen[k].numerics_id == b->numerics_id);
        assert_true(seen[k].digest == digest);
    }
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text ? strtoull(text, NULL, 10) : otherwise;
}

static bool is_chosen(const char *arch)
{
    const char *list = getenv("BATON_PROPERTY_ARCH"), *end;
    size_t len = strlen(arch);

    for (; list && *list; list = *end ? end + 1 : end) {
        end = list + strcspn(list, ",");
        if ((size_t)(end - list) == len && strncmp(list, arch, len) == 0)
            return true;
    }
    return list == NULL;
}

static void bits_never_depend_on_neighbours(void **state)
{
    static struct trial_bench b;
    uint64_t seed = from_environment("BATON_PROPERTY_SEED", 1);
    uint64_t n_rounds = from_environment("BATON_PROPERTY_ROUNDS", ROUNDS);
    uint64_t turn = seed;
    const char *arch;
    struct rng rng;

    (void)state;
    trial_init(&b);
    rng_init(&rng, seed);
    for (uint64_t round = 0; round < n_rounds; round++)
        for (uint32_t i = 0; (arch = model_arch_at(i)) != NULL; i++) {
            struct drawn d;

            draw(&rng, turn++, arch, &d);
            if (!is_chosen(arch))
                continue;
            print_message(
                "seed %llu: %s, %u layers, %u/%u heads of %u, hidden %u, KV type %d in blocks of %u, "
                "%u tokens, weights %s %s %s%s%s%s%s\n",
                (unsigned long long)seed, arch, d.shape.n_layers, d.shape.n_heads, d.shape.n_kv_heads,
                d.shape.head_dim, d.shape.hidden, (int)d.opts.kv_type, d.opts.block_tokens, d.longest,
                dtype_info(d.shape.types[0])->name, dtype_info(d.shape.types[1])->name,
                dtype_info(d.shape.types[2])->name, d.n_set > 0 ? ", " : "", d.n_set > 0 ? d.text[0] : "",
                d.n_set > 1 ? ", " : "", d.n_set > 1 ? d.text[1] : "");
            check_drawn(&b, &d, turn);
        }
    trial_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_never_depend_on_neighbours),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
