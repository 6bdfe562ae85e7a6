/* SPDX-License-Identifier: Apache-2.0 */
/* Gemma 4: keys and layers.
 *
 *    layers with a window    heads of attention.key_length_swa, RoPE with a base of their own
 *    layers without          wider and fewer heads of attention.key_length; values may be the keys before
 *                            norm and RoPE; rope_freqs.weight leaves most pairs as they are
 *    the last layers         of E2B and E4B read the keys and values of an earlier layer, the last of their
 *                            kind that has some
 *
 * Queries are not scaled: norms of heads do it. Values are normed without a gain. E2B and E4B have an
 * embedding of each token for each layer, which is added at the layer's end (forward_tail.c). 26B-A4B has experts
 * beside the dense network of each layer (forward_beside.c). */
#include "compute/model/model_priv.h"

#include <math.h>

/* Heads and RoPE of the layers with a window. */
static void gemma4_read_local(struct reading *r, struct model *model)
{
    struct model_config *config = &model->config;
    uint32_t head_dim = config->head_dim, value_dim, rope_dims;
    double base = 10000;

    read_count(r, "attention.key_length_swa", OPTIONAL, 1024, &head_dim);
    value_dim = head_dim;
    rope_dims = head_dim < config->rope_dims ? head_dim : config->rope_dims;
    read_count(r, "attention.value_length_swa", OPTIONAL, 1024, &value_dim);
    read_count(r, "rope.dimension_count_swa", OPTIONAL, 1024, &rope_dims);
    read_window_base(r, &base);
    if (value_dim != head_dim || head_dim > config->head_dim || rope_dims > head_dim || rope_dims % 2 != 0 ||
        rope_dims > config->rope_dims) {
        arch_complain(r, E_UNSUPPORTED, "heads of %u, %u and values of %u, of which %u numbers turn",
                      config->head_dim, head_dim, value_dim, rope_dims);
        return;
    }
    use_local_rope(model, base);
    model->rope_params[ROPE_LOCAL].dims = rope_dims;
    for (uint32_t i = 0; i < config->n_layers; i++)
        if (model->layers[i].is_local)
            model->layers[i].head_dim = head_dim;
}

void share_keys(struct reading *r, struct model *model, uint32_t n_shared)
{
    struct model_config *config = &model->config;
    uint32_t n_own, latest[2] = {UINT32_MAX, UINT32_MAX};

    read_whole(r, "attention.shared_kv_layers", config->n_layers - 1, &n_shared);
    n_own = config->n_layers > n_shared ? config->n_layers - n_shared : config->n_layers;
    for (uint32_t i = 0; i < config->n_layers; i++) {
        struct layer *layer = &model->layers[i];
        uint32_t from = latest[layer->is_local];

        if (i < n_own) {
            latest[layer->is_local] = i;
            continue;
        }
        if (from == UINT32_MAX || model->layers[from].n_kv_heads != layer->n_kv_heads) {
            arch_complain(r, E_UNSUPPORTED, "layer %u has no earlier layer of its kind to share keys with",
                          i);
            return;
        }
        layer->kv_source = from;
        layer->is_shared = true;
    }
}

void read_gemma4(struct reading *r, struct model *model)
{
    static const double CAP[2] = {0, 1e6};
    struct model_config *config = &model->config;
    double logits = 0;

    config->embedding_scale = sqrtf((float)config->hidden);
    config->attn_scale = 1;
    read_number(r, "final_logit_softcapping", OPTIONAL, CAP, &logits);
    config->logit_cap = (float)logits;
    read_whole(r, "embedding_length_per_layer_input", 1u << 16, &config->input);
    if (has_complaints(r))
        return;
    gemma4_read_local(r, model);
    share_keys(r, model, 0);
    moe_read(r, model, 0, false);
    for (uint32_t i = 0; i < config->n_layers; i++) {
        if (config->n_heads % model->layers[i].n_kv_heads != 0)
            arch_complain(r, E_FORMAT, "layer %u: %u heads are not a multiple of %u kv heads", i,
                          config->n_heads, model->layers[i].n_kv_heads);
        model->layers[i].attn = model->layers[i].is_shared  ? &attn_shared
                                : model->layers[i].is_local ? &attn_values_normed
                                                            : &attn_values_may;
        if (config->n_experts)
            model->layers[i].ffn = &ffn_moe_beside;
        model->layers[i].tail = config->input ? &tail_inputs : &tail_scale;
    }
    if (config->input)
        model->globals = GLOBAL_BIT(INPUTS) | GLOBAL_BIT(INPUTS_PROJ) | GLOBAL_BIT(INPUTS_NORM);
}
