/* SPDX-License-Identifier: Apache-2.0 */
/* Sixty-four bytes at once: two registers of AVX2. b64_scalar_priv.h defines each function.
 *
 * Compiled with -mavx2 -mfma -mf16c. */
#ifndef COMPUTE_KERNELS_B64_AVX2_PRIV_H
#define COMPUTE_KERNELS_B64_AVX2_PRIV_H

#include "compute/kernels/v16_avx2_priv.h"

typedef struct {
    __m256i low, high;
} b64;

static inline b64 b64_load(const void *from)
{
    return (b64){_mm256_loadu_si256(from), _mm256_loadu_si256((const __m256i *)from + 1)};
}

static inline void b64_store(void *to, b64 a)
{
    _mm256_storeu_si256(to, a.low);
    _mm256_storeu_si256((__m256i *)to + 1, a.high);
}

static inline b64 b64_and(b64 a, uint8_t mask)
{
    __m256i by = _mm256_set1_epi8((char)mask);

    return (b64){_mm256_and_si256(a.low, by), _mm256_and_si256(a.high, by)};
}

static inline __attribute__((always_inline)) b64 b64_shifted(b64 a, unsigned right)
{
    return (b64){_mm256_srli_epi16(a.low, (int)right), _mm256_srli_epi16(a.high, (int)right)};
}

/* The mask comes first where it fits: then it is applied by the instruction that loads the row. */
static inline __attribute__((always_inline)) b64 b64_right(b64 a, unsigned right, uint8_t mask)
{
    const uint32_t before = (uint32_t)mask << right;

    if (right == 0)
        return b64_and(a, mask);
    return before <= 0xff ? b64_shifted(b64_and(a, (uint8_t)before), right)
                          : b64_and(b64_shifted(a, right), mask);
}

static inline __attribute__((always_inline)) b64 b64_left(b64 a, unsigned left, uint8_t mask)
{
    a = b64_and(a, (uint8_t)(mask >> left)); /* first, as in b64_right */
    return left > 0 ? (b64){_mm256_slli_epi16(a.low, (int)left), _mm256_slli_epi16(a.high, (int)left)} : a;
}

static inline b64 b64_or(b64 a, b64 b)
{
    return (b64){_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}

static inline b64 b64_join(b64 a, uint8_t mask, b64 b)
{
    return b64_or(b64_and(a, mask), b);
}

static inline b64 b64_lookup(b64 a, const uint8_t table[16])
{
    __m256i entries = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));

    return (b64){_mm256_shuffle_epi8(entries, a.low), _mm256_shuffle_epi8(entries, a.high)};
}

#endif
