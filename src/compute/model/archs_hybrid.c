/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of architectures with recurrent layers.
 *
 * A file marks recurrent layers by their number of KV heads: 0. */
#include "compute/model/model_priv.h"

enum { MOST_CONV_TAPS = 8 };

static const char *const LFM2_KEYS[] = {"attention.head_count_kv", "expert_count", NULL};

static void read_lfm2(struct reading *r, struct model *model)
{
    read_count(r, "shortconv.l_cache", REQUIRED, MOST_CONV_TAPS, &model->config.conv_taps);
    use_recurrent(r, model, &attn_conv);
}

static void read_lfm2moe(struct reading *r, struct model *model)
{
    uint32_t n_dense = 0;

    read_lfm2(r, model);
    read_whole(r, "leading_dense_block_count", model->config.n_layers, &n_dense);
    model->route.gate = ROUTE_SIGMOID;
    model->route.is_normed = true;
    moe_read(r, model, n_dense, true);
}

static const char *const QWEN35_KEYS[] = {"attention.head_count_kv", "expert_count", "nextn_predict_layers",
                                          NULL};

/* Heads of keys and values, and their convolution. False: the model is refused. */
static bool read_state_heads(struct reading *r, struct model *model)
{
    struct model_config *c = &model->config;
    uint32_t values = 0;

    read_count(r, "ssm.conv_kernel", REQUIRED, MOST_CONV_TAPS, &c->conv_taps);
    read_count(r, "ssm.inner_size", REQUIRED, 1u << 20, &values);
    read_count(r, "ssm.state_size", REQUIRED, 1024, &c->delta_key);
    read_count(r, "ssm.time_step_rank", REQUIRED, 4096, &c->delta_heads);
    read_count(r, "ssm.group_count", REQUIRED, 4096, &c->delta_key_heads);
    if (has_complaints(r))
        return false;
    if (values % c->delta_heads != 0 || values / c->delta_heads > 1024 ||
        c->delta_heads % c->delta_key_heads != 0)
        arch_complain(r, E_FORMAT,
                      "ssm.inner_size %u, time_step_rank %u and group_count %u do not fit together", values,
                      c->delta_heads, c->delta_key_heads);
    c->delta_value = values / c->delta_heads;
    return !has_complaints(r);
}

/* The last layer of each interval has attention. */
static void read_qwen35(struct reading *r, struct model *model)
{
    uint32_t interval = 4;

    read_count(r, "full_attention_interval", OPTIONAL, 4096, &interval);
    if (!read_state_heads(r, model))
        return;
    for (uint32_t i = 0; i < model->config.n_layers; i++)
        if ((i + 1) % interval != 0)
            model->layers[i].attn = &attn_delta;
}

static void read_softmax_experts(struct reading *r, struct model *model)
{
    model->route.gate = ROUTE_SOFTMAX;
    model->route.is_normed = true;
    moe_read(r, model, 0, true);
    for (uint32_t i = 0; i < model->config.n_layers && model->config.shared_ffn; i++)
        model->layers[i].ffn = &ffn_moe_shared_gated;
}

/* Files of this architecture keep the heads in the order of the published weights. */
static void read_qwen3next(struct reading *r, struct model *model)
{
    if (has_tensor(r, "blk.0.ssm_in.weight")) {
        arch_complain(
            r, E_UNSUPPORTED,
            "this file of %s is of an early converter, with ssm_in.weight: it must be converted again",
            arch_name(r));
        return;
    }
    read_qwen35(r, model);
    model->config.delta_is_grouped = true;
    for (uint32_t i = 0; i < model->config.n_layers; i++)
        if (model->layers[i].attn == &attn_delta)
            model->layers[i].attn = &attn_delta_grouped;
    read_softmax_experts(r, model);
}

static void read_qwen35moe(struct reading *r, struct model *model)
{
    read_qwen35(r, model);
    read_softmax_experts(r, model);
}

static const char *const GRANITE_HYBRID_KEYS[] = {"attention.head_count_kv",
                                                  "embedding_scale",
                                                  "residual_scale",
                                                  "logit_scale",
                                                  "attention.scale",
                                                  "expert_count",
                                                  NULL};

static void read_granite_hybrid(struct reading *r, struct model *model)
{
    read_granite(r, model);
    moe_read(r, model, 0, false);
    if (read_state_heads(r, model))
        use_recurrent(r, model, &attn_mamba);
}

static const char *const NEMOTRON_H_KEYS[] = {"attention.head_count_kv", "feed_forward_length", NULL};

/* Every layer is attention, Mamba or a feed-forward network alone. */
static void read_one_half(struct reading *r, struct model *model, const struct half *experts)
{
    drop_rope(model);
    if (!read_state_heads(r, model))
        return;
    use_recurrent(r, model, &attn_mamba);
    for (uint32_t i = 0; i < model->config.n_layers; i++) {
        struct layer *layer = &model->layers[i];

        if (layer->ffn_width == 0)
            layer->ffn = &ffn_none;
        else if (layer->attn == &attn_mamba)
            layer->attn = &attn_none;
        else
            arch_complain(r, E_UNSUPPORTED, "layer %u has attention and a feed-forward network", i);
        if (experts && layer->ffn != &ffn_none)
            layer->ffn = experts;
    }
}

static void read_nemotron_h(struct reading *r, struct model *model)
{
    read_one_half(r, model, NULL);
}

static const char *const NEMOTRON_H_MOE_KEYS[] = {
    "attention.head_count_kv", "feed_forward_length",  "expert_count",
    "moe_latent_size",         "nextn_predict_layers", NULL};

/* Its feed-forward networks are experts without gates, chosen by sigmoid. */
static void read_nemotron_h_moe(struct reading *r, struct model *model)
{
    struct model_config *c = &model->config;

    model->route.gate = ROUTE_SIGMOID;
    model->route.is_normed = true;
    moe_read(r, model, 0, true);
    if (has_complaints(r))
        return;
    c->expert_parts = 1;
    if (c->shared_ffn == 0)
        arch_complain(r, E_UNSUPPORTED, "%s without shared experts is not supported", arch_name(r));
    read_one_half(r, model, c->expert_io == c->hidden ? &ffn_moe_plain : &ffn_moe_plain_latent);
}

static void read_falcon_h1(struct reading *r, struct model *model)
{
    read_state_heads(r, model);
}

/* Every layer is Mamba alone. */
static void read_mamba2(struct reading *r, struct model *model)
{
    read_state_heads(r, model);
}

const struct arch HYBRID_ARCHS[] = {
    {.name = "lfm2",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped_normed,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS,
     .globals = GLOBAL_BIT(FINAL_NORM_LFM2),
     .keys = LFM2_KEYS,
     .read = read_lfm2},
    {.name = "lfm2moe",
     .pairs = ROPE_HALVES,
     .attn = &attn_grouped_normed,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS,
     .globals = GLOBAL_BIT(FINAL_NORM_LFM2),
     .keys = LFM2_KEYS,
     .read = read_lfm2moe},
    {.name = "qwen35",
     .pairs = ROPE_HALVES,
     .attn = &attn_gated,
     .ffn = &ffn_dense,
     .needs = SLOT_BIT(ATTN_NORM) | SLOT_BIT(FFN_NORM_LATE),
     .has_mtp = true,
     .keys = QWEN35_KEYS,
     .read = read_qwen35},
    {.name = "qwen35moe",
     .pairs = ROPE_HALVES,
     .attn = &attn_gated,
     .ffn = &ffn_moe,
     .needs = SLOT_BIT(ATTN_NORM) | SLOT_BIT(FFN_NORM_LATE),
     .has_mtp = true,
     .keys = QWEN35_KEYS,
     .read = read_qwen35moe},
    {.name = "qwen3next",
     .pairs = ROPE_HALVES,
     .attn = &attn_gated,
     .ffn = &ffn_moe,
     .needs = SLOT_BIT(ATTN_NORM) | SLOT_BIT(FFN_NORM_LATE),
     .has_mtp = true,
     .keys = QWEN35_KEYS,
     .read = read_qwen3next},
    {.name = "granitehybrid",
     .pairs = ROPE_ADJACENT,
     .attn = &attn_grouped,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS,
     .keys = GRANITE_HYBRID_KEYS,
     .read = read_granite_hybrid},
    {.name = "nemotron_h",
     .pairs = ROPE_HALVES,
     .activation = ACT_RELU_SQUARED,
     .attn = &attn_grouped,
     .ffn = &ffn_plain,
     .needs = SLOT_BIT(ATTN_NORM),
     .has_shapes = true,
     .keys = NEMOTRON_H_KEYS,
     .read = read_nemotron_h},
    {.name = "nemotron_h_moe",
     .pairs = ROPE_HALVES,
     .activation = ACT_RELU_SQUARED,
     .attn = &attn_grouped,
     .ffn = &ffn_moe_plain,
     .needs = SLOT_BIT(ATTN_NORM),
     .has_shapes = true,
     .keys = NEMOTRON_H_MOE_KEYS,
     .read = read_nemotron_h_moe},
    {.name = "falcon-h1",
     .pairs = ROPE_HALVES,
     .attn = &attn_mamba_beside,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS,
     .read = read_falcon_h1},
    {.name = "mamba2",
     .pairs = ROPE_HALVES,
     .attn = &attn_mamba,
     .ffn = &ffn_none,
     .needs = SLOT_BIT(ATTN_NORM),
     .read = read_mamba2},
};
const uint32_t N_HYBRID_ARCHS = sizeof(HYBRID_ARCHS) / sizeof(HYBRID_ARCHS[0]);
