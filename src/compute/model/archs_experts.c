/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of architectures whose files always have experts; archs.c has those that may have them (llama, mistral3).
 *
 *    qwen3moe  Qwen 3 with experts
 *    qwen2moe  Qwen 1.5 and 2 with experts: a gate weighs the shared ones
 *    olmoe     OLMoE: Q and K normed over all heads, chances unchanged
 *    granitemoe Granite 3 with experts
 *    minimax-m2 MiniMax M2: Q and K normed over all heads, chances by sigmoid
 *    hunyuan-moe Hunyuan with experts: heads are normed after RoPE
 *    glm4moe   GLM 4.5 to 4.7: sigmoid, shared experts, an MTP head behind the last layer
 *    bailingmoe2 Ling 2, Ring 2: like glm4moe, with Q, K and V in one tensor
 *    qwen3vlmoe Qwen 3 VL with experts, text: qwen3moe
 *    dots1     dots.llm1: like glm4moe, all of a head turned
 *    hy_v3     Hunyuan 3: the same
 *    exaone-moe K-EXAONE: like dots1 with windows; layers without one have no RoPE
 *    ernie4_5-moe ERNIE 4.5 with experts, of which some are shared
 *    llama4    Llama 4: arch_llama4.c
 *    phimoe    Phi 3.5 MoE, Phi mini MoE: LayerNorm and biases, longrope, experts by SparseMixer
 *    afmoe     Trinity: norms before and after each half, gates on attention, windows and RoPE as in exaone-moe
 *    bailingmoe Ling 1: llama with experts, some of them shared
 *    mimo2     MiMo V2: values narrower than keys, layers with a window have more heads of keys and sinks
 *    step35    Step 3.5: layers with a window have more heads and turn all of each; a gate for each head
 *    cohere2moe Command A with experts: parallel halves as in cohere2, the mean of chosen and shared experts
 *    gpt-oss   gpt-oss 20b and 120b: sinks, a window in every other layer, experts with biases and limits */
#include "compute/model/model_priv.h"

#include <math.h>

static const char *const EXPERT_KEYS[] = {"expert_count", NULL};

static void read_qwen3moe(struct reading *r, struct model *model)
{
    moe_read(r, model, 0, true);
}

static void read_plain_softmax(struct reading *r, struct model *model)
{
    model->route.gate = ROUTE_SOFTMAX;
    moe_read(r, model, 0, true);
}

static void read_qwen2moe(struct reading *r, struct model *model)
{
    read_plain_softmax(r, model);
    for (uint32_t i = 0; i < model->config.n_layers && model->config.shared_ffn; i++)
        model->layers[i].ffn = &ffn_moe_shared_gated;
}

static const char *const GRANITEMOE_KEYS[] = {"expert_count", "embedding_scale", "residual_scale",
                                              "logit_scale",  "attention.scale", NULL};

static void read_granitemoe(struct reading *r, struct model *model)
{
    read_granite(r, model);
    moe_read(r, model, 0, true);
}

static void read_minimax(struct reading *r, struct model *model)
{
    model->route.gate = ROUTE_SIGMOID;
    model->route.is_normed = true;
    moe_read(r, model, 0, true);
}

static const char *const GLM4MOE_KEYS[] = {"expert_count", "nextn_predict_layers", NULL};

static void read_glm4moe(struct reading *r, struct model *model)
{
    uint32_t n_dense = 0;

    read_whole(r, "leading_dense_block_count", model->config.n_layers, &n_dense);
    model->route.gate = ROUTE_SIGMOID;
    model->route.is_normed = true;
    moe_read(r, model, n_dense, true);
}

static void read_exaone_moe(struct reading *r, struct model *model)
{
    require_windows(r, false);
    read_exaone4(r, model);
    read_glm4moe(r, model);
}

/* One layer in every `step` has experts, from the first that is not dense. */
static void read_ernie4_5_moe(struct reading *r, struct model *model)
{
    uint32_t n_dense = 0, step = 1;

    read_whole(r, "leading_dense_block_count", model->config.n_layers, &n_dense);
    read_count(r, "interleave_moe_layer_step", OPTIONAL, model->config.n_layers, &step);
    moe_read(r, model, n_dense, true);
    for (uint32_t i = 0; i < model->config.n_layers; i++)
        if ((i + 1) % step != 0)
            model->layers[i].ffn = &ffn_dense;
}

static const char *const LLAMA4_KEYS[] = {"expert_count", "attention.temperature_scale", NULL};

/* YaRN without rounding its bounds to whole pairs. */
static void read_gptoss(struct reading *r, struct model *model)
{
    model->rope_params[ROPE_GLOBAL].has_exact_bounds = true;
    model->route.gate = ROUTE_SOFTMAX_CHOSEN;
    moe_read(r, model, 0, true);
}

/* Published models turn heads by sines of another size than converters write, which is that of phi3. */
static const double PHIMOE_FACTOR_OF_FILES = 1.190238, PHIMOE_FACTOR = 1.243163121016122;

/* SparseMixer has no groups and no bias of the choice. */
static void refuse_other_rules(struct reading *r, struct model *model)
{
    bool has_bias = false;
    char name[64];

    for (uint32_t i = 0; i < model->config.n_layers; i++) {
        has_bias = has_bias || has_tensor(r, slot_name(i, SLOT_CHOICE_BIAS, name));
        if (model->layers[i].ffn == &ffn_moe)
            model->layers[i].ffn = &ffn_moe_unbiased;
    }
    if (model->route.gate != ROUTE_SPARSEMIXER || model->route.n_groups > 1 || has_bias)
        arch_complain(r, E_UNSUPPORTED,
                      "experts of %s are chosen by SparseMixer: another expert_gating_func, groups and "
                      "exp_probs_b are not supported",
                      arch_name(r));
}

static void read_phimoe(struct reading *r, struct model *model)
{
    struct rope_params *rope = &model->rope_params[ROPE_GLOBAL];

    if (fabs(rope->attn_factor - PHIMOE_FACTOR_OF_FILES) < 1e-5)
        rope->attn_factor = PHIMOE_FACTOR;
    model->route.gate = ROUTE_SPARSEMIXER;
    moe_read(r, model, 0, true);
    if (!has_complaints(r))
        refuse_other_rules(r, model);
}

static void read_afmoe(struct reading *r, struct model *model)
{
    require_windows(r, false);
    model->config.embedding_scale = sqrtf((float)model->config.hidden);
    drop_rope_of_global(model);
    read_glm4moe(r, model);
}

/* Layers whose tensors have no router are dense: files of these families do not say which ones. */
static void read_sparse_layers(struct reading *r, struct model *model)
{
    const struct half *sparse;
    uint32_t n_dense = 0;
    char name[64];

    read_whole(r, "leading_dense_block_count", model->config.n_layers, &n_dense);
    model->route.gate = ROUTE_SIGMOID;
    model->route.is_normed = true;
    moe_read(r, model, n_dense, true);
    sparse = model->config.shared_ffn ? &ffn_moe_shared : &ffn_moe;
    for (uint32_t i = 0; i < model->config.n_layers && has_tensor(r, "token_embd.weight"); i++)
        model->layers[i].ffn = has_tensor(r, slot_name(i, SLOT_ROUTER, name)) ? sparse : &ffn_dense;
    if (model->has_head_layer &&
        !has_tensor(r, "token_embd.weight")) /* a new file, with a head as published */
        model->layers[model->config.n_layers - 1].ffn = &ffn_dense;
}

/* MTP heads are left out. */
static const char *const MIMO2_KEYS[] = {"expert_count", "nextn_predict_layers", "attention.value_length",
                                         NULL};

/* A query of MiMo attends to a whole window before its own key (as in SGLang and in
 * transformers from 5.24 on, not in llama.cpp). */
static void widen_windows(struct model *model)
{
    if (model->config.window == 0)
        return;
    model->config.window++;
    for (uint32_t i = 0; i < model->config.n_layers; i++)
        if (model->layers[i].window != 0)
            model->layers[i].window++;
}

static void read_mimo2(struct reading *r, struct model *model)
{
    static const double SCALE[2] = {0, 1e3};
    double base = model->rope_params[ROPE_GLOBAL].freq_base, scale = 0;

    require_windows(r, true);
    read_window_base(r, &base);
    use_local_rope(model, base);
    widen_windows(model);
    read_number(r, "attention.value_scale", OPTIONAL, SCALE, &scale);
    model->config.value_scale = scale == 1 ? 0 : (float)scale;
    read_sparse_layers(r, model);
}

static const char *const STEP35_KEYS[] = {"expert_count", NULL};

/* A limit for a layer; one number is a limit for all. */
static float experts_read_limit(struct reading *r, const char *suffix, uint32_t layer)
{
    static const double LIMIT[2] = {0, 1e6};
    double limit = 0;

    if (!read_fraction(r, suffix, layer, &limit))
        read_number(r, suffix, OPTIONAL, LIMIT, &limit);
    if (!(limit >= LIMIT[0] && limit <= LIMIT[1]))
        arch_complain(r, E_FORMAT, "key %s.%s is %g for layer %u", arch_name(r), suffix, limit, layer);
    return (float)limit;
}

/* A limit of experts that a dense layer does not have.  An MTP head with one is left out. */
static void refuse_limit(struct reading *r, struct model *model, uint32_t layer)
{
    if (model->has_head_layer && layer == model->config.n_layers - 1)
        model->has_head_layer = false;
    else
        arch_complain(r, E_UNSUPPORTED, "layer %u: limits in a layer without experts are not supported",
                      layer);
}

static void read_step35(struct reading *r, struct model *model)
{
    struct rope_params *rope = &model->rope_params[ROPE_GLOBAL];
    double base = rope->freq_base;

    require_windows(r, true);
    read_window_base(r, &base);
    if (model->config.rope_dims % 4 != 0)
        arch_complain(r, E_FORMAT, "%u turned elements of a head cannot be halved", model->config.rope_dims);
    rope->dims = model->config.rope_dims / 2; /* layers without a window turn half of each head */
    use_local_rope(model, base);
    read_sparse_layers(r, model);
    for (uint32_t i = 0; i < model->config.n_layers && !has_complaints(r); i++) {
        struct layer *layer = &model->layers[i];

        layer->shared_limit = experts_read_limit(r, "swiglu_clamp_shexp", i);
        layer->expert_limit = experts_read_limit(r, "swiglu_clamp_exp", i);
        if (layer->ffn == &ffn_dense && layer->shared_limit != 0)
            refuse_limit(r, model, i);
    }
}

static void read_bailingmoe(struct reading *r, struct model *model)
{
    uint32_t n_dense = 0;

    read_whole(r, "leading_dense_block_count", model->config.n_layers, &n_dense);
    model->route.gate = ROUTE_SOFTMAX;
    moe_read(r, model, n_dense, true);
}

static const char *const COHERE2MOE_KEYS[] = {"expert_count", "logit_scale", NULL};

/* The dense layers at the beginning have RoPE without a window. */
static void read_cohere2moe(struct reading *r, struct model *model)
{
    uint32_t n_dense = 0;

    require_windows(r, false);
    read_cohere2(r, model);
    read_whole(r, "leading_dense_block_count", model->config.n_layers, &n_dense);
    for (uint32_t i = 0; i < n_dense && !has_complaints(r); i++)
        model->layers[i].rope = ROPE_GLOBAL;
    model->route.gate = ROUTE_SIGMOID;
    moe_read(r, model, n_dense, true);
    model->route.averages_shared = model->config.shared_ffn != 0;
    if (model->route.averages_shared)
        model->route.scale /= 2;
}

const struct arch EXPERT_ARCHS[] = {
    {.name = "qwen3moe",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_moe,
     .needs = PRE_NORMS | HEAD_NORMS,
     .has_mtp = true,
     .keys = EXPERT_KEYS,
     .read = read_qwen3moe},
    {.name = "qwen3vlmoe",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_moe,
     .needs = PRE_NORMS | HEAD_NORMS,
     .keys = EXPERT_KEYS,
     .read = read_qwen3moe},
    {.name = "dots1",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS | HEAD_NORMS,
     .keys = EXPERT_KEYS,
     .read = read_glm4moe},
    {.name = "hy_v3",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS | HEAD_NORMS,
     .has_mtp = true,
     .keys = GLM4MOE_KEYS,
     .read = read_sparse_layers},
    {.name = "exaone-moe",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS | HEAD_NORMS,
     .has_mtp = true,
     .mtp_is_first = true,
     .has_windows = true,
     .window_period = 4,
     .keys = GLM4MOE_KEYS,
     .read = read_exaone_moe},
    {.name = "gpt-oss",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_moe_biased,
     .needs =
         SLOT_BIT(ATTN_NORM) | SLOT_BIT(FFN_NORM_LATE) | SLOT_BIT(SINKS) | SLOT_BIT(OUT_BIAS) | QKV_BIASES,
     .has_windows = true,
     .window_period = 2,
     .keys = EXPERT_KEYS,
     .read = read_gptoss},
    {.name = "qwen2moe",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_moe,
     .needs = PRE_NORMS,
     .usual = QKV_BIASES,
     .has_mtp = true,
     .keys = EXPERT_KEYS,
     .read = read_qwen2moe},
    {.name = "olmoe",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_moe,
     .needs = PRE_NORMS | WIDE_NORMS,
     .has_mtp = true,
     .keys = EXPERT_KEYS,
     .read = read_plain_softmax},
    {.name = "granitemoe",
     .pairs = ROPE_ADJACENT,
     .attn = &attn_grouped,
     .ffn = &ffn_moe,
     .needs = PRE_NORMS,
     .has_mtp = true,
     .keys = GRANITEMOE_KEYS,
     .read = read_granitemoe},
    {.name = "minimax-m2",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_moe,
     .needs = PRE_NORMS | WIDE_NORMS,
     .has_mtp = true,
     .keys = EXPERT_KEYS,
     .read = read_minimax},
    {.name = "hunyuan-moe",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_moe,
     .needs = PRE_NORMS | HEAD_NORMS,
     .norms_turned = true,
     .has_mtp = true,
     .keys = EXPERT_KEYS,
     .read = read_qwen3moe},
    {.name = "glm4moe",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = SLOT_BIT(ATTN_NORM) | SLOT_BIT(FFN_NORM_LATE),
     .may = QKV_BIASES | HEAD_NORMS,
     .has_mtp = true,
     .keys = GLM4MOE_KEYS,
     .read = read_glm4moe},
    {.name = "bailingmoe2",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped_fused,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS | HEAD_NORMS,
     .has_mtp = true,
     .keys = GLM4MOE_KEYS,
     .read = read_glm4moe},
    {.name = "ernie4_5-moe",
     .pairs = ROPE_ADJACENT,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS,
     .keys = EXPERT_KEYS,
     .read = read_ernie4_5_moe},
    {.name = "llama4",
     .pairs = ROPE_ADJACENT,
     .attn = &attn_grouped,
     .ffn = &ffn_moe_shared,
     .needs = PRE_NORMS,
     .has_windows = true,
     .window_period = 4,
     .window_default = 8192,
     .keys = LLAMA4_KEYS,
     .read = read_llama4},
    {.name = "phimoe",
     .pairs = ROPE_HALVES,
     .norm = NORM_LAYER,
     .eps = "attention.layer_norm_rms_epsilon",
     .attn = &attn_grouped,
     .ffn = &ffn_moe,
     .needs = PRE_NORMS | SLOT_BIT(ATTN_NORM_BIAS) | SLOT_BIT(FFN_NORM_BIAS),
     .usual = ATTN_BIASES,
     .globals = GLOBAL_BIT(FINAL_NORM_BIAS) | GLOBAL_BIT(HEAD_BIAS),
     .has_windows = true,
     .keys = EXPERT_KEYS,
     .read = read_phimoe},
    {.name = "afmoe",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped_gated,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS | POST_NORMS | HEAD_NORMS,
     .has_windows = true,
     .window_period = 4,
     .keys = EXPERT_KEYS,
     .read = read_afmoe},
    {.name = "bailingmoe",
     .pairs = ROPE_ADJACENT,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS,
     .keys = EXPERT_KEYS,
     .read = read_bailingmoe},
    {.name = "mimo2",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS,
     .may = SLOT_BIT(SINKS),
     .has_shapes = true,
     .has_windows = true,
     .keys = MIMO2_KEYS,
     .read = read_mimo2},
    {.name = "step35",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped_head_gated,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS,
     .usual = HEAD_NORMS,
     .has_mtp = true,
     .mtp_is_listed = true,
     .mtp_reads_raw = true,
     .has_shapes = true,
     .has_windows = true,
     .keys = STEP35_KEYS,
     .read = read_step35},
    {.name = "cohere2moe",
     .pairs = ROPE_ADJACENT,
     .norm = NORM_BY_KEY,
     .is_parallel = true,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = SLOT_BIT(ATTN_NORM),
     .has_mtp = true,
     .mtp_sees_all = true,
     .has_windows = true,
     .window_period = 4,
     .keys = COHERE2MOE_KEYS,
     .read = read_cohere2moe},
};
const uint32_t N_EXPERT_ARCHS = sizeof(EXPERT_ARCHS) / sizeof(EXPERT_ARCHS[0]);
