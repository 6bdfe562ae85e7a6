/* SPDX-License-Identifier: Apache-2.0 */
/* The feed-forward half of a layer. Hot path.
 *
 *     normed  [n][hidden]   = rmsnorm(x)
 *     gate_up [n][2 F]      = normed . Wgate_up^T (+ bias)   gate | up, side by side in each row; F = ffn
 *     gate    [n][F]        = act(gate) * up
 *     x                    += gate . Wdown^T (+ bias)
 *
 * Many tokens go through matmul_gated(), which needs no gate_up. A few tokens go product by product: their
 * time is the read of the weights from memory, and each product prefetches the next one's weights. */
#include "compute/model/model_priv.h"
#include "compute/tensor/gated.h"

#include <math.h>
#include <string.h>

#include "base/check.h"

/* x = max(x, 0)^2 */
static void relu_squared(const struct kern_table *table, float *x, uint32_t n)
{
    (void)table;
    for (uint32_t i = 0; i < n; i++)
        x[i] = x[i] < 0 ? 0 : x[i] * x[i]; /* NaN stays */
}

static const struct activation_row {
    gated_act gated; /* NULL: no architecture has it with gates ... */
    plain_act plain; /* ... without gates */
} activations[] = {{swiglu, NULL}, {geglu, gelu}, {NULL, gelu_exact}, {NULL, relu_squared}, {NULL, NULL}};
CHECK_ROWS(activations, N_ACTIVATIONS);

gated_act ffn_gated_act(const struct model *model)
{
    ASSERT(activations[model->activation].gated != NULL);
    return activations[model->activation].gated;
}

plain_act ffn_plain_act(const struct model *model)
{
    ASSERT(activations[model->activation].plain != NULL);
    return activations[model->activation].plain;
}

void ffn_activate(const struct model *model, const float *row, uint32_t ffn, uint32_t n_parts, float *out)
{
    memcpy(out, row, ffn * sizeof(*out));
    if (n_parts == 1)
        ffn_plain_act(model)(model->table, out, ffn);
    else
        ffn_gated_act(model)(model->table, out, row + ffn, ffn);
}

/* out = min(silu(gate), limit) * up, with up within -limit..limit (Step 3.5) */
void ffn_activate_limited(const struct model *model, const float *row, uint32_t ffn, float limit, float *out)
{
    enum { CHUNK = 128 };
    float ones[CHUNK];

    for (uint32_t i = 0; i < CHUNK; i++)
        ones[i] = 1;
    memcpy(out, row, ffn * sizeof(*out));
    for (uint32_t at = 0; at < ffn; at += CHUNK)
        swiglu(model->table, out + at, ones, ffn - at < CHUNK ? ffn - at : CHUNK);
    for (uint32_t i = 0; i < ffn; i++) {
        float up = row[ffn + i] > limit ? limit : row[ffn + i] < -limit ? -limit : row[ffn + i];

        out[i] = (out[i] > limit ? limit : out[i]) * up;
    }
}

/* Cuts off the gates that are not far above their mean (Gemma 3n). */
static void cut_gates(const struct layer *layer, float *gate, size_t ffn)
{
    double sum = 0, squares = 0, mean, cut;

    for (size_t i = 0; i < ffn; i++)
        sum += gate[i];
    mean = sum / (double)ffn;
    for (size_t i = 0; i < ffn; i++)
        squares += (gate[i] - mean) * (gate[i] - mean);
    cut = mean + sqrt(squares / (double)ffn) * layer->cut_deviations;
    for (size_t i = 0; i < ffn; i++)
        gate[i] = gate[i] < (float)cut ? 0 : gate[i] - (float)cut; /* NaN stays */
}

static void gate_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    gated_act act = ffn_gated_act(f->model);
    size_t ffn = f->layer->ffn_width;

    for (size_t row = from; row < to; row++) {
        float *gate = f->state->gate_up + row * 2 * ffn;

        if (f->layer->vectors[SLOT_GATE_BIAS])
            vec_add(f->model->table, gate, f->layer->vectors[SLOT_GATE_BIAS], (uint32_t)ffn);
        if (f->layer->vectors[SLOT_UP_BIAS])
            vec_add(f->model->table, gate + ffn, f->layer->vectors[SLOT_UP_BIAS], (uint32_t)ffn);
        if (f->layer->is_sparse)
            cut_gates(f->layer, gate, ffn);
        act(f->model->table, gate, gate + ffn, (uint32_t)ffn);
    }
}

static void gate_at_once(const struct forward *f, const float *input)
{
    const struct model_config *c = &f->model->config;
    const struct weight *gate_up = &f->layer->groups[GROUP_GATE_UP].parts[0];

    matmul_gated(forward_team(f, (uint64_t)gate_up->len_bytes * f->n_rows),
                 &(struct gated_args){.gate_up = gate_up,
                                      .down = &f->layer->groups[GROUP_DOWN].parts[0],
                                      .act = ffn_gated_act(f->model),
                                      .x = input,
                                      .x_stride = c->hidden,
                                      .n = f->n_rows,
                                      .y = f->state->normed,
                                      .y_stride = c->hidden,
                                      .scratch = f->state->gated_scratch});
}

void ffn_by_products(struct forward *f, uint32_t layer, const float *input)
{
    struct model_state *state = f->state;
    size_t ffn = f->layer->ffn_width;

    f->next = forward_first(f, f->layer, GROUP_DOWN);
    forward_matmul(f, &f->layer->groups[GROUP_GATE_UP], input, f->model->config.hidden, state->gate_up);
    forward_rows(f, gate_rows);
    f->next = forward_beyond(f, layer);
    forward_matmul(f, &f->layer->groups[GROUP_DOWN], state->gate_up, 2 * ffn, state->normed);
}

static void down_bias_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    uint32_t hidden = f->model->config.hidden;

    for (size_t row = from; row < to; row++)
        vec_add(f->model->table, f->state->normed + row * hidden, f->layer->vectors[SLOT_DOWN_BIAS], hidden);
}

void ffn_add_down_bias(struct forward *f)
{
    if (f->layer->vectors[SLOT_DOWN_BIAS])
        forward_rows(f, down_bias_rows);
}

static void forward_ffn(struct forward *f, uint32_t layer)
{
    const float *input = forward_norm(f, forward_ffn_norm(f)); /* x, if the model norms only outputs */

    if (f->n_rows > FFN_FEW_TOKENS && ffn_is_gated(f->layer))
        gate_at_once(f, input);
    else
        ffn_by_products(f, layer, input);
    ffn_add_down_bias(f);
    forward_finish(f, f->layer->vectors[SLOT_POST_FFN_NORM]);
}

bool ffn_is_gated(const struct layer *layer)
{
    const struct weight_group *in = &layer->groups[GROUP_GATE_UP], *down = &layer->groups[GROUP_DOWN];

    return layer->ffn->forward == forward_ffn && !layer->is_sparse && !layer->vectors[SLOT_GATE_BIAS] &&
           !layer->vectors[SLOT_UP_BIAS] && in->n_parts == 1 && down->n_parts == 1 &&
           gated_takes(&in->parts[0], &down->parts[0]);
}

/* Only one of the two ways runs at a time, so both use the same memory. */
static void forward_ffn_lay_out(const struct model *model, struct model_state *state, struct carving *carving)
{
    uint32_t rows = state->max_tokens < FFN_FEW_TOKENS ? state->max_tokens : FFN_FEW_TOKENS;
    size_t most_bytes = 0, len_bytes;

    for (uint32_t i = 0; i < model->config.n_layers; i++) {
        const struct layer *layer = &model->layers[i];

        if (layer->ffn->forward != forward_ffn)
            continue;
        if (!ffn_is_gated(layer)) {
            rows = state->max_tokens;
            continue;
        }
        len_bytes =
            gated_scratch_bytes(&layer->groups[GROUP_GATE_UP].parts[0], &layer->groups[GROUP_DOWN].parts[0],
                                state->max_tokens, state->n_ranks);
        most_bytes = most_bytes > len_bytes ? most_bytes : len_bytes;
    }
    len_bytes = (size_t)rows * 2 * model->config.ffn * sizeof(float);
    state->gate_up = carve(carving, most_bytes > len_bytes ? most_bytes : len_bytes);
    state->gated_scratch = state->gate_up;
}

const struct half ffn_dense = {
    .name = "dense",
    .first = GROUP_GATE_UP,
    .needs = SLOT_BIT(GATE) | SLOT_BIT(UP) | SLOT_BIT(DOWN),
    .forward = forward_ffn,
    .lay_out = forward_ffn_lay_out,
};

const struct half ffn_dense_may = {
    .name = "dense, with or without biases",
    .first = GROUP_GATE_UP,
    .needs = SLOT_BIT(GATE) | SLOT_BIT(UP) | SLOT_BIT(DOWN),
    .may = SLOT_BIT(GATE_BIAS) | SLOT_BIT(UP_BIAS) | SLOT_BIT(DOWN_BIAS),
    .forward = forward_ffn,
    .lay_out = forward_ffn_lay_out,
};

const struct half ffn_dense_fused = {
    .name = "dense, gate and up in one",
    .first = GROUP_GATE_UP,
    .needs = SLOT_BIT(GATE_UP) | SLOT_BIT(DOWN),
    .forward = forward_ffn,
    .lay_out = forward_ffn_lay_out,
};
