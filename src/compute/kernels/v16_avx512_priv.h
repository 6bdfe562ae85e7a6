/* SPDX-License-Identifier: Apache-2.0 */
/* Sixteen floats at once: one register of AVX-512 (F, BW, VL, DQ). v16_scalar_priv.h defines each
 * function.
 *
 * Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c. */
#ifndef COMPUTE_KERNELS_V16_AVX512_PRIV_H
#define COMPUTE_KERNELS_V16_AVX512_PRIV_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define KERN(name) name##_avx512

/* 32 registers: 2 panels x 12 tokens are 24 sums; the others hold the weights and a broadcast. */
#define TILE_HEIGHTS(H) H(1) H(2) H(3) H(4) H(5) H(6) H(7) H(8) H(9) H(10) H(11) H(12)
enum { TILE_TOKENS = 12, TILE_PANELS = 2 };

typedef __m512 v16;

static inline uint32_t tile_panels(uint32_t n_tokens)
{
    return n_tokens <= 4 ? 4 : TILE_PANELS;
}

static inline v16 v16_set1(float value)
{
    return _mm512_set1_ps(value);
}

static inline v16 v16_zero(void)
{
    return _mm512_setzero_ps();
}

static inline v16 v16_load(const float *from)
{
    return _mm512_loadu_ps(from);
}

static inline void v16_store(float *to, v16 a)
{
    _mm512_storeu_ps(to, a);
}

static inline __mmask16 v16_mask(uint32_t n)
{
    return n >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1);
}

static inline v16 v16_load_n(const float *from, uint32_t n)
{
    return _mm512_maskz_loadu_ps(v16_mask(n), from);
}

static inline void v16_store_n(float *to, v16 a, uint32_t n)
{
    _mm512_mask_storeu_ps(to, v16_mask(n), a);
}

static inline v16 v16_add(v16 a, v16 b)
{
    return _mm512_add_ps(a, b);
}

static inline v16 v16_sub(v16 a, v16 b)
{
    return _mm512_sub_ps(a, b);
}

static inline v16 v16_mul(v16 a, v16 b)
{
    return _mm512_mul_ps(a, b);
}

static inline v16 v16_div(v16 a, v16 b)
{
    return _mm512_div_ps(a, b);
}

static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline v16 v16_max(v16 a, v16 b)
{
    return _mm512_max_ps(a, b);
}

static inline v16 v16_abs(v16 a)
{
    return _mm512_abs_ps(a);
}

static inline v16 v16_if_below(v16 x, v16 limit, v16 a, v16 b)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, limit, _CMP_LT_OQ), b, a);
}

static inline v16 v16_first_n(v16 a, v16 b, uint32_t n)
{
    return _mm512_mask_blend_ps(v16_mask(n), b, a);
}

static inline float v16_sum(v16 a)
{
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));

    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static inline float v16_top(v16 a)
{
    __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));

    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

static inline bool v16_any_above(v16 a, float limit)
{
    return _mm512_cmp_ps_mask(a, _mm512_set1_ps(limit), _CMP_GT_OQ) != 0;
}

static inline v16 v16_scale2(v16 a, v16 shifted)
{
    __m512i by = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);

    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), by));
}

static inline v16 v16_swap_pairs(v16 a)
{
    return _mm512_permute_ps(a, 0xb1);
}

static inline void v16_zip(v16 *a, v16 *b)
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    v16 x = *a, y = *b;

    *a = _mm512_permutex2var_ps(x, low, y);
    *b = _mm512_permutex2var_ps(x, high, y);
}

static inline v16 v16_from_f16(const uint16_t *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
}

static inline v16 v16_from_bf16(const uint16_t *from)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from));

    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline v16 v16_from_bytes(__m128i bytes)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

static inline v16 v16_from_i8(const int8_t *from)
{
    return v16_from_bytes(_mm_loadu_si128((const __m128i *)from));
}

/* 0x47000000 is 2^15, whose mantissa counts from bit 8 on. */
static inline v16 v16_second_bytes(const uint8_t *from, int left, uint32_t mask, bool is_odd)
{
    __m512i lanes = _mm512_loadu_si512(from);

    lanes = left > 0   ? _mm512_slli_epi32(lanes, (unsigned)left)
            : left < 0 ? _mm512_srli_epi32(lanes, (unsigned)-left)
                       : lanes;
    __m512i bits = _mm512_ternarylogic_epi32(lanes, _mm512_set1_epi32((int32_t)mask),
                                             _mm512_set1_epi32(is_odd ? 0x47000080 : 0x47000000), 0xea);

    return _mm512_castsi512_ps(bits);
}

static inline v16 v16_from_low4(const uint8_t *from)
{
    __m128i bytes = _mm_and_si128(_mm_loadu_si128((const __m128i *)from), _mm_set1_epi8(15));

    return v16_from_bytes(_mm_sub_epi8(bytes, _mm_set1_epi8(8)));
}

static inline v16 v16_from_high4(const uint8_t *from)
{
    __m128i high = _mm_srli_epi16(_mm_loadu_si128((const __m128i *)from), 4);

    return v16_from_bytes(_mm_sub_epi8(_mm_and_si128(high, _mm_set1_epi8(15)), _mm_set1_epi8(8)));
}

static inline void v16_to_f16(uint16_t *to, v16 a)
{
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline void v16_store_low8(int8_t *to, v16 a)
{
    _mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8(_mm512_castps_si512(a)));
}

#endif
