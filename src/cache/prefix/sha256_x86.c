/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 with the x86 SHA instructions: two rounds each, with the state in two registers, and four words of
 * the schedule at a time.
 *
 *     state    [ f e b a ]  [ h g d c ]      lowest lane first, as the instructions require
 *     words    [ w0 .. w3 ] [ w4 .. w7 ] [ w8 .. w11 ] [ w12 .. w15 ]   the oldest four become the next
 *
 * Rounds depend on each other, so the instructions' latency decides a message's time.  Independent messages
 * overlap in the processor, as far as it looks ahead. */
#include "cache/prefix/sha256_priv.h"

#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdbool.h>

#define SHA __attribute__((target("sha,sse4.1,ssse3")))

static inline SHA __m128i sha256_load(const void *at)
{
    return _mm_loadu_si128(at);
}

/* The next four schedule words after w[3], from the sixteen before them. */
static inline SHA __m128i sha256_next_words(const __m128i w[4])
{
    __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[0], w[1]), _mm_alignr_epi8(w[3], w[2], 4));

    return _mm_sha256msg2_epu32(sum, w[3]);
}

static SHA void sha256_compress_x86(uint32_t state[8], const uint8_t *blocks, size_t n_blocks)
{
    const __m128i big_endian = _mm_set_epi64x(INT64_C(0x0c0d0e0f08090a0b), INT64_C(0x0405060700010203));
    __m128i badc = _mm_shuffle_epi32(sha256_load(state), 0xb1),
            hgfe = _mm_shuffle_epi32(sha256_load(state + 4), 0x1b);
    __m128i feba = _mm_alignr_epi8(badc, hgfe, 8), hgdc = _mm_blend_epi16(hgfe, badc, 0xf0);

    for (; n_blocks > 0; n_blocks--, blocks += SHA256_BLOCK_BYTES) {
        __m128i w[4], before[2] = {feba, hgdc};

        for (int i = 0; i < 4; i++)
            w[i] = _mm_shuffle_epi8(sha256_load(blocks + 16 * i), big_endian);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            __m128i added = _mm_add_epi32(w[0], sha256_load(sha256_constants + 4 * i)),
                    last = sha256_next_words(w);

            hgdc = _mm_sha256rnds2_epu32(hgdc, feba, added);
            feba = _mm_sha256rnds2_epu32(feba, hgdc, _mm_shuffle_epi32(added, 0x0e));
            w[0] = w[1];
            w[1] = w[2];
            w[2] = w[3];
            w[3] = last;
        }
        feba = _mm_add_epi32(feba, before[0]);
        hgdc = _mm_add_epi32(hgdc, before[1]);
    }
    badc = _mm_blend_epi16(_mm_shuffle_epi32(feba, 0x1b), _mm_shuffle_epi32(hgdc, 0xb1), 0xf0);
    hgfe = _mm_alignr_epi8(_mm_shuffle_epi32(hgdc, 0xb1), _mm_shuffle_epi32(feba, 0x1b), 8);
    _mm_storeu_si128((__m128i *)(void *)state, badc);
    _mm_storeu_si128((__m128i *)(void *)(state + 4), hgfe);
}

/* ---- CPU detection ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT; /* once: a hypervisor may answer slowly */
static bool has_sha;

static void sha256_detect(void)
{
    unsigned a, b, c, d;

    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & bit_SSSE3) == 0 || (c & bit_SSE4_1) == 0)
        return;
    has_sha = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA) != 0;
}

sha256_compress sha256_compress_cpu(void)
{
    pthread_once(&once, sha256_detect);
    return has_sha ? sha256_compress_x86 : NULL;
}
