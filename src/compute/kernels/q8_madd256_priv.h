/* SPDX-License-Identifier: Apache-2.0 */
/* Dots of unsigned weights and signed activations with AVX2. Narrow weights use vpmaddubsw
 * (kern_narrow_priv.h). Weights of eight bits are widened to words, even and odd ones apart. vpmaddwd then
 * adds pairs of their products, which cannot overflow. vpmaddubsw could overflow, and is slower once its
 * operands are made safe (vpsignb). See q8_scalar_priv.h.
 *
 * Compiled with -mavx2 -mfma -mf16c. */
#ifndef COMPUTE_KERNELS_Q8_MADD256_PRIV_H
#define COMPUTE_KERNELS_Q8_MADD256_PRIV_H

#include "compute/kernels/b64_avx2_priv.h"

#include <string.h>

#define Q8(name) name##_madd256
/* 1 panel x 4 tokens: 8 registers of integer sums, 4 of weights, 2 broadcasts, a mask. With narrow
 * weights: 8 of words, 2 of weights, a broadcast, products. */
#define Q8_HEIGHTS(H) H(1) H(2) H(3) H(4)
enum { Q8_TILE_TOKENS = 4, Q8_TILE_PANELS = 1, Q8_QUANT_BYTES = 8, Q8_PEAK_CHAINS = 4 }; /* words: 0 2 1 3 */

typedef struct {
    __m256i low, high;
} q8_sums;
typedef struct {
    q8_sums even, odd;
} q8_weights;
typedef struct {
    __m256i even, odd;
} q8_x;

#define Q8_DIRECT Q8(direct_q8)
enum { Q8_DIRECT_PANELS = 1 }; /* at once, with one token */

static inline uint32_t q8_panels(uint32_t n_tokens)
{
    return Q8_TILE_PANELS;
}

static inline q8_sums q8_start(int32_t value)
{
    return (q8_sums){_mm256_set1_epi32(value), _mm256_set1_epi32(value)};
}

static inline q8_weights q8_of_bytes(b64 u)
{
    __m256i mask = _mm256_set1_epi16(0xff);

    return (q8_weights){{_mm256_and_si256(u.low, mask), _mm256_and_si256(u.high, mask)},
                        {_mm256_srli_epi16(u.low, 8), _mm256_srli_epi16(u.high, 8)}};
}

static inline q8_x q8_load_x(const void *from)
{
    int32_t even, odd;

    memcpy(&even, from, sizeof(even));
    memcpy(&odd, (const char *)from + sizeof(even), sizeof(odd));
    return (q8_x){_mm256_set1_epi32(even), _mm256_set1_epi32(odd)};
}

/* The empty statement keeps the compiler from changing the order of the additions. With another order it
 * would have to keep all products of a qblk in memory. */
static inline __m256i q8_madd(__m256i sums, __m256i w, __m256i x)
{
    sums = _mm256_add_epi32(sums, _mm256_madd_epi16(w, x));
    __asm__("" : "+x"(sums));
    return sums;
}

static inline q8_sums q8_dot(q8_sums sums, q8_weights w, q8_x x)
{
    return (q8_sums){q8_madd(q8_madd(sums.low, w.even.low, x.even), w.odd.low, x.odd),
                     q8_madd(q8_madd(sums.high, w.even.high, x.even), w.odd.high, x.odd)};
}

/* ---- narrow weights ---- */

#define Q8_NARROW
#define Q8_NARROW_MOST 127
enum { Q8_NARROW_BYTES = 4 };

typedef q8_sums q8_words;

typedef __m256i q8_narrow_x;

static inline q8_narrow_x q8_narrow_load_x(const void *from)
{
    int32_t four;

    memcpy(&four, from, sizeof(four));
    return _mm256_set1_epi32(four);
}

/* Products of four weights of each lane and four activations, added in pairs. */
static inline q8_words q8_pairs(b64 u, q8_narrow_x x)
{
    return (q8_words){_mm256_maddubs_epi16(u.low, x), _mm256_maddubs_epi16(u.high, x)};
}

static inline q8_words q8_words_add(q8_words a, q8_words b)
{
    a = (q8_words){_mm256_add_epi16(a.low, b.low), _mm256_add_epi16(a.high, b.high)};
    __asm__("" : "+x"(a.low), "+x"(a.high));
    return a;
}

/* The same for signed weights, whose sizes are at most Q8_NARROW_MOST: their signs go to the activations. */
#define Q8_SIGNED
static inline q8_words q8_signed_pairs(b64 sizes, b64 levels, q8_narrow_x x)
{
    return (q8_words){_mm256_maddubs_epi16(sizes.low, _mm256_sign_epi8(x, levels.low)),
                      _mm256_maddubs_epi16(sizes.high, _mm256_sign_epi8(x, levels.high))};
}

/* Adds pairs of words to the sums. */
static inline q8_sums q8_widen(q8_sums sums, q8_words words)
{
    __m256i ones = _mm256_set1_epi16(1);

    return (q8_sums){q8_madd(sums.low, words.low, ones), q8_madd(sums.high, words.high, ones)};
}

/* ---- peaks ---- */

/* The same, hidden from the compiler: for peaks, it would compute the products only once. */
static inline q8_x q8_again(q8_x *x)
{
    __asm__("" : "+x"(x->even), "+x"(x->odd));
    return *x;
}

static inline q8_narrow_x q8_narrow_again(q8_narrow_x *x)
{
    __asm__("" : "+x"(*x));
    return *x;
}

static inline v16 q8_minus(q8_sums sums, float magic)
{
    return v16_sub((v16){_mm256_castsi256_ps(sums.low), _mm256_castsi256_ps(sums.high)}, v16_set1(magic));
}

static inline void q8_place(void *to, const int8_t quants[4])
{
    const int16_t words[4] = {quants[0], quants[2], quants[1], quants[3]};

    memcpy(to, words, sizeof(words));
}

#endif
