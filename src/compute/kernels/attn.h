/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by attention.c (distributes the work), kern_attn.c (computes a unit), kern_attn_tile.c
 * (multiplies) and kern_kv.c (reads and writes the arena). */
#ifndef COMPUTE_KERNELS_ATTN_H
#define COMPUTE_KERNELS_ATTN_H

#include "base/kv_types.h"
#include "compute/kernels/attn_args.h"

enum {
    ATTN_GROUP_KEYS = 16, /* keys that always lie in one block: a vector's worth */
    ATTN_TILE_KEYS = 64,  /* keys of a tile; tiles begin at multiples of this number */
    ATTN_TILE_GROUPS = ATTN_TILE_KEYS / ATTN_GROUP_KEYS,
    ATTN_SPLIT_KEYS = 512, /* keys of a split; its part is finished before the next one's begins */
    ATTN_UNIT_ROWS = 192,  /* rows (queries x heads) that share a K/V tile */
    ATTN_TILE_ROWS = 6,    /* of those, rows in registers at once */
    ATTN_PASS_ROWS = 8,    /* rows that may read the arena together, */
    ATTN_DIRECT_ROWS = 16, /* ... and rows that read it at all, in one or more passes */
    ATTN_STATE_HEAD = 32,  /* floats before o in a row's state */
    ATTN_PART_HEAD = 16,   /* and in a finished part */
    KV_RUN = 32,           /* numbers under one scale */
};

/* One rank's memory for a unit. */
struct attn_space {
    float *q;      /* [row][attn_pad(k_dim)], scaled */
    float *scores; /* [ATTN_DIRECT_ROWS][ATTN_TILE_KEYS] */
    float *k;      /* [k_dim][ATTN_TILE_KEYS] of the current tile */
    float *v;      /* [ATTN_TILE_KEYS][attn_v_step] */
    float *state;  /* [row][attn_state_floats] of the current split */
    float *total;  /* [row][attn_part_floats] of the splits so far */
};

/* A unit: queries from first_token on, heads from first_head on, some splits of the keys. Rows are ordered
 * by token, then by head. */
struct attn_unit {
    const struct attn_args *args;
    const struct attn_item *item;
    uint32_t kv_head;
    uint32_t first_head, n_heads; /* all heads of the KV head's group, or some */
    uint32_t first_token, n_tokens;
    uint32_t first_split, end_split; /* splits without keys for a query are skipped */
    bool fetches_far;                /* prefetch the next tile into the second-level cache, not the first */
    struct attn_space space;
    float *partials; /* [row][partial_splits] parts, from first_partial on; NULL: finish into args->out */
    uint32_t first_partial, partial_splits;
};

/* Loads groups [from, to) of a tile of keys as floats into space's k (NULL: no keys) and v. */
struct kv_tile {
    const uint32_t *blocks;
    uint32_t kv_head;
    uint32_t key; /* first key of the tile */
    uint32_t from, to;
    uint32_t end; /* one past the last stored key */
    float *k, *v;
};

/* Prefetch while a tile is multiplied: the bytes of each group's keys and values in the next tile. */
struct kv_ahead {
    const char *k[ATTN_TILE_GROUPS], *v[ATTN_TILE_GROUPS];
    size_t k_bytes, v_bytes; /* bytes of each group */
};

/* Computes a whole tile for at most ATTN_PASS_ROWS rows directly from the arena. */
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
    const struct kv_ahead *ahead; /* prefetches these keys meanwhile; may be NULL */
};

/* A register tile of values: o [row] += p [row][key] * v [key], for keys [from, to). */
struct attn_values {
    const float *p; /* [row][ATTN_TILE_KEYS] */
    const float *v; /* [ATTN_TILE_KEYS][v_step] */
    size_t v_step;
    float *o;
    size_t o_step;
    uint32_t n_vectors; /* vectors of sixteen in o */
    uint32_t from, to;
    const struct kv_ahead *ahead; /* prefetches these values meanwhile; may be NULL */
};

static inline size_t attn_round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static inline uint32_t attn_pad(uint32_t dim)
{
    return (uint32_t)attn_round_up(dim, 16);
}

/* Floats between the rows of the V tile; quantised rows are padded. */
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

#define X(name, number, word, run, run_bytes)                                                                \
    _Static_assert((run) == 1 || (run) == KV_RUN, "kernels know one length of runs");
KV_TYPE_TABLE(X)
#undef X

/* Bytes of a key or value, averaged over a block; 0: no type of keys and values. */
static inline size_t attn_row_bytes(enum dtype type, uint32_t dim)
{
#define X(name, number, word, run, run_bytes)                                                                \
    if (type == DTYPE_##name)                                                                                \
        return attn_round_up(dim, run) / (run) * (run_bytes);
    KV_TYPE_TABLE(X)
#undef X
    return 0;
}

/* True for types whose runs have a scale. */
static inline __attribute__((always_inline)) bool kv_is_quantised(enum dtype type)
{
#define X(name, number, word, run, run_bytes) || ((run) == KV_RUN && type == DTYPE_##name)
    return false KV_TYPE_TABLE(X);
#undef X
}

/* Returns the first key that a query at a position attends to. */
static inline uint32_t attn_first_key(const struct attn_args *args, uint32_t position)
{
    return args->window != 0 && position >= args->window ? position - args->window + 1 : 0;
}

#endif
