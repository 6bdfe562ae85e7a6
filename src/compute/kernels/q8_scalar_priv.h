/* SPDX-License-Identifier: Apache-2.0 */
/* Dots of unsigned weights and signed activations, four at a time per lane, in plain C. This defines every
 * other q8 header. Dots are exact, so any order of additions gives the same result. */
#ifndef COMPUTE_KERNELS_Q8_SCALAR_PRIV_H
#define COMPUTE_KERNELS_Q8_SCALAR_PRIV_H

#include "compute/kernels/kern.h"
#include "compute/kernels/b64_scalar_priv.h"

#define Q8(name)      name##_scalar
#define Q8_HEIGHTS(H) H(1)
/* Packed activations take QUANT_BYTES per token for four quants. */
enum { Q8_TILE_TOKENS = 1, Q8_TILE_PANELS = 1, Q8_QUANT_BYTES = 4, Q8_PEAK_CHAINS = 4 };

typedef struct {
    int32_t at[16];
} q8_sums;
typedef b64 q8_weights;
typedef const int8_t *q8_x;

/* Expanding weights in registers saves nothing here: NULL, and kern_direct.c is left out. */
#define Q8_DIRECT NULL
enum { Q8_DIRECT_PANELS = 1 };

/* Sixty-four bytes take a loop here, beside which a choice by the number of a four costs nothing.  Unrolled, the
 * functions of kern_expand.c are five times as large and take the compiler four times as long. */
#define Q8_LOOPS

static inline uint32_t q8_panels(uint32_t n_tokens)
{
    return Q8_TILE_PANELS;
}

static inline q8_sums q8_start(int32_t value)
{
    q8_sums out;
    for (int i = 0; i < 16; i++)
        out.at[i] = value;
    return out;
}

/* Four weights of each lane. */
static inline q8_weights q8_of_bytes(b64 u)
{
    return u;
}

/* Four activations of a token, in every lane. */
static inline q8_x q8_load_x(const void *from)
{
    return from;
}

static inline q8_sums q8_dot(q8_sums sums, q8_weights w, q8_x x)
{
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 4; j++)
            sums.at[i] += w.at[4 * i + j] * x[j];
    return sums;
}

/* The sums taken as bits of floats, minus magic: see kern_q8.c. */
static inline v16 q8_minus(q8_sums sums, float magic)
{
    v16 out;
    memcpy(out.at, sums.at, sizeof(out.at));
    return v16_sub(out, v16_set1(magic));
}

/* Writes four quants in the layout that q8_load_x reads. */
static inline void q8_place(void *to, const int8_t quants[4])
{
    memcpy(to, quants, 4);
}

#endif
