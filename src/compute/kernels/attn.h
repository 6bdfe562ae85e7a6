/* SPDX-License-Identifier: Apache-2.0 */
/* Between attention.c, which shares out the work, kern_attn.c, which does a unit of it, kern_attn_tile.c,
 * which multiplies, and kern_kv.c, which reads and writes the arena. */
#ifndef COMPUTE_KERNELS_ATTN_H
#define COMPUTE_KERNELS_ATTN_H

#include "compute/kernels/attn_args.h"

enum {
    ATTN_GROUP_KEYS = 16, /* that lie in one block whatever its size: a vector's worth */
    ATTN_TILE_KEYS = 64,  /* that are looked at together, at multiples of as many */
    ATTN_TILE_GROUPS = ATTN_TILE_KEYS / ATTN_GROUP_KEYS,
    ATTN_SPLIT_KEYS = 512, /* whose part is finished before the next one's begins */
    ATTN_UNIT_ROWS = 192,  /* queries x heads that share a K/V tile */
    ATTN_TILE_ROWS = 6,    /* of those, at once in registers */
    ATTN_PASS_ROWS = 8,    /* that may read the arena together, */
    ATTN_DIRECT_ROWS = 16, /* and that read it at all, in one or a few passes */
    ATTN_STATE_HEAD = 32,  /* floats before o in a row's state */
    ATTN_PART_HEAD = 16,   /* and in a finished part */
    KV_RUN = 32,           /* numbers under one scale */
};

/* One rank's memory for a unit. */
struct attn_space {
    float *q;      /* [row][attn_pad(k_dim)], scaled */
    float *scores; /* [ATTN_DIRECT_ROWS][ATTN_TILE_KEYS] */
    float *k;      /* [k_dim][ATTN_TILE_KEYS] of the tile at hand */
    float *v;      /* [ATTN_TILE_KEYS][attn_v_step] */
    float *state;  /* [row][attn_state_floats] of the split at hand */
    float *total;  /* [row][attn_part_floats] of the splits so far */
};

/* Queries first_token.. of an item, heads first_head.., some splits of the keys.  Rows are ordered by token,
 * then head. */
struct attn_unit {
    const struct attn_args *args;
    const struct attn_item *item;
    uint32_t kv_head;
    uint32_t first_head, n_heads; /* all of the KV head's group, or some */
    uint32_t first_token, n_tokens;
    uint32_t first_split, end_split; /* those without keys for a query are skipped */
    bool fetches_far;                /* the next tile into the second-level cache, not the first */
    struct attn_space space;
    float *partials; /* [row][partial_splits] parts, of first_partial on; NULL: finish into args->out */
    uint32_t first_partial, partial_splits;
};

/* Groups [from, to) of a tile of keys, as floats to space's k (NULL: not) and v. */
struct kv_tile {
    const uint32_t *blocks;
    uint32_t kv_head;
    uint32_t key; /* first of the tile */
    uint32_t from, to;
    uint32_t end; /* key behind the last that is stored */
    float *k, *v;
};

/* What to bring nearer while a tile is multiplied: of the tile behind it the bytes of each group's keys and
 * values. */
struct kv_ahead {
    const char *k[ATTN_TILE_GROUPS], *v[ATTN_TILE_GROUPS];
    size_t k_bytes, v_bytes; /* of each */
};

/* A whole tile for at most ATTN_PASS_ROWS rows from the arena. */
struct attn_direct {
    enum dtype type;
    const char *k[ATTN_TILE_GROUPS], *v[ATTN_TILE_GROUPS];                   /* of each group */
    const uint16_t *k_scales[ATTN_TILE_GROUPS], *v_scales[ATTN_TILE_GROUPS]; /* if quantised */
    struct kv_ahead ahead;
    bool fetches_far;
    uint32_t k_dim, v_dim, block_tokens, n_rows;
    float *q; /* as in attn_scores and attn_values */
    size_t q_step;
    float *scores;
    float *o;
    size_t o_step;
};

/* A register tile of scores: s [row][ATTN_TILE_KEYS] = q [row] . k, for groups [from, to) of keys. */
struct attn_scores {
    const float *q;
    size_t q_step;
    const float *k; /* [n_k][ATTN_TILE_KEYS] */
    uint32_t n_k;
    float *s;
    uint32_t from, to;
    const struct kv_ahead *ahead; /* its keys are fetched meanwhile, or NULL */
};

/* A register tile of values: o [row] += p [row][key] * v [key], for keys [from, to). */
struct attn_values {
    const float *p; /* [row][ATTN_TILE_KEYS] */
    const float *v; /* [ATTN_TILE_KEYS][v_step] */
    size_t v_step;
    float *o;
    size_t o_step;
    uint32_t n_vectors; /* sixteens of o */
    uint32_t from, to;
    const struct kv_ahead *ahead; /* its values are fetched meanwhile, or NULL */
};

static inline size_t attn_round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static inline uint32_t attn_pad(uint32_t dim)
{
    return (uint32_t)attn_round_up(dim, 16);
}

/* Floats between the rows of the V tile: quantised rows are filled up. */
static inline uint32_t attn_v_step(uint32_t v_dim)
{
    return (uint32_t)attn_round_up(v_dim, KV_RUN);
}

static inline uint32_t attn_part_floats(uint32_t v_dim)
{
    return ATTN_PART_HEAD + attn_pad(v_dim);
}

static inline uint32_t attn_state_floats(uint32_t v_dim)
{
    return ATTN_STATE_HEAD + attn_pad(v_dim);
}

static inline size_t attn_row_bytes(enum dtype type, uint32_t dim)
{
    size_t n_runs = attn_round_up(dim, KV_RUN) / KV_RUN;

    if (type == DTYPE_Q8_0)
        return n_runs * (KV_RUN + 2);
    if (type == DTYPE_Q4_0)
        return n_runs * (KV_RUN / 2 + 2);
    return (size_t)dim * (type == DTYPE_F32 ? 4 : 2);
}

/* First key that a query at a position sees. */
static inline uint32_t attn_first_key(const struct attn_args *args, uint32_t position)
{
    return args->window != 0 && position >= args->window ? position - args->window + 1 : 0;
}

#endif
