/* SPDX-License-Identifier: Apache-2.0 */
/* The feed-forward half of a layer.  Hot path.
 *
 *     normed  [n][hidden]   = rmsnorm(x)
 *     gate_up [n][2 F]      = normed . Wgate_up^T        gate | up, side by side in each row; F = ffn
 *     gate    [n][F]        = act(gate) * up             act is silu, or gelu in its tanh form
 *     x                    += gate . Wdown^T */
#include "model/model_priv.h"

static void gate_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    size_t ffn = f->model->config.ffn;

    for (size_t row = from; row < to; row++) {
        float *gate = f->state->gate_up + row * 2 * ffn;

        if (f->model->arch->activation == ACT_GELU)
            geglu(f->model->table, gate, gate + ffn, (uint32_t)ffn);
        else
            swiglu(f->model->table, gate, gate + ffn, (uint32_t)ffn);
    }
}

static void forward_ffn(struct forward *f, uint32_t layer)
{
    struct model_state *state = f->state;
    size_t ffn = f->model->config.ffn;
    const float *input = state->x; /* of models that norm only what comes out */

    if (f->layer->vectors[SLOT_FFN_NORM]) {
        forward_norm(f, f->layer->vectors[SLOT_FFN_NORM]);
        input = state->normed;
    }
    f->next = forward_first(f, f->layer, GROUP_DOWN);
    forward_matmul(f, &f->layer->groups[GROUP_GATE_UP], input, f->model->config.hidden, state->gate_up);
    forward_rows(f, gate_rows);
    f->next = forward_beyond(f, layer);
    forward_matmul(f, &f->layer->groups[GROUP_DOWN], state->gate_up, 2 * ffn, state->normed);
    forward_finish(f, f->layer->vectors[SLOT_POST_FFN_NORM]);
}

const struct half ffn_dense = {
    .name = "dense",
    .first = GROUP_GATE_UP,
    .needs = SLOT_BIT(GATE) | SLOT_BIT(UP) | SLOT_BIT(DOWN),
    .forward = forward_ffn,
};

const struct half ffn_dense_fused = {
    .name = "dense, gate and up in one",
    .first = GROUP_GATE_UP,
    .needs = SLOT_BIT(GATE_UP) | SLOT_BIT(DOWN),
    .forward = forward_ffn,
};
