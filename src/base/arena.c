/* SPDX-License-Identifier: Apache-2.0 */
/* A bump allocator: the memory of one request, released all at once.
 *
 *     pages -> [ header | used ....... | free ] -> [ header | used ............ ] -> NULL
 *
 * Only the first page has room for new pieces.  Pages start small, because most requests are small and ten
 * thousand of them may exist at once.  Later pages grow with the total already allocated.  A piece larger
 * than a quarter page gets its own page behind the first one, so that the room left in the current page is
 * not lost. */
#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_PAGE_BYTES = 1024, PAGE_BYTES = 16 * 1024, ALIGN = 16 };

struct arena_page {
    struct arena_page *next;
    size_t used_bytes;
    size_t cap_bytes;
    _Alignas(ALIGN) uint8_t data[];
};

struct arena_kept { /* an arena piece itself */
    struct arena_kept *next;
    void *memory;
};

void arena_init(struct arena *arena, size_t limit_bytes)
{
    *arena = (struct arena){.limit_bytes = limit_bytes};
}

void arena_fini(struct arena *arena)
{
    for (struct arena_kept *kept = arena->kept; kept != NULL; kept = kept->next)
        free(kept->memory);
    for (struct arena_page *page = arena->pages, *next; page != NULL; page = next) {
        next = page->next;
        free(page);
    }
    arena_init(arena, arena->limit_bytes);
}

static struct arena_page *page_new(size_t cap_bytes)
{
    struct arena_page *page = calloc(1, sizeof(*page) + cap_bytes);

    if (page != NULL)
        page->cap_bytes = cap_bytes;
    return page;
}

/* For pieces of at most a quarter of the largest page. */
static size_t next_page_bytes(const struct arena *arena, size_t len_bytes)
{
    size_t bytes = FIRST_PAGE_BYTES;

    while (bytes < PAGE_BYTES && (bytes < arena->used_bytes || bytes < 4 * len_bytes))
        bytes *= 2;
    return bytes;
}

/* Returns a page with room for len_bytes; makes one if needed. */
static struct arena_page *page_with_room(struct arena *arena, size_t len_bytes)
{
    struct arena_page *first = arena->pages;

    if (first != NULL && first->cap_bytes - first->used_bytes >= len_bytes)
        return first;

    bool is_big = len_bytes > PAGE_BYTES / 4;
    struct arena_page *page = page_new(is_big ? len_bytes : next_page_bytes(arena, len_bytes));
    if (page == NULL)
        return NULL;
    if (is_big && first != NULL) {
        page->next = first->next;
        first->next = page;
    } else {
        page->next = first;
        arena->pages = page;
    }
    return page;
}

static bool arena_is_within(const struct arena *arena, size_t len_bytes)
{
    return arena->limit_bytes == 0 ||
           (arena->used_bytes <= arena->limit_bytes && len_bytes <= arena->limit_bytes - arena->used_bytes);
}

void *arena_take(struct arena *arena, size_t len_bytes)
{
    if (len_bytes > SIZE_MAX / 2)
        return NULL;
    len_bytes = (len_bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (len_bytes == 0)
        len_bytes = ALIGN; /* each piece needs its own address */
    if (!arena_is_within(arena, len_bytes))
        return NULL;

    struct arena_page *page = page_with_room(arena, len_bytes);
    if (page == NULL)
        return NULL;
    void *piece = page->data + page->used_bytes;
    page->used_bytes += len_bytes;
    arena->used_bytes += len_bytes;
    return piece;
}

void *arena_keep(struct arena *arena, void *memory, size_t len_bytes)
{
    struct arena_kept *kept = arena_is_within(arena, len_bytes) ? arena_take(arena, sizeof(*kept)) : NULL;

    if (kept == NULL) {
        free(memory);
        return NULL;
    }
    kept->memory = memory;
    kept->next = arena->kept;
    arena->kept = kept;
    arena->used_bytes += len_bytes;
    return memory;
}

char *arena_str(struct arena *arena, struct bytes text)
{
    char *copy = text.len_bytes < SIZE_MAX / 2 ? arena_take(arena, text.len_bytes + 1) : NULL;

    if (copy != NULL && text.len_bytes > 0)
        memcpy(copy, text.data, text.len_bytes);
    return copy;
}
