/* SPDX-License-Identifier: Apache-2.0 */
/* A dense feed-forward network with experts beside it (Gemma 4). Hot path.
 *
 *     beside [n][hidden] = norm(dense network of norm(x))
 *     scores [n][E]      = (norm(x) * scale) . Wrouter^T / sqrt(hidden);   weights are scaled by expert
 *     x                 += norm(beside + norm(experts of norm(x)))
 *
 * Each norm has a gain of its own. The experts are computed as in forward_moe.c. */
#include "compute/model/model_priv.h"

#include <math.h>

static void beside_keep_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const uint32_t hidden = f->model->config.hidden;
    const struct layer_gain gain = {.gain = f->layer->vectors[SLOT_POST_FFN_NORM_1]};

    for (size_t row = from; row < to; row++)
        forward_norm_row(f->model, f->state->normed + row * hidden, &gain, hidden,
                         f->state->moe.beside + row * hidden);
}

static void beside_score_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const uint32_t n = f->model->config.n_experts;

    for (size_t row = from; row < to; row++)
        vec_scale(f->model->table, f->state->moe.scores + row * n, 1 / sqrtf((float)f->model->config.hidden),
                  n);
}

static void beside_weigh_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct moe_state *moe = &f->state->moe;
    const uint32_t used = f->model->config.n_experts_used;

    for (size_t i = (size_t)from * used; i < (size_t)to * used; i++)
        moe->weights[i] *= f->layer->vectors[SLOT_EXPERT_SCALE][moe->chosen[i]];
}

static void beside_add_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const uint32_t hidden = f->model->config.hidden;
    const struct layer_gain gain = {.gain = f->layer->vectors[SLOT_POST_FFN_NORM_2]};

    for (size_t row = from; row < to; row++) {
        float *out = f->state->normed + row * hidden;

        forward_norm_row(f->model, out, &gain, hidden, out);
        vec_add(f->model->table, out, f->state->moe.beside + row * hidden, hidden);
    }
}

static void forward_beside(struct forward *f, uint32_t layer)
{
    ffn_by_products(f, layer, forward_norm(f, SLOT_FFN_NORM));
    forward_rows(f, beside_keep_rows);
    forward_norm(f, SLOT_ROUTER_SCALE);
    forward_matmul(f, &f->layer->groups[GROUP_ROUTER], f->state->normed, f->model->config.hidden,
                   f->state->moe.scores);
    forward_rows(f, beside_score_rows);
    moe_choose(f);
    if (f->layer->vectors[SLOT_EXPERT_SCALE])
        forward_rows(f, beside_weigh_rows);
    forward_norm(f, SLOT_FFN_NORM_2);
    moe_compute(f);
    forward_rows(f, beside_add_rows);
    forward_finish(f, f->layer->vectors[SLOT_POST_FFN_NORM]);
}

static void beside_lay_out(const struct model *model, struct model_state *state, struct carving *carving)
{
    const struct model_config *c = &model->config;
    const size_t rows = state->max_tokens;

    moe_lay_out(model, state, carving);
    state->moe.beside = carve(carving, rows * c->hidden * sizeof(float));
    state->gate_up = carve(carving, rows * 2 * c->ffn * sizeof(float));
}

const struct half ffn_moe_beside = {
    .name = "dense, with experts beside it",
    .first = GROUP_GATE_UP,
    .needs = SLOT_BIT(GATE) | SLOT_BIT(UP) | SLOT_BIT(DOWN) | SLOT_BIT(ROUTER) | SLOT_BIT(ROUTER_SCALE) |
             SLOT_BIT(DOWN_EXPERTS) | SLOT_BIT(FFN_NORM_2) | SLOT_BIT(POST_FFN_NORM_1) |
             SLOT_BIT(POST_FFN_NORM_2),
    .may = SLOT_BIT(GATE_EXPERTS) | SLOT_BIT(UP_EXPERTS) | SLOT_BIT(GATE_UP_EXPERTS) | SLOT_BIT(EXPERT_SCALE),
    .forward = forward_beside,
    .lay_out = beside_lay_out,
    .bind = moe_bind_either,
    .pack = moe_pack_either,
    .layer_fini = moe_layer_fini,
};
