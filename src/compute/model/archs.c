/* SPDX-License-Identifier: Apache-2.0 */
/* The architectures: one row each, and the few lines that only one of them needs.  Rows of these kinds have files of
 * their own: experts (archs_experts.c), latent attention (archs_latent.c), recurrent layers (archs_hybrid.c), LayerNorm
 * (archs_norm.c).
 *
 *    llama     Llama 1 to 3.x, Mistral (windows), Mixtral (experts), and the many models of the same shape
 *    qwen2     Qwen 2 and 2.5: biases on Q, K and V
 *    qwen3     Qwen 3: no biases, but each head of Q and K is normed
 *    qwen2vl   Qwen 2 and 2.5 VL, text: qwen2; a text's positions are the same on all axes of RoPE
 *    qwen3vl   Qwen 3 VL, text: qwen3
 *    exaone    EXAONE 3: llama, with halves turned
 *    gemma     Gemma 1: GELU, embeddings scaled by sqrt(hidden)
 *    gemma2    Gemma 2: like gemma, with norms before and after each half and soft caps; every other layer has
 *              a window
 *    gemma3    Gemma 3: like gemma, with norms before and after each half and on heads; of six layers five
 *              have a window and their own angles, one attends to all keys
 *    gemma3n, gemma4  arch_gemma3n.c, arch_gemma4.c
 *    phi3      Phi 3, 3.5 and 4 mini: Q, K, V in one tensor, gate and up in one, longrope
 *    granite   Granite 3: llama with four scales
 *    olmo2     OLMo 2 and 3: norms only after each half, Q and K normed over all heads at once
 *    smollm3   SmolLM 3: llama, but every fourth layer has no RoPE
 *    glm4      GLM 4 (0414), Z1: norms before and after each half, gate and up in one, RoPE on half a head
 *    internlm2 InternLM 2 to 3: llama by another name
 *    ernie4_5  ERNIE 4.5 dense: llama by another name
 *    hunyuan-dense Hunyuan: heads are normed after RoPE
 *    arcee     AFM 4.5B: llama without gates, squared ReLU
 *    apertus   Apertus: heads of Q and K normed, xIELU without a gate
 *    hunyuan_vl Hunyuan VL and OCR, text: hunyuan-dense, with a base of RoPE that grows with a key
 *    seed_oss  Seed OSS: qwen2, with the second norm under another name
 *    exaone4   EXAONE 4: norms after each half; with windows, layers without one have no RoPE
 *    mistral3  Mistral 3, Ministral 3: llama, with queries scaled by their position
 *
 * In files of architectures that descend from llama, the rows of Q and K are ordered so that RoPE turns
 * neighbouring elements. In the others, element i of a head turns with element i + dims/2, as in the
 * models they were converted from. */
#include "compute/model/model_priv.h"

#include <math.h>
#include <stdio.h>

static const double CAP[2] = {0, 1e6};

/* ---- code for single architectures ---- */

static void read_gemma(struct reading *r, struct model *model)
{
    (void)r;
    model->config.embedding_scale = sqrtf((float)model->config.hidden);
}

static const char *const GEMMA2_KEYS[] = {"attn_logit_softcapping", "final_logit_softcapping", NULL};

/* The largest model scales queries by a width other than its heads', and no key says so. */
enum { GEMMA2_LAYERS_OF_27B = 46 };

static void read_gemma2(struct reading *r, struct model *model)
{
    struct model_config *config = &model->config;
    double scores = 50, logits = 30;

    read_gemma(r, model);
    read_number(r, "attn_logit_softcapping", OPTIONAL, CAP, &scores);
    read_number(r, "final_logit_softcapping", OPTIONAL, CAP, &logits);
    config->attn_cap = (float)scores;
    config->logit_cap = (float)logits;
    if (config->n_layers == GEMMA2_LAYERS_OF_27B)
        config->attn_scale = (float)sqrt((double)config->n_heads / config->hidden);
}

static const char *const GEMMA3_KEYS[] = {"final_logit_softcapping", NULL};

/* Only the largest model scales queries by a width other than its heads', and no key says so. */
enum { GEMMA3_LAYERS_OF_27B = 62 };

static void read_gemma3(struct reading *r, struct model *model)
{
    struct model_config *config = &model->config;
    double local_base = 10000, logits = 0;

    read_gemma(r, model);
    read_number(r, "final_logit_softcapping", OPTIONAL, CAP, &logits);
    config->logit_cap = (float)logits;
    if (config->n_layers == GEMMA3_LAYERS_OF_27B)
        config->attn_scale = (float)sqrt((double)config->n_heads / config->hidden);
    read_window_base(r, &local_base);
    use_local_rope(model, local_base);
}

static const char *const GEMMA3N_KEYS[] = {"final_logit_softcapping", NULL};
static const char *const GEMMA4_KEYS[] = {"final_logit_softcapping", "expert_count", NULL};

static const char *const GRANITE_KEYS[] = {"embedding_scale", "residual_scale", "logit_scale",
                                           "attention.scale", NULL};

void drop_rope(struct model *model)
{
    for (uint32_t i = 0; i < model->config.n_layers; i++)
        model->layers[i].rope = ROPE_NONE;
}

void drop_rope_of_global(struct model *model)
{
    for (uint32_t i = 0; i < model->config.n_layers; i++)
        if (!model->layers[i].is_local)
            model->layers[i].rope = ROPE_NONE;
}

void read_granite(struct reading *r, struct model *model)
{
    static const double SCALE[2] = {1e-6, 1e6};
    struct model_config *config = &model->config;
    double embedding = 1, residual = 1, logits = 1, attention = config->attn_scale;
    bool has_rope = true; /* the key that turns RoPE off is named for something else */

    read_number(r, "embedding_scale", OPTIONAL, SCALE, &embedding);
    read_number(r, "residual_scale", OPTIONAL, SCALE, &residual);
    read_number(r, "logit_scale", OPTIONAL, SCALE, &logits);
    read_number(r, "attention.scale", OPTIONAL, SCALE, &attention);
    config->embedding_scale = (float)embedding;
    config->residual_scale = (float)residual;
    config->logit_scale = (float)(1 / logits);
    config->attn_scale = (float)attention;
    read_flag(r, "rope.scaling.finetuned", &has_rope);
    if (!has_rope)
        drop_rope(model);
}

/* OLMo 3 stretches the context only of the layers that attend to all of it. */
static void read_olmo2(struct reading *r, struct model *model)
{
    double base = model->rope_params[ROPE_GLOBAL].freq_base;

    read_window_base(r, &base);
    if (model->rope_params[ROPE_GLOBAL].scaling != ROPE_SCALE_NONE)
        use_local_rope(model, base);
}

/* Files of vision models (GLM 4.1V, 4.6V) divide the pairs among axes, which are all the position in a text. Their
 * converter orders the rows of heads so that halves turn. */
static void read_glm4(struct reading *r, struct model *model)
{
    char key[128];
    int64_t n_pairs;

    reading_key(r, "rope.dimension_sections", key);
    for (uint32_t i = 0; gguf_array_i64(r->gguf, key, i, &n_pairs) == 0; i++)
        if (n_pairs != 0)
            model->rope_params[ROPE_GLOBAL].pairs = ROPE_HALVES;
}

static void read_smollm3(struct reading *r, struct model *model)
{
    (void)r;
    for (uint32_t i = 3; i < model->config.n_layers; i += 4)
        model->layers[i].rope = ROPE_NONE;
}

/* ---- the rows ---- */

static const char *const LLAMA_KEYS[] = {"expert_count", "attention.scale",
                                         "rope.scaling.yarn_log_multiplier", NULL};

/* The multiplier divides YaRN's sharpening: with 1, nothing of it is left. */
static void read_yarn_multiplier(struct reading *r, struct rope_params *rope)
{
    static const double SCALE[2] = {0, 1e3};
    double multiplier = 0;

    read_number(r, "rope.scaling.yarn_log_multiplier", OPTIONAL, SCALE, &multiplier);
    if (multiplier != 0 && rope->scaling == ROPE_SCALE_YARN && rope->factor > 1 &&
        !rope->is_attn_factor_whole) {
        rope->attn_factor *= (1 + 0.1 * log(rope->factor)) / (1 + 0.1 * multiplier * log(rope->factor));
        rope->is_attn_factor_whole = true;
    }
}

static void read_llama(struct reading *r, struct model *model)
{
    static const double SCALE[2] = {0, 1e6};
    double scale = 0;

    read_number(r, "attention.scale", OPTIONAL, SCALE, &scale);
    if (scale != 0)
        model->config.attn_scale = (float)scale;
    read_yarn_multiplier(r, &model->rope_params[ROPE_GLOBAL]);
    moe_read(r, model, 0, false);
}

/* EXAONE 4.5 has an MTP head. */
static const char *const EXAONE4_KEYS[] = {"nextn_predict_layers", NULL};

void read_exaone4(struct reading *r, struct model *model)
{
    bool is_mixed = false;

    (void)r;
    for (uint32_t i = 0; i < model->config.n_layers; i++)
        is_mixed = is_mixed || model->layers[i].is_local;
    if (is_mixed)
        drop_rope_of_global(model);
}

static const char *const MISTRAL3_KEYS[] = {"expert_count", "attention.scale", "attention.temperature_scale",
                                            "rope.scaling.yarn_log_multiplier", NULL};

static void read_mistral3(struct reading *r, struct model *model)
{
    static const double SCALE[2] = {0, 1e3};

    read_number(r, "attention.temperature_scale", OPTIONAL, SCALE,
                &model->rope_params[ROPE_GLOBAL].temperature_scale);
    read_llama(r, model);
}

/* A number of xIELU, for a layer or for all. Its keys have no architecture before them in files of llama.cpp's
 * converter. */
static void archs_read_xielu(struct reading *r, const char *name, uint32_t layer, double *out)
{
    static const double BOUNDS[2] = {-1e3, 1e3};
    char key[128];
    bool is_there = false;

    for (unsigned prefixed = 0; prefixed < 2 && !is_there; prefixed++) {
        snprintf(key, sizeof(key), "%s%sxielu.%s", prefixed ? arch_name(r) : "", prefixed ? "." : "", name);
        is_there =
            gguf_array_f64(r->gguf, key, layer, out) == 0 || gguf_get_f64(r->gguf, key, NULL, out) == 0;
    }
    if (!is_there)
        arch_complain(r, E_FORMAT, "key xielu.%s has no number for layer %u", name, layer);
    else if (!(*out >= BOUNDS[0] && *out <= BOUNDS[1]))
        arch_complain(r, E_FORMAT, "key xielu.%s is %g for layer %u", name, *out, layer);
}

/* log(1 + e^x) without e^x of a large x. */
static double archs_softplus(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

static void read_apertus(struct reading *r, struct model *model)
{
    for (uint32_t i = 0; i < model->config.n_layers && !has_complaints(r); i++) {
        double up = 0, down = 0, beta = 0, most = 0;

        archs_read_xielu(r, "alpha_p", i, &up);
        archs_read_xielu(r, "alpha_n", i, &down);
        archs_read_xielu(r, "beta", i, &beta);
        archs_read_xielu(r, "eps", i, &most);
        model->layers[i].xielu = (struct xielu){.up = (float)archs_softplus(up),
                                                .down = (float)(beta + archs_softplus(down)),
                                                .beta = (float)beta,
                                                .most = (float)most};
    }
}

/* The base grows as it does in other files of Hunyuan, whose converter has done so. */
static void read_hunyuan_vl(struct reading *r, struct model *model)
{
    static const double ALPHA[2] = {0, 1e6};
    const double dim = model->config.head_dim;
    double alpha = 0;

    read_number(r, "rope.scaling.alpha", OPTIONAL, ALPHA, &alpha);
    if (alpha != 0 && alpha < 1) /* 0: none */
        arch_complain(r, E_FORMAT, "key %s.rope.scaling.alpha is %g, below 1", arch_name(r), alpha);
    else if (alpha != 0 && dim > 2)
        model->rope_params[ROPE_GLOBAL].freq_base *= pow(alpha, dim / (dim - 2));
    model->config.rope_freq_base = (float)model->rope_params[ROPE_GLOBAL].freq_base;
}

static const struct arch ARCHS[] = {
    {.name = "llama",
     .pairs = ROPE_ADJACENT,
     .attn = &attn_grouped,
     .ffn = &ffn_dense_may,
     .needs = PRE_NORMS,
     .may = ATTN_BIASES,
     .has_mtp = true,
     .has_windows = true,
     .keys = LLAMA_KEYS,
     .read = read_llama},
    {.name = "qwen2",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS,
     .usual = QKV_BIASES,
     .has_mtp = true},
    {.name = "qwen3",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS | HEAD_NORMS,
     .may = ATTN_BIASES,
     .has_mtp = true},
    {.name = "qwen2vl",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS,
     .usual = QKV_BIASES},
    {.name = "qwen3vl",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS | HEAD_NORMS,
     .may = ATTN_BIASES},
    {.name = "exaone",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS,
     .may = ATTN_BIASES},
    {.name = "gemma",
     .pairs = ROPE_HALVES,
     .activation = ACT_GELU,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS,
     .has_mtp = true,
     .read = read_gemma},
    {.name = "gemma2",
     .pairs = ROPE_HALVES,
     .activation = ACT_GELU,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS | POST_NORMS,
     .has_mtp = true,
     .has_windows = true,
     .window_period = 2,
     .window_default = 4096,
     .keys = GEMMA2_KEYS,
     .read = read_gemma2},
    {.name = "gemma3",
     .pairs = ROPE_HALVES,
     .activation = ACT_GELU,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS | POST_NORMS | HEAD_NORMS,
     .has_mtp = true,
     .has_windows = true,
     .window_period = 6,
     .keys = GEMMA3_KEYS,
     .read = read_gemma3},
    {.name = "phi3",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped_fused,
     .ffn = &ffn_dense_fused,
     .needs = PRE_NORMS,
     .has_mtp = true,
     .has_windows = true},
    {.name = "granite",
     .pairs = ROPE_ADJACENT,
     .attn = &attn_grouped,
     .ffn = &ffn_dense_may,
     .needs = PRE_NORMS,
     .may = ATTN_BIASES,
     .has_mtp = true,
     .keys = GRANITE_KEYS,
     .read = read_granite},
    {.name = "gemma3n",
     .pairs = ROPE_HALVES,
     .activation = ACT_GELU,
     .attn = &attn_altup,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS | POST_NORMS | SLOT_BIT(Q_NORM),
     .has_shapes = true,
     .has_windows = true,
     .window_period = 5,
     .keys = GEMMA3N_KEYS,
     .read = read_gemma3n},
    {.name = "gemma4",
     .pairs = ROPE_HALVES,
     .activation = ACT_GELU,
     .attn = &attn_values_may,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS | POST_NORMS | SLOT_BIT(Q_NORM),
     .has_shapes = true,
     .has_windows = true,
     .window_period = 6,
     .keys = GEMMA4_KEYS,
     .read = read_gemma4},
    {.name = "olmo2",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = POST_NORMS | WIDE_NORMS,
     .has_mtp = true,
     .has_windows = true,
     .window_period = 4,
     .read = read_olmo2},
    {.name = "smollm3",
     .pairs = ROPE_ADJACENT,
     .attn = &attn_grouped,
     .ffn = &ffn_dense_may,
     .needs = PRE_NORMS,
     .may = ATTN_BIASES,
     .read = read_smollm3},
    {.name = "glm4",
     .pairs = ROPE_ADJACENT,
     .attn = &attn_grouped,
     .ffn = &ffn_dense_fused,
     .needs = PRE_NORMS | POST_NORMS,
     .may = QKV_BIASES,
     .has_mtp = true,
     .read = read_glm4},
    {.name = "internlm2",
     .pairs = ROPE_ADJACENT,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS,
     .may = ATTN_BIASES,
     .has_mtp = true},
    {.name = "ernie4_5",
     .pairs = ROPE_ADJACENT,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS,
     .may = ATTN_BIASES,
     .has_mtp = true},
    {.name = "hunyuan-dense",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS | HEAD_NORMS,
     .may = ATTN_BIASES,
     .norms_turned = true,
     .has_mtp = true},
    {.name = "arcee",
     .pairs = ROPE_ADJACENT,
     .activation = ACT_RELU_SQUARED,
     .attn = &attn_grouped,
     .ffn = &ffn_plain_may,
     .needs = PRE_NORMS,
     .may = ATTN_BIASES},
    {.name = "apertus",
     .pairs = ROPE_HALVES,
     .activation = ACT_XIELU,
     .attn = &attn_grouped,
     .ffn = &ffn_plain,
     .needs = PRE_NORMS | HEAD_NORMS,
     .may = ATTN_BIASES,
     .read = read_apertus},
    {.name = "hunyuan_vl",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS | HEAD_NORMS,
     .may = ATTN_BIASES,
     .norms_turned = true,
     .read = read_hunyuan_vl},
    {.name = "seed_oss",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = SLOT_BIT(ATTN_NORM) | SLOT_BIT(FFN_NORM_LATE),
     .may = ATTN_BIASES,
     .has_mtp = true},
    {.name = "exaone4",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = POST_NORMS | HEAD_NORMS,
     .has_mtp = true,
     .mtp_is_first = true,
     .has_windows = true,
     .window_period = 4,
     .keys = EXAONE4_KEYS,
     .read = read_exaone4},
    {.name = "mistral3",
     .pairs = ROPE_ADJACENT,
     .attn = &attn_grouped,
     .ffn = &ffn_dense_may,
     .needs = PRE_NORMS,
     .may = ATTN_BIASES,
     .has_windows = true,
     .keys = MISTRAL3_KEYS,
     .read = read_mistral3},
};

const struct arch *arch_at(uint32_t index)
{
    const uint32_t n = sizeof(ARCHS) / sizeof(ARCHS[0]);

    if (index < n)
        return &ARCHS[index];
    index -= n;
    if (index < N_EXPERT_ARCHS)
        return &EXPERT_ARCHS[index];
    index -= N_EXPERT_ARCHS;
    if (index < N_LATENT_ARCHS)
        return &LATENT_ARCHS[index];
    index -= N_LATENT_ARCHS;
    if (index < N_HYBRID_ARCHS)
        return &HYBRID_ARCHS[index];
    index -= N_HYBRID_ARCHS;
    return index < N_NORM_ARCHS ? &NORM_ARCHS[index] : NULL;
}
