/* SPDX-License-Identifier: Apache-2.0 */
/* Sixty-four bytes at once, in plain C: the definition for every other b64 header. Kernels use it to
 * expand packed weights (quant.h). It belongs to the v16 header of the same instruction set. */
#ifndef COMPUTE_KERNELS_B64_SCALAR_PRIV_H
#define COMPUTE_KERNELS_B64_SCALAR_PRIV_H

#include <stdint.h>
#include <string.h>

#include "compute/kernels/v16_scalar_priv.h"

typedef struct {
    uint8_t at[64];
} b64;

static inline b64 b64_load(const void *from)
{
    b64 out;
    memcpy(out.at, from, sizeof(out.at));
    return out;
}

static inline void b64_store(void *to, b64 a)
{
    memcpy(to, a.at, sizeof(a.at));
}

/* (a >> right) & mask and (a << left) & mask, byte by byte. The mask has no bit that a shift of wider
 * words would bring in from a neighbour. */
static inline b64 b64_right(b64 a, unsigned right, uint8_t mask)
{
    for (int i = 0; i < 64; i++)
        a.at[i] = (uint8_t)(a.at[i] >> right & mask);
    return a;
}

static inline b64 b64_left(b64 a, unsigned left, uint8_t mask)
{
    for (int i = 0; i < 64; i++)
        a.at[i] = (uint8_t)(a.at[i] << left & mask);
    return a;
}

static inline b64 b64_or(b64 a, b64 b)
{
    for (int i = 0; i < 64; i++)
        a.at[i] |= b.at[i];
    return a;
}

/* a's bits where the mask is set, b's elsewhere. */
static inline b64 b64_join(b64 a, uint8_t mask, b64 b)
{
    for (int i = 0; i < 64; i++)
        a.at[i] = (uint8_t)((a.at[i] & mask) | b.at[i]);
    return a;
}

/* Replaces each byte of a (0..15) by that entry of the table. */
static inline b64 b64_lookup(b64 a, const uint8_t table[16])
{
    for (int i = 0; i < 64; i++)
        a.at[i] = table[a.at[i]];
    return a;
}

#endif
