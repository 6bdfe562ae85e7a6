/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over paged KV with an online softmax (FlashAttention, Dao 2022), as two small matrix products.
 *
 *     rows: queries x heads that share a KV head                 one block of keys
 *
 *      q  [rows][head_dim]   x   K [head_dim][block_tokens]   ->   scores [rows][block_tokens]
 *      p  [rows][block_tokens] x V [block_tokens][head_dim]   ->   o += [rows][head_dim]
 *
 * Both products are the register tile of kern_tile.c with a key (or an output dimension) per lane: in the
 * arena K stands transposed inside its block, V does not, so neither is ever turned around.
 *
 * What a query's result is, whatever stands beside it: keys are cut into splits of about 512 at fixed places;
 * a split is walked block by block,
 *
 *     s = scale * q.k     m' = max(m, max s)        c = 2^(m - m')
 *     p = 2^(s - m')      l = l c + p (16 lanes)    o = o c, then o += p v, key after key
 *
 * and the splits' parts (m, l, o) are put together from first to last.  Keys behind the query are cut off
 * before the maximum and never multiplied, so their memory may hold anything.
 *
 * Rows are ordered by query, so the keys that a row of a tile sees never get fewer further down:
 *
 *     tile row 0   x x x x . .        the first rows may see no key of this block: they are left out;
 *     tile row 1   x x x x x .        the keys that all others see go through in one product,
 *     tile row 2   x x x x x x        the rest row by row
 *
 * Hot path: no allocation, no log, no system call.
 */
#include "tensor/kern_set_priv.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

/* Floats of a row's state within a split: m, l in sixteen lanes, o; and of a finished part: m, l, o. */
enum { STATE_M = 0, STATE_L = 16, STATE_O = ATTN_STATE_HEAD };
enum { PART_M = 0, PART_L = 1, PART_O = ATTN_PART_HEAD };

/* A unit's shape, and the block at hand. */
struct walk {
    const struct attn_unit *unit;
    uint32_t group, n_rows;
    uint32_t head_dim, head_pad, state_floats, part_floats, block_tokens;
    float scale_log2; /* the softmax scale for powers of 2 */
    uint32_t key;     /* first of the block */
    const float *k, *v;
};

/* Position of a row's query. */
static uint32_t row_position(const struct walk *walk, uint32_t row)
{
    return walk->unit->item->position + walk->unit->first_token + row / walk->group;
}

/* Keys of the block that a row sees. */
static uint32_t row_keys(const struct walk *walk, uint32_t row)
{
    uint32_t position = row_position(walk, row);

    if (position < walk->key)
        return 0;
    return position - walk->key < walk->block_tokens ? position - walk->key + 1 : walk->block_tokens;
}

static uint32_t tile_rows_at(const struct walk *walk, uint32_t row)
{
    return walk->n_rows - row < TILE_TOKENS ? walk->n_rows - row : TILE_TOKENS;
}

/* q, a row tile after the other, each [head_dim][rows]. */
static void pack_queries(const struct walk *walk)
{
    const struct attn_args *args = walk->unit->args;
    float *out = walk->unit->space.q;

    for (uint32_t row = 0; row < walk->n_rows; row += TILE_TOKENS) {
        uint32_t n = tile_rows_at(walk, row);

        for (uint32_t r = 0; r < n; r++) {
            uint32_t token = walk->unit->item->first + walk->unit->first_token + (row + r) / walk->group;
            uint32_t head = walk->unit->kv_head * walk->group + (row + r) % walk->group;
            const float *q = args->q + token * args->q_stride + (size_t)head * walk->head_dim;

            for (uint32_t d = 0; d < walk->head_dim; d++)
                out[(size_t)d * n + r] = q[d];
        }
        out += (size_t)n * walk->head_dim;
    }
}

/* Brings the K and V of a block nearer, for the head at hand. */
static void fetch_block(const struct walk *walk, uint32_t block)
{
    const struct attn_args *args = walk->unit->args;
    size_t head_bytes = (size_t)walk->block_tokens * walk->head_dim * (args->kv_is_f16 ? 2 : 4);
    const char *k =
        (const char *)args->kv_layer + block * args->block_bytes + walk->unit->kv_head * head_bytes;
    const char *v = k + args->n_kv_heads * head_bytes;

    for (size_t at = 0; at < head_bytes; at += MEM_CACHE_LINE) {
        __builtin_prefetch(k + at, 0, 2);
        __builtin_prefetch(v + at, 0, 2);
    }
}

/* Makes the block's K and V available as floats; where they are floats already, in place. */
static void load_block(struct walk *walk, uint32_t block)
{
    const struct attn_args *args = walk->unit->args;
    const struct attn_space *space = &walk->unit->space;
    size_t n = (size_t)walk->block_tokens * walk->head_dim;
    size_t half = n * args->n_kv_heads, at = n * walk->unit->kv_head;
    const char *base = (const char *)args->kv_layer + block * args->block_bytes;

    if (args->kv_is_f16) {
        KERN(widen_f16)((const uint16_t *)base + at, space->k, n);
        KERN(widen_f16)((const uint16_t *)base + half + at, space->v, n);
        walk->k = space->k;
        walk->v = space->v;
        return;
    }
    walk->k = (const float *)base + at;
    walk->v = (const float *)base + half + at;
    if (walk->head_pad != walk->head_dim) { /* the product reads whole lanes past the end */
        memcpy(space->v, walk->v, n * sizeof(float));
        walk->v = space->v;
    }
}

/* Weighs what a row has so far for a new maximum. */
static void raise_maximum(float *state, float m, uint32_t head_pad)
{
    v16 correction = v16_exp2(v16_sub(v16_set1(state[STATE_M]), v16_set1(m)));

    state[STATE_M] = m;
    v16_store(state + STATE_L, v16_mul(v16_load(state + STATE_L), correction));
    for (uint32_t d = STATE_O; d < STATE_O + head_pad; d += 16)
        v16_store(state + d, v16_mul(v16_load(state + d), correction));
}

/* Scores to probabilities, in place. */
static void soften(float *scores, uint32_t n_keys, v16 scale, float *state, uint32_t head_pad)
{
    v16 nothing = v16_set1(-INFINITY);
    v16 top = nothing;

    for (uint32_t i = 0; i < n_keys; i += 16) {
        v16 s = v16_first_n(v16_mul(v16_load(scores + i), scale), nothing, n_keys - i);

        v16_store(scores + i, s);
        top = v16_max(s, top);
    }
    /* With the old maximum the correction would be 1, which changes no bit. */
    float m = v16_top(top);
    if (m > state[STATE_M])
        raise_maximum(state, m, head_pad);

    v16 most = v16_set1(state[STATE_M]), sum = v16_load(state + STATE_L);
    for (uint32_t i = 0; i < n_keys; i += 16) {
        v16 p = v16_exp2(v16_sub(v16_load(scores + i), most));

        v16_store(scores + i, p);
        sum = v16_add(sum, p);
    }
    v16_store(state + STATE_L, sum);
}

/* o += p[rows][from..to) x V[from..to), for n rows of the tile from the given one on. */
static void add_values(const struct walk *walk, uint32_t row, uint32_t n, const float *p, uint32_t from,
                       uint32_t to)
{
    if (from == to)
        return;
    KERN(tile_rows)
    (&(struct tile){
        .w = walk->v + (size_t)from * walk->head_dim,
        .w_step = walk->head_dim,
        .panel_step = PANEL_ROWS,
        .x = p + from,
        .y = walk->unit->space.state + (size_t)row * walk->state_floats + STATE_O,
        .y_step = walk->state_floats,
        .n_k = to - from,
        .n_panels = walk->head_pad / PANEL_ROWS,
        .n_tokens = n,
        .next = (const char *)walk->v,
    });
}

/* The block at hand for one tile of rows. */
static void attend_tile(const struct walk *walk, uint32_t row, uint32_t n)
{
    const struct attn_space *space = &walk->unit->space;
    uint32_t most = row_keys(walk, row + n - 1), skipped = 0;

    while (skipped < n && row_keys(walk, row + skipped) == 0)
        skipped++;
    if (skipped == n)
        return;
    KERN(tile_f32)
    (&(struct tile){
        .w = walk->k,
        .w_step = walk->block_tokens,
        .panel_step = PANEL_ROWS,
        .x = space->q + (size_t)row * walk->head_dim,
        .y = space->scores,
        .y_step = ROWS_STRIDE,
        .n_k = walk->head_dim,
        .n_panels = (most + PANEL_ROWS - 1) / PANEL_ROWS,
        .n_tokens = n,
        .is_first = true,
        .next = (const char *)walk->k,
    });

    v16 scale = v16_set1(walk->scale_log2);
    uint32_t common = row_keys(walk, row + skipped);
    for (uint32_t r = skipped; r < n; r++)
        soften(space->scores + (size_t)r * ROWS_STRIDE, row_keys(walk, row + r), scale,
               space->state + (size_t)(row + r) * walk->state_floats, walk->head_pad);
    add_values(walk, row + skipped, n - skipped, space->scores + (size_t)skipped * ROWS_STRIDE, 0, common);
    for (uint32_t r = skipped; r < n; r++)
        add_values(walk, row + r, 1, space->scores + (size_t)r * ROWS_STRIDE, common,
                   row_keys(walk, row + r));
}

/* total = total then part:  m' = max; each side is weighed by 2^(its m - m'). */
static void join(float *total, const float *part, uint32_t head_pad)
{
    float m = total[PART_M] > part[PART_M] ? total[PART_M] : part[PART_M];
    v16 a = v16_exp2(v16_set1(total[PART_M] - m)), b = v16_exp2(v16_set1(part[PART_M] - m));
    v16 l = v16_fma(v16_set1(total[PART_L]), a, v16_mul(v16_set1(part[PART_L]), b));

    total[PART_M] = m;
    v16_store_n(total + PART_L, l, 1);
    for (uint32_t d = PART_O; d < PART_O + head_pad; d += 16)
        v16_store(total + d, v16_fma(v16_load(total + d), a, v16_mul(v16_load(part + d), b)));
}

/* Closes a row's split: adds the lanes of l and hands the part on. */
static void close_row(const struct walk *walk, uint32_t row, uint32_t split)
{
    const struct attn_unit *unit = walk->unit;
    float *state = unit->space.state + (size_t)row * walk->state_floats;
    float *part =
        state + STATE_O - PART_O; /* the head of a part fits between l and o: over l, which is done with */
    float m = state[STATE_M], l = v16_sum(v16_load(state + STATE_L));

    part[PART_M] = m;
    part[PART_L] = l;
    if (unit->partials != NULL) {
        memcpy(unit->partials + ((size_t)row * unit->partial_splits + split) * walk->part_floats, part,
               walk->part_floats * sizeof(float));
        return;
    }
    float *total = unit->space.total + (size_t)row * walk->part_floats;
    if (split == unit->first_split)
        memcpy(total, part, walk->part_floats * sizeof(float));
    else
        join(total, part, walk->head_pad);
}

static void walk_split(struct walk *walk, uint32_t split)
{
    const struct attn_unit *unit = walk->unit;
    uint32_t split_blocks = attn_split_blocks(walk->block_tokens);
    uint32_t last = row_position(walk, walk->n_rows - 1);
    uint32_t first_key = split * split_blocks * walk->block_tokens;

    for (uint32_t row = 0; row < walk->n_rows; row++) {
        float *state = unit->space.state + (size_t)row * walk->state_floats;

        memset(state, 0, walk->state_floats * sizeof(float));
        state[STATE_M] = -INFINITY;
    }
    for (uint32_t i = 0; i < split_blocks; i++) {
        walk->key = first_key + i * walk->block_tokens;
        if (walk->key > last)
            break;
        load_block(walk, unit->item->blocks[walk->key / walk->block_tokens]);
        if (walk->key + walk->block_tokens <= last)
            fetch_block(walk, unit->item->blocks[walk->key / walk->block_tokens + 1]);
        for (uint32_t row = 0; row < walk->n_rows; row += TILE_TOKENS)
            attend_tile(walk, row, tile_rows_at(walk, row));
    }
    for (uint32_t row = 0; row < walk->n_rows; row++)
        if (row_position(walk, row) >= first_key)
            close_row(walk, row, split);
}

/* out = o / l */
static void write_row(const struct attn_args *args, const float *part, size_t token, uint32_t head)
{
    float *out = args->out + token * args->out_stride + (size_t)head * args->head_dim;
    v16 by = v16_set1(1.0f / part[PART_L]);

    for (uint32_t d = 0; d < args->head_dim; d += 16) {
        v16 o = v16_mul(v16_load(part + PART_O + d), by);

        if (args->head_dim - d < 16)
            v16_store_n(out + d, o, args->head_dim - d);
        else
            v16_store(out + d, o);
    }
}

void KERN(attn_unit)(const struct attn_unit *unit)
{
    const struct attn_args *args = unit->args;
    struct walk walk = {
        .unit = unit,
        .group = args->n_heads / args->n_kv_heads,
        .n_rows = unit->n_tokens * (args->n_heads / args->n_kv_heads),
        .head_dim = args->head_dim,
        .head_pad = attn_head_pad(args->head_dim),
        .state_floats = attn_state_floats(args->head_dim),
        .part_floats = attn_part_floats(args->head_dim),
        .block_tokens = args->block_tokens,
        .scale_log2 = args->scale * 0x1.715476p0f,
    };

    pack_queries(&walk);
    for (uint32_t split = unit->first_split; split < unit->end_split; split++)
        walk_split(&walk, split);
    for (uint32_t row = 0; row < walk.n_rows && unit->partials == NULL; row++)
        write_row(args, unit->space.total + (size_t)row * walk.part_floats,
                  unit->item->first + unit->first_token + row / walk.group,
                  unit->kv_head * walk.group + row % walk.group);
}

void KERN(attn_merge)(const struct attn_merge *merge)
{
    const struct attn_args *args = merge->args;
    uint32_t group = args->n_heads / args->n_kv_heads;
    uint32_t part_floats = attn_part_floats(args->head_dim);
    uint32_t split_tokens = attn_split_blocks(args->block_tokens) * args->block_tokens;

    for (uint32_t row = 0; row < merge->item->n_tokens * group; row++) {
        float *parts = merge->partials + (size_t)row * merge->partial_splits * part_floats;
        uint32_t position = merge->item->position + row / group;

        for (uint32_t split = 1; split <= position / split_tokens; split++)
            join(parts, parts + (size_t)split * part_floats, attn_head_pad(args->head_dim));
        write_row(args, parts, merge->item->first + row / group, merge->kv_head * group + row % group);
    }
}

/* K goes in as columns, V as rows. */
static void store_head(const struct kv_store_args *args, uint32_t token, uint32_t head)
{
    uint32_t position = args->position + token, d_step = args->block_tokens;
    size_t n = (size_t)args->block_tokens * args->head_dim;
    char *base = (char *)args->kv_layer + args->blocks[position / args->block_tokens] * args->block_bytes;
    size_t k_at = n * head + position % args->block_tokens;
    size_t v_at = n * (args->n_kv_heads + head) + (size_t)(position % args->block_tokens) * args->head_dim;
    const float *k = args->k + token * args->k_stride + (size_t)head * args->head_dim;
    const float *v = args->v + token * args->v_stride + (size_t)head * args->head_dim;

    if (!args->kv_is_f16) {
        for (uint32_t d = 0; d < args->head_dim; d++)
            ((float *)base)[k_at + (size_t)d * d_step] = k[d];
        memcpy((float *)base + v_at, v, args->head_dim * sizeof(float));
        return;
    }
    for (uint32_t d = 0; d < args->head_dim; d += 16) {
        uint32_t lanes = args->head_dim - d < 16 ? args->head_dim - d : 16;
        uint16_t halves[16];

        v16_to_f16(halves, v16_load_n(k + d, lanes));
        for (uint32_t i = 0; i < lanes; i++)
            ((uint16_t *)base)[k_at + (size_t)(d + i) * d_step] = halves[i];
        v16_to_f16(halves, v16_load_n(v + d, lanes));
        memcpy((uint16_t *)base + v_at + d, halves, lanes * sizeof(uint16_t));
    }
}

void KERN(kv_store)(const struct kv_store_args *args)
{
    for (uint32_t token = 0; token < args->n; token++)
        for (uint32_t head = 0; head < args->n_kv_heads; head++)
            store_head(args, token, head);
}
