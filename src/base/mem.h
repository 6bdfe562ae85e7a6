/* SPDX-License-Identifier: Apache-2.0 */
/* Large memory: aligned, zeroed, huge pages where the system gives them, shareable by descriptor. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

#define MEM_CACHE_LINE 64

struct mem_region {
    void *base;       /* page aligned (2 MiB aligned when large) */
    size_t len_bytes; /* what was asked for, rounded up to whole pages, huge ones where that wastes little or
                         it is shareable; all of it is usable */
    int fd;           /* sealed memfd (no grow, no shrink) when shareable, else -1 */
};

/* Zeroed memory.  is_shareable makes a memfd named name behind it.  is_populated touches every page now.
 * Pages are kept out of core dumps.  E_NOMEM with errno kept. */
int mem_region_open(size_t len_bytes, bool is_shareable, bool is_populated, const char *name,
                    struct mem_region *out);
void mem_region_close(struct mem_region *region); /* a zeroed one is fine */

/* Has these bytes fetched into the cache while other things are done; they are not looked at, so any address
 * will do. */
static inline void mem_prefetch(const void *at, size_t len_bytes)
{
    for (size_t i = 0; i < len_bytes; i += MEM_CACHE_LINE)
        __builtin_prefetch((const char *)at + i);
}

/* aligned_alloc with zeroing, align a power of two; free() releases it. */
void *mem_aligned(size_t align, size_t len_bytes);

#endif
