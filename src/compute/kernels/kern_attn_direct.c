/* SPDX-License-Identifier: Apache-2.0 */
/* Decode: a whole tile for a few rows, directly from the arena.
 *
 * With one query there is little arithmetic per key.  A tile expanded to floats (kern_kv.c) would evict
 * prefetched keys from the first-level cache.  So the product widens sixteen numbers at a time.  It
 * prefetches the next tile at the pace at which it uses this one, into the first-level cache if both fit
 * there. The sums are those of kern_attn_tile.c in the same order, so the bits are the same.
 *
 * Rows are the heads that share a KV head, of one or two queries. One pass takes as many rows as fit into
 * registers; more rows leave fewer vectors side by side.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/kernels/kern_kv_priv.h"

#include "base/mem.h"

enum { MAX_VECTORS = 4 };

struct direct_sums {
    v16 at[ATTN_PASS_ROWS][MAX_VECTORS];
};

/* A constant after inlining. */
struct form {
    enum dtype type;
    uint32_t n_rows, n_vectors;
};

KV_INLINED uint32_t vectors_for(uint32_t n_rows)
{
    if (TILE_TOKENS == 1)
        return 1;
    if (TILE_TOKENS >= 12)
        return n_rows <= 6 ? MAX_VECTORS : MAX_VECTORS / 2;
    return n_rows == 1 ? 4 : n_rows <= 3 ? 2 : 1;
}

/* Prefetches one line at each of n addresses. */
KV_INLINED void kern_attn_fetch(const struct attn_direct *tile, const char *const *from, uint32_t n,
                                size_t at)
{
    if (tile->fetches_far) {
#pragma GCC unroll 4
        for (uint32_t i = 0; i < n; i++)
            __builtin_prefetch(from[i] + at, 0, 2);
    } else {
#pragma GCC unroll 4
        for (uint32_t i = 0; i < n; i++)
            __builtin_prefetch(from[i] + at, 0, 3);
    }
}

KV_INLINED void add_products(struct form form, float *const *x, size_t i, const v16 *lanes,
                             struct direct_sums *sums)
{
#pragma GCC unroll 8
    for (uint32_t r = 0; r < form.n_rows; r++) {
        v16 one = v16_set1(x[r][i]);
#pragma GCC unroll 4
        for (uint32_t j = 0; j < form.n_vectors; j++)
            sums->at[r][j] = v16_fma(one, lanes[j], sums->at[r][j]);
    }
}

/* ---- scores ---- */

/* Adds the products of numbers [d, end), for n_vectors groups of keys from `group` on. */
KV_INLINED void scores_span(const struct attn_direct *tile, uint32_t group, struct form form, uint32_t d,
                            uint32_t end, bool is_high, float *const *q, struct direct_sums *sums)
{
    const size_t ahead_step = kv_bytes(form.type, ATTN_GROUP_KEYS);
    /* Prefetch each line twice, because the processor may
     * have dropped the first request when its queue was full. */
    const uint32_t again = ahead_step < MEM_CACHE_LINE / 2 ? MEM_CACHE_LINE / 2 / (uint32_t)ahead_step : 1;
    struct kv_key_span span[MAX_VECTORS];
    const char *ahead[MAX_VECTORS];

#pragma GCC unroll 4
    for (uint32_t j = 0; j < form.n_vectors; j++) {
        span[j] =
            kv_key_span(form.type, tile->k[group + j], tile->k_scales[group + j], tile->block_tokens, d);
        ahead[j] = tile->ahead.k[group + j] + d * ahead_step;
    }
#pragma GCC unroll 2
    for (uint32_t i = 0; i < end - d; i++) {
        v16 lanes[MAX_VECTORS];

#pragma GCC unroll 4
        for (uint32_t j = 0; j < form.n_vectors; j++)
            lanes[j] = kv_key(form.type, &span[j], i, is_high);
        if (i % again == 0)
            kern_attn_fetch(tile, ahead, form.n_vectors, i * ahead_step);
        add_products(form, q, d + i, lanes, sums);
    }
}

/* Each span of quantised keys has its own scales.
 * In Q4_0 every second span is the high halves of the bytes. */
KV_INLINED void scores_spans(const struct attn_direct *tile, uint32_t group, struct form form,
                             float *const *q, struct direct_sums *sums)
{
    const uint32_t k_dim = tile->k_dim;

    if (!kv_is_quantised(form.type)) {
        scores_span(tile, group, form, 0, k_dim, false, q, sums);
        return;
    }
    for (uint32_t d = 0; d < k_dim; d += KV_RUN) {
        const uint32_t middle = d + KV_SPAN, end = d + KV_RUN;

        scores_span(tile, group, form, d, middle < k_dim ? middle : k_dim, false, q, sums);
        if (middle < k_dim)
            scores_span(tile, group, form, middle, end < k_dim ? end : k_dim, true, q, sums);
    }
}

KV_INLINED void scores_part(const struct attn_direct *tile, uint32_t group, struct form form)
{
    struct direct_sums sums;
    float *q[ATTN_PASS_ROWS];

#pragma GCC unroll 8
    for (uint32_t r = 0; r < form.n_rows; r++) {
        q[r] = tile->q + r * tile->q_step;
#pragma GCC unroll 4
        for (uint32_t j = 0; j < form.n_vectors; j++)
            sums.at[r][j] = v16_zero();
    }
    scores_spans(tile, group, form, q, &sums);
#pragma GCC unroll 8
    for (uint32_t r = 0; r < form.n_rows; r++)
#pragma GCC unroll 4
        for (uint32_t j = 0; j < form.n_vectors; j++)
            v16_store(tile->scores + r * ATTN_TILE_KEYS + (group + j) * 16, sums.at[r][j]);
}

/* ---- values ---- */

/* Adds sixteen tokens' share of n_vectors vectors of each row's output. */
KV_INLINED void values_group(const struct attn_direct *tile, uint32_t group, uint32_t vector,
                             struct form form, float *const *p, struct direct_sums *sums)
{
    const size_t row_bytes = kv_filled_bytes(form.type, tile->v_dim);
    const size_t part_bytes = kv_bytes(form.type, form.n_vectors * KV_SPAN);
    const uint32_t n_lines = (uint32_t)((part_bytes + MEM_CACHE_LINE - 1) / MEM_CACHE_LINE);
    const uint32_t n_runs = kv_runs(tile->v_dim);
    const char *row = tile->v[group];
    const char *ahead[MAX_VECTORS];
    float scales[ATTN_GROUP_KEYS * KV_MAX_RUNS];

    if (kv_is_quantised(form.type))
        kv_value_scales(tile->v_scales[group], n_runs, scales);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < n_lines; i++)
        ahead[i] = tile->ahead.v[group] + kv_bytes(form.type, vector * KV_SPAN) + i * MEM_CACHE_LINE;
#pragma GCC unroll 2
    for (uint32_t i = 0; i < ATTN_GROUP_KEYS; i++) {
        v16 lanes[MAX_VECTORS];

#pragma GCC unroll 4
        for (uint32_t j = 0; j < form.n_vectors; j++) /* vector is even if there are several */
            lanes[j] = kv_value(form.type, row, scales + i * n_runs, vector + j,
                                (form.n_vectors > 1 ? j : vector) % 2 != 0);
        kern_attn_fetch(tile, ahead, n_lines, i * row_bytes);
        add_products(form, p, group * ATTN_GROUP_KEYS + i, lanes, sums);
        row += row_bytes;
    }
}

/* Computes n_vectors vectors of each row's output, from `vector` on. */
KV_INLINED void values_part(const struct attn_direct *tile, uint32_t vector, struct form form)
{
    struct direct_sums sums;
    float *p[ATTN_PASS_ROWS];

#pragma GCC unroll 8
    for (uint32_t r = 0; r < form.n_rows; r++) {
        p[r] = tile->scores + r * ATTN_TILE_KEYS;
#pragma GCC unroll 4
        for (uint32_t j = 0; j < form.n_vectors; j++)
            sums.at[r][j] = v16_load(tile->o + r * tile->o_step + (vector + j) * 16);
    }
    for (uint32_t group = 0; group < ATTN_TILE_GROUPS; group++)
        values_group(tile, group, vector, form, p, &sums);
#pragma GCC unroll 8
    for (uint32_t r = 0; r < form.n_rows; r++)
#pragma GCC unroll 4
        for (uint32_t j = 0; j < form.n_vectors; j++)
            v16_store(tile->o + r * tile->o_step + (vector + j) * 16, sums.at[r][j]);
}

/* ---- every form ---- */

KV_INLINED void scores_of(const struct attn_direct *tile, enum dtype type, uint32_t n_rows)
{
    const struct form form = {type, n_rows, vectors_for(n_rows)};

    for (uint32_t group = 0; group < ATTN_TILE_GROUPS; group += form.n_vectors)
        scores_part(tile, group, form);
}

KV_INLINED void values_of(const struct attn_direct *tile, enum dtype type, uint32_t n_rows)
{
    const struct form form = {type, n_rows, vectors_for(n_rows)};
    uint32_t vector = 0;

    for (; vector + form.n_vectors <= tile->v_dim / 16; vector += form.n_vectors)
        values_part(tile, vector, form);
    for (; vector < tile->v_dim / 16; vector++)
        values_part(tile, vector, (struct form){type, n_rows, 1});
}

/* One expansion for each type and height.  Tables with fewer registers make passes of fewer rows. */
#define HEIGHTS(CASE)                                                                                        \
    CASE(1)                                                                                                  \
    CASE(2)                                                                                                  \
    CASE(3)                                                                                                  \
    CASE(4)                                                                                                  \
    CASE(5)                                                                                                  \
    CASE(6)                                                                                                  \
    CASE(7)                                                                                                  \
    CASE(8)

KV_INLINED void scores_by_height(const struct attn_direct *tile, enum dtype type)
{
    switch (tile->n_rows) {
#define CASE(height)                                                                                         \
    case height:                                                                                             \
        if (height <= PASS_ROWS)                                                                             \
            scores_of(tile, type, height);                                                                   \
        break;
        HEIGHTS(CASE)
#undef CASE
    }
}

KV_INLINED void values_by_height(const struct attn_direct *tile, enum dtype type)
{
    switch (tile->n_rows) {
#define CASE(height)                                                                                         \
    case height:                                                                                             \
        if (height <= PASS_ROWS)                                                                             \
            values_of(tile, type, height);                                                                   \
        break;
        HEIGHTS(CASE)
#undef CASE
    }
}

/* Each type has its own function, because compile time grows faster than the size of a function. */
#define FUNCTIONS(type, ...)                                                                                 \
    static __attribute__((noinline)) void scores_##type(const struct attn_direct *tile)                      \
    {                                                                                                        \
        scores_by_height(tile, DTYPE_##type);                                                                \
    }                                                                                                        \
    static __attribute__((noinline)) void values_##type(const struct attn_direct *tile)                      \
    {                                                                                                        \
        values_by_height(tile, DTYPE_##type);                                                                \
    }
KV_TYPE_TABLE(FUNCTIONS)
#undef FUNCTIONS

void KERN(attn_direct_scores)(const struct attn_direct *tile)
{
    switch ((int)tile->type) {
#define CASE(type, ...)                                                                                      \
    case DTYPE_##type:                                                                                       \
        scores_##type(tile);                                                                                 \
        break;
        KV_TYPE_TABLE(CASE)
#undef CASE
    }
}

void KERN(attn_direct_values)(const struct attn_direct *tile)
{
    switch ((int)tile->type) {
#define CASE(type, ...)                                                                                      \
    case DTYPE_##type:                                                                                       \
        values_##type(tile);                                                                                 \
        break;
        KV_TYPE_TABLE(CASE)
#undef CASE
    }
}
