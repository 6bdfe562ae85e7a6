/* SPDX-License-Identifier: Apache-2.0 */
/* The feed-forward half of a layer.  Hot path.
 *
 *     normed  [n][hidden]   = rmsnorm(x)
 *     gate_up [n][2 F]      = normed . Wgate_up^T        gate | up, side by side in each row; F = ffn
 *     gate    [n][F]        = silu(gate) * up
 *     x                    += gate . Wdown^T */
#include "model/model_priv.h"

static void gate_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    size_t ffn = f->model->config.ffn;

    for (size_t row = from; row < to; row++) {
        float *gate = f->state->gate_up + row * 2 * ffn;

        swiglu(f->model->table, gate, gate + ffn, (uint32_t)ffn);
    }
}

void forward_ffn(struct forward *f)
{
    struct model_state *state = f->state;
    size_t ffn = f->model->config.ffn;

    forward_norm(f, f->layer->ffn_norm);
    forward_matmul(f, &f->layer->gate_up, state->normed, f->model->config.hidden, state->gate_up);
    forward_rows(f, gate_rows);
    forward_matmul(f, &f->layer->down, state->gate_up, 2 * ffn, state->normed);
    forward_add(f);
}
