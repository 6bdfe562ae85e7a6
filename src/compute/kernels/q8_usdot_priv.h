/* SPDX-License-Identifier: Apache-2.0 */
/* Dots of unsigned weights and signed activations with ARM's instruction for mixed signs (ARMv8.6, I8MM).
 * q8_scalar_priv.h defines each function.
 *
 * Compiled with -march=armv8.2-a+i8mm. */
#ifndef COMPUTE_KERNELS_Q8_USDOT_PRIV_H
#define COMPUTE_KERNELS_Q8_USDOT_PRIV_H

#include "compute/kernels/b64_neon_priv.h"

#define Q8(name) name##_usdot
/* 1 panel x 6 tokens: 24 registers of integer sums. */
#define Q8_HEIGHTS(H) H(1) H(2) H(3) H(4) H(5) H(6)
enum { Q8_TILE_TOKENS = 6, Q8_TILE_PANELS = 1, Q8_QUANT_BYTES = 4, Q8_PEAK_CHAINS = 6 };

typedef struct {
    int32x4_t at[4];
} q8_sums;
typedef b64 q8_weights;
typedef int8x16_t q8_x;

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
    return u;
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
        sums.at[i] = vusdotq_s32(sums.at[i], w.at[i], x);
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
