/* SPDX-License-Identifier: Apache-2.0 */
/* Per-request bump allocator: many small allocations, one release.  Not thread safe. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

#include "base/bytes.h"

struct arena {
    struct arena_page *pages;
    size_t used_bytes;  /* handed out in all */
    size_t limit_bytes; /* 0: none */
};

void arena_init(struct arena *arena, size_t limit_bytes);
void arena_fini(struct arena *arena);
void *arena_take(struct arena *arena,
                 size_t len_bytes); /* zeroed, 16-aligned; NULL: no memory or over the limit */
char *arena_str(struct arena *arena, struct bytes text); /* NUL-terminated copy */

#endif
