/* SPDX-License-Identifier: Apache-2.0 */
/* Sparse attention (DeepSeek-AI 2025): a small indexer chooses the keys that a query attends to. Hot path.
 *
 *     key     [n][D]       = layernorm(normed . Wk^T), its first numbers turned       stored behind the layer's keys
 *     q       [n][I][D]    = q's latent . Wq^T, the same numbers of each head turned
 *     weights [n][I]       = normed . Ww^T / sqrt(I D)
 *     score of query t for key s = sum over heads i of weights[t][i] max(0, q[t][i] . key[s])
 *     chosen  [n][index_top]     the largest; of equal ones the earlier key
 *
 * A query with at most index_top keys attends to all of them, like any other. For others the chosen keys are
 * copied in the order of their positions, as floats, and attended to as if there were no others:
 *
 *     arena     | block | block | block | ...   keys of all tokens
 *                  ^  ^       ^
 *     gathered  | blocks of one query's chosen keys | the next query's | ... INDEX_ROWS at a time
 *
 * A query's scores depend on its own row and on stored keys only, and a score is summed in one order (kern_index.c).
 * With fewer queries than ranks, each rank chooses among a part of the keys, and the best of all parts are the choice.
 * Two keys never rank equally, so the choice does not depend on parts, on the batch, on chunks, or on where blocks lie. The published models turn q and key by a
 * Hadamard matrix before rounding them to eight bits. The transform does not change the products, and keys are
 * stored here in 16 bits (32 if the layer's keys are), so it is left out. */
#include "compute/model/model_priv.h"

#include "base/check.h"

#include <string.h>

enum { INDEX_ROWS = 8 }; /* queries gathered at a time */

_Static_assert(ATTN_BLOCK_STEP % (int)INDEX_GROUP_KEYS == 0, "a group of keys lies in one block");

static const float INDEX_EPS = 1e-6f; /* of the norm of its keys, as published */

static uint32_t index_low_width(const struct model_config *c)
{
    return c->index_dim + c->index_heads;
}

static uint32_t index_key_width(const struct model_config *c)
{
    return c->latent + c->rope_dims;
}

/* ---- keys ---- */

static uint8_t *index_keys_of(const struct forward *f, kv_block_id block)
{
    const struct kv_layout *layout = &f->model->layout;

    return (uint8_t *)f->kv_layer + (size_t)block * kv_layout_layer_block_bytes(layout) +
           kv_layout_k_bytes(layout) + kv_layout_v_bytes(layout);
}

/* Stores a key as a column of its block: [index_dim][block_tokens]. */
static void index_put_key(const struct forward *f, const struct attn_item *item, uint32_t position,
                          const float *key)
{
    const struct kv_layout *layout = &f->model->layout;
    uint32_t per = layout->block_tokens, at = position % per;
    uint8_t *keys = index_keys_of(f, item->blocks[position / per]);

    for (uint32_t d = 0; d < layout->index_dim; d++)
        if (layout->index_type == KV_F32)
            memcpy(keys + ((size_t)d * per + at) * sizeof(float), key + d, sizeof(float));
        else
            put_u16(keys + ((size_t)d * per + at) * 2, f32_to_f16(key[d]));
}

static void index_turn(const struct forward *f, size_t row, float *heads, uint32_t n_heads)
{
    const struct model_config *c = &f->model->config;
    struct rope_args turn = forward_rope(f, ROPE_GLOBAL, row);

    turn.pairs = c->index_is_adjacent ? ROPE_ADJACENT : ROPE_HALVES;
    turn.x = heads;
    turn.n_heads = n_heads;
    turn.head_dim = c->index_dim;
    turn.dims = c->rope_dims;
    rope_rotate(f->model->table, &turn);
}

static void index_store_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model_config *c = &f->model->config;
    const float *const *vectors = f->layer->vectors;
    const struct layer_gain gain = {.gain = vectors[SLOT_INDEX_K_NORM],
                                    .bias = vectors[SLOT_INDEX_K_NORM_BIAS]};

    for (uint32_t i = 0; i < f->pass->n_items; i++) {
        const struct attn_item *item = &f->state->items[i];
        uint32_t row = item->first > from ? item->first : from;

        for (; row < to && row < item->first + item->n_tokens; row++) {
            float *key = f->state->index.low + (size_t)row * index_low_width(c);

            layer_norm(f->model->table, key, &gain, c->index_dim, INDEX_EPS, key);
            index_turn(f, row, key, 1);
            index_put_key(f, item, item->position + (row - item->first), key);
        }
    }
}

void index_store(struct forward *f)
{
    forward_matmul(f, &f->layer->groups[GROUP_INDEX_LOW], f->state->normed, f->model->config.hidden,
                   f->state->index.low);
    forward_rows(f, index_store_rows);
}

/* ---- the choice: a heap whose first entry is the worst ---- */

static bool index_is_worse(const struct index_choice *a, const struct index_choice *b)
{
    return a->score < b->score || (a->score == b->score && a->position > b->position);
}

static void index_sift(struct index_choice *heap, uint32_t at, uint32_t n)
{
    for (uint32_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        struct index_choice moved = heap[at];

        if (child + 1 < n && index_is_worse(&heap[child + 1], &heap[child]))
            child++;
        if (!index_is_worse(&heap[child], &moved))
            return;
        heap[at] = heap[child];
        heap[child] = moved;
        at = child;
    }
}

static void index_offer(struct index_choice *heap, uint32_t *n, uint32_t most, struct index_choice one)
{
    if (*n < most) {
        heap[(*n)++] = one;
        for (uint32_t at = *n / 2; *n == most && at > 0; at--)
            index_sift(heap, at - 1, most);
        return;
    }
    if (!index_is_worse(&heap[0], &one))
        return;
    heap[0] = one;
    index_sift(heap, 0, most);
}

/* Sorts by position, with a heap: removes the largest until none is left. */
static void index_sort(struct index_choice *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) /* the worst is now the one with the largest position */
        list[i].score = 0;
    for (uint32_t at = n / 2; at > 0; at--)
        index_sift(list, at - 1, n);
    while (n-- > 1) {
        struct index_choice last = list[0];

        list[0] = list[n];
        list[n] = last;
        index_sift(list, 0, n);
    }
}

/* ---- scores ---- */

struct index_list { /* the best keys so far: a heap once it is full */
    struct index_choice *best;
    uint32_t n;
};

/* Scores the keys [from, end) of a query, from: a multiple of INDEX_CALL_KEYS, and offers each to the list. */
static void index_score_keys(const struct forward *f, uint32_t i, struct team_range keys,
                             struct index_list *list)
{
    const struct model_config *c = &f->model->config;
    const struct kv_layout *layout = &f->model->layout;
    const struct index_state *index = &f->state->index;
    const uint32_t per = layout->block_tokens, row = index->rows[i];
    const uint32_t *blocks = f->state->items[index->row_items[i]].blocks;
    const size_t key_bytes = layout->index_type == KV_F32 ? sizeof(float) : sizeof(uint16_t);
    struct index_args args = {.q = index->q + (size_t)row * c->index_heads * c->index_dim,
                              .weights = index->low + (size_t)row * index_low_width(c) + c->index_dim,
                              .n_heads = c->index_heads,
                              .dim = c->index_dim,
                              .type = layout->index_type == KV_F32 ? DTYPE_F32 : DTYPE_F16,
                              .block_tokens = per};
    float scores[INDEX_CALL_KEYS];

    for (size_t key = keys.from; key < keys.to; key += INDEX_CALL_KEYS) {
        uint32_t n = keys.to - key < INDEX_CALL_KEYS ? (uint32_t)(keys.to - key) : INDEX_CALL_KEYS;

        args.n_groups = (n + INDEX_GROUP_KEYS - 1) / INDEX_GROUP_KEYS;
        for (uint32_t g = 0; g < args.n_groups; g++) {
            size_t first = key + g * INDEX_GROUP_KEYS;

            args.keys[g] = index_keys_of(f, blocks[first / per]) + first % per * key_bytes;
        }
        index_scores(f->model->table, &args, scores);
        for (uint32_t k = 0; k < n; k++)
            index_offer(list->best, &list->n, c->index_top,
                        (struct index_choice){scores[k], (uint32_t)key + k});
    }
}

static uint32_t index_row_keys(const struct forward *f, uint32_t i)
{
    const struct index_state *index = &f->state->index;
    const struct attn_item *item = &f->state->items[index->row_items[i]];

    return item->position + (index->rows[i] - item->first) + 1;
}

static struct index_choice *index_row_chosen(const struct forward *f, uint32_t i)
{
    return f->state->index.chosen + (size_t)f->state->index.rows[i] * f->model->config.index_top;
}

static void index_turn_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model_config *c = &f->model->config;

    for (size_t row = from; row < to; row++)
        index_turn(f, row, f->state->index.q + row * c->index_heads * c->index_dim, c->index_heads);
}

/* Lists the rows with more keys than they attend to. */
static void index_list_rows(const struct forward *f)
{
    struct index_state *index = &f->state->index;

    index->n_rows = 0;
    for (uint32_t i = 0; i < f->pass->n_items; i++) {
        const struct attn_item *item = &f->state->items[i];

        for (uint32_t t = 0; t < item->n_tokens; t++)
            if (item->position + t >= f->model->config.index_top) {
                index->row_items[index->n_rows] = i;
                index->rows[index->n_rows++] = item->first + t;
            }
    }
}

struct index_call {
    const struct forward *f;
    void (*job)(const struct forward *f, uint32_t unit);
    uint32_t n; /* units */
};

static void index_on_rank(void *arg, unsigned rank, unsigned n_ranks)
{
    const struct index_call *call = arg;

    for (uint32_t i = rank; i < call->n; i += n_ranks)
        call->job(call->f, i);
}

/* Unit i: all keys of row i. */
static void index_choose_row(const struct forward *f, uint32_t i)
{
    struct index_list list = {.best = index_row_chosen(f, i)};

    index_score_keys(f, i, (struct team_range){0, index_row_keys(f, i)}, &list);
    ASSERT(list.n == f->model->config.index_top);
    index_sort(list.best, list.n);
}

/* With fewer rows than ranks, the keys of each row are n_parts parts. Unit: a part. */
static void index_choose_part(const struct forward *f, uint32_t unit)
{
    struct index_state *index = &f->state->index;
    const uint32_t i = unit / index->n_parts, n_keys = index_row_keys(f, i);
    struct index_list list = {.best = index->parts + (size_t)unit * f->model->config.index_top};
    struct team_range keys = team_split(n_keys, INDEX_CALL_KEYS, unit % index->n_parts, index->n_parts);

    index_score_keys(f, i, keys, &list);
    index->part_lengths[unit] = list.n;
}

/* The best keys of a row are among the best of its parts. Unit: a row. */
static void index_merge_row(const struct forward *f, uint32_t i)
{
    const struct index_state *index = &f->state->index;
    const uint32_t top = f->model->config.index_top;
    struct index_list list = {.best = index_row_chosen(f, i)};

    for (uint32_t unit = i * index->n_parts; unit < (i + 1) * index->n_parts; unit++)
        for (uint32_t k = 0; k < index->part_lengths[unit]; k++)
            index_offer(list.best, &list.n, top, index->parts[(size_t)unit * top + k]);
    ASSERT(list.n == top);
    index_sort(list.best, list.n);
}

/* Chooses the team for n queries with `numbers` operations for each of at least index_top keys. */
static struct team *index_team(const struct forward *f, uint32_t n, uint32_t numbers)
{
    return forward_team(f, (uint64_t)n * f->model->config.index_top * numbers * sizeof(float));
}

void index_choose(struct forward *f)
{
    const struct model_config *c = &f->model->config;
    struct index_state *index = &f->state->index;
    struct team *team;

    index_list_rows(f);
    if (index->n_rows == 0)
        return;
    forward_matmul(f, &f->layer->groups[GROUP_INDEX_Q], f->state->latent.low, latent_low_width(c),
                   f->state->index.q);
    forward_rows(f, index_turn_rows);
    team = index_team(f, index->n_rows, c->index_heads * c->index_dim);
    index->n_parts = team_size(team) / index->n_rows;
    if (index->n_parts < 2) {
        team_run(team, index_on_rank, &(struct index_call){f, index_choose_row, index->n_rows});
        return;
    }
    team_run(team, index_on_rank, &(struct index_call){f, index_choose_part, index->n_rows * index->n_parts});
    team_run(team, index_on_rank, &(struct index_call){f, index_merge_row, index->n_rows});
}

/* ---- attention to chosen keys ---- */

static size_t index_row_blocks(const struct model *model)
{
    return (model->config.index_top + model->layout.block_tokens - 1) / model->layout.block_tokens;
}

static uint32_t index_row_groups(const struct model *model)
{
    return (model->config.index_top + INDEX_GROUP_KEYS - 1) / INDEX_GROUP_KEYS;
}

/* Unit: sixteen chosen keys of a row of the group that begins with first_row. */
static void index_gather(const struct forward *f, uint32_t unit)
{
    const struct model *model = f->model;
    const struct index_state *index = &f->state->index;
    const uint32_t n_groups = index_row_groups(model), i = index->first_row + unit / n_groups;
    const uint32_t first = unit % n_groups * INDEX_GROUP_KEYS, left = model->config.index_top - first;
    const uint32_t per = model->layout.block_tokens, width = index_key_width(&model->config);
    const struct index_choice *chosen = index_row_chosen(f, i) + first;
    const struct attn_args attn = latent_attn_args(f);
    struct kv_gather_args args = {.attn = &attn,
                                  .blocks = f->state->items[index->row_items[i]].blocks,
                                  .n = left < INDEX_GROUP_KEYS ? left : INDEX_GROUP_KEYS,
                                  .out_stride = per};

    for (uint32_t k = 0; k < args.n; k++)
        args.positions[k] = chosen[k].position;
    args.out = index->gathered +
               ((i - index->first_row) * index_row_blocks(model) + first / per) * per * width + first % per;
    kv_gather(model->table, &args);
}

/* Attention of the rows [first_row, first_row + n) to their gathered keys. */
static void index_attend_group(const struct forward *f, uint32_t n)
{
    const struct model *model = f->model;
    struct index_state *index = &f->state->index;
    const uint32_t n_blocks = (uint32_t)index_row_blocks(model);
    struct index_call call = {.f = f, .job = index_gather, .n = n * index_row_groups(model)};
    const uint32_t width = index_key_width(&model->config);
    struct attn_args args;

    team_run(index_team(f, n, width), index_on_rank, &call);
    for (uint32_t i = 0; i < n; i++)
        index->items[i] = (struct attn_item){.first = index->rows[index->first_row + i],
                                             .n_tokens = 1,
                                             .position = model->config.index_top - 1,
                                             .blocks = index->blocks + (size_t)i * n_blocks};
    args = latent_attn_args(f);
    args.kv_layer = index->gathered;
    args.kv_type = DTYPE_F32;
    args.block_bytes = (size_t)model->layout.block_tokens * width * sizeof(float);
    args.items = index->items;
    args.n_items = n;
    attention(index_team(f, n, width * model->config.n_heads), &args);
}

void index_attend(struct forward *f)
{
    struct index_state *index = &f->state->index;
    struct attn_args args = latent_attn_args(f);
    uint32_t n_most = f->model->config.index_top, n_items = 0, n;

    for (uint32_t i = 0; i < f->pass->n_items; i++) { /* queries with few keys */
        struct attn_item item = f->state->items[i];

        if (item.position >= n_most)
            continue;
        if (item.n_tokens > n_most - item.position)
            item.n_tokens = n_most - item.position;
        index->items[n_items++] = item;
    }
    args.items = index->items;
    args.n_items = n_items;
    if (n_items > 0)
        attention(forward_team(f, latent_attend_bytes(f)), &args);
    for (index->first_row = 0; index->first_row < index->n_rows; index->first_row += n) {
        n = index->n_rows - index->first_row < INDEX_ROWS ? index->n_rows - index->first_row : INDEX_ROWS;
        index_attend_group(f, n);
    }
}

void index_lay_out(const struct model *model, struct model_state *state, struct carving *carving)
{
    const struct model_config *c = &model->config;
    struct index_state *index = &state->index;
    size_t rows = state->max_tokens, word = sizeof(float), n_blocks = INDEX_ROWS * index_row_blocks(model);
    uint32_t n_items = state->max_items > INDEX_ROWS ? state->max_items : INDEX_ROWS;

    index->low = carve(carving, rows * index_low_width(c) * word);
    index->q = carve(carving, rows * c->index_heads * c->index_dim * word);
    index->rows = carve(carving, rows * sizeof(*index->rows));
    index->row_items = carve(carving, rows * sizeof(*index->row_items));
    index->items = carve(carving, n_items * sizeof(*index->items));
    index->chosen = carve(carving, rows * c->index_top * sizeof(*index->chosen));
    index->parts = carve(carving, (size_t)state->n_ranks * c->index_top * sizeof(*index->parts));
    index->part_lengths = carve(carving, state->n_ranks * sizeof(*index->part_lengths));
    index->gathered = carve(carving, n_blocks * model->layout.block_tokens * index_key_width(c) * word);
    index->blocks = carve(carving, n_blocks * sizeof(*index->blocks));
    for (size_t i = 0; carving->base != NULL && i < n_blocks; i++)
        index->blocks[i] = (uint32_t)i;
}
