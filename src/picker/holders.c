/* SPDX-License-Identifier: Apache-2.0 */
/* The set of holders of a block: up to thirteen columns in the entry itself, more of them as a bitmap in a
 * page.
 *
 *   entry   [ hash | used | older newer | page - | n | c c c c . . . . . . . . . ]     nearly all blocks
 *   entry   [ hash | used | older newer | page o | n |                           ]     beginnings that many
 * share
 *                                              |
 *   page                                       +-> [ 2048 bits ]
 *
 * Columns keep the order in which they came: the blocks of a chain are learned together, so neighbours have
 * equal lists byte for byte, which a walk along a chain makes use of. */
#include "picker/index_priv.h"

#include <string.h>

#include "base/err.h"

#define ENTRIES_PER_PAGE 16

uint32_t index_pages_number(uint32_t max_entries)
{
    return max_entries / ENTRIES_PER_PAGE + 1;
}

int index_pages_open(uint32_t max_entries, struct index_pages *out)
{
    struct index_pages pages = {.n_pages = index_pages_number(max_entries), .free = INDEX_NONE};
    int rc =
        mem_region_open(pages.n_pages * sizeof(*pages.pages), false, false, "index pages", &pages.region);

    if (rc < 0)
        return E_NOMEM;
    pages.pages = pages.region.base;
    *out = pages;
    return 0;
}

void index_pages_close(struct index_pages *pages)
{
    mem_region_close(&pages->region);
}

static uint32_t take_page(struct index_pages *pages)
{
    uint32_t page = pages->free;

    if (page != INDEX_NONE) {
        pages->free = (uint32_t)pages->pages[page].words[0];
        return page;
    }
    return pages->n_made < pages->n_pages ? pages->n_made++ : INDEX_NONE;
}

static void give_page(struct index_pages *pages, struct index_entry *entry)
{
    pages->pages[entry->page].words[0] = pages->free;
    pages->free = entry->page;
    entry->page = INDEX_NONE;
}

static bool move_out(struct index_pages *pages, struct index_entry *entry)
{
    uint32_t page = take_page(pages);

    if (page == INDEX_NONE)
        return false;
    index_holders_load(pages, entry, &pages->pages[page]);
    entry->page = page;
    return true;
}

/* A page whose set became small gives it back to the entry. */
static void move_in(struct index_pages *pages, struct index_entry *entry)
{
    struct index_set set = pages->pages[entry->page];
    uint32_t n = 0;

    if (entry->n_holders > INDEX_BACK_INLINE)
        return;
    give_page(pages, entry);
    for (uint32_t i = 0; i < INDEX_WORDS; i++)
        for (uint64_t left = set.words[i]; left != 0; left &= left - 1)
            entry->holders[n++] = (uint16_t)(64 * i + (uint32_t)__builtin_ctzll(left));
}

void index_holders_add(struct index_pages *pages, struct index_entry *entry, uint16_t column,
                       const struct index_set *dead)
{
    for (uint32_t i = 0; entry->page == INDEX_NONE && i < entry->n_holders; i++)
        if (entry->holders[i] == column)
            return;
    if (entry->page == INDEX_NONE && entry->n_holders == INDEX_INLINE) {
        index_holders_strip(pages, entry, dead);
        if (entry->n_holders == INDEX_INLINE && !move_out(pages, entry)) {
            entry->holders[pages->victim++ % INDEX_INLINE] = column;
            return;
        }
    }
    if (entry->page == INDEX_NONE) {
        entry->holders[entry->n_holders++] = column;
    } else if (!index_set_has(&pages->pages[entry->page], column)) {
        index_set_add(&pages->pages[entry->page], column);
        entry->n_holders++;
    }
}

void index_holders_remove(struct index_pages *pages, struct index_entry *entry, uint16_t column)
{
    if (entry->page != INDEX_NONE) {
        if (!index_set_has(&pages->pages[entry->page], column))
            return;
        index_set_remove(&pages->pages[entry->page], column);
        entry->n_holders--;
        move_in(pages, entry);
        return;
    }
    for (uint32_t i = 0; i < entry->n_holders; i++) {
        if (entry->holders[i] != column)
            continue;
        entry->n_holders--;
        memmove(&entry->holders[i], &entry->holders[i + 1],
                (entry->n_holders - i) * sizeof(entry->holders[0]));
        return;
    }
}

void index_holders_strip(struct index_pages *pages, struct index_entry *entry, const struct index_set *dead)
{
    uint32_t n = 0;

    if (entry->page == INDEX_NONE) {
        for (uint32_t i = 0; i < entry->n_holders; i++)
            if (!index_set_has(dead, entry->holders[i]))
                entry->holders[n++] = entry->holders[i];
        entry->n_holders = (uint16_t)n;
        return;
    }
    struct index_set *set = &pages->pages[entry->page];
    for (uint32_t i = 0; i < INDEX_WORDS; i++) {
        set->words[i] &= ~dead->words[i];
        n += (uint32_t)__builtin_popcountll(set->words[i]);
    }
    entry->n_holders = (uint16_t)n;
    move_in(pages, entry);
}

void index_holders_clear(struct index_pages *pages, struct index_entry *entry)
{
    if (entry->page != INDEX_NONE)
        give_page(pages, entry);
    entry->n_holders = 0;
}

void index_holders_load(const struct index_pages *pages, const struct index_entry *entry,
                        struct index_set *out)
{
    if (entry->page != INDEX_NONE) {
        *out = pages->pages[entry->page];
        return;
    }
    memset(out, 0, sizeof(*out));
    for (uint32_t i = 0; i < entry->n_holders; i++)
        index_set_add(out, entry->holders[i]);
}
