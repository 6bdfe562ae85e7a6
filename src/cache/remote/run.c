/* SPDX-License-Identifier: Apache-2.0 */
/* See run.h. */
#include "cache/remote/run.h"

uint32_t remote_run_blocks(size_t record_bytes)
{
    size_t n = REMOTE_VALUE_BYTES / record_bytes;

    return n < 1 ? 1 : n < REMOTE_RUN_BLOCKS ? (uint32_t)n : REMOTE_RUN_BLOCKS;
}

uint32_t remote_run_length(size_t record_bytes, uint64_t value_bytes)
{
    uint64_t n = value_bytes / record_bytes;

    if (value_bytes == 0)
        return 0;
    return n < 1 ? 1 : n < REMOTE_RUN_BLOCKS ? (uint32_t)n : REMOTE_RUN_BLOCKS;
}

void remote_run_cover(const uint32_t *runs, uint32_t n, uint32_t *ends_out)
{
    uint32_t next = n; /* blocks from here on are done */

    for (uint32_t end = n; end-- > 0;) {
        uint32_t first = runs[end] < end + 1 ? end + 1 - runs[end] : 0;

        if (end < next)
            ends_out[next = end] = runs[end] > 0 ? end : REMOTE_NOT_THERE;
        while (next > first)
            ends_out[--next] = end;
    }
}
