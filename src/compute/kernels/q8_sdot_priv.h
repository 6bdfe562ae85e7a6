/* SPDX-License-Identifier: Apache-2.0 */
/* Dots of unsigned weights and signed activations with NEON's signed dot product. q8_scalar_priv.h defines
 * each function.
 *
 * A weight of eight bits is its lower seven bits, which are equal as a signed number, plus 128 if the
 * eighth bit is set. The eighth bit alone is -128 as a signed number, so it is multiplied with the negated
 * activation (quants are never -128). This is twice the work of a dot with unsigned weights: see
 * q8_usdot_priv.h for CPUs that have it.
 *
 * Compiled with -march=armv8.2-a+dotprod. */
#ifndef COMPUTE_KERNELS_Q8_SDOT_PRIV_H
#define COMPUTE_KERNELS_Q8_SDOT_PRIV_H

#include "compute/kernels/b64_neon_priv.h"

#define Q8(name) name##_sdot
/* 1 panel x 6 tokens: 24 registers of integer sums. */
#define Q8_HEIGHTS(H) H(1) H(2) H(3) H(4) H(5) H(6)
enum { Q8_TILE_TOKENS = 6, Q8_TILE_PANELS = 1, Q8_QUANT_BYTES = 4, Q8_PEAK_CHAINS = 6 };

typedef struct {
    int32x4_t at[4];
} q8_sums;
typedef struct {
    int8x16_t low[4], top[4];
} q8_weights;
typedef struct {
    int8x16_t plus, minus;
} q8_x;

#define Q8_DIRECT NULL
enum { Q8_DIRECT_PANELS = 1 };

static inline uint32_t q8_panels(uint32_t n_tokens)
{
    return n_tokens <= 2 ? 2 : Q8_TILE_PANELS;
}

static inline q8_sums q8_start(int32_t value)
{
    int32x4_t all = vdupq_n_s32(value);

    return (q8_sums){{all, all, all, all}};
}

static inline q8_weights q8_of_bytes(b64 u)
{
    q8_weights out;

    for (int i = 0; i < 4; i++) {
        out.low[i] = vreinterpretq_s8_u8(vandq_u8(u.at[i], vdupq_n_u8(0x7f)));
        out.top[i] = vreinterpretq_s8_u8(vandq_u8(u.at[i], vdupq_n_u8(0x80)));
    }
    return out;
}

static inline q8_x q8_load_x(const void *from)
{
    int32_t four;

    memcpy(&four, from, sizeof(four));
    int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(four));
    return (q8_x){x, vnegq_s8(x)};
}

static inline q8_sums q8_dot(q8_sums sums, q8_weights w, q8_x x)
{
    for (int i = 0; i < 4; i++)
        sums.at[i] = vdotq_s32(vdotq_s32(sums.at[i], w.low[i], x.plus), w.top[i], x.minus);
    return sums;
}

static inline v16 q8_minus(q8_sums sums, float magic)
{
    v16 out;

    for (int i = 0; i < 4; i++)
        out.at[i] = vsubq_f32(vreinterpretq_f32_s32(sums.at[i]), vdupq_n_f32(magic));
    return out;
}

static inline void q8_place(void *to, const int8_t quants[4])
{
    memcpy(to, quants, 4);
}

#endif
