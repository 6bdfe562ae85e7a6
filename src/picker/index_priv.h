/* SPDX-License-Identifier: Apache-2.0 */
/* Who holds a block: sets of columns, as the index keeps them in its entries.
 *
 * A column stands for one life of one worker.  When the index forgets a worker its column is dead: it is
 * masked out of every answer at once, stripped from entries by and by, and given to another life after that.
 */
#ifndef PICKER_INDEX_PRIV_H
#define PICKER_INDEX_PRIV_H

#include "base/mem.h"
#include "picker/index.h"
#include "picker/picker.h"

#define INDEX_COLUMNS                                                                                        \
    (2 * PICKER_MAX_WORKERS) /* so every worker may be lost once while a sweep is under way */
#define INDEX_WORDS       (INDEX_COLUMNS / 64)
#define INDEX_INLINE      13
#define INDEX_BACK_INLINE 8 /* a set that shrank so far leaves its page */
#define INDEX_NONE        UINT32_MAX

struct index_entry { /* one cache line */
    struct block_hash hash;
    uint64_t used_ns;
    uint32_t older, newer; /* neighbours by use; a free entry: newer is the next free one */
    uint32_t page;         /* INDEX_NONE: the holders are here */
    uint16_t n_holders;    /* dead ones included; 0: the entry is free */
    uint16_t holders[INDEX_INLINE];
};

_Static_assert(sizeof(struct index_entry) == MEM_CACHE_LINE, "one entry, one cache line");

struct index_set {
    uint64_t words[INDEX_WORDS];
};

/* Pages for sets that outgrow their entry.  There are fewer of them than entries: where none is left, a new
 * holder takes the place of another, and the index knows less. */
struct index_pages {
    struct mem_region region;
    struct index_set *pages;
    uint32_t n_pages, n_made;
    uint32_t free;   /* the first; its words[0] is the next */
    uint32_t victim; /* which inline holder goes next where no page is left */
};

uint32_t index_pages_number(uint32_t max_entries);
int index_pages_open(uint32_t max_entries, struct index_pages *out); /* E_NOMEM */
void index_pages_close(struct index_pages *pages);

/* dead: stripped where room is wanted. */
void index_holders_add(struct index_pages *pages, struct index_entry *entry, uint16_t column,
                       const struct index_set *dead);
/* Whoever takes the last one away drops the entry. */
void index_holders_remove(struct index_pages *pages, struct index_entry *entry, uint16_t column);
void index_holders_strip(struct index_pages *pages, struct index_entry *entry, const struct index_set *dead);
void index_holders_clear(struct index_pages *pages, struct index_entry *entry);
void index_holders_load(const struct index_pages *pages, const struct index_entry *entry,
                        struct index_set *out);

static inline void index_set_add(struct index_set *set, uint32_t column)
{
    set->words[column / 64] |= UINT64_C(1) << column % 64;
}

static inline void index_set_remove(struct index_set *set, uint32_t column)
{
    set->words[column / 64] &= ~(UINT64_C(1) << column % 64);
}

static inline bool index_set_has(const struct index_set *set, uint32_t column)
{
    return set->words[column / 64] >> column % 64 & 1;
}

#endif
