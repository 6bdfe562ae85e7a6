/* SPDX-License-Identifier: Apache-2.0 */
/* The peak of AVX-512's BF16 dots, for the machine's limits.  No kernel uses them yet: they round otherwise
 * than FMAs, so their results would need a numerics id of their own. */
#include "tensor/kern_priv.h"

#include <immintrin.h>

float kern_peak_bf16(uint32_t rounds);

float kern_peak_bf16(uint32_t rounds)
{
    __m512 sums[PEAK_BF16_CHAINS], one = _mm512_set1_ps(1.0f);
    __m512bh pairs = _mm512_cvtne2ps_pbh(one, one);

    for (int i = 0; i < PEAK_BF16_CHAINS; i++)
        sums[i] = _mm512_setzero_ps();
    for (uint32_t round = 0; round < rounds; round++)
#pragma GCC unroll 12
        for (int i = 0; i < PEAK_BF16_CHAINS; i++)
            sums[i] = _mm512_dpbf16_ps(sums[i], pairs, pairs);
    for (int i = 1; i < PEAK_BF16_CHAINS; i++)
        sums[0] = _mm512_add_ps(sums[0], sums[i]);
    return _mm512_reduce_add_ps(sums[0]);
}
