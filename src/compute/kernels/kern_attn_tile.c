/* SPDX-License-Identifier: Apache-2.0 */
/* The two register tiles of attention.
 *
 *     scores, a key per lane                        values, a number of the value per lane
 *
 *          k[d]   16 keys | 16 | 16 | 16                 v[key]  16 numbers | 16 | 16 | 16
 *     q[r][d] ->   s[r]  += q[r][d] * k[d]          p[r][key] ->  o[r]  += p[r][key] * v[key]
 *
 * A lane is one score (or one number of one output). It adds d (or the keys) in order, with one rounding
 * each, in every tile shape. q and p are read one by one from memory, row after row, so nothing is packed.
 * Six rows by four vectors are 24 sums in AVX-512's 32 registers and need 10 loads per 24 products. AVX2
 * has room for six rows by one vector of sixteen.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/kernels/kern_set_priv.h"

#include <string.h>

#include "base/mem.h"

enum { MAX_VECTORS = 4 };

struct attn_sums {
    v16 at[ATTN_TILE_ROWS][MAX_VECTORS];
};

/* Returns how many vectors the registers allow beside each other for so many rows. */
static inline __attribute__((always_inline)) uint32_t kern_attn_tile_vectors_for(uint32_t n_rows)
{
    if (TILE_TOKENS == 1)
        return 1;
    if (TILE_TOKENS >= 12)
        return MAX_VECTORS;
    return n_rows == 1 ? 4 : n_rows <= 3 ? 2 : 1;
}

/* A constant after inlining. */
struct form {
    uint32_t n_rows, n_vectors;
    bool is_fetching;
};

/* Addresses to prefetch; each step of the product fetches step_bytes at each of them. */
struct fetch {
    const char *from[ATTN_TILE_GROUPS];
    size_t step_bytes;
};

/* sums += x[row][i] * w[i] for i in [0, n). */
static inline __attribute__((always_inline)) void
kern_attn_tile_multiply(const float *x, size_t x_step, const float *w, size_t w_step, uint32_t n,
                        struct form form, const struct fetch *fetch, struct attn_sums *sums)
{
    const uint32_t n_rows = form.n_rows, n_vectors = form.n_vectors;
    const float *rows[ATTN_TILE_ROWS];
    size_t fetch_at = 0;

#pragma GCC unroll 6
    for (uint32_t r = 0; r < n_rows; r++)
        rows[r] = x + r * x_step;
#pragma GCC unroll 2
    for (uint32_t i = 0; i < n; i++) {
        v16 lanes[MAX_VECTORS];

#pragma GCC unroll 4
        for (uint32_t j = 0; j < n_vectors; j++)
            lanes[j] = v16_load(w + j * 16);
#pragma GCC unroll 6
        for (uint32_t r = 0; r < n_rows; r++) {
            v16 one = v16_set1(rows[r][i]);
#pragma GCC unroll 4
            for (uint32_t j = 0; j < n_vectors; j++)
                sums->at[r][j] = v16_fma(one, lanes[j], sums->at[r][j]);
        }
        w += w_step;
        if (form.is_fetching) {
#pragma GCC unroll 4
            for (uint32_t g = 0; g < ATTN_TILE_GROUPS; g++)
                __builtin_prefetch(fetch->from[g] + fetch_at, 0, 3);
            fetch_at += fetch->step_bytes;
        }
    }
}

static inline __attribute__((always_inline)) void kern_attn_tile_scores_part(const struct attn_scores *tile,
                                                                             uint32_t group, struct form form,
                                                                             const struct fetch *fetch)
{
    struct attn_sums sums;

#pragma GCC unroll 6
    for (uint32_t r = 0; r < form.n_rows; r++)
#pragma GCC unroll 4
        for (uint32_t j = 0; j < form.n_vectors; j++)
            sums.at[r][j] = v16_zero();
    kern_attn_tile_multiply(tile->q, tile->q_step, tile->k + group * 16, ATTN_TILE_KEYS, tile->n_k, form,
                            fetch, &sums);
#pragma GCC unroll 6
    for (uint32_t r = 0; r < form.n_rows; r++)
#pragma GCC unroll 4
        for (uint32_t j = 0; j < form.n_vectors; j++)
            v16_store(tile->s + r * ATTN_TILE_KEYS + (group + j) * 16, sums.at[r][j]);
}

static inline __attribute__((always_inline)) void kern_attn_tile_values_part(const struct attn_values *tile,
                                                                             uint32_t vector,
                                                                             struct form form,
                                                                             const struct fetch *fetch)
{
    const float *v = tile->v + tile->from * tile->v_step + (size_t)vector * 16;
    float *o = tile->o + (size_t)vector * 16;
    struct attn_sums sums;

#pragma GCC unroll 6
    for (uint32_t r = 0; r < form.n_rows; r++)
#pragma GCC unroll 4
        for (uint32_t j = 0; j < form.n_vectors; j++)
            sums.at[r][j] = v16_load(o + r * tile->o_step + j * 16);
    kern_attn_tile_multiply(tile->p + tile->from, ATTN_TILE_KEYS, v, tile->v_step, tile->to - tile->from,
                            form, fetch, &sums);
#pragma GCC unroll 6
    for (uint32_t r = 0; r < form.n_rows; r++)
#pragma GCC unroll 4
        for (uint32_t j = 0; j < form.n_vectors; j++)
            v16_store(o + r * tile->o_step + j * 16, sums.at[r][j]);
}

static inline __attribute__((always_inline)) void kern_attn_tile_scores_of(const struct attn_scores *tile,
                                                                           uint32_t n_rows)
{
    const uint32_t most = kern_attn_tile_vectors_for(n_rows);
    uint32_t group = tile->from;

    if (tile->ahead != NULL && group + most <= tile->to) { /* the first groups prefetch all of it */
        struct fetch fetch = {.step_bytes = tile->ahead->k_bytes / tile->n_k};

        memcpy(fetch.from, tile->ahead->k, sizeof(fetch.from));
        kern_attn_tile_scores_part(tile, group, (struct form){n_rows, most, true}, &fetch);
        group += most;
    }
    for (; group + most <= tile->to; group += most)
        kern_attn_tile_scores_part(tile, group, (struct form){n_rows, most, false}, NULL);
    for (; group < tile->to; group++)
        kern_attn_tile_scores_part(tile, group, (struct form){n_rows, 1, false}, NULL);
}

static inline __attribute__((always_inline)) void kern_attn_tile_values_of(const struct attn_values *tile,
                                                                           uint32_t n_rows)
{
    const uint32_t most = kern_attn_tile_vectors_for(n_rows);
    const size_t step_bytes = MEM_CACHE_LINE, most_bytes = ATTN_TILE_KEYS * step_bytes;
    size_t fetched_bytes = 0, all_bytes = tile->ahead != NULL ? tile->ahead->v_bytes : 0;
    uint32_t vector = 0;

    for (; fetched_bytes < all_bytes && vector + most <= tile->n_vectors; vector += most) {
        size_t left_bytes = all_bytes - fetched_bytes;
        struct fetch fetch = {.step_bytes =
                                  left_bytes < most_bytes ? left_bytes / ATTN_TILE_KEYS : step_bytes};

        for (uint32_t g = 0; g < ATTN_TILE_GROUPS; g++)
            fetch.from[g] = tile->ahead->v[g] + fetched_bytes;
        kern_attn_tile_values_part(tile, vector, (struct form){n_rows, most, true}, &fetch);
        fetched_bytes += most_bytes;
    }
    for (; vector + most <= tile->n_vectors; vector += most)
        kern_attn_tile_values_part(tile, vector, (struct form){n_rows, most, false}, NULL);
    for (; vector < tile->n_vectors; vector++)
        kern_attn_tile_values_part(tile, vector, (struct form){n_rows, 1, false}, NULL);
}

/* One expansion for each height, with the height as a constant. */
#define HEIGHTS(CASE) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)

void KERN(attn_scores)(const struct attn_scores *tile, uint32_t n_rows)
{
    switch (n_rows) {
#define CASE(height)                                                                                         \
    case height:                                                                                             \
        kern_attn_tile_scores_of(tile, height);                                                              \
        break;
        HEIGHTS(CASE)
#undef CASE
    }
}

void KERN(attn_values)(const struct attn_values *tile, uint32_t n_rows)
{
    switch (n_rows) {
#define CASE(height)                                                                                         \
    case height:                                                                                             \
        kern_attn_tile_values_of(tile, height);                                                              \
        break;
        HEIGHTS(CASE)
#undef CASE
    }
}
