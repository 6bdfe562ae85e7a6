/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head latent attention (DeepSeek-AI 2024), computed in the latent space. Hot path.
 *
 *     normed [n][hidden]  = rmsnorm(x)
 *     low    [n]          = normed . (Wq or Wq_a, Wkv_a)^T:      q | c | k_rope     side by side in each row
 *     c = rmsnorm(c), k_rope turned: (c, k_rope) is the one key of a token for all heads; only it is stored
 *     q      [n][H][nope + rope] = low's q as it is, or rmsnorm(it) . Wq_b^T
 *     q'     [n][H][latent + rope] = (Wk^T q_nope, q_rope turned)         per head
 *     mean   [n][H][latent]  = softmax(scale q' . key) c                  every head attends to the same keys
 *     values [n][H][value]   = Wv mean                                    per head
 *     x                     += values . Wo^T
 *
 * So the cache holds one key of latent + rope numbers per token and layer (V2: 576 instead of 40960).
 * Attention's values are the first `latent` numbers of its keys. A prompt and a single token are computed
 * the same way and get the same bits. Expanding keys and values for long prompts would save
 * multiplications but break this. */
#include "compute/model/model_priv.h"

#include <string.h>

static uint32_t q_width(const struct model_config *c) /* floats of the query part of low */
{
    return c->q_latent ? c->q_latent : c->n_heads * c->head_dim;
}

static uint32_t key_width(const struct model_config *c)
{
    return c->latent + c->rope_dims;
}

uint32_t latent_low_width(const struct model_config *c)
{
    return q_width(c) + key_width(c);
}

/* ---- before attention ---- */

static void forward_mla_store(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model *model = f->model;
    const struct model_config *c = &model->config;
    size_t stride = latent_low_width(c);

    for (uint32_t i = 0; i < f->pass->n_items; i++) {
        const struct attn_item *item = &f->state->items[i];
        uint32_t first = item->first > from ? item->first : from;
        uint32_t end = item->first + item->n_tokens < to ? item->first + item->n_tokens : to;

        if (first >= end)
            continue;
        kv_store(&(struct kv_store_args){.table = model->table,
                                         .kv_layer = f->kv_layer,
                                         .block_bytes = kv_layout_layer_block_bytes(&model->layout),
                                         .kv_type = model_kv_dtype(model),
                                         .v_in_k = true,
                                         .n_kv_heads = 1,
                                         .k_dim = key_width(c),
                                         .v_dim = c->latent,
                                         .block_tokens = model->layout.block_tokens,
                                         .blocks = item->blocks,
                                         .position = item->position + (first - item->first),
                                         .n = end - first,
                                         .k = f->state->latent.low + first * stride + q_width(c),
                                         .k_stride = stride});
    }
}

static void norm_and_store(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model *model = f->model;
    const struct model_config *c = &model->config;
    const float *const *vectors = f->layer->vectors;

    for (size_t row = from; row < to; row++) {
        float *q = f->state->latent.low + row * latent_low_width(c), *key = q + q_width(c);
        struct rope_args turn = forward_rope(f, ROPE_GLOBAL, row);

        if (c->q_latent)
            rms_norm(model->table, q, vectors[SLOT_Q_A_NORM], c->q_latent, c->latent_eps, q);
        rms_norm(model->table, key, vectors[SLOT_KV_A_NORM], c->latent, c->latent_eps, key);
        turn.x = key + c->latent;
        turn.n_heads = 1;
        turn.head_dim = turn.dims = c->rope_dims;
        if (f->layer->rope != ROPE_NONE)
            rope_rotate(model->table, &turn);
    }
    forward_mla_store(f, from, to);
}

/* Address of the queries before they are mapped into the latent space. */
static float *plain_q(const struct forward *f, size_t *stride_out)
{
    const struct model_config *c = &f->model->config;

    *stride_out = c->q_latent ? (size_t)c->n_heads * c->head_dim : latent_low_width(c);
    return c->q_latent ? f->state->qkv : f->state->latent.low;
}

/* Scales queries by their position, in models that do so. */
static void forward_mla_scale_queries(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct rope *rope = &f->model->ropes[ROPE_GLOBAL];
    const struct model_config *c = &f->model->config;
    size_t stride;
    float *plain = plain_q(f, &stride);

    for (uint32_t i = 0; rope->temperature_scale != 0 && i < f->pass->n_items; i++) {
        const struct attn_item *item = &f->state->items[i];
        uint32_t row = item->first > from ? item->first : from;

        for (; row < to && row < item->first + item->n_tokens; row++)
            vec_scale(f->model->table, plain + row * stride,
                      rope_temperature(rope, item->position + (row - item->first)), c->n_heads * c->head_dim);
    }
}

/* Turns the RoPE part of queries and copies it behind the place of the latent part. */
static void turn_queries(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model *model = f->model;
    const struct model_config *c = &model->config;
    size_t stride, width = key_width(c);
    float *plain = plain_q(f, &stride);

    forward_mla_scale_queries(f, from, to);
    for (size_t row = from; row < to; row++) {
        float *rotary = plain + row * stride + c->head_dim - c->rope_dims;
        float *out = f->state->latent.q + row * c->n_heads * width + c->latent;
        struct rope_args turn = forward_rope(f, ROPE_GLOBAL, row);

        turn.x = rotary;
        turn.n_heads = c->n_heads;
        turn.head_dim = c->head_dim;
        turn.dims = c->rope_dims;
        if (f->layer->rope != ROPE_NONE)
            rope_rotate(model->table, &turn);
        for (uint32_t h = 0; h < c->n_heads; h++)
            memcpy(out + h * width, rotary + (size_t)h * c->head_dim, c->rope_dims * sizeof(float));
    }
}

/* ---- per head, in and out ---- */

struct heads { /* one part of each head, in each row */
    float *at;
    size_t row, head; /* floats from one to the next */
};

/* y of each head = x of each head . its rows of the weight */
static void multiply_heads(const struct forward *f, const struct weight *weight, struct heads x,
                           struct heads y)
{
    uint32_t n_heads = f->model->config.n_heads, rows = weight->rows / n_heads;
    struct latent_state *state = &f->state->latent;

    for (uint32_t h = 0; h < n_heads; h++)
        state->pieces[h] = (struct grouped_piece){.weight = weight,
                                                  .first_row = h * rows,
                                                  .n_rows = rows,
                                                  .n = f->n_rows,
                                                  .x = x.at + h * x.head,
                                                  .x_stride = x.row,
                                                  .y = y.at + h * y.head,
                                                  .y_stride = y.row};
    matmul_grouped(
        forward_team(f, (uint64_t)weight->rows * weight->cols * f->n_rows),
        &(struct grouped_args){.pieces = state->pieces,
                               .n_pieces = n_heads,
                               .solos = f->state->solos,
                               .max_cols = key_width(&f->model->config) + f->model->config.head_dim,
                               .scratch = state->grouped_scratch});
}

static void into_latent(const struct forward *f)
{
    const struct model_config *c = &f->model->config;
    size_t width = key_width(c);
    struct heads plain = {.head = c->head_dim};

    plain.at = plain_q(f, &plain.row);
    multiply_heads(f, &f->layer->latent.into, plain,
                   (struct heads){f->state->latent.q, c->n_heads * width, width});
}

static void out_of_latent(const struct forward *f)
{
    const struct model_config *c = &f->model->config;

    multiply_heads(f, &f->layer->latent.out_of,
                   (struct heads){f->state->latent.attended, (size_t)c->n_heads * c->latent, c->latent},
                   (struct heads){f->state->latent.values, (size_t)c->n_heads * c->value_dim, c->value_dim});
}

/* ---- the half ---- */

/* Work of all queries of the step, expressed as bytes read. */
uint64_t latent_attend_bytes(const struct forward *f)
{
    const struct model_config *c = &f->model->config;
    uint64_t n_keys = 0;

    for (uint32_t i = 0; i < f->pass->n_items; i++) {
        const struct attn_item *item = &f->state->items[i];

        n_keys += (uint64_t)item->n_tokens * (item->position + item->n_tokens);
    }
    return n_keys * c->n_heads * key_width(c) * 2;
}

struct attn_args latent_attn_args(const struct forward *f)
{
    const struct model *model = f->model;
    const struct model_config *c = &model->config;

    return (struct attn_args){.table = model->table,
                              .q = f->state->latent.q,
                              .q_stride = (size_t)c->n_heads * key_width(c),
                              .out = f->state->latent.attended,
                              .out_stride = (size_t)c->n_heads * c->latent,
                              .kv_layer = f->kv_layer,
                              .block_bytes = kv_layout_layer_block_bytes(&model->layout),
                              .kv_type = model_kv_dtype(model),
                              .v_in_k = true,
                              .n_heads = c->n_heads,
                              .n_kv_heads = 1,
                              .k_dim = key_width(c),
                              .v_dim = c->latent,
                              .block_tokens = model->layout.block_tokens,
                              .scale = c->attn_scale,
                              .items = f->state->items,
                              .n_items = f->pass->n_items,
                              .scratch = f->state->attn_scratch,
                              .scratch_bytes = f->state->attn_scratch_bytes};
}

static void forward_mla_attend(const struct forward *f)
{
    const struct attn_args args = latent_attn_args(f);

    attention(forward_team(f, latent_attend_bytes(f)), &args);
}

static void forward_latent(struct forward *f, uint32_t layer)
{
    const struct model_pass *pass = f->pass;
    const struct model_config *c = &f->model->config;
    struct model_state *state = f->state;

    forward_norm(f, SLOT_ATTN_NORM);
    forward_matmul(f, &f->layer->groups[GROUP_QKV], state->normed, c->hidden, state->latent.low);
    f->kv_layer = (uint8_t *)pass->kv_arena +
                  kv_layout_offset(&f->model->layout, pass->n_blocks, f->layer->kv_index, 0);
    forward_rows(f, norm_and_store);
    if (f->layer->index == INDEX_OWN)
        index_store(f);
    if (pass->on_layer)
        pass->on_layer(pass->on_layer_arg, f->layer->kv_index);
    if (c->q_latent)
        forward_matmul(f, &f->layer->groups[GROUP_Q_B], state->latent.low, latent_low_width(c), state->qkv);
    if (f->layer->index == INDEX_OWN)
        index_choose(f);
    forward_rows(f, turn_queries);
    into_latent(f);
    if (f->layer->index == INDEX_NONE)
        forward_mla_attend(f);
    else
        index_attend(f);
    out_of_latent(f);
    f->next = forward_first(f, f->layer, f->layer->ffn->first);
    forward_matmul(f, &f->layer->groups[GROUP_OUT], state->latent.values, (size_t)c->n_heads * c->value_dim,
                   state->normed);
    forward_finish(f, NULL);
}

static void forward_mla_lay_out(const struct model *model, struct model_state *state, struct carving *carving)
{
    const struct model_config *c = &model->config;
    struct latent_state *latent = &state->latent;
    size_t rows = state->max_tokens, word = sizeof(float);

    latent->low = carve(carving, rows * latent_low_width(c) * word);
    latent->q = carve(carving, rows * c->n_heads * key_width(c) * word);
    latent->attended = carve(carving, rows * c->n_heads * c->latent * word);
    latent->values = carve(carving, rows * c->n_heads * c->value_dim * word);
    latent->pieces = carve(carving, c->n_heads * sizeof(*latent->pieces));
    latent->grouped_scratch =
        carve(carving, grouped_scratch_bytes(c->n_heads, key_width(c) + c->head_dim, state->n_ranks));
}

#define QUERIES  SLOT_BIT(Q)
#define QUERIES2 (SLOT_BIT(Q_A) | SLOT_BIT(Q_A_NORM) | SLOT_BIT(Q_B))
#define JOINED   SLOT_BIT(KV_B)
#define SPLIT    (SLOT_BIT(K_B) | SLOT_BIT(V_B))

#define INDEXER                                                                                              \
    (SLOT_BIT(INDEX_Q) | SLOT_BIT(INDEX_K) | SLOT_BIT(INDEX_PROJ) | SLOT_BIT(INDEX_K_NORM) |                 \
     SLOT_BIT(INDEX_K_NORM_BIAS))

/* Some files have an indexer also in layers that use an earlier one's choice. */
static bool knows_unread_indexer(const struct loading *load, struct bytes suffix)
{
    (void)load;
    for (unsigned i = 0; i < N_SLOTS; i++)
        if ((INDEXER >> i & 1) && bytes_is(suffix, SLOTS[i].suffix))
            return true;
    return false;
}

#define HALF(text, queries, from_latent, knows_more)                                                         \
    {                                                                                                        \
        .name = text,                                                                                        \
        .needs = (queries) | (from_latent) | SLOT_BIT(KV_A) | SLOT_BIT(KV_A_NORM) | SLOT_BIT(OUT_VALUES),    \
        .may = SLOT_BIT(KV_B), .first = GROUP_QKV, .forward = forward_latent,                                \
        .lay_out = forward_mla_lay_out, .knows = (knows_more), .pack = latent_pack,                          \
        .layer_fini = latent_layer_fini                                                                      \
    }

const struct half attn_latent = HALF("latent", QUERIES, JOINED, NULL);
const struct half attn_latent_split = HALF("latent, split", QUERIES, SPLIT, NULL);
const struct half attn_latent_q = HALF("latent, queries too", QUERIES2, JOINED, NULL);
const struct half attn_latent_q_split = HALF("latent, queries too, split", QUERIES2, SPLIT, NULL);
const struct half attn_latent_index = HALF("latent, keys chosen", QUERIES2 | INDEXER, JOINED, NULL);
const struct half attn_latent_index_split =
    HALF("latent, keys chosen, split", QUERIES2 | INDEXER, SPLIT, NULL);
const struct half attn_latent_shared =
    HALF("latent, keys of a choice", QUERIES2, JOINED, knows_unread_indexer);
const struct half attn_latent_shared_split =
    HALF("latent, keys of a choice, split", QUERIES2, SPLIT, knows_unread_indexer);
