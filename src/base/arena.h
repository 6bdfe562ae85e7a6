/* SPDX-License-Identifier: Apache-2.0 */
/* Per-request bump allocator: many small allocations, one release.  Not thread safe. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

#include "base/bytes.h"

struct arena {
    struct arena_page *pages;
    struct arena_kept *kept; /* from arena_keep() */
    size_t used_bytes;       /* allocated in total */
    size_t limit_bytes;      /* 0: no limit */
};

void arena_init(struct arena *arena, size_t limit_bytes);
void arena_fini(struct arena *arena);
void *arena_take(struct arena *arena,
                 size_t len_bytes); /* zeroed, 16-aligned; NULL: no memory or over the limit */
/* Takes heap memory, counts it against the limit and frees it with the arena.  Returns memory.  Returns NULL
 * and frees memory when there is no room for the record or the limit is exceeded. */
void *arena_keep(struct arena *arena, void *memory, size_t len_bytes);
char *arena_str(struct arena *arena, struct bytes text); /* NUL-terminated copy */

#endif
