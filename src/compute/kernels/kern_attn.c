/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over paged KV with an online softmax (FlashAttention, Dao 2022), as two small matrix products.
 *
 *     rows: queries x heads that share a KV head                 one tile of 64 keys
 *
 *      q  [rows][k_dim]   x   K [k_dim][64]     ->   scores [rows][64]
 *      p  [rows][64]      x   V [64][v_dim]     ->   o += [rows][v_dim]
 *
 * A tile is loaded into the rank's space as floats once for all rows (kern_kv.c). kern_attn_tile.c computes
 * the products, six rows at a time, and their scores never leave the first-level cache. q is scaled
 * beforehand, also by log2(e): probabilities are powers of 2.
 *
 * A query's result does not depend on its neighbours. Keys are cut into splits of 512 and tiles of 64 at
 * fixed places. A split is computed tile by tile,
 *
 *     s = q.k             m' = max(m, max s)        c = 2^(m - m')
 *     p = 2^(s - m')      l = l c + p (16 lanes)    o = o c, then o += p v, key after key
 *
 * and the splits' parts (m, l, o) are merged from first to last. A sink adds 2^(sink - m) to l at the end.
 * Keys after the query, or before its window, are cut off before the maximum and never multiplied, so their
 * memory may hold anything.
 *
 * Rows are ordered by query, so the range of keys that a row attends to moves up from row to row:
 *
 *     row 0   x x x x . .        in a tile, the first rows may attend to no key yet, and the last rows to none
 *     row 1   . x x x x .        any more; these rows are skipped. Keys that all other rows attend to go into
 *     row 2   . . x x x x        one product; the others are multiplied row by row
 *
 * With a soft cap (Gemma 2), q is scaled by 1/cap instead, and each score s becomes cap tanh(s) before the
 * maximum. Scores of keys that a row does not attend to may have any value before and after.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/kernels/kern_set_priv.h"

#include <math.h>
#include <string.h>

/* Floats of a row's state within a split: m, l in sixteen lanes, o; and of a finished part: m, l, o. */
enum { STATE_M = 0, STATE_L = 16, STATE_O = ATTN_STATE_HEAD };
enum { PART_M = 0, PART_L = 1, PART_O = ATTN_PART_HEAD };

/* Rows in registers at once. */
enum { TILE_ROWS = (int)TILE_TOKENS < (int)ATTN_TILE_ROWS ? (int)TILE_TOKENS : (int)ATTN_TILE_ROWS };

/* Without vectors no tile is read more than once. */
enum { DIRECT_ROWS = (int)PASS_ROWS == 1 ? 1 : (int)ATTN_DIRECT_ROWS };

#define LOG2_E 0x1.715476p0f

/* A unit's dimensions, and the current tile. */
struct walk {
    const struct attn_unit *unit;
    uint32_t n_rows, tile_rows, pass_rows;
    uint32_t q_step, v_pad, state_floats, part_floats;
    uint32_t key; /* first key of the tile */
};

/* A range of keys in the tile, [from, to). */
struct range {
    uint32_t from, to;
};

static uint32_t row_position(const struct walk *walk, uint32_t row)
{
    return walk->unit->item->position + walk->unit->first_token + row / walk->unit->n_heads;
}

static uint32_t kern_attn_within(const struct walk *walk, uint32_t key)
{
    if (key < walk->key)
        return 0;
    return key - walk->key < ATTN_TILE_KEYS ? key - walk->key : ATTN_TILE_KEYS;
}

/* Returns the keys of the tile that a row attends to. */
static struct range row_keys(const struct walk *walk, uint32_t row)
{
    uint32_t position = row_position(walk, row);

    return (struct range){kern_attn_within(walk, attn_first_key(walk->unit->args, position)),
                          kern_attn_within(walk, position + 1)};
}

static float *row_state(const struct walk *walk, uint32_t row)
{
    return walk->unit->space.state + (size_t)row * walk->state_floats;
}

static void kern_attn_scale_queries(const struct walk *walk)
{
    const struct attn_unit *unit = walk->unit;
    const struct attn_args *args = unit->args;
    v16 scale = v16_set1(args->cap != 0 ? args->scale / args->cap : args->scale * LOG2_E);

    for (uint32_t row = 0; row < walk->n_rows; row++) {
        size_t token = unit->item->first + unit->first_token + row / unit->n_heads;
        uint32_t head = unit->first_head + row % unit->n_heads;
        const float *q = args->q + token * args->q_stride + (size_t)head * args->k_dim;
        float *out = unit->space.q + (size_t)row * walk->q_step;

        for (uint32_t d = 0; d < args->k_dim; d += 16)
            v16_store(
                out + d,
                v16_mul(args->k_dim - d < 16 ? v16_load_n(q + d, args->k_dim - d) : v16_load(q + d), scale));
    }
}

/* Applies the soft cap to the scores of n rows, for groups [from, to) of the tile's keys. */
static void cap_scores(const struct attn_args *args, float *scores, uint32_t n, struct range groups)
{
    v16 most = v16_set1(args->cap * LOG2_E);

    for (uint32_t row = 0; row < n && args->cap != 0; row++)
        for (uint32_t i = groups.from * 16; i < groups.to * 16; i += 16) {
            float *at = scores + (size_t)row * ATTN_TILE_KEYS + i;

            v16_store(at, v16_mul(v16_tanh(v16_load(at)), most));
        }
}

/* Rescales a row's sums to a new maximum. */
static void raise_maximum(float *state, float m, uint32_t v_pad)
{
    v16 correction = v16_exp2(v16_sub(v16_set1(state[STATE_M]), v16_set1(m)));

    state[STATE_M] = m;
    v16_store(state + STATE_L, v16_mul(v16_load(state + STATE_L), correction));
    for (uint32_t d = STATE_O; d < STATE_O + v_pad; d += 16)
        v16_store(state + d, v16_mul(v16_load(state + d), correction));
}

/* Turns scores into probabilities, in place, for a row that attends to the whole tile. */
static inline void soften_all(float *scores, float *state, uint32_t v_pad)
{
    v16 s[ATTN_TILE_KEYS / 16], top, sum;

    for (uint32_t i = 0; i < ATTN_TILE_KEYS / 16; i++) {
        s[i] = v16_load(scores + i * 16);
        top = i == 0 ? s[i] : v16_max(s[i], top);
    }
    /* With the old maximum the correction would be 1, which changes no bit. */
    if (v16_any_above(top, state[STATE_M]))
        raise_maximum(state, v16_top(top), v_pad);

    v16 most = v16_set1(state[STATE_M]);
    sum = v16_load(state + STATE_L);
    for (uint32_t i = 0; i < ATTN_TILE_KEYS / 16; i++) {
        v16 p = v16_exp2(v16_sub(s[i], most));

        v16_store(scores + i * 16, p);
        sum = v16_add(sum, p);
    }
    v16_store(state + STATE_L, sum);
}

/* The same for a row that attends to some of the keys. */
static void kern_attn_soften(float *scores, struct range keys, float *state, uint32_t v_pad)
{
    v16 nothing = v16_set1(-INFINITY);
    v16 top = nothing;
    uint32_t begin = keys.from / 16 * 16;

    if (keys.to == keys.from)
        return;
    for (uint32_t i = begin; i < keys.to; i += 16) {
        v16 s = v16_load(scores + i);

        if (keys.to - i < 16)
            s = v16_first_n(s, nothing, keys.to - i);
        if (i < keys.from)
            s = v16_first_n(nothing, s, keys.from - i);
        v16_store(scores + i, s);
        top = v16_max(s, top);
    }
    if (v16_any_above(top, state[STATE_M]))
        raise_maximum(state, v16_top(top), v_pad);

    v16 most = v16_set1(state[STATE_M]), sum = v16_load(state + STATE_L);
    for (uint32_t i = begin; i < keys.to; i += 16) {
        v16 p = v16_exp2(v16_sub(v16_load(scores + i), most));

        v16_store(scores + i, p);
        sum = v16_add(sum, p);
    }
    v16_store(state + STATE_L, sum);
}

/* o += p V for some keys and n rows of the unit.  p: probabilities of the first row. */
static void add_values(const struct walk *walk, uint32_t row, uint32_t n, const float *p, struct range keys,
                       const struct kv_ahead *ahead)
{
    if (keys.from >= keys.to)
        return;
    KERN(attn_values)
    (&(struct attn_values){.p = p,
                           .v = walk->unit->space.v,
                           .v_step = attn_v_step(walk->unit->args->v_dim),
                           .o = row_state(walk, row) + STATE_O,
                           .o_step = walk->state_floats,
                           .n_vectors = walk->v_pad / 16,
                           .from = keys.from,
                           .to = keys.to,
                           .ahead = ahead},
     n);
}

/* Adds the values for rows [row, row + n), each of which attends to some keys of the tile.  Keys common to
 * all rows form one product; keys before and after them are added row by row. */
static void attend_values(const struct walk *walk, uint32_t row, uint32_t n)
{
    const float *scores = walk->unit->space.scores;
    struct range common = {row_keys(walk, row + n - 1).from, row_keys(walk, row).to};

    if (common.from >= common.to) {
        for (uint32_t r = 0; r < n; r++)
            add_values(walk, row + r, 1, scores + r * ATTN_TILE_KEYS, row_keys(walk, row + r), NULL);
        return;
    }
    for (uint32_t r = 0; r < n; r++)
        add_values(walk, row + r, 1, scores + r * ATTN_TILE_KEYS,
                   (struct range){row_keys(walk, row + r).from, common.from}, NULL);
    add_values(walk, row, n, scores, common, NULL);
    for (uint32_t r = 0; r < n; r++)
        add_values(walk, row + r, 1, scores + r * ATTN_TILE_KEYS,
                   (struct range){common.to, row_keys(walk, row + r).to}, NULL);
}

static void find_scores(const struct walk *walk, uint32_t row, uint32_t end, struct range groups,
                        const struct kv_ahead *ahead)
{
    const struct attn_space *space = &walk->unit->space;

    KERN(attn_scores)
    (&(struct attn_scores){.q = space->q + (size_t)row * walk->q_step,
                           .q_step = walk->q_step,
                           .k = space->k,
                           .n_k = walk->unit->args->k_dim,
                           .s = space->scores,
                           .from = groups.from,
                           .to = groups.to,
                           .ahead = ahead},
     end - row);
    cap_scores(walk->unit->args, space->scores, end - row, groups);
}

/* Computes the current tile for rows [row, end), all of which attend to all of its keys. */
static void attend_all(const struct walk *walk, uint32_t row, uint32_t end, const struct kv_ahead *ahead)
{
    float *scores = walk->unit->space.scores;

    find_scores(walk, row, end, (struct range){0, ATTN_TILE_GROUPS}, ahead);
    for (uint32_t r = row; r < end; r++)
        soften_all(scores + (size_t)(r - row) * ATTN_TILE_KEYS, row_state(walk, r), walk->v_pad);
    add_values(walk, row, end - row, scores, (struct range){0, ATTN_TILE_KEYS}, ahead);
}

/* True if tiles that all rows attend to can be read from the arena without a copy. */
static bool is_direct(const struct walk *walk)
{
    const struct attn_args *args = walk->unit->args;

    return walk->n_rows <= DIRECT_ROWS && args->v_dim % 16 == 0 &&
           !(args->v_in_k && kv_is_quantised(args->kv_type));
}

/* o += p V of the current tile, with values stored inside keys: first expands them to rows of floats, once
 * for all rows. */
static void add_turned(const struct walk *walk, const struct kv_tile *tile)
{
    const float *scores = walk->unit->space.scores;
    struct kv_tile values = *tile;

    values.k = NULL;
    KERN(kv_load)(walk->unit->args, &values);
    for (uint32_t row = 0; row < walk->n_rows; row += walk->tile_rows) {
        uint32_t left = walk->n_rows - row;

        add_values(walk, row, left < walk->tile_rows ? left : walk->tile_rows,
                   scores + (size_t)row * ATTN_TILE_KEYS, (struct range){0, ATTN_TILE_KEYS}, NULL);
    }
}

/* Sets a pass to its rows, from `row` on.  Returns the first row of the next pass. */
static uint32_t next_pass(const struct walk *walk, struct attn_direct *pass, uint32_t row)
{
    const struct attn_space *space = &walk->unit->space;
    uint32_t left = walk->n_rows - row;

    pass->n_rows = left < walk->pass_rows ? left : walk->pass_rows;
    pass->q = space->q + (size_t)row * walk->q_step;
    pass->scores = space->scores + (size_t)row * ATTN_TILE_KEYS;
    pass->o = row_state(walk, row) + STATE_O;
    return row + pass->n_rows;
}

/* The first pass prefetches the next tile.  The other passes read the current tile, which is in the cache. */
static void attend_directly(const struct walk *walk, const struct kv_tile *tile)
{
    const struct attn_args *args = walk->unit->args;
    struct attn_direct pass = {.type = args->kv_type,
                               .fetches_far = walk->unit->fetches_far,
                               .k_dim = args->k_dim,
                               .v_dim = args->v_dim,
                               .block_tokens = args->block_tokens,
                               .q_step = walk->q_step,
                               .o_step = walk->state_floats};

    KERN(kv_find)(args, tile, &pass);
    KERN(kv_ahead)(args, tile, &pass.ahead);
    for (uint32_t row = 0; row < walk->n_rows;) {
        row = next_pass(walk, &pass, row);
        KERN(attn_direct_scores)(&pass);
        memcpy(pass.ahead.k, pass.k, sizeof(pass.k));
    }
    cap_scores(args, walk->unit->space.scores, walk->n_rows, (struct range){0, ATTN_TILE_GROUPS});
    for (uint32_t row = 0; row < walk->n_rows; row++)
        soften_all(walk->unit->space.scores + (size_t)row * ATTN_TILE_KEYS, row_state(walk, row),
                   walk->v_pad);
    if (args->v_in_k) {
        add_turned(walk, tile);
        return;
    }
    for (uint32_t row = 0; row < walk->n_rows;) {
        row = next_pass(walk, &pass, row);
        KERN(attn_direct_values)(&pass);
        memcpy(pass.ahead.v, pass.v, sizeof(pass.v));
    }
}

/* Computes the current tile for rows [row, end), some of which attend to only some of its keys. */
static void attend_rows(const struct walk *walk, uint32_t row, uint32_t end, const struct kv_ahead *ahead)
{
    const struct attn_space *space = &walk->unit->space;

    while (row < end && row_keys(walk, row).to == 0)
        row++;
    while (row < end && row_keys(walk, end - 1).from == ATTN_TILE_KEYS)
        end--;
    if (row == end)
        return;
    find_scores(walk, row, end,
                (struct range){row_keys(walk, row).from / 16, (row_keys(walk, end - 1).to + 15) / 16}, ahead);
    for (uint32_t r = row; r < end; r++)
        kern_attn_soften(space->scores + (size_t)(r - row) * ATTN_TILE_KEYS, row_keys(walk, r),
                         row_state(walk, r), walk->v_pad);
    attend_values(walk, row, end - row);
}

/* Merges part into total:  m' = max; each side is multiplied by 2^(its m - m'). */
static void kern_attn_join(float *total, const float *part, uint32_t v_pad)
{
    float m = total[PART_M] > part[PART_M] ? total[PART_M] : part[PART_M];
    v16 a = v16_exp2(v16_set1(total[PART_M] - m)), b = v16_exp2(v16_set1(part[PART_M] - m));
    v16 l = v16_fma(v16_set1(total[PART_L]), a, v16_mul(v16_set1(part[PART_L]), b));

    total[PART_M] = m;
    v16_store_n(total + PART_L, l, 1);
    for (uint32_t d = PART_O; d < PART_O + v_pad; d += 16)
        v16_store(total + d, v16_fma(v16_load(total + d), a, v16_mul(v16_load(part + d), b)));
}

static uint32_t row_first_split(const struct walk *walk, uint32_t row)
{
    return attn_first_key(walk->unit->args, row_position(walk, row)) / ATTN_SPLIT_KEYS;
}

/* Ends a row's split: adds the lanes of l and passes the part on. */
static void close_row(const struct walk *walk, uint32_t row, uint32_t split)
{
    const struct attn_unit *unit = walk->unit;
    float *state = row_state(walk, row);
    /* The head of a part fits between l and o.  It overwrites l, which is no longer needed. */
    float *part = state + STATE_O - PART_O;
    float m = state[STATE_M], l = v16_sum(v16_load(state + STATE_L));

    part[PART_M] = m;
    part[PART_L] = l;
    if (unit->partials != NULL) {
        size_t at = (size_t)row * unit->partial_splits + (split - unit->first_partial);

        memcpy(unit->partials + at * walk->part_floats, part, walk->part_floats * sizeof(float));
        return;
    }
    float *total = unit->space.total + (size_t)row * walk->part_floats;
    if (split == row_first_split(walk, row))
        memcpy(total, part, walk->part_floats * sizeof(float));
    else
        kern_attn_join(total, part, walk->v_pad);
}

static void walk_split(struct walk *walk, uint32_t split)
{
    const struct attn_unit *unit = walk->unit;
    uint32_t first_seen = attn_first_key(unit->args, row_position(walk, 0));
    uint32_t begin = split * ATTN_SPLIT_KEYS, end_of_rows = row_position(walk, walk->n_rows - 1) + 1;
    uint32_t end = end_of_rows;

    for (uint32_t row = 0; row < walk->n_rows; row++) {
        float *state = row_state(walk, row);

        memset(state, 0, walk->state_floats * sizeof(float));
        state[STATE_M] = -INFINITY;
    }
    if (end - begin > ATTN_SPLIT_KEYS)
        end = begin + ATTN_SPLIT_KEYS;
    walk->key = first_seen > begin ? first_seen / ATTN_TILE_KEYS * ATTN_TILE_KEYS : begin;
    uint32_t all_from = attn_first_key(unit->args, end_of_rows - 1), all_to = row_position(walk, 0) + 1;
    for (; walk->key < end; walk->key += ATTN_TILE_KEYS) {
        struct range seen = {kern_attn_within(walk, first_seen), kern_attn_within(walk, end)};
        bool all = walk->key >= all_from && walk->key + ATTN_TILE_KEYS <= all_to;

        struct kv_tile tile = {.blocks = unit->item->blocks,
                               .kv_head = unit->kv_head,
                               .key = walk->key,
                               .from = seen.from / 16,
                               .to = (seen.to + 15) / 16,
                               .end = end_of_rows,
                               .k = unit->space.k,
                               .v = unit->space.v};
        struct kv_ahead ahead;

        if (all && is_direct(walk)) {
            attend_directly(walk, &tile);
            continue;
        }
        KERN(kv_load)(unit->args, &tile);
        KERN(kv_ahead)(unit->args, &tile, &ahead);
        for (uint32_t row = 0; row < walk->n_rows; row += walk->tile_rows) {
            uint32_t row_end = walk->n_rows - row < walk->tile_rows ? walk->n_rows : row + walk->tile_rows;

            if (all)
                attend_all(walk, row, row_end, row == 0 ? &ahead : NULL);
            else
                attend_rows(walk, row, row_end, row == 0 ? &ahead : NULL);
        }
    }
    for (uint32_t row = 0; row < walk->n_rows; row++)
        if (row_position(walk, row) >= begin && row_first_split(walk, row) <= split)
            close_row(walk, row, split);
}

/* out = o / l, with the sink included in l.  Adding zero makes every zero positive. */
static void write_row(const struct walk *walk, uint32_t row, const float *part)
{
    const struct attn_unit *unit = walk->unit;
    const struct attn_args *args = unit->args;
    size_t token = unit->item->first + unit->first_token + row / unit->n_heads;
    uint32_t head = unit->first_head + row % unit->n_heads;
    float *out = args->out + token * args->out_stride + (size_t)head * args->v_dim;
    v16 weight = v16_set1(1.0f), l = v16_set1(part[PART_L]);

    if (args->sinks != NULL) {
        float sink = args->sinks[head] * LOG2_E;
        float m = sink > part[PART_M] ? sink : part[PART_M];

        weight = v16_exp2(v16_set1(part[PART_M] - m));
        l = v16_fma(l, weight, v16_exp2(v16_set1(sink - m)));
    }
    weight = v16_div(weight, l);
    for (uint32_t d = 0; d < args->v_dim; d += 16) {
        v16 o = v16_add(v16_mul(v16_load(part + PART_O + d), weight), v16_zero());

        if (args->v_dim - d < 16)
            v16_store_n(out + d, o, args->v_dim - d);
        else
            v16_store(out + d, o);
    }
}

static struct walk walk_of(const struct attn_unit *unit)
{
    uint32_t n_rows = unit->n_tokens * unit->n_heads, n_tiles = (n_rows + TILE_ROWS - 1) / TILE_ROWS;
    uint32_t n_passes = (n_rows + PASS_ROWS - 1) / PASS_ROWS;

    /* Makes tiles of nearly equal height. */
    return (struct walk){.unit = unit,
                         .n_rows = n_rows,
                         .tile_rows = (n_rows + n_tiles - 1) / n_tiles,
                         .pass_rows = (n_rows + n_passes - 1) / n_passes,
                         .q_step = attn_pad(unit->args->k_dim),
                         .v_pad = attn_pad(unit->args->v_dim),
                         .state_floats = attn_state_floats(unit->args->v_dim),
                         .part_floats = attn_part_floats(unit->args->v_dim)};
}

void KERN(attn_unit)(const struct attn_unit *unit)
{
    struct walk walk = walk_of(unit);

    kern_attn_scale_queries(&walk);
    for (uint32_t split = unit->first_split; split < unit->end_split; split++)
        walk_split(&walk, split);
    for (uint32_t row = 0; row < walk.n_rows && unit->partials == NULL; row++)
        write_row(&walk, row, unit->space.total + (size_t)row * walk.part_floats);
}

void KERN(attn_merge)(const struct attn_unit *unit)
{
    struct walk walk = walk_of(unit);

    for (uint32_t row = 0; row < walk.n_rows; row++) {
        float *parts = unit->partials + (size_t)row * unit->partial_splits * walk.part_floats;
        float *total = parts + (size_t)(row_first_split(&walk, row) - unit->first_partial) * walk.part_floats;
        uint32_t last = row_position(&walk, row) / ATTN_SPLIT_KEYS - unit->first_partial;

        for (float *part = total + walk.part_floats; part <= parts + (size_t)last * walk.part_floats;
             part += walk.part_floats)
            kern_attn_join(total, part, walk.v_pad);
        write_row(&walk, row, total);
    }
}
