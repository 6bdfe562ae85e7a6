/* SPDX-License-Identifier: Apache-2.0 */
/* The attention half of a layer. Hot path.
 *
 *     normed [n][hidden]         = rmsnorm(x)
 *     qkv    [n][(H + 2 KV) D]   = normed . Wqkv^T (+ bias)        H heads, KV kv-heads, D head_dim
 *       q [n][H][D] | k [n][KV][D] | v [n][KV][D], side by side in each row
 *     q, k normed per head where the model has such norms, then turned by the sines of their position
 *     k, v stored into the sequence's blocks
 *     on_layer: this layer's KV of the whole step is in memory and may be sent while the rest is computed
 *     attended [n][H][D]         = softmax(q . k^T / sqrt(D)) . v  over the block table, causal
 *     x                         += attended . Wo^T
 *
 * K is stored rotated, so a query at any later position can attend to a block without knowing the block's
 * position.
 *
 * A layer with a window stores the keys and values of all tokens like any other layer.  The window limits what
 * is read.  Where such layers have blocks of their own (cache/kv/window.h), each group of them has a block table,
 * and the caller may have released the blocks behind the window. */
#include "compute/model/model_priv.h"

#include "base/check.h"
#include "cache/kv/window.h"

#include <string.h>

/* The part of the next matrix that is prefetched before attention is still cached after it. */
enum { FEW_KEYS_BYTES = 4 << 20 };

struct qkv_shape {  /* floats */
    size_t q, k, v; /* of one row; v: as wide as k in most models */
    size_t out;     /* what attention gives */
    size_t stride;
};

/* The widths of q, k and v.  A layer that reads another layer's keys has no k and v; values may be the keys. */
static struct qkv_shape qkv_shape(const struct forward *f)
{
    const struct layer *layer = f->layer;

    const size_t n_stored = layer->is_shared ? 0 : layer->n_kv_heads;

    return (struct qkv_shape){.q = (size_t)layer->n_heads * layer->head_dim,
                              .k = n_stored * layer->head_dim,
                              .v = n_stored * layer_value_dim(layer),
                              .out = (size_t)layer->n_heads * layer_value_dim(layer),
                              .stride = layer->groups[GROUP_QKV].rows};
}

static bool values_are_keys(const struct qkv_shape *shape)
{
    return shape->stride == shape->q + shape->k && shape->k != 0;
}

/* The norms that a model may have on the heads of q, or of k: at most one of the three. */
struct head_norms {
    enum slot each, wide, heads; /* one gain for all heads; one norm over all heads; a gain for each head */
};

static void norm_heads(const struct forward *f, float *heads, uint32_t n_heads, struct head_norms norms)
{
    const float *const *vectors = f->layer->vectors;
    const uint32_t head_dim = f->layer->head_dim;
    const float *gain = vectors[norms.each] ? vectors[norms.each] : vectors[norms.heads];
    const size_t step = vectors[norms.each] ? 0 : head_dim;

    if (vectors[norms.wide])
        forward_norm_row(f->model, heads, &(struct layer_gain){.gain = vectors[norms.wide]},
                         n_heads * head_dim, heads);
    for (uint32_t i = 0; gain && i < n_heads; i++)
        forward_norm_row(f->model, heads + (size_t)i * head_dim,
                         &(struct layer_gain){.gain = gain + i * step}, head_dim,
                         heads + (size_t)i * head_dim);
}

/* Norms the values, without a gain, in models that do so. */
static void norm_values(const struct forward *f, size_t row, const struct qkv_shape *shape)
{
    const uint32_t head_dim = f->layer->head_dim;
    const struct layer_gain gain = {.gain = f->model->ones};
    float *keys = f->state->qkv + row * shape->stride + shape->q, *v = keys + shape->k;

    if (values_are_keys(shape)) {
        v = f->state->values + row * shape->v;
        memcpy(v, keys, shape->v * sizeof(float));
    }
    for (size_t at = 0; at < shape->v; at += head_dim)
        forward_norm_row(f->model, v + at, &gain, head_dim, v + at);
}

/* The heads of q, and those of k after them. */
static void norm_row(const struct forward *f, float *q)
{
    norm_heads(f, q, f->layer->n_heads,
               (struct head_norms){SLOT_Q_NORM, SLOT_Q_NORM_WIDE, SLOT_Q_NORM_HEADS});
    if (!f->layer->is_shared)
        norm_heads(f, q + qkv_shape(f).q, f->layer->n_kv_heads,
                   (struct head_norms){SLOT_K_NORM, SLOT_K_NORM_WIDE, SLOT_K_NORM_HEADS});
}

/* Norms without a gain on the heads of q and k (llama4). */
static void unit_norm_row(const struct forward *f, float *heads, uint32_t n_heads)
{
    const struct layer_gain gain = {.gain = f->model->ones};
    const uint32_t head_dim = f->layer->head_dim;

    for (uint32_t i = 0; i < n_heads; i++, heads += head_dim)
        forward_norm_row(f->model, heads, &gain, head_dim, heads);
}

/* NaN stays. */
static void attn_clamp_row(float *x, size_t n, float bound)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] > bound ? bound : x[i] < -bound ? -bound : x[i];
}

static void bias_norm_rotate(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model *model = f->model;
    const struct model_config *c = &model->config;
    const float *const *vectors = f->layer->vectors;
    const float *bias = vectors[SLOT_QKV_BIAS] ? vectors[SLOT_QKV_BIAS] : vectors[SLOT_Q_BIAS];
    struct qkv_shape shape = qkv_shape(f);
    enum rope_kind rope = f->layer->rope;
    uint32_t n_heads = f->layer->n_heads + (f->layer->is_shared ? 0 : f->layer->n_kv_heads);

    for (size_t row = from; row < to; row++) {
        float *q = f->state->qkv + row * shape.stride;

        if (bias) /* K's and V's biases follow Q's */
            vec_add(model->table, q, bias, (uint32_t)shape.stride);
        if (c->qkv_clamp != 0)
            attn_clamp_row(q, shape.stride, c->qkv_clamp);
        if (c->value_scale != 0)
            vec_scale(model->table, q + shape.q + shape.k, c->value_scale, (uint32_t)shape.v);
        if (model->norms_values)
            norm_values(f, row, &shape);
        if (!model->arch->norms_turned)
            norm_row(f, q);
        if (rope != ROPE_NONE) { /* K's heads follow Q's and turn by the same angles */
            struct rope_args turn = forward_rope(f, rope, row);

            turn.x = q;
            turn.n_heads = n_heads;
            turn.head_dim = f->layer->head_dim;
            rope_rotate(model->table, &turn);
        }
        if (model->arch->norms_turned)
            norm_row(f, q);
        if (f->layer->is_unit_normed)
            unit_norm_row(f, q, n_heads);
    }
}

static void forward_attn_store(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model *model = f->model;
    struct qkv_shape shape = qkv_shape(f);
    bool is_same = values_are_keys(&shape);

    for (uint32_t i = 0; i < f->pass->n_items && shape.k != 0; i++) {
        const struct attn_item *item = &f->state->items[i];
        uint32_t first = item->first > from ? item->first : from;
        uint32_t end = item->first + item->n_tokens < to ? item->first + item->n_tokens : to;
        const float *row = f->state->qkv + first * shape.stride;

        if (first >= end)
            continue;
        kv_store(&(struct kv_store_args){.table = model->table,
                                         .kv_layer = f->kv_layer,
                                         .block_bytes = kv_layout_layer_block_bytes(&model->layout),
                                         .kv_type = model_kv_dtype(model),
                                         .n_kv_heads = f->layer->n_kv_heads,
                                         .k_dim = f->layer->head_dim,
                                         .v_dim = layer_value_dim(f->layer),
                                         .block_tokens = model->layout.block_tokens,
                                         .blocks = item->blocks,
                                         .position = item->position + (first - item->first),
                                         .n = end - first,
                                         .k = row + shape.q,
                                         .v = is_same ? f->state->values + first * shape.v
                                                      : row + shape.q + shape.k,
                                         .k_stride = shape.stride,
                                         .v_stride = is_same ? shape.v : shape.stride});
    }
}

/* Scales queries by their position, in models and layers that do so. */
static void forward_attn_scale_queries(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model *model = f->model;
    const struct rope *rope = &model->ropes[ROPE_GLOBAL];
    struct qkv_shape shape = qkv_shape(f);

    if (rope->scales_unturned && f->layer->rope != ROPE_NONE)
        return;
    for (uint32_t i = 0; rope->temperature_scale != 0 && i < f->pass->n_items; i++) {
        const struct attn_item *item = &f->state->items[i];
        uint32_t row = item->first > from ? item->first : from;

        for (; row < to && row < item->first + item->n_tokens; row++)
            vec_scale(model->table, f->state->qkv + row * shape.stride,
                      rope_temperature(rope, item->position + (row - item->first)), (uint32_t)shape.q);
    }
}

/* Each row's K and V have their own place, so ranks store in parallel. */
static void prepare_and_store(const struct forward *f, uint32_t from, uint32_t to)
{
    bias_norm_rotate(f, from, to);
    forward_attn_scale_queries(f, from, to);
    forward_attn_store(f, from, to);
}

/* Bytes of the keys and values that all queries of the step read. */
static uint64_t forward_attn_attend_bytes(const struct forward *f, size_t q_floats)
{
    const struct kv_layout *layout = &f->model->layout;
    uint64_t n_keys = 0;

    for (uint32_t i = 0; i < f->n_items; i++) {
        const struct attn_item *item = &f->state->items[i];
        uint32_t seen = item->position + item->n_tokens;

        if (f->layer->window != 0 && f->layer->window < seen)
            seen = f->layer->window;
        n_keys += (uint64_t)item->n_tokens * seen;
    }
    return n_keys * q_floats * 2 * kv_layout_row_bytes(layout->type, layout->k_dim) / layout->k_dim;
}

/* In a layer with chunks, a query attends to the keys of its own chunk of window tokens. Keys are stored turned,
 * so a chunk is a sequence of its own that begins at one of the blocks. Returns the number of parts. */
static uint32_t cut_chunks(const struct forward *f)
{
    const uint32_t chunk = f->layer->window, per = f->model->layout.block_tokens;
    uint32_t n = 0;

    for (uint32_t i = 0; i < f->n_items; i++)
        for (uint32_t at = 0, end; at < f->state->items[i].n_tokens; at = end) {
            const struct attn_item *item = &f->state->items[i];
            uint32_t begin = (item->position + at) / chunk * chunk;

            end = begin + chunk - item->position < item->n_tokens ? begin + chunk - item->position
                                                                  : item->n_tokens;
            f->state->chunk_items[n++] = (struct attn_item){.first = item->first + at,
                                                            .n_tokens = end - at,
                                                            .position = item->position + at - begin,
                                                            .blocks = item->blocks + begin / per};
        }
    return n;
}

static void forward_attn_attend(const struct forward *f)
{
    const struct model *model = f->model;
    const bool is_chunked = model->config.is_chunked && f->layer->window != 0;
    struct qkv_shape shape = qkv_shape(f);
    struct team *team = forward_team(f, forward_attn_attend_bytes(f, shape.q));
    const struct weight *next = f->n_rows == 1 ? forward_first(f, f->layer, GROUP_OUT) : NULL;

    attention(team, &(struct attn_args){.table = model->table,
                                        .q = f->state->qkv,
                                        .q_stride = shape.stride,
                                        .out = f->state->attended,
                                        .out_stride = shape.out,
                                        .kv_layer = f->kv_layer,
                                        .block_bytes = kv_layout_layer_block_bytes(&model->layout),
                                        .kv_type = model_kv_dtype(model),
                                        .n_heads = f->layer->n_heads,
                                        .n_kv_heads = f->layer->n_kv_heads,
                                        .k_dim = f->layer->head_dim,
                                        .v_dim = layer_value_dim(f->layer),
                                        .block_tokens = model->layout.block_tokens,
                                        .sinks = f->layer->vectors[SLOT_SINKS],
                                        .scale = model->config.attn_scale,
                                        .cap = model->config.attn_cap,
                                        .window = is_chunked ? 0 : f->layer->window,
                                        .items = is_chunked ? f->state->chunk_items : f->state->items,
                                        .n_items = is_chunked ? cut_chunks(f) : f->n_items,
                                        .scratch = f->state->attn_scratch,
                                        .scratch_bytes = f->state->attn_scratch_bytes,
                                        .next = next});
}

static void out_bias_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    uint32_t hidden = f->model->config.hidden;
    float *out = f->state->branch ? f->state->branch : f->state->normed;

    for (size_t row = from; row < to; row++)
        vec_add(f->model->table, out + row * hidden, f->layer->vectors[SLOT_OUT_BIAS], hidden);
}

/* A gate for each head. */
static void attn_gate_heads(const struct forward *f, const float *gates, float *out)
{
    const uint32_t value_dim = layer_value_dim(f->layer);

    for (uint32_t i = 0; i < f->layer->n_heads; i++) {
        float share = 1;

        vec_gate(f->model->table, &share, gates + i, 1);
        vec_scale(f->model->table, out + (size_t)i * value_dim, share, value_dim);
    }
}

/* The gates of the heads follow v in each row. */
static void attn_gate_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct qkv_shape shape = qkv_shape(f);
    const size_t at = shape.q + shape.k + shape.v;

    for (size_t row = from; row < to; row++) {
        const float *gates = f->state->qkv + row * shape.stride + at;
        float *out = f->state->attended + row * shape.out;

        if (shape.stride - at == shape.out)
            vec_gate(f->model->table, out, gates, (uint32_t)shape.out);
        else
            attn_gate_heads(f, gates, out);
    }
}

/* Finds the layer's part of the arena, and the block tables that its group uses. */
static void forward_attn_place(struct forward *f)
{
    const struct model_pass *pass = f->pass;
    const struct kv_layout *layout = &f->model->layout;
    const uint32_t index = f->layer->kv_index, n_full = layout->n_layers;
    const bool is_apart = index >= n_full;

    f->kv_layer = (uint8_t *)pass->kv_arena + kv_layout_offset(layout, pass->n_blocks, index % n_full, 0);
    for (uint32_t i = 0; i < pass->n_items && layout->n_window_layers > 0; i++) {
        const struct model_item *item = &pass->items[i];
        size_t group = is_apart ? index / n_full - 1 : 0;

        f->state->items[i].blocks = is_apart ? item->windows + group * item->window_stride : item->blocks;
    }
}

void forward_attn(struct forward *f, uint32_t layer)
{
    const struct model_pass *pass = f->pass;
    struct model_state *state = f->state;
    const float *const *vectors = f->layer->vectors;
    struct qkv_shape shape = qkv_shape(f);
    const bool is_gated = shape.stride > shape.q + shape.k + shape.v;
    const float *input = /* x, if the model norms only outputs */
        forward_norm(f, vectors[SLOT_ATTN_NORM_2] ? SLOT_ATTN_NORM_2 : SLOT_ATTN_NORM);

    if (forward_attn_attend_bytes(f, shape.q) < FEW_KEYS_BYTES)
        f->next = forward_first(f, f->layer, GROUP_OUT);
    forward_matmul(f, &f->layer->groups[GROUP_QKV], input, f->model->config.hidden, state->qkv);
    forward_attn_place(f);
    forward_rows(f, prepare_and_store);
    if (pass->on_layer && !f->layer->is_shared)
        pass->on_layer(pass->on_layer_arg, f->layer->kv_index);
    if (layer + 1 == f->model->config.n_layers)
        forward_narrow(f, state->qkv, is_gated ? shape.stride : shape.q, shape.stride);
    if (f->n_rows == 0)
        return;
    forward_attn_attend(f);
    if (is_gated)
        forward_rows(f, attn_gate_rows);
    f->next = forward_first(f, f->layer, f->layer->ffn->first);
    forward_matmul(f, &f->layer->groups[GROUP_OUT], state->attended, shape.out,
                   state->branch ? state->branch : state->normed);
    if (vectors[SLOT_OUT_BIAS])
        forward_rows(f, out_bias_rows);
    if (state->branch ==
        NULL) /* otherwise the feed-forward half reads the unchanged x, and adds both results */
        forward_finish(f, vectors[SLOT_POST_ATTN_NORM]);
}

const struct half attn_grouped = {
    .name = "grouped",
    .first = GROUP_QKV,
    .needs = SLOT_BIT(OUT),
    .usual = SLOT_BIT(Q) | SLOT_BIT(K) | SLOT_BIT(V),
    .may = SLOT_BIT(QKV) | SLOT_BIT(QKV_BIAS),
    .forward = forward_attn,
};

#define PLAIN (SLOT_BIT(Q) | SLOT_BIT(K) | SLOT_BIT(OUT) | SLOT_BIT(K_NORM))

const struct half attn_values_normed = {
    .name = "grouped, values normed",
    .first = GROUP_QKV,
    .needs = PLAIN | SLOT_BIT(V),
    .forward = forward_attn,
};

const struct half attn_values_may = {
    .name = "grouped, values normed, or keys",
    .first = GROUP_QKV,
    .needs = PLAIN,
    .may = SLOT_BIT(V),
    .forward = forward_attn,
};

/* Some files have tensors that no layer of this kind reads. */
bool attn_knows_unread(const struct loading *load, struct bytes suffix)
{
    static const enum slot UNREAD[] = {SLOT_K, SLOT_V, SLOT_K_NORM};

    (void)load;
    for (size_t i = 0; i < ARRAY_LEN(UNREAD); i++)
        if (bytes_is(suffix, SLOTS[UNREAD[i]].suffix))
            return true;
    return false;
}

const struct half attn_shared = {
    .name = "grouped, keys and values of another layer",
    .first = GROUP_QKV,
    .needs = SLOT_BIT(Q) | SLOT_BIT(OUT),
    .forward = forward_attn,
    .knows = attn_knows_unread,
};

const struct half attn_grouped_fused = {
    .name = "grouped, q, k and v in one",
    .first = GROUP_QKV,
    .needs = SLOT_BIT(OUT),
    .usual = SLOT_BIT(QKV),
    .may = SLOT_BIT(Q) | SLOT_BIT(K) | SLOT_BIT(V),
    .forward = forward_attn,
};

const struct half attn_grouped_gated = {
    .name = "grouped, with gates in a tensor of their own",
    .first = GROUP_QKV,
    .needs = SLOT_BIT(Q) | SLOT_BIT(K) | SLOT_BIT(V) | SLOT_BIT(OUT) | SLOT_BIT(ATTN_GATE),
    .forward = forward_attn,
    .has_gates = true,
};

const struct half attn_grouped_head_gated = {
    .name = "grouped, with a gate for each head",
    .first = GROUP_QKV,
    .needs = SLOT_BIT(OUT),
    .usual = SLOT_BIT(Q) | SLOT_BIT(K) | SLOT_BIT(V) | SLOT_BIT(HEAD_GATE),
    .may = SLOT_BIT(QKV),
    .forward = forward_attn,
    .has_gates = true,
};

const struct half attn_grouped_normed = {
    .name = "grouped, with norms on the heads",
    .first = GROUP_QKV,
    .needs = SLOT_BIT(Q) | SLOT_BIT(K) | SLOT_BIT(V) | SLOT_BIT(OUT) | SLOT_BIT(Q_NORM) | SLOT_BIT(K_NORM),
    .forward = forward_attn,
};

#define BIASES (SLOT_BIT(Q_BIAS) | SLOT_BIT(K_BIAS) | SLOT_BIT(V_BIAS) | SLOT_BIT(OUT_BIAS))

const struct half attn_grouped_biased = {
    .name = "grouped, with biases",
    .first = GROUP_QKV,
    .needs = SLOT_BIT(Q) | SLOT_BIT(K) | SLOT_BIT(V) | SLOT_BIT(OUT) | BIASES,
    .forward = forward_attn,
};

const struct half attn_grouped_fused_biased = {
    .name = "grouped, q, k and v in one, with biases",
    .first = GROUP_QKV,
    .needs = SLOT_BIT(QKV) | SLOT_BIT(OUT) | SLOT_BIT(QKV_BIAS) | SLOT_BIT(OUT_BIAS),
    .forward = forward_attn,
};
