/* SPDX-License-Identifier: Apache-2.0 */
/* Dots of unsigned weights and signed activations with AVX-VNNI, 256 bits wide.  See q8_scalar_priv.h for
 * what each function does.
 *
 * Compiled with -mavx2 -mfma -mf16c -mavxvnni. */
#ifndef TENSOR_Q8_VNNI256_PRIV_H
#define TENSOR_Q8_VNNI256_PRIV_H

#include "tensor/v16_avx2_priv.h"

#include <string.h>

#define Q8(name) name##_vnni256
/* 1 panel x 6 tokens: 12 registers of whole-number sums; the float sums, touched once per qblk, rest in
 * memory. */
#define Q8_HEIGHTS(H) H(1) H(2) H(3) H(4) H(5) H(6)
enum { Q8_TILE_TOKENS = 6, Q8_TILE_PANELS = 1, Q8_QUANT_BYTES = 4, Q8_PEAK_CHAINS = 6 };

typedef struct {
    __m256i low, high;
} q8_sums;
typedef q8_sums q8_weights;
typedef __m256i q8_x;

static inline uint32_t q8_panels(uint32_t n_tokens)
{
    return n_tokens <= 2 ? 2 : Q8_TILE_PANELS;
}

static inline q8_sums q8_start(int32_t value)
{
    return (q8_sums){_mm256_set1_epi32(value), _mm256_set1_epi32(value)};
}

static inline q8_weights q8_load_weights(const uint8_t *from)
{
    return (q8_weights){_mm256_loadu_si256((const __m256i *)from),
                        _mm256_loadu_si256((const __m256i *)(from + 32))};
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

static inline v16 q8_to_float(q8_sums sums)
{
    return (v16){_mm256_cvtepi32_ps(sums.low), _mm256_cvtepi32_ps(sums.high)};
}

static inline void q8_place(void *to, const int8_t quants[4])
{
    memcpy(to, quants, 4);
}

#endif
