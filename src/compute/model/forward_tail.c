/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a layer, after its two halves, in models that have one. Hot path.
 *
 *     inputs [n][layers][I]  = (norm(x . Wmodel^T / sqrt(hidden)) + E[token] sqrt(I)) / sqrt(2)   once a pass,
 *                              x: the scaled embeddings; the norm is over each layer's I numbers
 *     gate   [n][I]          = gelu(x . Wgate^T) * inputs of the layer
 *     x                     += norm(gate . Wproj^T)
 *     x                     *= the layer's scale
 *
 * (Gemma 3n and 4.) So each layer has its own embedding of the token. Every step works on each row by itself. */
#include "compute/model/model_priv.h"

#include <math.h>

static void mix_inputs(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model *model = f->model;
    const struct model_config *c = &model->config;
    const size_t width = (size_t)c->n_layers * c->input;
    const struct layer_gain gain = {.gain = model->inputs_norm};

    for (uint32_t i = 0; i < f->pass->n_items; i++) {
        const struct model_item *item = &f->pass->items[i];
        uint32_t first = f->state->items[i].first, row = first > from ? first : from;

        for (; row < to && row < first + item->n_tokens; row++) {
            float *inputs = f->state->input.inputs + row * width, *own = f->state->input.rows + row * width;

            vec_scale(model->table, inputs, 1 / sqrtf((float)c->hidden), (uint32_t)width);
            for (uint32_t k = 0; k < c->n_layers; k++)
                forward_norm_row(model, inputs + (size_t)k * c->input, &gain, c->input,
                                 inputs + (size_t)k * c->input);
            weight_row(&model->inputs, item->tokens[row - first], own);
            vec_scale(model->table, own, sqrtf((float)c->input), (uint32_t)width);
            vec_add(model->table, inputs, own, (uint32_t)width);
            vec_scale(model->table, inputs, sqrtf(0.5f), (uint32_t)width);
        }
    }
}

void forward_inputs(struct forward *f)
{
    forward_matmul(f, &f->model->inputs_proj, f->state->x, f->model->config.hidden, f->state->input.inputs);
    forward_rows(f, mix_inputs);
}

static void tail_gate_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model_config *c = &f->model->config;
    const size_t at = (size_t)(f->layer - f->model->layers) * c->input;

    for (size_t row = from; row < to; row++)
        geglu(f->model->table, f->state->input.gate + row * c->input,
              f->state->input.inputs + row * c->n_layers * c->input + at, c->input);
}

static void tail_scale_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const uint32_t hidden = f->model->config.hidden;

    for (size_t row = from; row < to; row++)
        vec_scale(f->model->table, f->state->x + row * hidden, f->layer->vectors[SLOT_LAYER_SCALE][0],
                  hidden);
}

static void forward_scale(struct forward *f, uint32_t layer)
{
    (void)layer;
    if (f->layer->vectors[SLOT_LAYER_SCALE])
        forward_rows(f, tail_scale_rows);
}

void forward_tail_product(struct forward *f, const float *x)
{
    const struct model_config *c = &f->model->config;

    f->next = forward_first(f, f->layer, GROUP_INPUT_PROJ);
    forward_matmul(f, &f->layer->groups[GROUP_INPUT_GATE], x, c->hidden, f->state->input.gate);
    forward_rows(f, tail_gate_rows);
    f->next = forward_beyond(f, (uint32_t)(f->layer - f->model->layers));
    forward_matmul(f, &f->layer->groups[GROUP_INPUT_PROJ], f->state->input.gate, c->input, f->state->normed);
}

static void forward_tail(struct forward *f, uint32_t layer)
{
    forward_tail_product(f, f->state->x);
    forward_finish(f, f->layer->vectors[SLOT_INPUT_NORM]);
    forward_scale(f, layer);
}

void tail_lay_out(const struct model *model, struct model_state *state, struct carving *carving)
{
    const size_t rows = state->max_tokens, input = model->config.input;
    const size_t inputs_bytes = rows * model->config.n_layers * input * sizeof(float);

    state->input.inputs = input ? carve(carving, inputs_bytes) : NULL;
    state->input.rows = input ? carve(carving, inputs_bytes) : NULL;
    state->input.gate = input ? carve(carving, rows * input * sizeof(float)) : NULL;
}

const struct half tail_scale = {
    .name = "scale",
    .may = SLOT_BIT(LAYER_SCALE),
    .forward = forward_scale,
};

const struct half tail_inputs = {
    .name = "inputs",
    .needs = SLOT_BIT(INPUT_GATE) | SLOT_BIT(INPUT_PROJ) | SLOT_BIT(INPUT_NORM),
    .may = SLOT_BIT(LAYER_SCALE),
    .forward = forward_tail,
};
