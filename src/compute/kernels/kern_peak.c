/* SPDX-License-Identifier: Apache-2.0 */
/* Peak figures of this instruction set: loads from memory, fused multiply-adds in registers.
 *
 * Sums are returned so that the compiler cannot remove the work. The number of independent chains is the
 * number of tokens of the widest tile: this is the most that the tile itself can reach. */
#include "compute/kernels/kern_set_priv.h"

enum { LINE_FLOATS = 16, LINES = 2 };

float KERN(read_memory)(const void *from, size_t len_bytes, struct reading reading)
{
    const size_t stream = len_bytes / reading.n_streams / sizeof(float);
    const size_t ahead = reading.ahead_bytes / sizeof(float);
    v16 sums[LINES];

    for (int i = 0; i < LINES; i++)
        sums[i] = v16_zero();
    for (size_t at = 0; at < stream; at += LINES * LINE_FLOATS) {
        const float *line = (const float *)from + at;

        for (uint32_t s = 0; s < reading.n_streams; s++, line += stream)
#pragma GCC unroll 2
            for (int i = 0; i < LINES; i++) {
                __builtin_prefetch(line + i * LINE_FLOATS + ahead, 0, 2);
                sums[i] = v16_max(sums[i], v16_load(line + i * LINE_FLOATS));
            }
    }
    for (int i = 1; i < LINES; i++)
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
