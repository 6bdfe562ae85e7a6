/* SPDX-License-Identifier: Apache-2.0 */
/* See the header. */
#include "tests/bench/bench_weights.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tests/bench/bench_help.h"

/* Limits the 16 bits at byte i of the weights, which are at `at` of their qblk. */
static uint16_t tame(enum dtype type, const struct dtype_info *info, size_t i, uint16_t bits)
{
    size_t at = i % info->qblk_bytes;

    if (type == DTYPE_F16)
        return (uint16_t)((bits & 0x83ff) | 0x2000);
    if (type == DTYPE_BF16 || (type == DTYPE_F32 && i % 4 != 0))
        return (uint16_t)((bits & 0x807f) | 0x3c00);
    if (type == DTYPE_MXFP4) /* 17 bytes: every second scale is the upper byte */
        return at == 0    ? (uint16_t)((bits & 0xff00) | 0x78)
               : at == 16 ? (uint16_t)((bits & 0xff) | 0x7800)
                          : bits;
    if (type != DTYPE_F32 && (at <= 2 || at + 4 >= info->qblk_bytes))
        return 0x1000;
    return bits;
}

void *bench_weights(enum dtype type, size_t n_weights)
{
    const struct dtype_info *info = dtype_info(type);
    size_t len_bytes = n_weights / info->qblk_weights * info->qblk_bytes;
    uint8_t *data = bench_need(malloc(len_bytes + 8));
    struct rng rng;

    rng_init(&rng, 7);
    for (size_t i = 0; i < len_bytes; i += 2) {
        uint16_t bits = tame(type, info, i, (uint16_t)rng_u64(&rng));

        memcpy(data + i, &bits, 2);
    }
    return data;
}
