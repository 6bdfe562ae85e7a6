/* SPDX-License-Identifier: Apache-2.0 */
/* A delta net whose state fades by keys, in place of attention (Kimi Linear, 2025).  Hot path.
 *
 *     in [n][..]      = norm(x) . W^T            q k v | f_a | g_a | b, side by side in each row
 *     q, k, v         = silu(short convolution of q k v along the rows)
 *     q, k            = each head divided by its length; q also by the root of the width
 *     fade            = exp(A softplus(f_a . Wfb^T + bias))     one of each number of a head's key
 *     beta            = sigmoid(b)                              one of each head
 *     out             = the delta rule; S = fade S instead of one factor for the whole state
 *     out             = rmsnorm(each head) * sigmoid(g_a . Wgb^T)
 *     x              += out . Wout^T
 *
 * The convolution and the rule are those of recurrent_heads.c; the rest is split by rows among ranks. */
#include "compute/model/model_priv.h"

#include <math.h>

struct kda_shape { /* floats of a row */
    size_t values, in;
    size_t fade, gate, beta; /* where they begin */
};

static struct kda_shape kda_shape(const struct model_config *c)
{
    struct kda_shape s = {.values = dim_of(c, DIM_DELTA_VALUES)};

    s.fade = 3 * s.values;
    s.gate = s.fade + c->delta_value;
    s.beta = s.gate + c->delta_value;
    s.in = s.beta + c->delta_heads;
    return s;
}

static void kda_prepare(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model_config *c = &f->model->config;
    const struct kda_shape s = kda_shape(c);
    const float *bias = f->layer->vectors[SLOT_KDA_TIME_BIAS], *rate = f->layer->vectors[SLOT_MAMBA_DECAY];

    for (size_t row = from; row < to; row++) {
        float *in = f->state->recurrent.in + row * s.in, *fades = f->state->recurrent.fades + row * s.values;
        float *beta = f->state->recurrent.beta + row * c->delta_heads;

        recurrent_norm_keys(f, in);
        for (size_t i = 0; i < s.values; i++)
            fades[i] = (float)exp(rate[i / c->delta_key] * recurrent_softplus(fades[i] + bias[i]));
        for (uint32_t head = 0; head < c->delta_heads; head++)
            beta[head] = (float)(1 / (1 + exp(-(double)in[s.beta + head])));
    }
}

static void kda_finish(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model_config *c = &f->model->config;
    const size_t values = kda_shape(c).values;

    for (size_t row = from; row < to; row++) {
        float *out = f->state->recurrent.out + row * values;

        for (uint32_t head = 0; head < c->delta_heads; head++)
            rms_norm(f->model->table, out + (size_t)head * c->delta_value, f->layer->vectors[SLOT_DELTA_NORM],
                     c->delta_value, c->norm_eps, out + (size_t)head * c->delta_value);
        vec_gate(f->model->table, out, f->state->recurrent.gates + row * values, (uint32_t)values);
    }
}

static void forward_kda(struct forward *f, uint32_t layer)
{
    const struct model_config *c = &f->model->config;
    const struct kda_shape s = kda_shape(c);
    const struct recurrent_state *state = &f->state->recurrent;
    const float *input = forward_norm(f, SLOT_ATTN_NORM);
    const struct recurrent_heads heads = {.f = f,
                                          .n_conv = 3 * s.values,
                                          .in = s.in,
                                          .k = s.values,
                                          .v = 2 * s.values,
                                          .is_delta = true,
                                          .fades_keys = true};

    forward_matmul(f, &f->layer->groups[GROUP_QKV], input, c->hidden, state->in);
    forward_matmul(f, &f->layer->groups[GROUP_KDA_FADE], state->in + s.fade, s.in, state->fades);
    forward_matmul(f, &f->layer->groups[GROUP_KDA_GATE], state->in + s.gate, s.in, state->gates);
    recurrent_conv(&heads);
    forward_rows(f, kda_prepare);
    recurrent_rule(&heads);
    forward_rows(f, kda_finish);
    if (layer + 1 == c->n_layers)
        forward_narrow(f, state->out, s.values, s.values);
    if (f->n_rows == 0)
        return;
    f->next = forward_first(f, f->layer, f->layer->ffn->first);
    forward_matmul(f, &f->layer->groups[GROUP_OUT], state->out, s.values, f->state->normed);
    forward_finish(f, NULL);
}

static void kda_lay_out(const struct model *model, struct model_state *state, struct carving *carving)
{
    const struct kda_shape s = kda_shape(&model->config);

    recurrent_heads_lay_out(&model->config, s.in, state, carving);
    state->recurrent.fades = carve(carving, state->max_tokens * s.values * sizeof(float));
    state->recurrent.gates = carve(carving, state->max_tokens * s.values * sizeof(float));
}

static int kda_pack(struct loading *load, uint32_t index)
{
    int rc = recurrent_pack_gains(load, index);

    return rc < 0 ? rc
                  : recurrent_pack_all_taps(load, index, SLOT_KDA_TAPS_Q, 3,
                                            dim_of(&load->model->config, DIM_DELTA_VALUES));
}

const struct half attn_kda = {
    .name = "Kimi's delta net",
    .first = GROUP_QKV,
    .needs = SLOT_BIT(KDA_Q) | SLOT_BIT(KDA_K) | SLOT_BIT(KDA_V) | SLOT_BIT(KDA_FADE_A) |
             SLOT_BIT(KDA_GATE_A) | SLOT_BIT(KDA_FADE_B) | SLOT_BIT(KDA_GATE_B) | SLOT_BIT(KDA_TAPS_Q) |
             SLOT_BIT(KDA_TAPS_K) | SLOT_BIT(KDA_TAPS_V) | SLOT_BIT(KDA_TIME_BIAS) | SLOT_BIT(KDA_OUT) |
             SLOT_BIT(DELTA_BETA) | SLOT_BIT(DELTA_NORM) | SLOT_BIT(MAMBA_DECAY),
    .forward = forward_kda,
    .lay_out = kda_lay_out,
    .pack = kda_pack,
    .layer_fini = recurrent_layer_fini,
    .is_keyless = true,
    .state_bytes = recurrent_heads_state_bytes,
};
