/* SPDX-License-Identifier: Apache-2.0 */
/* Activations as 8-bit numbers, for kern_q8.c and kern_amx_quant.c to lay out: per 32 columns of a token
 * (qblk) the quants and their power of two (kern_q8.c explains why).
 *
 * Hot path: no allocation, no log, no system call. */
#ifndef COMPUTE_KERNELS_KERN_ACT_PRIV_H
#define COMPUTE_KERNELS_KERN_ACT_PRIV_H

#include <string.h>

#include "compute/kernels/kern_chunk_priv.h"

enum { ACTS_AT_ONCE = 16 }; /* qblks of a row whose scales are computed together */

struct act_scales {
    float amax[ACTS_AT_ONCE];
    float by[ACTS_AT_ONCE];       /* 2^-e */
    uint32_t magic[ACTS_AT_ONCE]; /* bits of 1.5 * 2^(23+e) */
    float step[ACTS_AT_ONCE];     /* 2^e */
};

#define ACT_NAN_BITS 0x7fc00000u

static inline float act_largest(const float *x)
{
    return v16_top(v16_max(v16_abs(v16_load(x)), v16_abs(v16_load(x + 16))));
}

/* The least e with amax <= 127 * 2^e, read from the exponent of amax * 129/128 (which is a power of two
 * higher if amax exceeds 127/128 of the next one). Tiny values count as zero. Values beyond any model's
 * activations become NaN. */
static inline void act_find_scales(struct act_scales *scales)
{
    for (uint32_t i = 0; i < ACTS_AT_ONCE; i++) {
        float amax = scales->amax[i], wider = amax * (129.0f / 128);
        uint32_t bits, exponent; /* exponent of 2^e, biased */

        memcpy(&bits, &wider, sizeof(bits));
        exponent = amax < 0x1p-90f ? 127 : (bits >> 23) - 6;
        bits = (254 - exponent) << 23;
        bits = amax >= 0x1p-90f && amax < 0x1p90f ? bits : 0;
        memcpy(&scales->by[i], &bits, sizeof(bits));
        scales->magic[i] = amax < 0x1p90f ? (exponent + 23) << 23 | 0x400000 : ACT_NAN_BITS;
        bits = amax < 0x1p90f ? exponent << 23 : ACT_NAN_BITS;
        memcpy(&scales->step[i], &bits, sizeof(bits));
    }
}

/* Sixteen quants, in the low bits of the result: adding 1.5 * 2^23 leaves the rounded integer there. Minus
 * ACT_MAGIC, the results are the quants as floats. */
#define ACT_MAGIC 0x1.8p23f

static inline v16 act_quantize(const float *x, float by)
{
    return v16_fma(v16_load(x), v16_set1(by), v16_set1(ACT_MAGIC));
}

/* The quants of a qblk in the order of the fours of points (kern_points_priv.h). */
static inline void act_order_points(struct quant_form form, int8_t quants[QBLK_WEIGHTS])
{
    typedef int8_t all __attribute__((vector_size(QBLK_WEIGHTS)));
    all in, out;

    memcpy(&in, quants, sizeof(in));
    if (form.n_subs == 1)
        out = __builtin_shufflevector(in, in, 0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27, 4, 12,
                                      20, 28, 5, 13, 21, 29, 6, 14, 22, 30, 7, 15, 23, 31);
    else if (form.code == CODE_TRITS)
        out = __builtin_shufflevector(in, in, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 16, 20,
                                      24, 28, 17, 21, 25, 29, 18, 22, 26, 30, 19, 23, 27, 31);
    else
        out = __builtin_shufflevector(in, in, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 28, 16,
                                      20, 24, 29, 17, 21, 25, 30, 18, 22, 26, 31, 19, 23, 27);
    memcpy(quants, &out, sizeof(out));
}

/* Destination of a qblk of one token. */
struct act_place {
    uint32_t qblk; /* the tile's column 0 */
    uint32_t token;
};

/* Quantises qblks of every token of the tile, the i-th qblk with the i-th scales. */
INLINED void act_pack_each(const struct pack *pack, struct quant_form form,
                           void (*put)(const struct pack *pack, struct quant_form form, const float *x,
                                       const struct act_scales *scales, uint32_t i, struct act_place place))
{
    for (uint32_t k = pack->from; k < pack->to; k += ACTS_AT_ONCE * QBLK_WEIGHTS) {
        uint32_t left = (pack->to - k) / QBLK_WEIGHTS, n = left < ACTS_AT_ONCE ? left : ACTS_AT_ONCE;

        for (uint32_t t = 0; t < pack->n_tokens; t++) {
            const float *x = pack->x + t * pack->x_stride + (k - pack->from);
            struct act_scales scales = {0};

            for (uint32_t i = 0; i < n; i++)
                scales.amax[i] = act_largest(x + (size_t)i * QBLK_WEIGHTS);
            act_find_scales(&scales);
            for (uint32_t i = 0; i < n; i++)
                put(pack, form, x + (size_t)i * QBLK_WEIGHTS, &scales, i,
                    (struct act_place){k / QBLK_WEIGHTS + i, t});
        }
    }
}

#endif
