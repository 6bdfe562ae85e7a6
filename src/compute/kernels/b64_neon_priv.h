/* SPDX-License-Identifier: Apache-2.0 */
/* Sixty-four bytes at once: four registers of NEON. b64_scalar_priv.h defines each function.
 *
 * Compiled with -march=armv8-a. */
#ifndef COMPUTE_KERNELS_B64_NEON_PRIV_H
#define COMPUTE_KERNELS_B64_NEON_PRIV_H

#include "compute/kernels/v16_neon_priv.h"

typedef struct {
    uint8x16_t at[4];
} b64;

static inline b64 b64_load(const void *from)
{
    const uint8_t *bytes = from;

    return (b64){{vld1q_u8(bytes), vld1q_u8(bytes + 16), vld1q_u8(bytes + 32), vld1q_u8(bytes + 48)}};
}

static inline void b64_store(void *to, b64 a)
{
    for (int i = 0; i < 4; i++)
        vst1q_u8((uint8_t *)to + 16 * i, a.at[i]);
}

static inline b64 b64_shift(b64 a, int left, uint8_t mask)
{
    for (int i = 0; i < 4; i++)
        a.at[i] = vandq_u8(vshlq_u8(a.at[i], vdupq_n_s8((int8_t)left)), vdupq_n_u8(mask));
    return a;
}

static inline b64 b64_right(b64 a, unsigned right, uint8_t mask)
{
    return b64_shift(a, -(int)right, mask);
}

static inline b64 b64_left(b64 a, unsigned left, uint8_t mask)
{
    return b64_shift(a, (int)left, mask);
}

static inline b64 b64_or(b64 a, b64 b)
{
    for (int i = 0; i < 4; i++)
        a.at[i] = vorrq_u8(a.at[i], b.at[i]);
    return a;
}

static inline b64 b64_join(b64 a, uint8_t mask, b64 b)
{
    return b64_or(b64_right(a, 0, mask), b);
}

static inline b64 b64_lookup(b64 a, const uint8_t table[16])
{
    for (int i = 0; i < 4; i++)
        a.at[i] = vqtbl1q_u8(vld1q_u8(table), a.at[i]);
    return a;
}

#endif
