/* SPDX-License-Identifier: Apache-2.0 */
/* Dots of weights and activations with NEON's signed dot product.  See q8_scalar_priv.h for what each
 * function does.
 *
 * Weights lie in memory as u = s + 128, for the instructions of x86; here they are signed again (one
 * exclusive or), and the correction that sums begin with is left out: whole numbers, so the result is the
 * same.
 *
 * Compiled with -march=armv8.2-a+dotprod. */
#ifndef TENSOR_Q8_SDOT_PRIV_H
#define TENSOR_Q8_SDOT_PRIV_H

#include "tensor/v16_neon_priv.h"

#define Q8(name) name##_sdot
/* 1 panel x 6 tokens: 24 registers of whole-number sums, 4 of weights, a broadcast. */
#define Q8_HEIGHTS(H) H(1) H(2) H(3) H(4) H(5) H(6)
enum { Q8_TILE_TOKENS = 6, Q8_TILE_PANELS = 1, Q8_QUANT_BYTES = 4, Q8_PEAK_CHAINS = 6 };

typedef struct {
    int32x4_t at[4];
} q8_sums;
typedef struct {
    int8x16_t at[4];
} q8_weights;
typedef int8x16_t q8_x;

static inline uint32_t q8_panels(uint32_t n_tokens)
{
    return n_tokens <= 2 ? 2 : Q8_TILE_PANELS;
}

static inline q8_sums q8_start(int32_t value)
{
    int32x4_t zero = vdupq_n_s32(0);

    (void)value;
    return (q8_sums){{zero, zero, zero, zero}};
}

static inline q8_weights q8_load_weights(const uint8_t *from)
{
    q8_weights out;

    for (int i = 0; i < 4; i++)
        out.at[i] = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(from + 16 * i), vdupq_n_u8(0x80)));
    return out;
}

static inline q8_x q8_load_x(const void *from)
{
    int32_t four;

    memcpy(&four, from, sizeof(four));
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

static inline q8_sums q8_dot(q8_sums sums, q8_weights w, q8_x x)
{
    for (int i = 0; i < 4; i++)
        sums.at[i] = vdotq_s32(sums.at[i], w.at[i], x);
    return sums;
}

static inline v16 q8_to_float(q8_sums sums)
{
    v16 out;

    for (int i = 0; i < 4; i++)
        out.at[i] = vcvtq_f32_s32(sums.at[i]);
    return out;
}

static inline void q8_place(void *to, const int8_t quants[4])
{
    memcpy(to, quants, 4);
}

#endif
