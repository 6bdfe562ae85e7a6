/* SPDX-License-Identifier: Apache-2.0 */
/* Between attention.c, which shares out the work, and kern_attn.c, which does a unit of it. */
#ifndef TENSOR_ATTN_PRIV_H
#define TENSOR_ATTN_PRIV_H

#include "tensor/tensor.h"

enum {
    ATTN_SPLIT_TOKENS = 512, /* keys of a split; less where the block size does not divide it */
    ATTN_UNIT_ROWS = 48,     /* queries x heads that share a K/V tile, at least one query */
    ATTN_STATE_HEAD = 32,    /* floats before o in a row's state */
    ATTN_PART_HEAD = 16,     /* and in a finished part */
};

/* One rank's memory for a unit. */
struct attn_space {
    float *q;      /* row tiles, packed [head_dim][rows of the tile] */
    float *scores; /* [rows of a tile][ROWS_STRIDE] */
    float *k;      /* [head_dim][block_tokens] when converted */
    float *v;      /* [block_tokens][head_dim] */
    float *state;  /* [row][attn_state_floats] of the split at hand */
    float *total;  /* [row][attn_part_floats] of the splits so far */
};

/* Queries first_token.. of an item, the heads of one KV head, some splits of the keys. */
struct attn_unit {
    const struct attn_args *args;
    const struct attn_item *item;
    uint32_t kv_head;
    uint32_t first_token;
    uint32_t n_tokens;
    uint32_t first_split, end_split; /* those without keys for a query are skipped */
    struct attn_space space;
    float *partials; /* [row][partial_splits] parts; NULL: finish into args->out */
    uint32_t partial_splits;
};

/* Puts the partial results of one KV head's rows of an item together, in order. */
struct attn_merge {
    const struct attn_args *args;
    const struct attn_item *item;
    uint32_t kv_head;
    float *partials; /* [row][partial_splits] parts, changed */
    uint32_t partial_splits;
};

static inline uint32_t attn_head_pad(uint32_t head_dim)
{
    return (head_dim + 15) / 16 * 16;
}

static inline uint32_t attn_split_blocks(uint32_t block_tokens)
{
    return block_tokens >= ATTN_SPLIT_TOKENS ? 1 : ATTN_SPLIT_TOKENS / block_tokens;
}

static inline uint32_t attn_part_floats(uint32_t head_dim)
{
    return ATTN_PART_HEAD + attn_head_pad(head_dim);
}

static inline uint32_t attn_state_floats(uint32_t head_dim)
{
    return ATTN_STATE_HEAD + attn_head_pad(head_dim);
}

/* Queries of a unit. */
static inline uint32_t attn_unit_tokens(uint32_t group)
{
    return group >= ATTN_UNIT_ROWS ? 1 : ATTN_UNIT_ROWS / group;
}

#endif
