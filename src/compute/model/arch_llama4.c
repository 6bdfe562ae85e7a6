/* SPDX-License-Identifier: Apache-2.0 */
/* Llama 4: keys and layers.
 *
 * Three layers of four attend within chunks of 8192 tokens, with RoPE. The fourth attends to all keys: it has no
 * RoPE, and its queries grow with the log of their position. The chosen experts read inputs that are scaled by
 * their chances, and one shared expert reads the input as it is. */
#include "compute/model/model_priv.h"

enum { LLAMA4_LONG = 8192, LLAMA4_EXPERTS_UNNORMED = 128 };

/* Layers that attend to all keys have no RoPE, and scale queries by their position. The other layers norm their
 * heads, except in the model with 128 experts. Files state none of this, nor the length of a chunk. */
static void read_llama4_layers(struct reading *r, struct model *model)
{
    static const double SCALE[2] = {0, 1e3}, LENGTH[2] = {1, 1 << 30};
    struct rope_params *rope = &model->rope_params[ROPE_GLOBAL];
    bool is_mixed = false;

    for (uint32_t i = 0; i < model->config.n_layers; i++)
        is_mixed = is_mixed || model->layers[i].is_local;
    if (is_mixed) {
        rope->temperature_scale = 0.1;
        rope->temperature_offset = 1;
        rope->temperature_length = LLAMA4_LONG;
        rope->scales_unturned = true;
        read_number(r, "attention.temperature_scale", OPTIONAL, SCALE, &rope->temperature_scale);
        read_number(r, "attention.temperature_length", OPTIONAL, LENGTH, &rope->temperature_length);
    }
    model->config.is_chunked = true;
    for (uint32_t i = 0; i < model->config.n_layers; i++) {
        if (is_mixed && !model->layers[i].is_local)
            model->layers[i].rope = ROPE_NONE;
        else
            model->layers[i].is_unit_normed = model->route.n_experts != LLAMA4_EXPERTS_UNNORMED;
    }
}

void read_llama4(struct reading *r, struct model *model)
{
    uint32_t step = 1;

    model->route.gate = ROUTE_SIGMOID;
    model->route.scales_input = true;
    read_count(r, "interleave_moe_layer_step", OPTIONAL, model->config.n_layers, &step);
    moe_read(r, model, 0, true);
    if (has_complaints(r))
        return;
    model->config.shared_ffn = model->config.expert_ffn; /* there is one shared expert */
    read_llama4_layers(r, model);
    for (uint32_t i = 0; i < model->config.n_layers; i++)
        model->layers[i].ffn = (i + 1) % step == 0 ? &ffn_moe_shared : &ffn_dense;
}
