/* SPDX-License-Identifier: Apache-2.0 */
/* Per-request bump allocator: many small allocations, one release.  Not thread safe. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

#include "base/bytes.h"

struct arena {
    struct arena_page *pages;
    struct arena_kept *kept; /* given to it */
    size_t used_bytes;       /* handed out in all */
    size_t limit_bytes;      /* 0: none */
};

void arena_init(struct arena *arena, size_t limit_bytes);
void arena_fini(struct arena *arena);
void *arena_take(struct arena *arena,
                 size_t len_bytes); /* zeroed, 16-aligned; NULL: no memory or over the limit */
/* Takes heap memory: it is counted, and freed with the rest.  Returns it; NULL, and it is freed: no memory or
 * over the limit. */
void *arena_keep(struct arena *arena, void *memory, size_t len_bytes);
char *arena_str(struct arena *arena, struct bytes text); /* NUL-terminated copy */

#endif
