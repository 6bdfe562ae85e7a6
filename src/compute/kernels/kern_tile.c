/* SPDX-License-Identifier: Apache-2.0 */
/* The register tile: a few panels of weights times a few tokens, all sums in registers.
 *
 *              panel p        panel p+1
 *            16 rows of W    16 rows of W         x packed [k][token]
 *     k ->  [ w w w .. w ]  [ w w w .. w ]    x    x0 x1 x2 .. xT-1
 *                                             |
 *           acc[p][t][lane] += w[p][lane] * x[t]          one fused multiply-add per 16 outputs
 *
 * Each lane is one output and adds k = 0, 1, 2 .. in this order, with one rounding per step, in every tile
 * shape. So an output's bits depend only on its own row and its own activations. A tile may stop after
 * some k, and another may continue from y: floats in memory equal those in the register.
 *
 * The v16 header defines the shapes. AVX-512 has 32 registers (2 panels x 12 tokens = 24 sums, 2 weights,
 * broadcasts). AVX2 has 16 of half the width (1 panel x 6 tokens). With few tokens, more panels keep the
 * FMA units busy.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/kernels/kern_set_priv.h"

#include <string.h>

enum source { FROM_F32, FROM_F16, FROM_BF16 };

enum { AHEAD_K = 128 }; /* 4 KiB of F16 per panel */

struct shape {
    enum source source;
    uint32_t n_panels, n_tokens;
};

/* Weights to prefetch. */
struct fetch {
    const char *from;
    size_t k_bytes, panel_bytes; /* distance from k to k + 1, and from panel to panel */
};

static inline __attribute__((always_inline)) v16 load_weights(enum source source, const void *w, size_t at)
{
    if (source == FROM_F16)
        return v16_from_f16((const uint16_t *)w + at);
    if (source == FROM_BF16)
        return v16_from_bf16((const uint16_t *)w + at);
    return v16_load((const float *)w + at);
}

/* Adds the products of one k, whose weights are at `at`. */
static inline __attribute__((always_inline)) void tile_step(const struct tile *tile, struct shape shape,
                                                            size_t at, size_t k, struct sums *sums)
{
    v16 w[MAX_GROUP_PANELS];

#pragma GCC unroll 4
    for (uint32_t p = 0; p < shape.n_panels; p++)
        w[p] = load_weights(shape.source, tile->w, at + p * tile->panel_step);
#pragma GCC unroll 12
    for (uint32_t t = 0; t < shape.n_tokens; t++) {
        v16 x = v16_set1(tile->x[k * shape.n_tokens + t]);
#pragma GCC unroll 4
        for (uint32_t p = 0; p < shape.n_panels; p++)
            sums->at[p][t] = v16_fma(w[p], x, sums->at[p][t]);
    }
}

/* Returns the address to prefetch while panels at `own` are read: AHEAD_K ahead in the same panels, and in
 * the last part the panels after them.  The caller may give another address. */
static inline struct fetch fetch_at(const struct tile *tile, const char *own, size_t element_bytes,
                                    bool is_last_part, uint32_t n_panels)
{
    size_t k_bytes = element_bytes * PANEL_ROWS, panel_bytes = tile->panel_step * element_bytes;

    if (tile->next != NULL)
        return (struct fetch){tile->next, tile->next_k_bytes, tile->next_panel_bytes};
    return (struct fetch){is_last_part ? own + n_panels * panel_bytes : own + AHEAD_K * k_bytes, k_bytes,
                          panel_bytes};
}

/* Multiplies one group of panels; the shape is a constant after inlining. */
static inline __attribute__((always_inline)) void kern_tile_group(const struct tile *tile, struct shape shape,
                                                                  uint32_t panel)
{
    const size_t element_bytes = shape.source == FROM_F32 ? 4 : 2;
    float *y = tile->y + (size_t)panel * PANEL_ROWS;
    size_t at = panel * tile->panel_step, k = 0;
    const char *own = (const char *)tile->w + at * element_bytes;
    struct sums sums;

    sums_open(&sums, y, tile->y_step, tile->is_first, shape.n_panels, shape.n_tokens);
    for (int part = 0; part < 2; part++) {
        size_t before = tile->next == NULL && tile->n_k > AHEAD_K ? tile->n_k - AHEAD_K : 0;
        size_t end = part == 0 ? before / 2 * 2 : tile->n_k / 2 * 2;
        struct fetch fetch = fetch_at(tile, own, element_bytes, part == 1, shape.n_panels);

        for (; k < end; k += 2, at += 2 * PANEL_ROWS) {
            tile_step(tile, shape, at, k, &sums);
            tile_step(tile, shape, at + PANEL_ROWS, k + 1, &sums);
#pragma GCC unroll 4
            for (uint32_t p = 0; p < shape.n_panels; p++)
                if (tile->is_near)
                    __builtin_prefetch(fetch.from + p * fetch.panel_bytes, 0, 3);
                else
                    __builtin_prefetch(fetch.from + p * fetch.panel_bytes, 0, 2);
            fetch.from += 2 * fetch.k_bytes;
        }
    }
    if (k < tile->n_k)
        tile_step(tile, shape, at, k, &sums);
    sums_close(&sums, y, tile->y_step, shape.n_panels, shape.n_tokens);
}

/* Computes as many panels at once as the height allows, then the rest. */
static inline __attribute__((always_inline)) void tile_panels_all(const struct tile *tile, enum source source,
                                                                  uint32_t n_tokens)
{
    const uint32_t most = tile_panels(n_tokens);
    uint32_t p = 0;

    for (; p + most <= tile->n_panels; p += most)
        kern_tile_group(tile, (struct shape){source, most, n_tokens}, p);
    for (; most > 2 && p + 2 <= tile->n_panels; p += 2)
        kern_tile_group(tile, (struct shape){source, 2, n_tokens}, p);
    for (; p < tile->n_panels; p++)
        kern_tile_group(tile, (struct shape){source, 1, n_tokens}, p);
}

static inline __attribute__((always_inline)) void tile_by_height(const struct tile *tile, enum source source)
{
    switch (tile->n_tokens) {
#define CASE(height)                                                                                         \
    case height:                                                                                             \
        tile_panels_all(tile, source, height);                                                               \
        break;
        TILE_HEIGHTS(CASE)
#undef CASE
    }
}

void KERN(tile_f32)(const struct tile *tile)
{
    tile_by_height(tile, FROM_F32);
}

void KERN(tile_f16)(const struct tile *tile)
{
    tile_by_height(tile, FROM_F16);
}

void KERN(tile_bf16)(const struct tile *tile)
{
    tile_by_height(tile, FROM_BF16);
}

/* ---- BF16 tiles ---- */

/* Sums every second element of a slice, from `first` on, starting at zero. */
static inline __attribute__((always_inline)) void slice_chain(const struct tile *tile, const float *w,
                                                              size_t first, uint32_t n_tokens, v16 *sums)
{
#pragma GCC unroll 12
    for (uint32_t t = 0; t < n_tokens; t++)
        sums[t] = v16_zero();
#pragma GCC unroll 1
    for (size_t k = first; k < first + TILES_COLS; k += 2) {
        v16 lanes = v16_load(w + k * PANEL_ROWS);

#pragma GCC unroll 12
        for (uint32_t t = 0; t < n_tokens; t++)
            sums[t] = v16_fma(lanes, v16_set1(tile->x[k * n_tokens + t]), sums[t]);
    }
}

/* Computes as kern_amx_bf16.c does: odd and even columns of a slice have their own chains, then both are
 * added to the sum.  It takes one panel at a time, because two chains for each token fill the registers. */
static inline __attribute__((always_inline)) void slices_panel(const struct tile *tile, uint32_t panel,
                                                               uint32_t n_tokens)
{
    const float *w = (const float *)tile->w + panel * tile->panel_step;
    float *y = tile->y + (size_t)panel * PANEL_ROWS;
    v16 odd[TILE_TOKENS], even[TILE_TOKENS];

    for (size_t k = 0; k < tile->n_k; k += TILES_COLS) {
        slice_chain(tile, w, k, n_tokens, odd);
        slice_chain(tile, w, k + 1, n_tokens, even);
#pragma GCC unroll 12
        for (uint32_t t = 0; t < n_tokens; t++) {
            v16 before = tile->is_first && k == 0 ? v16_zero() : v16_load(y + t * tile->y_step);

            v16_store(y + t * tile->y_step, v16_add(before, v16_add(even[t], odd[t])));
        }
    }
}

void KERN(slices_f32)(const struct tile *tile)
{
    for (uint32_t p = 0; p < tile->n_panels; p++)
        switch (tile->n_tokens) {
#define CASE(height)                                                                                         \
    case height:                                                                                             \
        slices_panel(tile, p, height);                                                                       \
        break;
            TILE_HEIGHTS(CASE)
#undef CASE
        }
}

/* ---- activations ---- */

void KERN(pack_f32)(const struct pack *pack)
{
    float *out = (float *)pack->out + (size_t)pack->from * pack->n_tokens;

    for (uint32_t k = pack->from; k < pack->to; k++)
        for (uint32_t t = 0; t < pack->n_tokens; t++)
            *out++ = pack->x[t * pack->x_stride + k - pack->from];
}

/* Rounds to BF16 and back to F32: to nearest even, subnormals to zero. */
static inline float round_to_bf16(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    if ((bits & 0x7f800000) == 0)
        bits &= 0x80000000;
    if ((bits & 0x7fffffff) > 0x7f800000)
        bits |= 0x400000; /* a NaN remains a NaN */
    else
        bits += 0x7fff + (bits >> 16 & 1);
    bits &= 0xffff0000;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Packs for BF16 dots that FMAs compute: see kern_bf16.c.  An odd last column is paired with zero. */
void KERN(pack_swapped)(const struct pack *pack)
{
    float *out = (float *)pack->out + (size_t)pack->from * pack->n_tokens;
    size_t n = pack->n_tokens;

    for (uint32_t k = pack->from; k < pack->to; k += 2, out += 2 * n)
        for (uint32_t t = 0; t < n; t++) {
            const float *pair = pack->x + t * pack->x_stride + k - pack->from;

            out[t] = k + 1 < pack->to ? round_to_bf16(pair[1]) : 0.0f;
            out[n + t] = round_to_bf16(pair[0]);
        }
}

void KERN(pack_slices)(const struct pack *pack)
{
    uint32_t packed = (pack->to + 1) / 2 * 2, end = (pack->to + TILES_COLS - 1) / TILES_COLS * TILES_COLS;

    KERN(pack_swapped)(pack);
    memset((float *)pack->out + (size_t)packed * pack->n_tokens, 0,
           (size_t)(end - packed) * pack->n_tokens * sizeof(float));
}

void KERN(widen_f16)(const uint16_t *in, float *out, size_t n)
{
    for (size_t i = 0; i < n; i += 16)
        v16_store(out + i, v16_from_f16(in + i));
}

void KERN(widen_bf16)(const uint16_t *in, float *out, size_t n)
{
    for (size_t i = 0; i < n; i += 16)
        v16_store(out + i, v16_from_bf16(in + i));
}
