/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of architectures with latent attention; archs.c has most others.
 *
 *    deepseek2  DeepSeek V2, V2-Lite and V3, Mistral Large 3: experts, of which some are shared; Youtu: none
 *    deepseek32 DeepSeek V3.2: an indexer chooses the keys that a query attends to
 *    kimi-linear Kimi Linear: most layers have a delta net, the others latent attention without RoPE
 *    glm-dsa    GLM 5: the same; in GLM 5.2 most layers attend to the keys that an earlier layer chose */
#include "compute/model/model_priv.h"

static const char *const DEEPSEEK2_KEYS[] = {"expert_count",
                                             "attention.kv_lora_rank",
                                             "nextn_predict_layers",
                                             "rope.scaling.yarn_log_multiplier",
                                             "attention.temperature_scale",
                                             NULL};

/* Queries of Mistral Large 3 grow with the log of their position. */
static void read_temperature(struct reading *r, struct rope_params *rope)
{
    static const double SCALE[2] = {0, 1e3}, LENGTH[2] = {1, 1 << 30};

    read_number(r, "attention.temperature_scale", OPTIONAL, SCALE, &rope->temperature_scale);
    read_number(r, "attention.temperature_length", OPTIONAL, LENGTH, &rope->temperature_length);
}

/* V2 and V2-Lite choose by softmax and use its values unchanged; V3's files have keys for this. */
static void read_deepseek(struct reading *r, struct model *model, bool needs_experts)
{
    bool is_split = has_tensor(r, "blk.0.attn_k_b.weight") && has_tensor(r, "blk.0.attn_v_b.weight");
    uint32_t n_dense = 0;

    latent_read_scale(r, model);
    for (uint32_t i = 0; i < model->config.n_layers; i++)
        model->layers[i].attn = model->config.q_latent ? is_split ? &attn_latent_q_split : &attn_latent_q
                                : is_split             ? &attn_latent_split
                                                       : &attn_latent;
    read_whole(r, "leading_dense_block_count", model->config.n_layers, &n_dense);
    model->route.gate = ROUTE_SOFTMAX;
    model->route.is_normed = false;
    moe_read(r, model, n_dense, needs_experts);
}

/* Youtu has no experts. */
static void read_deepseek2(struct reading *r, struct model *model)
{
    read_temperature(r, &model->rope_params[ROPE_GLOBAL]);
    read_deepseek(r, model, false);
}

/* A file with keys only (its tensors are not written yet) cannot show this by tensors. */
static bool has_split_heads(const struct reading *r)
{
    return has_tensor(r, "blk.0.attn_k_b.weight") && has_tensor(r, "blk.0.attn_v_b.weight");
}

static void read_indexer(struct reading *r, struct model *model)
{
    struct model_config *c = &model->config;

    read_count(r, "attention.indexer.head_count", REQUIRED, INDEX_MOST_HEADS, &c->index_heads);
    read_count(r, "attention.indexer.key_length", REQUIRED, INDEX_MOST_DIM, &c->index_dim);
    read_count(r, "attention.indexer.top_k", REQUIRED, INDEX_MOST_CHOSEN, &c->index_top);
    if (!has_complaints(r) && c->rope_dims > c->index_dim)
        arch_complain(r, E_FORMAT, "indexer keys of %u with %u turned", c->index_dim, c->rope_dims);
    if (!has_complaints(r) && c->q_latent == 0)
        arch_complain(r, E_FORMAT, "key %s.attention.q_lora_rank is missing", arch_name(r));
    for (uint32_t i = 0; i < c->n_layers; i++) {
        model->layers[i].attn = has_split_heads(r) ? &attn_latent_index_split : &attn_latent_index;
        model->layers[i].index = INDEX_OWN;
    }
}

static const char *const DEEPSEEK32_KEYS[] = {"expert_count", "attention.kv_lora_rank",
                                              "nextn_predict_layers", "rope.scaling.yarn_log_multiplier",
                                              NULL};

static void read_deepseek32(struct reading *r, struct model *model)
{
    read_deepseek(r, model, true);
    read_indexer(r, model);
}

/* Files without a list and with at least this context are GLM 5.2: the first two layers have an indexer, and then
 * every fourth. */
enum { GLM_SHARED_CONTEXT = 1 << 20 };

static void read_glm_dsa(struct reading *r, struct model *model)
{
    struct model_config *c = &model->config;
    uint32_t n_dense = 0;
    char key[128];
    int64_t is_own;

    c->index_is_adjacent = true;
    latent_read_scale(r, model);
    read_whole(r, "leading_dense_block_count", c->n_layers, &n_dense);
    model->route.gate = ROUTE_SIGMOID;
    model->route.is_normed = true;
    moe_read(r, model, n_dense, true);
    read_indexer(r, model);
    for (uint32_t i = 0; i < c->n_layers; i++) {
        is_own = c->context_length < GLM_SHARED_CONTEXT || i < 2 || (i - 2) % 4 == 0;
        (void)gguf_array_i64(r->gguf, reading_key(r, "attention.indexer.types", key), i, &is_own);
        if (is_own)
            continue;
        model->layers[i].attn = has_split_heads(r) ? &attn_latent_shared_split : &attn_latent_shared;
        model->layers[i].index = INDEX_SHARED;
        if (i == 0)
            arch_complain(r, E_FORMAT, "key %s: the first layer has no indexer", key);
    }
}

static const char *const KIMI_LINEAR_KEYS[] = {"attention.head_count_kv", "attention.kv_lora_rank",
                                               "expert_count", NULL};

enum { KIMI_MOST_TAPS = 8 };
static const float KIMI_LATENT_EPS = 1e-6f; /* no key says so */

static void read_kimi_linear(struct reading *r, struct model *model)
{
    struct model_config *c = &model->config;
    uint32_t n_dense = 0;
    char k_b[64], v_b[64];

    read_count(r, "ssm.conv_kernel", REQUIRED, KIMI_MOST_TAPS, &c->conv_taps);
    read_count(r, "kda.head_dim", REQUIRED, 1024, &c->delta_key);
    c->delta_value = c->delta_key;
    c->delta_heads = c->delta_key_heads = c->n_heads;
    c->latent_eps = KIMI_LATENT_EPS;
    for (uint32_t i = 0; i < c->n_layers; i++) {
        bool is_split =
            has_tensor(r, slot_name(i, SLOT_K_B, k_b)) && has_tensor(r, slot_name(i, SLOT_V_B, v_b));

        model->layers[i].attn = c->q_latent ? is_split ? &attn_latent_q_split : &attn_latent_q
                                : is_split  ? &attn_latent_split
                                            : &attn_latent;
    }
    use_recurrent(r, model, &attn_kda);
    drop_rope(model);
    read_whole(r, "leading_dense_block_count", c->n_layers, &n_dense);
    model->route.gate = ROUTE_SIGMOID;
    model->route.is_normed = true;
    moe_read(r, model, n_dense, true);
}

const struct arch LATENT_ARCHS[] = {
    {.name = "deepseek2",
     .pairs = ROPE_ADJACENT,
     .attn = &attn_latent,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS,
     .has_mtp = true,
     .keys = DEEPSEEK2_KEYS,
     .read = read_deepseek2},
    {.name = "deepseek32",
     .pairs = ROPE_ADJACENT,
     .attn = &attn_latent_index,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS,
     .has_mtp = true,
     .keys = DEEPSEEK32_KEYS,
     .read = read_deepseek32},
    {.name = "kimi-linear",
     .pairs = ROPE_ADJACENT,
     .attn = &attn_latent,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS,
     .keys = KIMI_LINEAR_KEYS,
     .read = read_kimi_linear},
    {.name = "glm-dsa",
     .pairs = ROPE_ADJACENT,
     .attn = &attn_latent_index,
     .ffn = &ffn_dense,
     .needs = PRE_NORMS,
     .has_mtp = true,
     .keys = DEEPSEEK32_KEYS,
     .read = read_glm_dsa},
};
const uint32_t N_LATENT_ARCHS = sizeof(LATENT_ARCHS) / sizeof(LATENT_ARCHS[0]);
