/* SPDX-License-Identifier: Apache-2.0 */
/* Mamba 2 in place of attention (Dao & Gu 2024; Granite 4, Nemotron H), or beside it (Falcon H1).  Hot path.
 *
 *     in [n][..]      = norm(x) . Win^T          z | x B C | dt, side by side in each row
 *     x, B, C         = silu(short convolution of x B C along the rows, with a bias)
 *     step            = softplus(dt + bias), decay = exp(A step)         one of each head
 *     out             = the rule (kernels/recurrent.h) with C, B, x and step as q, k, v and beta
 *     out             = (out + D x) * silu(z), normed by groups of heads where there is a norm
 *     x              += out . Wout^T
 *
 * A group of heads shares B and C.  The convolution and the rule are those of recurrent_heads.c; the rest is
 * split by rows among ranks. */
#include "compute/model/model_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct mamba_shape { /* floats of a row */
    size_t values, in;
    size_t x, b, c, dt; /* where they begin; z is first */
};

static struct mamba_shape mamba_shape(const struct model_config *c)
{
    struct mamba_shape s = {.values = dim_of(c, DIM_DELTA_VALUES), .in = dim_of(c, DIM_MAMBA_IN)};
    size_t keys = (size_t)c->delta_key_heads * c->delta_key;

    s.x = s.values;
    s.b = s.x + s.values;
    s.c = s.b + keys;
    s.dt = s.c + keys;
    return s;
}

static void mamba_prepare(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model_config *c = &f->model->config;
    const struct mamba_shape s = mamba_shape(c);
    const float *bias = f->layer->vectors[SLOT_DELTA_TIME_BIAS], *rate = f->layer->vectors[SLOT_MAMBA_DECAY];

    for (size_t row = from; row < to; row++) {
        const float *dt = f->state->recurrent.in + row * s.in + s.dt;

        for (uint32_t head = 0; head < c->delta_heads; head++) {
            double step = recurrent_softplus(dt[head] + bias[head]);

            f->state->recurrent.beta[row * c->delta_heads + head] = (float)step;
            f->state->recurrent.decay[row * c->delta_heads + head] = (float)exp(rate[head] * step);
        }
    }
}

static void mamba_finish(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct kern_table *table = f->model->table;
    const struct model_config *c = &f->model->config;
    const struct mamba_shape s = mamba_shape(c);
    const float *skip = f->layer->vectors[SLOT_MAMBA_SKIP], *gain = f->layer->vectors[SLOT_MAMBA_NORM];
    const size_t width = dim_of(c, DIM_MAMBA_GROUP);

    for (size_t row = from; row < to; row++) {
        float *out = f->state->recurrent.out + row * s.values;
        float *z = f->state->recurrent.in + row * s.in, *x = z + s.x;

        for (uint32_t head = 0; head < c->delta_heads; head++)
            vec_scale(table, x + (size_t)head * c->delta_value, skip[head], c->delta_value);
        vec_add(table, out, x, (uint32_t)s.values);
        swiglu(table, z, out, (uint32_t)s.values);
        for (size_t at = 0; gain && at < s.values; at += width)
            rms_norm(table, z + at, gain + at, (uint32_t)width, c->norm_eps, z + at);
        memcpy(out, z, s.values * sizeof(*out));
    }
}

/* Everything before the last product. */
static void mamba_mix(struct forward *f)
{
    const struct model_config *c = &f->model->config;
    const struct mamba_shape s = mamba_shape(c);
    const struct recurrent_heads heads = {.f = f,
                                          .conv_at = s.x,
                                          .n_conv = s.dt - s.x,
                                          .conv_bias = f->layer->vectors[SLOT_MAMBA_CONV_BIAS],
                                          .in = s.in,
                                          .q = s.c,
                                          .k = s.b,
                                          .v = s.x,
                                          .is_grouped = true};
    const float *input = forward_norm(f, SLOT_ATTN_NORM);

    forward_matmul(f, &f->layer->groups[GROUP_MAMBA_IN], input, c->hidden, f->state->recurrent.in);
    recurrent_conv(&heads);
    forward_rows(f, mamba_prepare);
    recurrent_rule(&heads);
    forward_rows(f, mamba_finish);
}

static void forward_mamba(struct forward *f, uint32_t layer)
{
    const size_t values = dim_of(&f->model->config, DIM_DELTA_VALUES);
    struct model_state *state = f->state;

    mamba_mix(f);
    if (layer + 1 == f->model->config.n_layers)
        forward_narrow(f, state->recurrent.out, values, values);
    if (f->n_rows == 0)
        return;
    f->next = forward_first(f, f->layer, f->layer->ffn->first);
    forward_matmul(f, &f->layer->groups[GROUP_MAMBA_OUT], state->recurrent.out, values, state->normed);
    forward_finish(f, NULL);
}

static void mamba_add_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const uint32_t hidden = f->model->config.hidden;

    for (size_t row = from; row < to; row++)
        vec_add(f->model->table, f->state->x + row * hidden, f->state->recurrent.beside + row * hidden,
                hidden);
}

/* Attention and Mamba read the same norm of x, and both results are added to x. */
static void forward_mamba_beside(struct forward *f, uint32_t layer)
{
    const size_t values = dim_of(&f->model->config, DIM_DELTA_VALUES);

    mamba_mix(f);
    f->next = forward_first(f, f->layer, GROUP_QKV);
    forward_matmul(f, &f->layer->groups[GROUP_MAMBA_OUT], f->state->recurrent.out, values,
                   f->state->recurrent.beside);
    forward_attn(f, layer);
    if (f->n_rows > 0)
        forward_rows(f, mamba_add_rows);
}

/* ---- weights and scratch ---- */

static void mamba_lay_out(const struct model *model, struct model_state *state, struct carving *carving)
{
    recurrent_heads_lay_out(&model->config, dim_of(&model->config, DIM_MAMBA_IN), state, carving);
}

static void mamba_beside_lay_out(const struct model *model, struct model_state *state,
                                 struct carving *carving)
{
    mamba_lay_out(model, state, carving);
    state->recurrent.beside =
        carve(carving, (size_t)state->max_tokens * model->config.hidden * sizeof(float));
}

static int mamba_pack(struct loading *load, uint32_t index)
{
    return recurrent_pack_taps(load, index, SLOT_DELTA_TAPS, dim_of(&load->model->config, DIM_DELTA_QKV));
}

static void mamba_layer_fini(struct layer *layer)
{
    free(layer->recurrent.taps);
}

#define MAMBA_SLOTS                                                                                          \
    (SLOT_BIT(MAMBA_IN) | SLOT_BIT(DELTA_TAPS) | SLOT_BIT(DELTA_TIME_BIAS) | SLOT_BIT(MAMBA_DECAY) |         \
     SLOT_BIT(MAMBA_SKIP) | SLOT_BIT(MAMBA_OUT))

const struct half attn_mamba = {
    .name = "Mamba 2",
    .first = GROUP_MAMBA_IN,
    .needs = MAMBA_SLOTS | SLOT_BIT(MAMBA_NORM),
    .may = SLOT_BIT(MAMBA_CONV_BIAS),
    .forward = forward_mamba,
    .lay_out = mamba_lay_out,
    .pack = mamba_pack,
    .layer_fini = mamba_layer_fini,
    .is_keyless = true,
    .state_bytes = recurrent_heads_state_bytes,
};

const struct half attn_mamba_beside = {
    .name = "grouped, with Mamba 2 beside it",
    .first = GROUP_MAMBA_IN,
    .needs = MAMBA_SLOTS | SLOT_BIT(Q) | SLOT_BIT(K) | SLOT_BIT(V) | SLOT_BIT(OUT),
    .may = SLOT_BIT(MAMBA_CONV_BIAS) | SLOT_BIT(MAMBA_NORM),
    .forward = forward_mamba_beside,
    .lay_out = mamba_beside_lay_out,
    .pack = mamba_pack,
    .layer_fini = mamba_layer_fini,
    .state_bytes = recurrent_heads_state_bytes,
};

/* ---- a layer that lacks a half ---- */

/* The last layer narrows the pass once its keys are stored.  A layer without attention does so here. */
static void forward_none(struct forward *f, uint32_t layer)
{
    if (layer + 1 == f->model->config.n_layers && !f->is_narrowed)
        forward_narrow(f, f->state->normed, 0, 0);
}

const struct half attn_none = {
    .name = "none",
    .forward = forward_none,
    .is_keyless = true,
};

const struct half ffn_none = {
    .name = "none",
    .forward = forward_none,
};
