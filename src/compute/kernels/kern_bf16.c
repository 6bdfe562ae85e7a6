/* SPDX-License-Identifier: Apache-2.0 */
/* BF16 dots of AVX-512 (vdpbf16ps): two products per lane and instruction, twice as many as FMAs.
 *
 *              panel p            panel p+1
 *            16 rows of W        16 rows of W          x packed [pair][token]
 * pair ->  [ ww ww ww .. ww ]  [ ww ww ww .. ww ]  x  xx0 xx1 xx2 .. xxT-1
 *                                                      ww: BF16 at k (low half) and at k + 1
 *
 * The instruction computes a lane as follows; subnormal inputs and results count as zero:
 *
 *     sum = fma(w[k + 1], x[k + 1], sum);  sum = fma(w[k], x[k], sum)            two roundings, odd k first
 *
 * So any other table gives the same bits with FMAs over pairs swapped in memory and the CPU set to flush (see
 * tables_x86.c, which also tests the instruction before it is used). Like in the FMA tile (kern_tile.c), each
 * lane is one output and adds its pairs in order, for any shape of the tile.
 *
 * Activations are rounded to BF16, to nearest even, when they are packed. The loops are those of kern_tile.c,
 * with a pair in place of a float.  A tile covers a part of K, and the next one continues from y.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/kernels/kern_set_priv.h"

enum { AHEAD_PAIRS = 64 /* 4 KiB per panel */, PACK_PAIRS = 16, AHEAD_COLS = 64 };

void kern_dots_tile(const struct tile *tile);
void kern_dots_pack(const struct pack *pack);
float kern_peak_bf16(uint32_t rounds);

static inline __attribute__((always_inline)) void dot_step(const struct tile *tile, size_t at, size_t pair,
                                                           struct sums *sums, uint32_t n_panels,
                                                           uint32_t n_tokens)
{
    const uint32_t *x = (const uint32_t *)tile->x + pair * n_tokens;
    __m512bh w[MAX_GROUP_PANELS];

#pragma GCC unroll 4
    for (uint32_t p = 0; p < n_panels; p++)
        w[p] = (__m512bh)_mm512_loadu_si512((const uint32_t *)tile->w + at + p * tile->panel_step);
#pragma GCC unroll 12
    for (uint32_t t = 0; t < n_tokens; t++) {
        __m512bh xx = (__m512bh)_mm512_set1_epi32((int)x[t]);
#pragma GCC unroll 4
        for (uint32_t p = 0; p < n_panels; p++)
            sums->at[p][t] = _mm512_dpbf16_ps(sums->at[p][t], w[p], xx);
    }
}

/* Multiplies one group of panels; both numbers are constants after inlining.  The last AHEAD_PAIRS pairs
 * prefetch the beginning of the panels after these, unless the caller gives an address. */
static inline __attribute__((always_inline)) void dot_group(const struct tile *tile, uint32_t panel,
                                                            uint32_t n_panels, uint32_t n_tokens)
{
    float *y = tile->y + (size_t)panel * PANEL_ROWS;
    size_t at = panel * tile->panel_step, pair = 0, panel_bytes = tile->panel_step * sizeof(uint32_t);
    const char *own = (const char *)((const uint32_t *)tile->w + at);
    const size_t step_bytes = PANEL_ROWS * sizeof(uint32_t);
    struct sums sums;

    sums_open(&sums, y, tile->y_step, tile->is_first, n_panels, n_tokens);
    for (int part = 0; part < 2; part++) {
        size_t before = tile->next == NULL && tile->n_k > AHEAD_PAIRS ? tile->n_k - AHEAD_PAIRS : 0;
        size_t end = part == 0 ? before : tile->n_k;
        size_t fetch_panel_bytes = tile->next != NULL ? tile->next_panel_bytes : panel_bytes;
        const char *fetch = tile->next != NULL ? tile->next
                            : part == 0        ? own + AHEAD_PAIRS * step_bytes
                                               : own + n_panels * panel_bytes;

        for (; pair < end; pair++, at += PANEL_ROWS, fetch += step_bytes) {
            dot_step(tile, at, pair, &sums, n_panels, n_tokens);
#pragma GCC unroll 4
            for (uint32_t p = 0; p < n_panels; p++)
                if (tile->is_near)
                    __builtin_prefetch(fetch + p * fetch_panel_bytes, 0, 3);
                else
                    __builtin_prefetch(fetch + p * fetch_panel_bytes, 0, 2);
        }
    }
    sums_close(&sums, y, tile->y_step, n_panels, n_tokens);
}

static inline __attribute__((always_inline)) void dot_panels(const struct tile *tile, uint32_t n_tokens)
{
    const uint32_t most = tile_panels(n_tokens);
    uint32_t p = 0;

    for (; p + most <= tile->n_panels; p += most)
        dot_group(tile, p, most, n_tokens);
    for (; most > 2 && p + 2 <= tile->n_panels; p += 2)
        dot_group(tile, p, 2, n_tokens);
    for (; p < tile->n_panels; p++)
        dot_group(tile, p, 1, n_tokens);
}

void kern_dots_tile(const struct tile *tile)
{
    switch (tile->n_tokens) {
#define CASE(height)                                                                                         \
    case height:                                                                                             \
        dot_panels(tile, height);                                                                            \
        break;
        TILE_HEIGHTS(CASE)
#undef CASE
    }
}

/* ---- activations ---- */

/* Loads sixteen pairs of one row, with zeros after column n. */
static inline __m512i load_pairs(const float *x, uint32_t n)
{
    __m512 low = n >= 16 ? _mm512_loadu_ps(x) : v16_load_n(x, n);
    __m512 high = n >= 32 ? _mm512_loadu_ps(x + 16) : n > 16 ? v16_load_n(x + 16, n - 16) : v16_zero();

    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* Transposes 16 x 16 words, in four rounds that swap blocks of 1, 2, 4 and 8. */
static inline void kern_bf16_transpose(__m512i rows[16])
{
    __m512i to[16];

    for (int i = 0; i < 16; i += 2) {
        to[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        to[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            rows[i + 2 * j] = _mm512_unpacklo_epi64(to[i + j], to[i + j + 2]);
            rows[i + 2 * j + 1] = _mm512_unpackhi_epi64(to[i + j], to[i + j + 2]);
        }
    for (int i = 0; i < 16; i += 8)
        for (int j = 0; j < 4; j++) {
            to[i + j] = _mm512_shuffle_i32x4(rows[i + j], rows[i + j + 4], 0x88);
            to[i + j + 4] = _mm512_shuffle_i32x4(rows[i + j], rows[i + j + 4], 0xdd);
        }
    for (int j = 0; j < 8; j++) {
        rows[j] = _mm512_shuffle_i32x4(to[j], to[j + 8], 0x88);
        rows[j + 8] = _mm512_shuffle_i32x4(to[j], to[j + 8], 0xdd);
    }
}

void kern_dots_pack(const struct pack *pack)
{
    uint32_t *out = (uint32_t *)pack->out + (size_t)pack->from / 2 * pack->n_tokens;
    __mmask16 tokens = v16_mask(pack->n_tokens);

    for (uint32_t k = pack->from; k < pack->to; k += 2 * PACK_PAIRS) {
        const float *x = pack->x + (k - pack->from);
        uint32_t n = pack->to - k < 2 * PACK_PAIRS ? pack->to - k : 2 * PACK_PAIRS;
        __m512i rows[16];

        for (uint32_t t = 0; t < pack->n_tokens; t++) {
            const float *ahead = x + t * pack->x_stride + AHEAD_COLS;

            __builtin_prefetch(ahead);
            __builtin_prefetch(ahead + 16);
        }
        for (uint32_t t = 0; t < 16; t++)
            rows[t] = t < pack->n_tokens ? load_pairs(x + t * pack->x_stride, n) : _mm512_setzero_si512();
        kern_bf16_transpose(rows);
        for (uint32_t i = 0; i < (n + 1) / 2; i++, out += pack->n_tokens)
            _mm512_mask_storeu_epi32(out, tokens, rows[i]);
    }
}

/* ---- the machine's limit ---- */

float kern_peak_bf16(uint32_t rounds)
{
    __m512 sums[PEAK_BF16_CHAINS], one = _mm512_set1_ps(1.0f);
    __m512bh pairs = _mm512_cvtne2ps_pbh(one, one);

    for (int i = 0; i < PEAK_BF16_CHAINS; i++)
        sums[i] = _mm512_setzero_ps();
    for (uint32_t round = 0; round < rounds; round++)
#pragma GCC unroll 12
        for (int i = 0; i < PEAK_BF16_CHAINS; i++)
            sums[i] = _mm512_dpbf16_ps(sums[i], pairs, pairs);
    for (int i = 1; i < PEAK_BF16_CHAINS; i++)
        sums[0] = _mm512_add_ps(sums[0], sums[i]);
    return _mm512_reduce_add_ps(sums[0]);
}
