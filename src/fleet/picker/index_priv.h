/* SPDX-License-Identifier: Apache-2.0 */
/* Which workers have a block, and in which tier: sets of columns, as the index keeps them in its entries
 * (`owners`).
 *
 * A worker in the set has the block in memory, or on disk only. A column stands for one life of one
 * worker. When the index forgets a worker, its column is dead: the index masks it out of every answer at
 * once, strips it from entries bit by bit, and then gives it to another life. */
#ifndef FLEET_PICKER_INDEX_PRIV_H
#define FLEET_PICKER_INDEX_PRIV_H

#include <string.h>

#include "base/mem.h"
#include "fleet/picker/index.h"
#include "fleet/picker/picker.h"

#define INDEX_COLUMNS                                                                                        \
    (2 * PICKER_MAX_WORKERS) /* so every worker may be lost once while a sweep is under way */
#define INDEX_WORDS       (INDEX_COLUMNS / 64)
#define INDEX_INLINE      13
#define INDEX_BACK_INLINE 8 /* a set that shrinks to this many leaves its page */
#define INDEX_NONE        UINT32_MAX
#define INDEX_NO_COLUMN   UINT16_MAX
#define INDEX_ON_DISK     0x8000u /* bit beside a column: this worker has the block on disk only */

enum index_list { INDEX_HOT, INDEX_COLD }; /* COLD: all its workers have it on disk only */

struct index_entry { /* one cache line */
    struct block_hash hash;
    uint64_t used_ns;
    uint32_t older, newer;  /* neighbours by use in its list; in a free entry newer is the next free one */
    uint32_t page;          /* INDEX_NONE: the columns are in this entry */
    uint16_t n_owners : 15; /* dead ones included; 0: the entry is free */
    uint16_t list : 1;      /* enum index_list */
    uint16_t owners[INDEX_INLINE]; /* column and INDEX_ON_DISK; with a page: see owners.c */
};

_Static_assert(sizeof(struct index_entry) == MEM_CACHE_LINE, "one entry, one cache line");
_Static_assert(INDEX_COLUMNS <= INDEX_ON_DISK, "a column and its mark in 16 bits");

struct index_set {
    uint64_t words[INDEX_WORDS];
};

/* Pages for sets that outgrow their entry. There are fewer pages than entries. When no page is left, a new
 * column replaces another one, or a block on disk is not recorded: the index knows less. */
struct index_pages {
    struct mem_region region;
    struct index_set *pages;
    uint32_t n_pages, n_made;
    uint32_t free;   /* the first free page; its words[0] is the next */
    uint32_t victim; /* the inline column to replace next when no page is left */
};

uint32_t index_pages_number(uint32_t max_entries);
int index_pages_open(uint32_t max_entries, struct index_pages *out); /* E_NOMEM */
void index_pages_close(struct index_pages *pages);

/* Adds a column, or changes the tier of one in the set. Columns in dead are stripped when room is needed. */
void index_owners_put(struct index_pages *pages, struct index_entry *entry, uint16_t column, bool is_on_disk,
                      const struct index_set *dead);
/* A caller that removes the last column drops the entry. */
void index_owners_remove(struct index_pages *pages, struct index_entry *entry, uint16_t column);
void index_owners_strip(struct index_pages *pages, struct index_entry *entry, const struct index_set *dead);
void index_owners_clear(struct index_pages *pages, struct index_entry *entry);
/* Stores all columns in out. Returns whether any has the block on disk only. If so, those are in
 * on_disk_out; otherwise on_disk_out is left alone. */
bool index_owners_load(const struct index_pages *pages, const struct index_entry *entry,
                       struct index_set *out, struct index_set *on_disk_out);
/* True if any worker in the set, dead or not, has the block in memory. */
bool index_owners_any_in_memory(const struct index_pages *pages, const struct index_entry *entry);

struct picker_index {
    struct mem_region table_region, entries_region;
    uint64_t *table; /* [mask + 1] tag << 32 | entry + 1; 0: free */
    struct index_entry *entries;
    struct index_pages pages;
    uint64_t seed[2];
    uint64_t lifetime_ns;
    uint32_t mask, max_entries;
    uint32_t n_made, n_live, free; /* entries ever used; in use; first free one below n_made */
    uint32_t oldest[2], newest[2]; /* of each list */
    uint32_t n_cold;

    /* INDEX_NO_COLUMN: the slot waits for the sweep, and nothing is learned of its worker */
    uint16_t column_of[PICKER_MAX_WORKERS];
    uint16_t slot_of[INDEX_COLUMNS];
    bool is_used[INDEX_COLUMNS]; /* an entry may hold this column */
    uint16_t free_columns[INDEX_COLUMNS];
    uint32_t n_free_columns, n_dead, n_without;
    struct index_set dead;
    uint64_t died_in[INDEX_COLUMNS]; /* the pass in which the column died */
    uint64_t pass;
    uint32_t cursor;
};

/* Removes the entry, with columns or without. */
void index_drop(struct picker_index *index, const struct index_entry *entry);
/* Some workers left, or have the block on disk only now: moves the entry to the cold list if it is cold. */
void index_cool(struct picker_index *index, struct index_entry *entry);

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

/* ---- prefix_match.c ---- */

struct prefix_match { /* along a chain: the workers that have all of it so far */
    const struct picker_index *index;
    struct picker_found *found;
    uint32_t n_slots;
    struct index_set live;
    struct index_set fallen; /* of live: not all of it in memory. Only if has_fallen */
    bool has_fallen;
};

void prefix_match_init(struct prefix_match *match, const struct picker_index *index,
                       struct picker_found *found, uint32_t n_slots);
void prefix_match_begin(struct prefix_match *match, const struct index_entry *first);
/* Keeps only the workers that have this block, the n-th, too. False: none is left. */
bool prefix_match_narrow(struct prefix_match *match, const struct index_entry *entry, uint32_t n);
void prefix_match_end(const struct prefix_match *match, uint32_t n);
/* Nearly always true from one block to the next. */
static inline bool prefix_match_has_same_owners(const struct index_entry *a, const struct index_entry *b)
{
    return a->page == INDEX_NONE && b->page == INDEX_NONE && a->n_owners == b->n_owners &&
           memcmp(a->owners, b->owners, a->n_owners * sizeof(a->owners[0])) == 0;
}

#endif
