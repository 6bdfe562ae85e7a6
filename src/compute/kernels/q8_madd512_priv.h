/* SPDX-License-Identifier: Apache-2.0 */
/* Dots of unsigned weights and signed activations with AVX-512BW without VNNI. Narrow weights use
 * vpmaddubsw; others are widened to words for vpmaddwd. See q8_madd256_priv.h; q8_scalar_priv.h defines
 * each function.
 *
 * Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c. */
#ifndef COMPUTE_KERNELS_Q8_MADD512_PRIV_H
#define COMPUTE_KERNELS_Q8_MADD512_PRIV_H

#include "compute/kernels/b64_avx512_priv.h"

#include <string.h>

#define Q8(name)      name##_madd512
#define Q8_HEIGHTS(H) H(1) H(2) H(3) H(4)
enum { Q8_TILE_TOKENS = 4, Q8_TILE_PANELS = 2, Q8_QUANT_BYTES = 8, Q8_PEAK_CHAINS = 12 }; /* words: 0 2 1 3 */

typedef __m512i q8_sums;
typedef struct {
    __m512i even, odd;
} q8_weights;
typedef q8_weights q8_x;

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
    return (q8_weights){_mm512_and_si512(u, _mm512_set1_epi16(0xff)), _mm512_srli_epi16(u, 8)};
}

static inline q8_x q8_load_x(const void *from)
{
    int32_t even, odd;

    memcpy(&even, from, sizeof(even));
    memcpy(&odd, (const char *)from + sizeof(even), sizeof(odd));
    return (q8_x){_mm512_set1_epi32(even), _mm512_set1_epi32(odd)};
}

static inline q8_sums q8_dot(q8_sums sums, q8_weights w, q8_x x)
{
    /* The empty statements keep the compiler from changing the order of the additions: see
     * q8_madd256_priv.h. */
    sums = _mm512_add_epi32(sums, _mm512_madd_epi16(w.even, x.even));
    __asm__("" : "+v"(sums));
    sums = _mm512_add_epi32(sums, _mm512_madd_epi16(w.odd, x.odd));
    __asm__("" : "+v"(sums));
    return sums;
}

/* ---- narrow weights ---- */

#define Q8_NARROW
#define Q8_NARROW_MOST 127
enum { Q8_NARROW_BYTES = 4 };

typedef __m512i q8_words;

typedef __m512i q8_narrow_x;

static inline q8_narrow_x q8_narrow_load_x(const void *from)
{
    int32_t four;

    memcpy(&four, from, sizeof(four));
    return _mm512_set1_epi32(four);
}

static inline q8_words q8_pairs(b64 u, q8_narrow_x x)
{
    return _mm512_maddubs_epi16(u, x);
}

static inline q8_words q8_words_add(q8_words a, q8_words b)
{
    a = _mm512_add_epi16(a, b);
    __asm__("" : "+v"(a));
    return a;
}

static inline q8_sums q8_widen(q8_sums sums, q8_words words)
{
    return _mm512_add_epi32(sums, _mm512_madd_epi16(words, _mm512_set1_epi16(1)));
}

/* ---- peaks ---- */

static inline q8_x q8_again(q8_x *x)
{
    __asm__("" : "+v"(x->even), "+v"(x->odd));
    return *x;
}

static inline q8_narrow_x q8_narrow_again(q8_narrow_x *x)
{
    __asm__("" : "+v"(*x));
    return *x;
}

static inline v16 q8_minus(q8_sums sums, float magic)
{
    return v16_sub(_mm512_castsi512_ps(sums), v16_set1(magic));
}

static inline void q8_place(void *to, const int8_t quants[4])
{
    const int16_t words[4] = {quants[0], quants[2], quants[1], quants[3]};

    memcpy(to, words, sizeof(words));
}

#endif
