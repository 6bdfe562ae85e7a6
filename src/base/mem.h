/* SPDX-License-Identifier: Apache-2.0 */
/* Large memory regions: aligned, zeroed, on huge pages where the system gives them, shareable by file
 * descriptor. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

#define MEM_CACHE_LINE 64

struct mem_region {
    void *base;       /* page aligned (2 MiB aligned when large) */
    size_t len_bytes; /* the requested size, rounded up to whole pages; to whole huge pages if shareable or
                         little is wasted; all usable */
    int fd;           /* sealed memfd (no grow, no shrink) when shareable, else -1 */
};

/* Maps zeroed memory. is_shareable: backed by a memfd called name. is_populated: touches every page now.
 * Core dumps leave the pages out.  E_NOMEM; errno keeps the cause. */
int mem_region_open(size_t len_bytes, bool is_shareable, bool is_populated, const char *name,
                    struct mem_region *out);
/* Asks for small pages: the first touch of a page then clears 4 KiB and not 2 MiB, which can take
 * milliseconds.  For lazily used memory of a thread that must not stall. */
void mem_region_want_small_pages(const struct mem_region *region);
void mem_region_close(struct mem_region *region); /* accepts a zeroed struct */

/* Prefetches these bytes into the cache.  It never reads them, so any address is allowed. */
static inline void mem_prefetch(const void *at, size_t len_bytes)
{
    for (size_t i = 0; i < len_bytes; i += MEM_CACHE_LINE)
        __builtin_prefetch((const char *)at + i);
}

/* Zeroed memory from aligned_alloc(); align is a power of two; release it with free(). */
void *mem_aligned(size_t align, size_t len_bytes);

#endif
