/* SPDX-License-Identifier: Apache-2.0 */
/* Dots of unsigned weights and signed activations with AVX-VNNI, 256 bits wide. q8_scalar_priv.h defines
 * each function.
 *
 * Compiled with -mavx2 -mfma -mf16c -mavxvnni. */
#ifndef COMPUTE_KERNELS_Q8_VNNI256_PRIV_H
#define COMPUTE_KERNELS_Q8_VNNI256_PRIV_H

#include "compute/kernels/b64_avx2_priv.h"

#include <string.h>

#define Q8(name) name##_vnni256
/* 1 panel x 3 tokens: 6 registers of integer sums, 6 of float sums, 2 of weights, a broadcast. */
#define Q8_HEIGHTS(H) H(1) H(2) H(3)
enum { Q8_TILE_TOKENS = 3, Q8_TILE_PANELS = 1, Q8_QUANT_BYTES = 4, Q8_PEAK_CHAINS = 6 };

typedef struct {
    __m256i low, high;
} q8_sums;
typedef q8_sums q8_weights;
typedef __m256i q8_x;

#define Q8_DIRECT Q8(direct_q8)
enum { Q8_DIRECT_PANELS = 2 }; /* at once, with one token */

static inline uint32_t q8_panels(uint32_t n_tokens)
{
    return n_tokens <= 2 ? 2 : Q8_TILE_PANELS;
}

static inline q8_sums q8_start(int32_t value)
{
    return (q8_sums){_mm256_set1_epi32(value), _mm256_set1_epi32(value)};
}

static inline q8_weights q8_of_bytes(b64 u)
{
    return (q8_weights){u.low, u.high};
}

static inline q8_x q8_load_x(const void *from)
{
    int32_t four;

    memcpy(&four, from, sizeof(four));
    return _mm256_set1_epi32(four);
}

static inline q8_sums q8_dot(q8_sums sums, q8_weights w, q8_x x)
{
    return (q8_sums){_mm256_dpbusd_avx_epi32(sums.low, w.low, x),
                     _mm256_dpbusd_avx_epi32(sums.high, w.high, x)};
}

static inline v16 q8_minus(q8_sums sums, float magic)
{
    return v16_sub((v16){_mm256_castsi256_ps(sums.low), _mm256_castsi256_ps(sums.high)}, v16_set1(magic));
}

static inline void q8_place(void *to, const int8_t quants[4])
{
    memcpy(to, quants, 4);
}

#endif
