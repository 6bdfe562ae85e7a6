/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of architectures with recurrent layers; archs.c has all others.
 *
 * A file says which layers are recurrent: they have no KV heads. */
#include "compute/model/model_priv.h"

#define PRE_NORMS (SLOT_BIT(ATTN_NORM) | SLOT_BIT(FFN_NORM))

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

/* The last layer of each interval has attention. */
static void read_qwen35(struct reading *r, struct model *model)
{
    struct model_config *c = &model->config;
    uint32_t interval = 4, values = 0;

    read_count(r, "ssm.conv_kernel", REQUIRED, MOST_CONV_TAPS, &c->conv_taps);
    read_count(r, "ssm.inner_size", REQUIRED, 1u << 20, &values);
    read_count(r, "ssm.state_size", REQUIRED, 1024, &c->delta_key);
    read_count(r, "ssm.time_step_rank", REQUIRED, 4096, &c->delta_heads);
    read_count(r, "ssm.group_count", REQUIRED, 4096, &c->delta_key_heads);
    read_count(r, "full_attention_interval", OPTIONAL, 4096, &interval);
    if (has_complaints(r))
        return;
    if (values % c->delta_heads != 0 || values / c->delta_heads > 1024 ||
        c->delta_heads % c->delta_key_heads != 0)
        arch_complain(r, E_FORMAT,
                      "ssm.inner_size %u, time_step_rank %u and group_count %u do not fit together", values,
                      c->delta_heads, c->delta_key_heads);
    c->delta_value = values / c->delta_heads;
    for (uint32_t i = 0; i < c->n_layers; i++)
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

/* Its files keep the heads in the order of the published weights. */
static void read_qwen3next(struct reading *r, struct model *model)
{
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
     .keys = QWEN35_KEYS,
     .read = read_qwen35},
    {.name = "qwen35moe",
     .pairs = ROPE_HALVES,
     .attn = &attn_gated,
     .ffn = &ffn_moe,
     .needs = SLOT_BIT(ATTN_NORM) | SLOT_BIT(FFN_NORM_LATE),
     .keys = QWEN35_KEYS,
     .read = read_qwen35moe},
    {.name = "qwen3next",
     .pairs = ROPE_HALVES,
     .attn = &attn_gated,
     .ffn = &ffn_moe,
     .needs = SLOT_BIT(ATTN_NORM) | SLOT_BIT(FFN_NORM_LATE),
     .keys = QWEN35_KEYS,
     .read = read_qwen3next},
};
const uint32_t N_HYBRID_ARCHS = sizeof(HYBRID_ARCHS) / sizeof(HYBRID_ARCHS[0]);
