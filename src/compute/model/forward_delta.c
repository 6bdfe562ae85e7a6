/* SPDX-License-Identifier: Apache-2.0 */
/* A gated delta net in place of attention (Yang et al. 2024; Qwen 3.5).  Hot path.
 *
 *     in [n][..]      = norm(x) . W^T            q k v | z | b | a, side by side in each row
 *     q, k, v         = silu(short convolution of q k v along the rows)
 *     q, k            = each head divided by its length; q also by the root of the width
 *     decay, beta     = exp(A softplus(a + bias)), sigmoid(b)        one of each head of values
 *     out             = the delta rule (kernels/recurrent.h): each head of values reads one head of keys
 *     out             = rmsnorm(each head) * silu(z)
 *     x              += out . Wout^T
 *
 * The convolution and the rule are those of recurrent_heads.c; the rest is split by rows among ranks. */
#include "compute/model/model_priv.h"

#include <math.h>
#include <string.h>

struct delta_shape { /* floats of a row */
    size_t qkv, values, in;
    size_t k, v, z, b, a; /* where they begin */
};

static struct delta_shape delta_shape(const struct model_config *c)
{
    struct delta_shape s = {.qkv = dim_of(c, DIM_DELTA_QKV), .values = dim_of(c, DIM_DELTA_VALUES)};

    s.k = (size_t)c->delta_key_heads * c->delta_key;
    s.v = 2 * s.k;
    s.z = s.qkv;
    s.b = s.z + s.values;
    s.a = s.b + c->delta_heads;
    s.in = s.a + c->delta_heads;
    return s;
}

/* Where a row has b and a of a head: all b then all a; or the same for each group. */
static struct delta_gates {
    size_t b, a;
} delta_gates_of(const struct model_config *c, const struct delta_shape *s, uint32_t head)
{
    size_t group = c->delta_heads / c->delta_key_heads, at = s->b + head / group * 2 * group + head % group;

    if (c->delta_is_grouped)
        return (struct delta_gates){.b = at, .a = at + group};
    return (struct delta_gates){.b = s->b + head, .a = s->a + head};
}

static struct recurrent_heads delta_heads(const struct forward *f)
{
    const struct model_config *c = &f->model->config;
    const struct delta_shape s = delta_shape(c);

    return (struct recurrent_heads){.f = f,
                                    .n_conv = s.qkv,
                                    .in = s.in,
                                    .k = s.k,
                                    .v = s.v,
                                    .is_delta = true,
                                    .is_grouped = c->delta_is_grouped};
}

/* ---- rows before the rule ---- */

static void delta_prepare(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model_config *c = &f->model->config;
    const struct delta_shape s = delta_shape(c);
    const float *bias = f->layer->vectors[SLOT_DELTA_TIME_BIAS], *rate = f->layer->vectors[SLOT_DELTA_DECAY];

    for (size_t row = from; row < to; row++) {
        float *in = f->state->recurrent.in + row * s.in;
        float *decay = f->state->recurrent.decay + row * c->delta_heads;
        float *beta = f->state->recurrent.beta + row * c->delta_heads;

        recurrent_norm_keys(f, in);
        for (uint32_t head = 0; head < c->delta_heads; head++) {
            struct delta_gates gates = delta_gates_of(c, &s, head);

            decay[head] = (float)exp(rate[head] * recurrent_softplus(in[gates.a] + bias[head]));
            beta[head] = (float)(1 / (1 + exp(-(double)in[gates.b])));
        }
    }
}

/* ---- rows after the rule ---- */

static void delta_finish(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model_config *c = &f->model->config;
    const struct delta_shape s = delta_shape(c);

    for (size_t row = from; row < to; row++) {
        float *out = f->state->recurrent.out + row * s.values;
        float *gate = f->state->recurrent.in + row * s.in + s.z;

        for (uint32_t head = 0; head < c->delta_heads; head++)
            rms_norm(f->model->table, out + (size_t)head * c->delta_value, f->layer->vectors[SLOT_DELTA_NORM],
                     c->delta_value, c->norm_eps, out + (size_t)head * c->delta_value);
        swiglu(f->model->table, gate, out, (uint32_t)s.values);
        memcpy(out, gate, s.values * sizeof(*out));
    }
}

static void forward_delta(struct forward *f, uint32_t layer)
{
    const struct model_config *c = &f->model->config;
    const struct delta_shape s = delta_shape(c);
    struct model_state *state = f->state;
    const float *input = forward_norm(f, SLOT_ATTN_NORM);
    const struct recurrent_heads heads = delta_heads(f);

    forward_matmul(f, &f->layer->groups[GROUP_QKV], input, c->hidden, state->recurrent.in);
    recurrent_conv(&heads);
    forward_rows(f, delta_prepare);
    recurrent_rule(&heads);
    forward_rows(f, delta_finish);
    if (layer + 1 == c->n_layers)
        forward_narrow(f, state->recurrent.out, s.values, s.values);
    if (f->n_rows == 0)
        return;
    f->next = forward_first(f, f->layer, f->layer->ffn->first);
    forward_matmul(f, &f->layer->groups[GROUP_OUT], state->recurrent.out, s.values, state->normed);
    forward_finish(f, NULL);
}

/* ---- weights and scratch ---- */

static void delta_lay_out(const struct model *model, struct model_state *state, struct carving *carving)
{
    const struct model_config *c = &model->config;

    recurrent_heads_lay_out(c, delta_shape(c).in, state, carving);
}

static int delta_pack(struct loading *load, uint32_t index)
{
    const struct model_config *c = &load->model->config;
    int rc = recurrent_pack_gains(load, index);

    return rc < 0 ? rc : recurrent_pack_taps(load, index, SLOT_DELTA_TAPS, dim_of(c, DIM_DELTA_QKV));
}

const struct half attn_delta = {
    .name = "gated delta net",
    .first = GROUP_QKV,
    .needs = SLOT_BIT(DELTA_QKV) | SLOT_BIT(DELTA_Z) | SLOT_BIT(DELTA_BETA) | SLOT_BIT(DELTA_ALPHA) |
             SLOT_BIT(DELTA_TAPS) | SLOT_BIT(DELTA_TIME_BIAS) | SLOT_BIT(DELTA_DECAY) | SLOT_BIT(DELTA_NORM) |
             SLOT_BIT(DELTA_OUT),
    .forward = forward_delta,
    .lay_out = delta_lay_out,
    .pack = delta_pack,
    .layer_fini = recurrent_layer_fini,
    .is_keyless = true,
    .state_bytes = recurrent_heads_state_bytes,
};

const struct half attn_delta_grouped = {
    .name = "gated delta net, by groups of heads",
    .first = GROUP_QKV,
    .needs = SLOT_BIT(DELTA_QKV) | SLOT_BIT(DELTA_Z) | SLOT_BIT(DELTA_BETA_ALPHA) | SLOT_BIT(DELTA_TAPS) |
             SLOT_BIT(DELTA_TIME_BIAS) | SLOT_BIT(DELTA_DECAY) | SLOT_BIT(DELTA_NORM) | SLOT_BIT(DELTA_OUT),
    .forward = forward_delta,
    .lay_out = delta_lay_out,
    .pack = delta_pack,
    .layer_fini = recurrent_layer_fini,
    .is_keyless = true,
    .state_bytes = recurrent_heads_state_bytes,
};
