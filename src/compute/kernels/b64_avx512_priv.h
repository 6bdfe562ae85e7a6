/* SPDX-License-Identifier: Apache-2.0 */
/* Sixty-four bytes at once: one register of AVX-512. b64_scalar_priv.h defines each function.
 *
 * Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c. */
#ifndef COMPUTE_KERNELS_B64_AVX512_PRIV_H
#define COMPUTE_KERNELS_B64_AVX512_PRIV_H

#include "compute/kernels/v16_avx512_priv.h"

typedef __m512i b64;

static inline b64 b64_load(const void *from)
{
    return _mm512_loadu_si512(from);
}

static inline void b64_store(void *to, b64 a)
{
    _mm512_storeu_si512(to, a);
}

static inline b64 b64_right(b64 a, unsigned right, uint8_t mask)
{
    b64 moved = right > 0 ? _mm512_srli_epi16(a, right) : a;

    return _mm512_and_si512(moved, _mm512_set1_epi8((char)mask));
}

static inline b64 b64_left(b64 a, unsigned left, uint8_t mask)
{
    b64 moved = left > 0 ? _mm512_slli_epi16(a, left) : a;

    return _mm512_and_si512(moved, _mm512_set1_epi8((char)mask));
}

static inline b64 b64_or(b64 a, b64 b)
{
    return _mm512_or_si512(a, b);
}

static inline b64 b64_join(b64 a, uint8_t mask, b64 b)
{
    return _mm512_ternarylogic_epi32(a, _mm512_set1_epi8((char)mask), b, 0xea);
}

static inline b64 b64_lookup(b64 a, const uint8_t table[16])
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table)), a);
}

#ifdef __AVX512VBMI__
#include "compute/kernels/b64_vbmi_priv.h"
#endif

#endif
