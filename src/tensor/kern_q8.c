/* SPDX-License-Identifier: Apache-2.0 */
/* Q8_0: weights of 8 bits with a scale per 32, times activations brought to the same form.
 *
 *     x[k] ~ dx * q[k]      q = round(x * 127 / amax), dx = amax / 127, one dx per 32 (qblk) and token
 *     w[k] = dw * s[k]      as in the file; kept as u = s + 128, which is what vpdpbusd and vpmaddubsw take
 *
 *     dot = sum of u q - 128 * sum of q  =  sum of s q           whole numbers: exact, any order
 *     y   = fma((float)dot, dw * dx, y)                          qblk after qblk: one order
 *
 * -128 * sum of q is where the sum starts, so the correction costs nothing.  |dot| <= 32 * 128 * 127 < 2^24:
 * its float is exact too.  So all instruction sets give the same bits, with three float operations per qblk
 * for 8 integer ones.
 *
 *     weights of a panel   [qblk][k/4: 8][lane: 16][4]     then, elsewhere, scales [qblk][lane] F16
 *     activations packed   [qblk] { [k/4: 8][token][4 quants]  dx[token]  start[token] }
 *
 * Hot path: no allocation, no log, no system call.
 */
#include "tensor/kern_set_priv.h"

#ifndef KERN_Q8
#define KERN_Q8 "tensor/q8_scalar_priv.h"
#endif
#include KERN_Q8

enum { AHEAD_QBLKS = 4 }; /* 2 KiB per panel */
enum { FOURS = QBLK_WEIGHTS / 4, FOUR_BYTES = 4 * PANEL_ROWS };

extern const struct kern_q8 Q8(kern_q8);

/* Where a qblk's things are. */
struct q8_step {
    const uint8_t *w, *scales, *x;
    const uint8_t *next; /* weights to bring nearer */
};

/* One qblk: w and scales of the group's first panel, x of the tile. */
static inline __attribute__((always_inline)) void
step_q8(struct q8_step step, size_t panel_step, uint32_t n_panels, uint32_t n_tokens, struct sums *sums)
{
    const float *dx = (const float *)(step.x + (size_t)FOURS * n_tokens * Q8_QUANT_BYTES);
    const int32_t *start = (const int32_t *)(dx + n_tokens);
    q8_sums dots[MAX_GROUP_PANELS][MAX_TILE_TOKENS];

#pragma GCC unroll 12
    for (uint32_t t = 0; t < n_tokens; t++)
#pragma GCC unroll 4
        for (uint32_t p = 0; p < n_panels; p++)
            dots[p][t] = q8_start(start[t]);
#pragma GCC unroll 8
    for (uint32_t four = 0; four < FOURS; four++) {
        q8_weights u[MAX_GROUP_PANELS];
#pragma GCC unroll 4
        for (uint32_t p = 0; p < n_panels; p++) {
            u[p] = q8_load_weights(step.w + p * panel_step + four * FOUR_BYTES);
            __builtin_prefetch(step.next + p * panel_step + four * FOUR_BYTES, 0, 2);
        }
#pragma GCC unroll 12
        for (uint32_t t = 0; t < n_tokens; t++) {
            q8_x quants = q8_load_x(step.x + ((size_t)four * n_tokens + t) * Q8_QUANT_BYTES);
#pragma GCC unroll 4
            for (uint32_t p = 0; p < n_panels; p++)
                dots[p][t] = q8_dot(dots[p][t], u[p], quants);
        }
    }
#pragma GCC unroll 4
    for (uint32_t p = 0; p < n_panels; p++) {
        v16 dw = v16_from_f16((const uint16_t *)(step.scales + p * panel_step));
#pragma GCC unroll 12
        for (uint32_t t = 0; t < n_tokens; t++)
            sums->at[p][t] = v16_fma(q8_to_float(dots[p][t]), v16_mul(dw, v16_set1(dx[t])), sums->at[p][t]);
    }
}

/* One group of panels; its size and the tokens are constants wherever this is expanded. */
static inline __attribute__((always_inline)) void group_q8(const struct tile_q8 *tile, uint32_t panel,
                                                           uint32_t n_panels, uint32_t n_tokens)
{
    const size_t x_step = (size_t)n_tokens * (FOURS * Q8_QUANT_BYTES + sizeof(float) + sizeof(int32_t));
    float *y = tile->y + (size_t)panel * PANEL_ROWS;
    struct q8_step step = {
        .w = tile->w + panel * tile->panel_step,
        .scales = (const uint8_t *)tile->scales + panel * tile->panel_step,
        .x = tile->x,
    };
    uint32_t turn = tile->next == NULL && tile->n_qblks > AHEAD_QBLKS ? tile->n_qblks - AHEAD_QBLKS : 0;
    const uint8_t *behind = tile->next != NULL ? tile->next : step.w + n_panels * tile->panel_step;
    struct sums sums;

    sums_open(&sums, y, tile->y_step, tile->is_first, n_panels, n_tokens);
    for (uint32_t b = 0; b < tile->n_qblks; b++) {
        step.next =
            b < turn ? step.w + AHEAD_QBLKS * Q8_QBLK_BYTES : behind + (size_t)(b - turn) * Q8_QBLK_BYTES;
        step_q8(step, tile->panel_step, n_panels, n_tokens, &sums);
        step.w += Q8_QBLK_BYTES;
        step.scales += PANEL_ROWS * sizeof(uint16_t);
        step.x += x_step;
    }
    sums_close(&sums, y, tile->y_step, n_panels, n_tokens);
}

static inline __attribute__((always_inline)) void panels_q8(const struct tile_q8 *tile, uint32_t n_tokens)
{
    uint32_t p = 0;

    for (; p + q8_panels(n_tokens) <= tile->n_panels; p += q8_panels(n_tokens))
        group_q8(tile, p, q8_panels(n_tokens), n_tokens);
    for (; p < tile->n_panels; p++)
        group_q8(tile, p, 1, n_tokens);
}

static void tile_q8(const struct tile_q8 *tile)
{
    switch (tile->n_tokens) {
#define CASE(height)                                                                                         \
    case height:                                                                                             \
        panels_q8(tile, height);                                                                             \
        break;
        Q8_HEIGHTS(CASE)
#undef CASE
    }
}

enum { AT_ONCE = 16 }; /* qblks of a row that are packed together, so that one division serves them all */

static float largest(const float *x)
{
    return v16_top(v16_max(v16_abs(v16_load(x)), v16_abs(v16_load(x + 16))));
}

/* Quants of 32 floats; their sum.  Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits.
 */
static float quantize(const float *x, float by, int8_t quants[QBLK_WEIGHTS])
{
    v16 magic = v16_set1(0x1.8p23f);
    v16 low = v16_fma(v16_load(x), v16_set1(by), magic),
        high = v16_fma(v16_load(x + 16), v16_set1(by), magic);

    v16_store_low8(quants, low);
    v16_store_low8(quants + 16, high);
    return v16_sum(v16_add(v16_sub(low, magic), v16_sub(high, magic)));
}

/* Up to AT_ONCE qblks of one token; the first at out. */
static void pack_run(const float *x, uint32_t n_qblks, uint8_t *out, uint32_t token, uint32_t n_tokens)
{
    const size_t quants_bytes = (size_t)FOURS * n_tokens * Q8_QUANT_BYTES;
    v16 full = v16_set1(127.0f), tiny = v16_set1(0x1p-100f);
    float amax[AT_ONCE] = {0}, by[AT_ONCE], dx[AT_ONCE];

    for (uint32_t b = 0; b < n_qblks; b++)
        amax[b] = largest(x + (size_t)b * QBLK_WEIGHTS);
    /* Next to nothing counts as zero: its inverse might overflow. */
    v16 top = v16_load(amax);
    v16_store(by, v16_if_below(top, tiny, v16_zero(), v16_div(full, top)));
    v16_store(dx, v16_div(top, full));
    for (uint32_t b = 0; b < n_qblks; b++) {
        int8_t quants[QBLK_WEIGHTS];
        float sum = quantize(x + (size_t)b * QBLK_WEIGHTS, by[b], quants);
        float *scales = (float *)(out + quants_bytes);
        int32_t *start = (int32_t *)(scales + n_tokens);

        scales[token] = dx[b];
        /* A file's weights may make NaN or infinity of an activation; dx carries it on, the cast must not. */
        start[token] = sum >= -4096 && sum <= 4096 ? -128 * (int32_t)sum : 0;
        for (uint32_t four = 0; four < FOURS; four++)
            q8_place(out + ((size_t)four * n_tokens + token) * Q8_QUANT_BYTES, quants + four * 4);
        out = (uint8_t *)(start + n_tokens);
    }
}

static void pack_q8(const struct pack *pack)
{
    const size_t qblk_bytes =
        (size_t)pack->n_tokens * (FOURS * Q8_QUANT_BYTES + sizeof(float) + sizeof(int32_t));

    for (uint32_t k = pack->from; k < pack->to; k += AT_ONCE * QBLK_WEIGHTS) {
        uint32_t n_qblks = (pack->to - k) / QBLK_WEIGHTS;
        uint8_t *out = (uint8_t *)pack->out + k / QBLK_WEIGHTS * qblk_bytes;

        for (uint32_t t = 0; t < pack->n_tokens; t++)
            pack_run(pack->x + t * pack->x_stride + k, n_qblks < AT_ONCE ? n_qblks : AT_ONCE, out, t,
                     pack->n_tokens);
    }
}

static float peak_q8(uint32_t rounds)
{
    static const uint8_t ones[FOUR_BYTES] = {1};
    q8_sums sums[Q8_PEAK_CHAINS];
    q8_weights u = q8_load_weights(ones);
    q8_x x = q8_load_x(ones);

    for (int i = 0; i < Q8_PEAK_CHAINS; i++)
        sums[i] = q8_start(i);
    for (uint32_t round = 0; round < rounds; round++)
#pragma GCC unroll 12
        for (int i = 0; i < Q8_PEAK_CHAINS; i++)
            sums[i] = q8_dot(sums[i], u, x);
    v16 sum = q8_to_float(sums[0]);
    for (int i = 1; i < Q8_PEAK_CHAINS; i++)
        sum = v16_add(sum, q8_to_float(sums[i]));
    return v16_sum(sum);
}

const struct kern_q8 Q8(kern_q8) = {
    .tile_tokens = Q8_TILE_TOKENS,
    .tile_panels = Q8_TILE_PANELS,
    .act_bytes = FOURS * Q8_QUANT_BYTES + sizeof(float) + sizeof(int32_t),
    .tile = tile_q8,
    .pack = pack_q8,
    .peak = peak_q8,
    .peak_chains = Q8_PEAK_CHAINS,
};
