/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's limits as this instruction set sees them: loads from memory, fused multiply-adds in
 * registers.
 *
 * Sums are returned so that the compiler cannot leave the work out.  There are as many independent chains as
 * the widest tile has tokens, which is what the tile itself can hope for.
 */
#include "tensor/kern_set_priv.h"

enum { LOADS = 8 };

float KERN(read_memory)(const void *from, size_t len_bytes)
{
    const float *at = from, *end = at + len_bytes / sizeof(float);
    v16 sums[LOADS];

    for (int i = 0; i < LOADS; i++)
        sums[i] = v16_zero();
    for (; at < end; at += LOADS * 16) {
#pragma GCC unroll 8
        for (int i = 0; i < LOADS; i++) {
            __builtin_prefetch(at + i * 16 + 1024, 0, 2);
            sums[i] = v16_max(sums[i], v16_load(at + i * 16));
        }
    }
    for (int i = 1; i < LOADS; i++)
        sums[0] = v16_add(sums[0], sums[i]);
    return v16_sum(sums[0]);
}

float KERN(peak)(uint32_t rounds)
{
    v16 sums[TILE_TOKENS], by = v16_set1(0.999f), more = v16_set1(0.001f);

    for (int i = 0; i < TILE_TOKENS; i++)
        sums[i] = v16_set1((float)i);
    for (uint32_t round = 0; round < rounds; round++)
#pragma GCC unroll 12
        for (int i = 0; i < TILE_TOKENS; i++)
            sums[i] = v16_fma(sums[i], by, more);
    for (int i = 1; i < TILE_TOKENS; i++)
        sums[0] = v16_add(sums[0], sums[i]);
    return v16_sum(sums[0]);
}
