/* SPDX-License-Identifier: Apache-2.0 */
/* Lattice points and digits with AVX-512 VBMI: part of b64_avx512_priv.h where the compiler may use it.
 * b64_scalar_priv.h defines each function.
 *
 * Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mavx512vbmi. */
#ifndef COMPUTE_KERNELS_B64_VBMI_PRIV_H
#define COMPUTE_KERNELS_B64_VBMI_PRIV_H

#include "compute/kernels/b64_avx512_priv.h"

#define B64_POINTS

typedef __mmask64 b64_where;

static inline b64_where b64_where_bit(b64 a, uint8_t bit)
{
    return _mm512_test_epi8_mask(a, _mm512_set1_epi8((char)bit));
}

static inline b64_where b64_where_eighth(b64 a)
{
    return _mm512_movepi8_mask(a);
}

static inline b64_where b64_where_least(b64 a, uint8_t least)
{
    return _mm512_cmpge_epu8_mask(a, _mm512_set1_epi8((char)least));
}

static inline b64_where b64_where_both(b64_where a, b64_where b)
{
    return _kand_mask64(a, b);
}

static inline b64 b64_choose(b64_where where, b64 a, b64 b)
{
    return _mm512_mask_blend_epi8(where, b, a);
}

static inline b64 b64_rotated(b64 a, unsigned bits)
{
    /* One instruction after inlining; its intrinsic would need a constant without optimisation too. */
    return bits > 0 ? _mm512_or_si512(_mm512_slli_epi32(a, bits), _mm512_srli_epi32(a, 32 - bits)) : a;
}

static inline b64 b64_alternate(b64 a, b64 b)
{
    return _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, a, b);
}

static inline b64 b64_pick(uint8_t mask, b64 a, b64 b)
{
    return _mm512_ternarylogic_epi32(b, a, _mm512_set1_epi8((char)mask), 0xd8);
}

static inline b64 b64_lookup_64(b64 a, const uint8_t *table)
{
    return _mm512_permutexvar_epi8(a, b64_load(table));
}

static inline b64 b64_lookup_where(b64_where where, b64 a, const uint8_t *table, b64 b)
{
    return _mm512_mask_permutexvar_epi8(b, where, a, b64_load(table));
}

static inline b64 b64_right_by(b64 a, unsigned right)
{
    return _mm512_srl_epi16(a, _mm_cvtsi32_si128((int32_t)right));
}

static inline b64 b64_in_lanes(b64 lanes, uint32_t bit, uint8_t set)
{
    __mmask16 is_set = _mm512_test_epi32_mask(lanes, _mm512_set1_epi32((int32_t)(1u << bit)));

    return _mm512_maskz_set1_epi32(is_set, (int32_t)(set * 0x01010101u));
}

static inline b64 b64_in_words(b64 words, uint32_t bit, uint8_t set)
{
    __mmask32 is_set = _mm512_test_epi16_mask(words, _mm512_set1_epi16((int16_t)(1u << bit)));

    return _mm512_maskz_set1_epi16(is_set, (int16_t)(set * 0x0101u));
}

#endif
