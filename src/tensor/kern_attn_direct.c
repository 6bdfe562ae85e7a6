/* SPDX-License-Identifier: Apache-2.0 */
/* A whole tile for a few rows, straight from the arena: decode.
 *
 * With one query there is little arithmetic per key, and a tile as floats (kern_kv.c) would push the keys
 * that are on their way out of the first-level cache.  So where all rows fit into registers and the type is a
 * plain one, each sixteen are widened on their way into the product, and the next tile is fetched at the pace
 * at which this one is used: into the first-level cache if that holds both.  The sums are those of
 * kern_attn_tile.c, in the same order: the same bits.
 *
 * Hot path: no allocation, no log, no system call.
 */
#include "tensor/kern_set_priv.h"

enum { MAX_VECTORS = 4 };

struct direct_sums {
    v16 at[ATTN_TILE_ROWS][MAX_VECTORS];
};

/* A constant wherever it is expanded. */
struct form {
    enum dtype type;
    uint32_t n_rows, n_vectors;
};

static inline __attribute__((always_inline)) uint32_t vectors_for(uint32_t n_rows)
{
    if (TILE_TOKENS == 1)
        return 1;
    if (TILE_TOKENS >= 12)
        return MAX_VECTORS;
    return n_rows == 1 ? 4 : n_rows <= 3 ? 2 : 1;
}

static inline __attribute__((always_inline)) uint32_t element_bytes(enum dtype type)
{
    return type == DTYPE_F32 ? 4 : 2;
}

static inline __attribute__((always_inline)) v16 widen(enum dtype type, const char *from)
{
    if (type == DTYPE_F32)
        return v16_load((const float *)from);
    if (type == DTYPE_F16)
        return v16_from_f16((const uint16_t *)from);
    return v16_from_bf16((const uint16_t *)from);
}

static inline __attribute__((always_inline)) void fetch(const struct attn_direct *tile, const char *at)
{
    if (tile->fetches_far)
        __builtin_prefetch(at, 0, 2);
    else
        __builtin_prefetch(at, 0, 3);
}

static inline __attribute__((always_inline)) void add_products(struct form form, float *const *x, size_t i,
                                                               const v16 *lanes, struct direct_sums *sums)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < form.n_rows; r++) {
        v16 one = v16_set1(x[r][i]);
#pragma GCC unroll 4
        for (uint32_t j = 0; j < form.n_vectors; j++)
            sums->at[r][j] = v16_fma(one, lanes[j], sums->at[r][j]);
    }
}

/* Scores of n_vectors groups from the given one on. */
static inline __attribute__((always_inline)) void scores_part(const struct attn_direct *tile, uint32_t group,
                                                              struct form form)
{
    const size_t ahead_step = ATTN_GROUP_KEYS * element_bytes(form.type);
    const size_t k_step = (size_t)tile->block_tokens * element_bytes(form.type);
    struct direct_sums sums;
    float *q[ATTN_TILE_ROWS];
    const char *k[MAX_VECTORS], *ahead[MAX_VECTORS];

#pragma GCC unroll 6
    for (uint32_t r = 0; r < form.n_rows; r++) {
        q[r] = tile->q + r * tile->q_step;
#pragma GCC unroll 4
        for (uint32_t j = 0; j < form.n_vectors; j++)
            sums.at[r][j] = v16_zero();
    }
#pragma GCC unroll 4
    for (uint32_t j = 0; j < form.n_vectors; j++) {
        k[j] = tile->k[group + j];
        ahead[j] = tile->ahead.k[group + j];
    }
#pragma GCC unroll 2
    for (uint32_t i = 0; i < tile->k_dim; i++) {
        v16 lanes[MAX_VECTORS];

#pragma GCC unroll 4
        for (uint32_t j = 0; j < form.n_vectors; j++) {
            lanes[j] = widen(form.type, k[j] + i * k_step);
            fetch(tile, ahead[j] + i * ahead_step);
        }
        add_products(form, q, i, lanes, &sums);
    }
#pragma GCC unroll 6
    for (uint32_t r = 0; r < form.n_rows; r++)
#pragma GCC unroll 4
        for (uint32_t j = 0; j < form.n_vectors; j++)
            v16_store(tile->scores + r * ATTN_TILE_KEYS + (group + j) * 16, sums.at[r][j]);
}

/* n_vectors of each row's output from the given one on. */
static inline __attribute__((always_inline)) void values_part(const struct attn_direct *tile, uint32_t vector,
                                                              struct form form)
{
    const size_t v_step = (size_t)tile->v_dim * element_bytes(form.type);
    struct direct_sums sums;
    float *p[ATTN_TILE_ROWS];

#pragma GCC unroll 6
    for (uint32_t r = 0; r < form.n_rows; r++) {
        p[r] = tile->scores + r * ATTN_TILE_KEYS;
#pragma GCC unroll 4
        for (uint32_t j = 0; j < form.n_vectors; j++)
            sums.at[r][j] = v16_load(tile->o + r * tile->o_step + (vector + j) * 16);
    }
    for (uint32_t g = 0; g < ATTN_TILE_GROUPS; g++) {
        const size_t at = (size_t)vector * 16 * element_bytes(form.type);
        const char *v = tile->v[g] + at, *ahead = tile->ahead.v[g] + at;

#pragma GCC unroll 2
        for (uint32_t i = 0; i < ATTN_GROUP_KEYS; i++) {
            v16 lanes[MAX_VECTORS];

#pragma GCC unroll 4
            for (uint32_t j = 0; j < form.n_vectors; j++)
                lanes[j] = widen(form.type, v + i * v_step + j * 16 * element_bytes(form.type));
#pragma GCC unroll 4
            for (uint32_t j = 0; j < form.n_vectors; j += 4 / element_bytes(form.type))
                fetch(tile, ahead + i * v_step + j * 16 * element_bytes(form.type));
            add_products(form, p, g * ATTN_GROUP_KEYS + i, lanes, &sums);
        }
    }
#pragma GCC unroll 6
    for (uint32_t r = 0; r < form.n_rows; r++)
#pragma GCC unroll 4
        for (uint32_t j = 0; j < form.n_vectors; j++)
            v16_store(tile->o + r * tile->o_step + (vector + j) * 16, sums.at[r][j]);
}

static inline __attribute__((always_inline)) void scores_of(const struct attn_direct *tile, enum dtype type,
                                                            uint32_t n_rows)
{
    const struct form form = {type, n_rows, vectors_for(n_rows)};

    for (uint32_t group = 0; group < ATTN_TILE_GROUPS; group += form.n_vectors)
        scores_part(tile, group, form);
}

static inline __attribute__((always_inline)) void values_of(const struct attn_direct *tile, enum dtype type,
                                                            uint32_t n_rows)
{
    const struct form form = {type, n_rows, vectors_for(n_rows)};
    uint32_t vector = 0;

    for (; vector + form.n_vectors <= tile->v_dim / 16; vector += form.n_vectors)
        values_part(tile, vector, form);
    for (; vector < tile->v_dim / 16; vector++)
        values_part(tile, vector, (struct form){type, n_rows, 1});
}

/* One expansion per type and height. */
#define HEIGHTS(CASE) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)

static inline __attribute__((always_inline)) void scores_by_height(const struct attn_direct *tile,
                                                                   enum dtype type)
{
    switch (tile->n_rows) {
#define CASE(height)                                                                                         \
    case height:                                                                                             \
        scores_of(tile, type, height);                                                                       \
        break;
        HEIGHTS(CASE)
#undef CASE
    }
}

static inline __attribute__((always_inline)) void values_by_height(const struct attn_direct *tile,
                                                                   enum dtype type)
{
    switch (tile->n_rows) {
#define CASE(height)                                                                                         \
    case height:                                                                                             \
        values_of(tile, type, height);                                                                       \
        break;
        HEIGHTS(CASE)
#undef CASE
    }
}

void KERN(attn_direct_scores)(const struct attn_direct *tile)
{
    if (tile->type == DTYPE_F32)
        scores_by_height(tile, DTYPE_F32);
    else if (tile->type == DTYPE_F16)
        scores_by_height(tile, DTYPE_F16);
    else
        scores_by_height(tile, DTYPE_BF16);
}

void KERN(attn_direct_values)(const struct attn_direct *tile)
{
    if (tile->type == DTYPE_F32)
        values_by_height(tile, DTYPE_F32);
    else if (tile->type == DTYPE_F16)
        values_by_height(tile, DTYPE_F16);
    else
        values_by_height(tile, DTYPE_BF16);
}
