/* SPDX-License-Identifier: Apache-2.0 */
/* The set of workers that have a block. The entry itself holds up to thirteen columns; a page holds more as a
 * bitmap. A flag bit in the entry, or a bit in a second page, marks a column whose worker has the block only
 * on disk. Few blocks need a page.
 *
 *   entry   [ hash | used | older newer | page - | n | c c c c . . . . . . . . . ]   nearly all blocks
 *   entry   [ hash | used | older newer | page o | n |                           ]   common prompt starts
 *                                              |       ^ in place of two columns: the second page
 *   page                                       +-> [ 2048 bits ] --> [ 2048 bits: those on disk ]
 *
 * Columns keep their order of arrival. The blocks of a chain are learned together, so neighbours have
 * byte-equal lists; the prefix match uses that. */
#include "fleet/picker/index_priv.h"

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
    mem_region_want_small_pages(&pages.region);
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

static void give_page(struct index_pages *pages, uint32_t page)
{
    if (page == INDEX_NONE)
        return;
    pages->pages[page].words[0] = pages->free;
    pages->free = page;
}

/* The page of on-disk bits of an entry that has a page; INDEX_NONE: no worker has the block on disk only. */
static uint32_t disk_page(const struct index_entry *entry)
{
    uint32_t page;

    memcpy(&page, entry->owners, sizeof(page));
    return page;
}

static void set_disk_page(struct index_entry *entry, uint32_t page)
{
    memcpy(entry->owners, &page, sizeof(page));
}

static void give_pages(struct index_pages *pages, struct index_entry *entry)
{
    give_page(pages, disk_page(entry));
    give_page(pages, entry->page);
    entry->page = INDEX_NONE;
}

static bool move_out(struct index_pages *pages, struct index_entry *entry)
{
    uint32_t page = take_page(pages), of_disk = INDEX_NONE;
    struct index_set on_disk;

    if (page == INDEX_NONE)
        return false;
    if (index_owners_load(pages, entry, &pages->pages[page], &on_disk)) {
        of_disk = take_page(pages);
        if (of_disk == INDEX_NONE) {
            give_page(pages, page);
            return false;
        }
        pages->pages[of_disk] = on_disk;
    }
    entry->page = page;
    set_disk_page(entry, of_disk);
    return true;
}

/* Frees the page when its set is small enough for the entry. */
static void move_in(struct index_pages *pages, struct index_entry *entry)
{
    struct index_set all, on_disk;
    bool has_disk;
    uint32_t n = 0;

    if (entry->n_owners > INDEX_BACK_INLINE)
        return;
    has_disk = index_owners_load(pages, entry, &all, &on_disk);
    give_pages(pages, entry);
    for (uint32_t i = 0; i < INDEX_WORDS; i++)
        for (uint64_t left = all.words[i]; left != 0; left &= left - 1) {
            uint32_t column = 64 * i + (uint32_t)__builtin_ctzll(left);
            bool is_on_disk = has_disk && index_set_has(&on_disk, column);

            entry->owners[n++] = (uint16_t)(column | (is_on_disk ? INDEX_ON_DISK : 0));
        }
}

/* ---- with a page ---- */

/* Frees the second page when no worker has the block on disk only. */
static void tidy_disk_page(struct index_pages *pages, struct index_entry *entry)
{
    uint32_t page = disk_page(entry);
    uint64_t any = 0;

    for (uint32_t i = 0; page != INDEX_NONE && i < INDEX_WORDS; i++)
        any |= pages->pages[page].words[i];
    if (page == INDEX_NONE || any != 0)
        return;
    give_page(pages, page);
    set_disk_page(entry, INDEX_NONE);
}

static void leave_disk_page(struct index_pages *pages, struct index_entry *entry, uint16_t column)
{
    uint32_t page = disk_page(entry);

    if (page == INDEX_NONE || !index_set_has(&pages->pages[page], column))
        return;
    index_set_remove(&pages->pages[page], column);
    tidy_disk_page(pages, entry);
}

static void put_in_pages(struct index_pages *pages, struct index_entry *entry, uint16_t column,
                         bool is_on_disk)
{
    if (is_on_disk && disk_page(entry) == INDEX_NONE) {
        uint32_t page = take_page(pages);

        if (page == INDEX_NONE) {
            index_owners_remove(pages, entry, column);
            return;
        }
        memset(&pages->pages[page], 0, sizeof(pages->pages[page]));
        set_disk_page(entry, page);
    }
    if (!index_set_has(&pages->pages[entry->page], column)) {
        index_set_add(&pages->pages[entry->page], column);
        entry->n_owners++;
    }
    if (is_on_disk)
        index_set_add(&pages->pages[disk_page(entry)], column);
    else
        leave_disk_page(pages, entry, column);
}

/* ---- with a page or without ---- */

void index_owners_put(struct index_pages *pages, struct index_entry *entry, uint16_t column, bool is_on_disk,
                      const struct index_set *dead)
{
    uint16_t owner = (uint16_t)(column | (is_on_disk ? INDEX_ON_DISK : 0));

    for (uint32_t i = 0; entry->page == INDEX_NONE && i < entry->n_owners; i++)
        if ((entry->owners[i] & ~INDEX_ON_DISK) == column) {
            entry->owners[i] = owner;
            return;
        }
    if (entry->page == INDEX_NONE && entry->n_owners == INDEX_INLINE) {
        index_owners_strip(pages, entry, dead);
        if (entry->n_owners == INDEX_INLINE && !move_out(pages, entry)) {
            entry->owners[pages->victim++ % INDEX_INLINE] = owner;
            return;
        }
    }
    if (entry->page == INDEX_NONE)
        entry->owners[entry->n_owners++] = owner;
    else
        put_in_pages(pages, entry, column, is_on_disk);
}

void index_owners_remove(struct index_pages *pages, struct index_entry *entry, uint16_t column)
{
    if (entry->page != INDEX_NONE) {
        if (!index_set_has(&pages->pages[entry->page], column))
            return;
        index_set_remove(&pages->pages[entry->page], column);
        leave_disk_page(pages, entry, column);
        entry->n_owners--;
        move_in(pages, entry);
        return;
    }
    for (uint32_t i = 0; i < entry->n_owners; i++) {
        if ((entry->owners[i] & ~INDEX_ON_DISK) != column)
            continue;
        entry->n_owners--;
        memmove(&entry->owners[i], &entry->owners[i + 1], (entry->n_owners - i) * sizeof(entry->owners[0]));
        return;
    }
}

void index_owners_strip(struct index_pages *pages, struct index_entry *entry, const struct index_set *dead)
{
    uint32_t n = 0, of_disk;

    if (entry->page == INDEX_NONE) {
        for (uint32_t i = 0; i < entry->n_owners; i++)
            if (!index_set_has(dead, entry->owners[i] & ~INDEX_ON_DISK))
                entry->owners[n++] = entry->owners[i];
        entry->n_owners = (uint16_t)n;
        return;
    }
    struct index_set *set = &pages->pages[entry->page];
    of_disk = disk_page(entry);
    for (uint32_t i = 0; i < INDEX_WORDS; i++) {
        set->words[i] &= ~dead->words[i];
        n += (uint32_t)__builtin_popcountll(set->words[i]);
        if (of_disk != INDEX_NONE)
            pages->pages[of_disk].words[i] &= ~dead->words[i];
    }
    entry->n_owners = (uint16_t)n;
    tidy_disk_page(pages, entry);
    move_in(pages, entry);
}

void index_owners_clear(struct index_pages *pages, struct index_entry *entry)
{
    if (entry->page != INDEX_NONE)
        give_pages(pages, entry);
    entry->n_owners = 0;
}

bool index_owners_load(const struct index_pages *pages, const struct index_entry *entry,
                       struct index_set *out, struct index_set *on_disk_out)
{
    uint16_t marks = 0;

    if (entry->page != INDEX_NONE) {
        uint32_t of_disk = disk_page(entry);

        *out = pages->pages[entry->page];
        if (of_disk != INDEX_NONE)
            *on_disk_out = pages->pages[of_disk];
        return of_disk != INDEX_NONE;
    }
    memset(out, 0, sizeof(*out));
    for (uint32_t i = 0; i < entry->n_owners; i++) {
        index_set_add(out, entry->owners[i] & ~INDEX_ON_DISK);
        marks |= entry->owners[i];
    }
    if ((marks & INDEX_ON_DISK) == 0)
        return false;
    memset(on_disk_out, 0, sizeof(*on_disk_out));
    for (uint32_t i = 0; i < entry->n_owners; i++)
        if (entry->owners[i] & INDEX_ON_DISK)
            index_set_add(on_disk_out, entry->owners[i] & ~INDEX_ON_DISK);
    return true;
}

bool index_owners_any_in_memory(const struct index_pages *pages, const struct index_entry *entry)
{
    if (entry->page != INDEX_NONE) {
        uint32_t of_disk = disk_page(entry);
        uint64_t any = 0;

        for (uint32_t i = 0; of_disk != INDEX_NONE && i < INDEX_WORDS; i++)
            any |= pages->pages[entry->page].words[i] & ~pages->pages[of_disk].words[i];
        return of_disk == INDEX_NONE || any != 0;
    }
    for (uint32_t i = 0; i < entry->n_owners; i++)
        if ((entry->owners[i] & INDEX_ON_DISK) == 0)
            return true;
    return false;
}
