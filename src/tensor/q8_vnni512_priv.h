/* SPDX-License-Identifier: Apache-2.0 */
/* Dots of unsigned weights and signed activations with AVX-512 VNNI.  See q8_scalar_priv.h for what each
 * function does.
 *
 * Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mavx512vnni. */
#ifndef TENSOR_Q8_VNNI512_PRIV_H
#define TENSOR_Q8_VNNI512_PRIV_H

#include "tensor/v16_avx512_priv.h"

#include <string.h>

#define Q8(name) name##_vnni512
/* 2 panels x 12 tokens: 24 whole-number sums, 2 weights, a broadcast; the float sums, touched once per qblk,
 * rest in memory. */
#define Q8_HEIGHTS(H) H(1) H(2) H(3) H(4) H(5) H(6) H(7) H(8) H(9) H(10) H(11) H(12)
enum { Q8_TILE_TOKENS = 12, Q8_TILE_PANELS = 2, Q8_QUANT_BYTES = 4, Q8_PEAK_CHAINS = 12 };

typedef __m512i q8_sums;
typedef __m512i q8_weights;
typedef __m512i q8_x;

static inline uint32_t q8_panels(uint32_t n_tokens)
{
    return Q8_TILE_PANELS;
}

static inline q8_sums q8_start(int32_t value)
{
    return _mm512_set1_epi32(value);
}

static inline q8_weights q8_load_weights(const uint8_t *from)
{
    return _mm512_loadu_si512(from);
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

static inline v16 q8_to_float(q8_sums sums)
{
    return _mm512_cvtepi32_ps(sums);
}

static inline void q8_place(void *to, const int8_t quants[4])
{
    memcpy(to, quants, 4);
}

#endif
