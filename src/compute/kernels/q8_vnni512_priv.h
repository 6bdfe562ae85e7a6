/* SPDX-License-Identifier: Apache-2.0 */
/* Dots of unsigned weights and signed activations with AVX-512 VNNI. q8_scalar_priv.h defines each
 * function.
 *
 * Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mavx512vnni. */
#ifndef COMPUTE_KERNELS_Q8_VNNI512_PRIV_H
#define COMPUTE_KERNELS_Q8_VNNI512_PRIV_H

#include "compute/kernels/b64_avx512_priv.h"

#include <string.h>

#define Q8(name) name##_vnni512
/* 4 panels x 3 tokens: 12 registers of integer sums, 12 of float sums, 4 of weights, 3 broadcasts. */
#define Q8_HEIGHTS(H) H(1) H(2) H(3)
enum { Q8_TILE_TOKENS = 3, Q8_TILE_PANELS = 4, Q8_QUANT_BYTES = 4, Q8_PEAK_CHAINS = 12 };

/* 1 panel x 4 to 8 tokens: weights are expanded once in registers; each dot reads its activations itself. */
#define Q8_WIDE_HEIGHTS(H) H(4) H(5) H(6) H(7) H(8)
enum { Q8_WIDE_TOKENS = 8, Q8_WIDE_LEAST = 4 };

typedef __m512i q8_sums;
typedef __m512i q8_weights;
typedef __m512i q8_x;

#define Q8_DIRECT Q8(direct_q8)
enum { Q8_DIRECT_PANELS = 4 }; /* at once, with one token */

static inline uint32_t q8_panels(uint32_t n_tokens)
{
    return Q8_TILE_PANELS;
}

static inline q8_sums q8_start(int32_t value)
{
    return _mm512_set1_epi32(value);
}

static inline q8_weights q8_of_bytes(b64 u)
{
    return u;
}

static inline q8_x q8_load_x(const void *from)
{
    int32_t four;

    memcpy(&four, from, sizeof(four));
    return _mm512_set1_epi32(four);
}

static inline q8_sums q8_dot(q8_sums sums, q8_weights w, q8_x x)
{
    return _mm512_dpbusd_epi32(sums, w, x);
}

/* As q8_dot(sums, w, q8_load_x(from)), in one instruction. */
static inline q8_sums q8_dot_at(q8_sums sums, q8_weights w, const void *from)
{
    struct four {
        int32_t x;
    } __attribute__((may_alias));

    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums) : "v"(w), "m"(((const struct four *)from)->x));
    return sums;
}

static inline v16 q8_minus(q8_sums sums, float magic)
{
    return v16_sub(_mm512_castsi512_ps(sums), v16_set1(magic));
}

static inline void q8_place(void *to, const int8_t quants[4])
{
    memcpy(to, quants, 4);
}

#endif
