/* SPDX-License-Identifier: Apache-2.0 */
/* Layers with several residual streams (Gemma 3n: Alternating Updates, Baykal et al. 2023).  Hot path.
 *
 *     begin     s0 = x; si = x . Wi^T, with the magnitude of x
 *     predict   m = tanh(norm(x) . Wrouter^T / hidden);  si += sum over j of sj (P m)[i n + j];  x = s0
 *     laurel    l = norm(x) + norm(norm(x) . Wleft^T . Wright^T)
 *     attention x += ..;  x = (x + l) / sqrt(2)
 *     feed-forward as in other models, or with most gates cut off
 *     correct   m as above, of x;  si += (x - s0 of before) (1 + (C m)[i])
 *               g = norm(gelu((s0 * scale) . Wgate^T) * input of the layer . Wproj^T);  si += g, but s0;  x = s0
 *     end       x = mean of s0 and all si . Ui^T, with the magnitude of s0
 *
 * A row of streams holds all of them, so the pass narrows them as one.  Every step works on each row by itself. */
#include "compute/model/model_priv.h"

#include <math.h>
#include <string.h>

static size_t altup_width(const struct forward *f)
{
    return (size_t)f->model->config.n_streams * f->model->config.hidden;
}

static double altup_mean_square(const float *x, uint32_t n)
{
    double sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sum / n;
}

/* Gives x the magnitude of another row. */
static void altup_rescale(const struct forward *f, float *x, double target)
{
    const uint32_t hidden = f->model->config.hidden;

    vec_scale(f->model->table, x, (float)(target / sqrt(fmax(altup_mean_square(x, hidden), 1e-5))), hidden);
}

/* ---- before the first layer ---- */

static void altup_begin_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const size_t hidden = f->model->config.hidden, width = altup_width(f);

    for (size_t row = from; row < to; row++) {
        const float *x = f->state->x + row * hidden;
        float *streams = f->state->altup.streams + row * width;
        double target = sqrt(altup_mean_square(x, (uint32_t)hidden));

        memcpy(streams, x, hidden * sizeof(*x));
        memcpy(streams + hidden, f->state->altup.projected + row * (width - hidden),
               (width - hidden) * sizeof(*x));
        for (size_t at = hidden; at < width; at += hidden)
            altup_rescale(f, streams + at, target);
    }
}

void altup_begin(struct forward *f)
{
    forward_matmul(f, &f->model->altup_in, f->state->x, f->model->config.hidden, f->state->altup.projected);
    forward_rows(f, altup_begin_rows);
}

/* ---- the first half ---- */

static void altup_mode_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model_config *c = &f->model->config;

    for (size_t row = from; row < to; row++) {
        float *modes = f->state->altup.modes + row * c->n_streams;

        vec_scale(f->model->table, modes, 1 / (float)c->hidden, c->n_streams);
        vec_cap(f->model->table, modes, 1, c->n_streams);
    }
}

static void altup_route(struct forward *f)
{
    const float *input = forward_norm(f, SLOT_ALTUP_ROUTER_NORM);

    forward_matmul(f, &f->layer->groups[GROUP_ALTUP_ROUTER], input, f->model->config.hidden,
                   f->state->altup.modes);
    forward_rows(f, altup_mode_rows);
}

/* One number of a small matrix times the modes. */
static float altup_coefficient(const float *matrix, size_t row, const float *modes, uint32_t n)
{
    float sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += matrix[row * n + i] * modes[i];
    return sum;
}

static void altup_predict_row(const struct forward *f, const float *modes, float *streams)
{
    const uint32_t n = f->model->config.n_streams, hidden = f->model->config.hidden;
    float by[ALTUP_MOST_STREAMS][ALTUP_MOST_STREAMS];

    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n; j++)
            by[i][j] = altup_coefficient(f->layer->vectors[SLOT_ALTUP_PREDICT], (size_t)i * n + j, modes, n);
    for (size_t k = 0; k < hidden; k++) {
        float old[ALTUP_MOST_STREAMS];

        for (uint32_t j = 0; j < n; j++)
            old[j] = streams[j * (size_t)hidden + k];
        for (uint32_t i = 0; i < n; i++) {
            float sum = 0;

            for (uint32_t j = 0; j < n; j++)
                sum += old[j] * by[i][j];
            streams[i * (size_t)hidden + k] = old[i] + sum;
        }
    }
}

static void altup_predict_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const size_t hidden = f->model->config.hidden;

    for (size_t row = from; row < to; row++) {
        float *streams = f->state->altup.streams + row * altup_width(f);

        altup_predict_row(f, f->state->altup.modes + row * f->model->config.n_streams, streams);
        memcpy(f->state->x + row * hidden, streams, hidden * sizeof(*streams));
    }
}

static void laurel_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const uint32_t hidden = f->model->config.hidden;
    const struct layer_gain gain = {.gain = f->layer->vectors[SLOT_LAUREL_NORM]};

    for (size_t row = from; row < to; row++) {
        float *laurel = f->state->altup.laurel + row * hidden;

        forward_norm_row(f->model, laurel, &gain, hidden, laurel);
        vec_add(f->model->table, laurel, f->state->normed + row * hidden, hidden);
    }
}

static void laurel_add_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const uint32_t hidden = f->model->config.hidden;

    for (size_t row = from; row < to; row++) {
        float *x = f->state->x + row * hidden;

        vec_add(f->model->table, x, f->state->altup.laurel + row * hidden, hidden);
        vec_scale(f->model->table, x, sqrtf(0.5f), hidden);
    }
}

static void forward_altup(struct forward *f, uint32_t layer)
{
    const struct model_config *c = &f->model->config;
    struct altup_state *altup = &f->state->altup;
    const float *input;

    altup_route(f);
    forward_rows(f, altup_predict_rows);
    input = forward_norm(f, SLOT_ATTN_NORM);
    forward_matmul(f, &f->layer->groups[GROUP_LAUREL_LEFT], input, c->hidden, altup->low);
    forward_matmul(f, &f->layer->groups[GROUP_LAUREL_RIGHT], altup->low, c->laurel_rank, altup->laurel);
    forward_rows(f, laurel_rows);
    forward_attn(f, layer);
    if (f->n_rows > 0)
        forward_rows(f, laurel_add_rows);
}

/* ---- the end of a layer ---- */

static void altup_correct_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const uint32_t n = f->model->config.n_streams, hidden = f->model->config.hidden;
    const float *scale = f->layer->vectors[SLOT_ALTUP_SCALE];

    for (size_t row = from; row < to; row++) {
        float *streams = f->state->altup.streams + row * altup_width(f), *x = f->state->x + row * hidden;
        const float *modes = f->state->altup.modes + row * n;
        float by[ALTUP_MOST_STREAMS];

        for (uint32_t i = 0; i < n; i++)
            by[i] = 1 + altup_coefficient(f->layer->vectors[SLOT_ALTUP_CORRECT], i, modes, n);
        for (size_t k = 0; k < hidden; k++) {
            float more = x[k] - streams[k];

            for (uint32_t i = 0; i < n; i++)
                streams[i * (size_t)hidden + k] += more * by[i];
            f->state->normed[row * hidden + k] = streams[k] * scale[k];
        }
    }
}

static void altup_add_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const uint32_t hidden = f->model->config.hidden;
    const struct layer_gain gain = {.gain = f->layer->vectors[SLOT_INPUT_NORM]};

    for (size_t row = from; row < to; row++) {
        float *streams = f->state->altup.streams + row * altup_width(f);
        float *more = f->state->normed + row * hidden;

        forward_norm_row(f->model, more, &gain, hidden, more);
        for (size_t at = hidden; at < altup_width(f); at += hidden)
            vec_add(f->model->table, streams + at, more, hidden);
        memcpy(f->state->x + row * hidden, streams, hidden * sizeof(*streams));
    }
}

/* projected has the streams one after another here. */
static void altup_end_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const uint32_t n = f->model->config.n_streams, hidden = f->model->config.hidden;

    for (size_t row = from; row < to; row++) {
        float *x = f->state->x + row * hidden;
        double target = sqrt(altup_mean_square(x, hidden));

        for (size_t i = 0; i + 1 < n; i++) {
            float *other = f->state->altup.projected + (i * f->state->max_tokens + row) * hidden;

            altup_rescale(f, other, target);
            vec_add(f->model->table, x, other, hidden);
        }
        vec_scale(f->model->table, x, 1 / (float)n, hidden);
    }
}

static void altup_end(struct forward *f)
{
    const size_t hidden = f->model->config.hidden, width = altup_width(f);
    struct altup_state *altup = &f->state->altup;

    for (size_t i = 0; i + 1 < f->model->config.n_streams; i++)
        forward_matmul(f, &f->model->altup_out[i], altup->streams + (i + 1) * hidden, width,
                       altup->projected + i * f->state->max_tokens * hidden);
    forward_rows(f, altup_end_rows);
}

static void forward_altup_tail(struct forward *f, uint32_t layer)
{
    const struct model_config *c = &f->model->config;

    altup_route(f);
    forward_rows(f, altup_correct_rows);
    forward_tail_product(f, f->state->normed);
    forward_rows(f, altup_add_rows);
    if (layer + 1 == c->n_layers)
        altup_end(f);
}

/* ---- weights and scratch ---- */

void altup_lay_out(const struct model *model, struct model_state *state, struct carving *carving)
{
    const struct model_config *c = &model->config;
    const size_t rows = state->max_tokens, width = (size_t)c->n_streams * c->hidden;

    if (c->n_streams == 0)
        return;
    state->altup.streams = carve(carving, rows * width * sizeof(float));
    state->altup.projected = carve(carving, rows * (width - c->hidden) * sizeof(float));
    state->altup.laurel = carve(carving, rows * c->hidden * sizeof(float));
    state->altup.low = carve(carving, rows * c->laurel_rank * sizeof(float));
    state->altup.modes = carve(carving, rows * c->n_streams * sizeof(float));
}

static int altup_pack_part(struct loading *load, const struct gguf_tensor *tensor, uint32_t first, uint32_t n,
                           struct weight_group *out)
{
    const struct dtype_info *info = dtype_info(tensor->type);
    size_t row_bytes = tensor->dims[0] / info->qblk_weights * info->qblk_bytes;
    uint32_t rows = (uint32_t)tensor->dims[1];
    const struct weight_part part = {.data = (const uint8_t *)tensor->data + (size_t)first * rows * row_bytes,
                                     .rows = n * rows};
    int rc = weights_matrix(load, tensor, weights_packing(tensor, &part, 1), &out->parts[0]);

    if (rc < 0)
        return rc;
    out->n_parts = 1;
    out->rows = part.rows;
    load->model->config.weight_bytes += out->parts[0].len_bytes;
    return 0;
}

int altup_pack(struct loading *load)
{
    const struct gguf_tensor *tensors[2] = {load->globals[GLOBAL_ALTUP_IN], load->globals[GLOBAL_ALTUP_OUT]};
    struct model *model = load->model;
    uint32_t n = model->config.n_streams - 1;
    int rc;

    if (tensors[0] == NULL)
        return 0;
    rc = altup_pack_part(load, tensors[0], 0, n, &model->altup_in);
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = altup_pack_part(load, tensors[1], i, 1, &model->altup_out[i]);
    return rc < 0 ? rc : weights_packed(load, tensors, 2);
}

size_t altup_products_bytes(const struct model *model, uint32_t n, uint32_t n_ranks)
{
    size_t most = 0;

    for (uint32_t i = 0; i < model->config.n_streams; i++) {
        const struct weight_group *group = i == 0 ? &model->altup_in : &model->altup_out[i - 1];
        size_t len_bytes = matmul_scratch_bytes(&group->parts[0], n, n_ranks);

        most = len_bytes > most ? len_bytes : most;
    }
    return most;
}

void altup_fini(struct model *model)
{
    weight_fini(&model->altup_in.parts[0]);
    for (uint32_t i = 0; i < ALTUP_MOST_STREAMS; i++)
        weight_fini(&model->altup_out[i].parts[0]);
}

#define ALTUP_SLOTS                                                                                          \
    (SLOT_BIT(Q) | SLOT_BIT(OUT) | SLOT_BIT(ALTUP_ROUTER) | SLOT_BIT(ALTUP_ROUTER_NORM) |                    \
     SLOT_BIT(ALTUP_PREDICT) | SLOT_BIT(LAUREL_LEFT) | SLOT_BIT(LAUREL_RIGHT) | SLOT_BIT(LAUREL_NORM))

const struct half attn_altup = {
    .name = "grouped, values normed, one of several streams",
    .first = GROUP_ALTUP_ROUTER,
    .needs = ALTUP_SLOTS | SLOT_BIT(K) | SLOT_BIT(V) | SLOT_BIT(K_NORM),
    .forward = forward_altup,
};

const struct half attn_altup_shared = {
    .name = "grouped, keys and values of another layer, one of several streams",
    .first = GROUP_ALTUP_ROUTER,
    .needs = ALTUP_SLOTS,
    .forward = forward_altup,
    .knows = attn_knows_unread,
};

const struct half tail_altup = {
    .name = "streams",
    .needs = SLOT_BIT(ALTUP_CORRECT) | SLOT_BIT(ALTUP_SCALE) | SLOT_BIT(INPUT_GATE) | SLOT_BIT(INPUT_PROJ) |
             SLOT_BIT(INPUT_NORM),
    .forward = forward_altup_tail,
};
