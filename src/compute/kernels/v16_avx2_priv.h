/* SPDX-License-Identifier: Apache-2.0 */
/* Sixteen floats at once: two registers of AVX2 with FMA and F16C. v16_scalar_priv.h defines each function.
 *
 * Compiled with -mavx2 -mfma -mf16c. */
#ifndef COMPUTE_KERNELS_V16_AVX2_PRIV_H
#define COMPUTE_KERNELS_V16_AVX2_PRIV_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define KERN(name) name##_avx2

/* 16 registers: 1 panel x 6 tokens are 12 sums; the others hold the weights and a broadcast. */
#define TILE_HEIGHTS(H) H(1) H(2) H(3) H(4) H(5) H(6)
enum { TILE_TOKENS = 6, TILE_PANELS = 1 };

typedef struct {
    __m256 low, high;
} v16;

static inline uint32_t tile_panels(uint32_t n_tokens)
{
    return n_tokens == 1 ? 4 : n_tokens <= 3 ? 2 : TILE_PANELS;
}

static inline v16 v16_set1(float value)
{
    return (v16){_mm256_set1_ps(value), _mm256_set1_ps(value)};
}

static inline v16 v16_zero(void)
{
    return (v16){_mm256_setzero_ps(), _mm256_setzero_ps()};
}

static inline v16 v16_load(const float *from)
{
    return (v16){_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}

static inline void v16_store(float *to, v16 a)
{
    _mm256_storeu_ps(to, a.low);
    _mm256_storeu_ps(to + 8, a.high);
}

/* Returns all ones in the lanes below n, for eight lanes from `begin` on. */
static inline __m256i v16_mask8(uint32_t n, int begin)
{
    __m256i lane = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(begin));

    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n < 16 ? (int)n : 16), lane);
}

static inline v16 v16_load_n(const float *from, uint32_t n)
{
    return (v16){_mm256_maskload_ps(from, v16_mask8(n, 0)), _mm256_maskload_ps(from + 8, v16_mask8(n, 8))};
}

static inline void v16_store_n(float *to, v16 a, uint32_t n)
{
    _mm256_maskstore_ps(to, v16_mask8(n, 0), a.low);
    _mm256_maskstore_ps(to + 8, v16_mask8(n, 8), a.high);
}

static inline v16 v16_add(v16 a, v16 b)
{
    return (v16){_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}

static inline v16 v16_sub(v16 a, v16 b)
{
    return (v16){_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}

static inline v16 v16_mul(v16 a, v16 b)
{
    return (v16){_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}

static inline v16 v16_div(v16 a, v16 b)
{
    return (v16){_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}

static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

static inline v16 v16_max(v16 a, v16 b)
{
    return (v16){_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}

static inline v16 v16_abs(v16 a)
{
    __m256 sign = _mm256_set1_ps(-0.0f);

    return (v16){_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}

static inline v16 v16_if_below(v16 x, v16 limit, v16 a, v16 b)
{
    return (v16){_mm256_blendv_ps(b.low, a.low, _mm256_cmp_ps(x.low, limit.low, _CMP_LT_OQ)),
                 _mm256_blendv_ps(b.high, a.high, _mm256_cmp_ps(x.high, limit.high, _CMP_LT_OQ))};
}

static inline v16 v16_first_n(v16 a, v16 b, uint32_t n)
{
    return (v16){_mm256_blendv_ps(b.low, a.low, _mm256_castsi256_ps(v16_mask8(n, 0))),
                 _mm256_blendv_ps(b.high, a.high, _mm256_castsi256_ps(v16_mask8(n, 8)))};
}

static inline float v16_sum(v16 a)
{
    __m256 eight = _mm256_add_ps(a.low, a.high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));

    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static inline float v16_top(v16 a)
{
    __m256 eight = _mm256_max_ps(a.low, a.high);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));

    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

static inline bool v16_any_above(v16 a, float limit)
{
    __m256 top = _mm256_max_ps(a.low, a.high);

    return _mm256_movemask_ps(_mm256_cmp_ps(top, _mm256_set1_ps(limit), _CMP_GT_OQ)) != 0;
}

static inline __m256 v16_scale2_half(__m256 a, __m256 shifted)
{
    __m256i by = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);

    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), by));
}

static inline v16 v16_scale2(v16 a, v16 shifted)
{
    return (v16){v16_scale2_half(a.low, shifted.low), v16_scale2_half(a.high, shifted.high)};
}

static inline v16 v16_swap_pairs(v16 a)
{
    return (v16){_mm256_permute_ps(a.low, 0xb1), _mm256_permute_ps(a.high, 0xb1)};
}

static inline v16 v8_zip(__m256 a, __m256 b)
{
    __m256 low = _mm256_unpacklo_ps(a, b), high = _mm256_unpackhi_ps(a, b); /* of each half */

    return (v16){_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
}

static inline void v16_zip(v16 *a, v16 *b)
{
    v16 x = *a, y = *b;

    *a = v8_zip(x.low, y.low);
    *b = v8_zip(x.high, y.high);
}

static inline v16 v16_from_f16(const uint16_t *from)
{
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + 8)))};
}

static inline __m256 v16_from_bf16_half(const uint16_t *from)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from));

    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static inline v16 v16_from_bf16(const uint16_t *from)
{
    return (v16){v16_from_bf16_half(from), v16_from_bf16_half(from + 8)};
}

static inline v16 v16_from_bytes(__m128i bytes)
{
    return (v16){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                 _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}

static inline v16 v16_from_i8(const int8_t *from)
{
    return v16_from_bytes(_mm_loadu_si128((const __m128i *)from));
}

/* 0x47000000 is 2^15, whose mantissa counts from bit 8 on. Whole bytes: a load from beside. */
static inline __attribute__((always_inline)) __m256 v8_second_bytes(const uint8_t *from, int left,
                                                                    uint32_t mask, bool is_odd)
{
    __m256i bits = _mm256_loadu_si256((const __m256i *)(from - (left % 8 == 0 ? left / 8 : 0)));

    bits = left % 8 == 0 ? bits : left > 0 ? _mm256_slli_epi32(bits, left) : _mm256_srli_epi32(bits, -left);
    bits = _mm256_and_si256(bits, _mm256_set1_epi32((int32_t)mask));
    return _mm256_castsi256_ps(_mm256_or_si256(bits, _mm256_set1_epi32(is_odd ? 0x47000080 : 0x47000000)));
}

static inline __attribute__((always_inline)) v16 v16_second_bytes(const uint8_t *at, int left, uint32_t mask,
                                                                  bool is_odd)
{
    return (v16){v8_second_bytes(at, left, mask, is_odd), v8_second_bytes(at + 32, left, mask, is_odd)};
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
    _mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(to + 8), _mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT));
}

static inline void v16_store_low8(int8_t *to, v16 a)
{
    __m256i low = _mm256_and_si256(_mm256_castps_si256(a.low), _mm256_set1_epi32(0xff));
    __m256i high = _mm256_and_si256(_mm256_castps_si256(a.high), _mm256_set1_epi32(0xff));
    /* Packing works within 128 bits: 0-3 8-11 4-7 12-15, then the parts are put in order. */
    __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
    __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));

    _mm_storeu_si128((__m128i *)to, bytes);
}

#endif
