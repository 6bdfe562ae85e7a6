/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table from block hash to the workers that have the block, in memory or on disk.
 *
 *    table     [ tag,entry | 0 | tag,entry | tag,entry | 0 ... ]   8 bytes a place, at most half of them
 * taken entries   [ hash, owners, neighbours by use ... ]            one cache line each, never moved
 *
 * The table is made for max_entries at the start and never rehashed; unused memory is not committed yet. A
 * tag is 32 bits of the hash under a random key of this index. The tag determines where a search begins,
 * so a removal moves the following tags back without reading their entries.
 *
 * A prefix match starts at the chain's first block. The workers that have block i are among those that
 * have block i-1. So the match keeps an intersection, records each worker once, where it drops out, and
 * ends when no worker is left. All hashes are known in advance, so the code prefetches a few blocks ahead.
 * Eviction removes a chain's end first: a beginning without its end is useful, an end without its
 * beginning is not.
 *
 * A worker that has block i on disk only has "fallen": it stays in the match, but its count in memory ends
 * there.
 *
 * Disks hold many times more than memory, and a block on disk is worth less. So entries lie in two LRU
 * lists: hot, in some worker's memory, and cold. When room is needed and more than half of all entries are
 * cold, the oldest cold one goes, otherwise the oldest hot one. So neither kind can push the other below
 * half.
 *
 * Hot path: no allocation, no log, no system call except page faults of memory used for the first time. */
#include "fleet/picker/index.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "fleet/picker/index_priv.h"

#define AHEAD       16 /* blocks: table line first, entry at half of it */
#define SWEEP_SHARE 8  /* entries swept in each call, plus one for two blocks */

/* ---- life ---- */

static uint32_t table_places(uint32_t max_entries)
{
    uint32_t n = 16;

    while (n < 2 * (uint64_t)max_entries)
        n *= 2;
    return n;
}

int picker_index_new(uint32_t max_entries, uint64_t lifetime_ns, struct picker_index **out)
{
    struct picker_index *index;
    uint32_t n_places;

    if (max_entries == 0 || max_entries > UINT32_C(1) << 30)
        return E_INVAL;
    index = calloc(1, sizeof(*index));
    if (index == NULL)
        return E_NOMEM;
    n_places = table_places(max_entries);
    /* Commit the table at the start: a long prompt's blocks lie anywhere in it, and each first touch of a
     * huge page would clear two megabytes while streams wait. */
    if (mem_region_open(n_places * sizeof(uint64_t), false, true, "index table", &index->table_region) < 0 ||
        mem_region_open(max_entries * sizeof(struct index_entry), false, false, "index entries",
                        &index->entries_region) < 0 ||
        index_pages_open(max_entries, &index->pages) < 0) {
        picker_index_free(index);
        return E_NOMEM;
    }
    mem_region_want_small_pages(&index->entries_region); /* pages are committed in order, when used */
    index->table = index->table_region.base;
    index->entries = index->entries_region.base;
    index->mask = n_places - 1;
    index->max_entries = max_entries;
    index->lifetime_ns = lifetime_ns;
    index->free = INDEX_NONE;
    for (enum index_list list = INDEX_HOT; list <= INDEX_COLD; list++)
        index->oldest[list] = index->newest[list] = INDEX_NONE;
    index->pass = 1;
    rng_system(index->seed, sizeof(index->seed));
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++)
        index->column_of[slot] = index->slot_of[slot] = (uint16_t)slot;
    for (uint32_t column = PICKER_MAX_WORKERS; column < INDEX_COLUMNS; column++)
        index->free_columns[index->n_free_columns++] = (uint16_t)column;
    *out = index;
    return 0;
}

void picker_index_free(struct picker_index *index)
{
    if (index == NULL)
        return;
    mem_region_close(&index->table_region);
    mem_region_close(&index->entries_region);
    index_pages_close(&index->pages);
    free(index);
}

size_t picker_index_count(const struct picker_index *index)
{
    return index->n_live;
}

size_t picker_index_on_disk(const struct picker_index *index)
{
    return index->n_cold;
}

size_t picker_index_bytes(uint32_t max_entries)
{
    return sizeof(struct picker_index) + table_places(max_entries) * sizeof(uint64_t) +
           max_entries * sizeof(struct index_entry) +
           index_pages_number(max_entries) * sizeof(struct index_set);
}

/* ---- the table ---- */

/* Block hashes come from a keyed hash, or from a worker. One multiplication under this index's random key
 * spreads hashes that a worker may have chosen. */
static uint32_t tag_of(const struct picker_index *index, const struct block_hash *hash)
{
    uint64_t low, high;

    memcpy(&low, hash->bytes, sizeof(low));
    memcpy(&high, hash->bytes + sizeof(low), sizeof(high));

    unsigned __int128 product =
        (unsigned __int128)(low ^ index->seed[0]) * (high ^ index->seed[1] ^ UINT64_C(0x9e3779b97f4a7c15));
    uint64_t folded = (uint64_t)product ^ (uint64_t)(product >> 64);

    return (uint32_t)(folded ^ folded >> 32);
}

static bool picker_index_is_same(const struct block_hash *a, const struct block_hash *b)
{
    uint64_t x[2], y[2];

    memcpy(x, a->bytes, sizeof(x));
    memcpy(y, b->bytes, sizeof(y));
    return ((x[0] ^ y[0]) | (x[1] ^ y[1])) == 0;
}

/* The place of the hash in the table, or the free place where it would go (then *entry_out is INDEX_NONE). */
static uint32_t picker_index_find(const struct picker_index *index, const struct block_hash *hash,
                                  uint32_t tag, uint32_t *entry_out)
{
    uint32_t at = tag & index->mask;

    for (; index->table[at] != 0; at = (at + 1) & index->mask) {
        uint32_t entry = (uint32_t)index->table[at] - 1;

        if (index->table[at] >> 32 != tag || !picker_index_is_same(&index->entries[entry].hash, hash))
            continue;
        *entry_out = entry;
        return at;
    }
    *entry_out = INDEX_NONE;
    return at;
}

static void picker_index_vacate(struct picker_index *index, uint32_t hole)
{
    uint32_t mask = index->mask;

    for (uint32_t at = (hole + 1) & mask; index->table[at] != 0; at = (at + 1) & mask) {
        uint32_t home = (uint32_t)(index->table[at] >> 32) & mask;

        if (((at - home) & mask) < ((at - hole) & mask))
            continue; /* moving it would put it before its home */
        index->table[hole] = index->table[at];
        hole = at;
    }
    index->table[hole] = 0;
}

/* ---- along a chain ---- */

/* Prefetches in three steps, each of which needs the memory of the one before. First the table's line, then
 * its entry, then the entry's neighbours by use: their links change when the entry moves or goes. If the
 * table changes in between, a prefetch is useless at worst. */
struct ahead {
    const struct picker_index *index;
    const struct block_hash *hashes;
    size_t n;
    bool is_reverse;
    uint32_t tags[AHEAD]; /* of the next blocks, by step */
};

static void ask_table(struct ahead *ahead, size_t step)
{
    const struct picker_index *index = ahead->index;
    uint32_t *tag = &ahead->tags[step % AHEAD];

    if (step >= ahead->n)
        return;
    *tag = tag_of(index, &ahead->hashes[ahead->is_reverse ? ahead->n - 1 - step : step]);
    __builtin_prefetch(&index->table[*tag & index->mask]);
}

static struct index_entry *likely_entry(const struct ahead *ahead, size_t step)
{
    const struct picker_index *index = ahead->index;
    uint64_t place = step < ahead->n ? index->table[ahead->tags[step % AHEAD] & index->mask] : 0;

    return place != 0 ? &index->entries[(uint32_t)place - 1] : NULL;
}

static void ask_entry(const struct ahead *ahead, size_t step)
{
    const struct index_entry *entry = likely_entry(ahead, step);

    if (entry != NULL)
        __builtin_prefetch(entry);
}

static void ask_neighbours(const struct ahead *ahead, size_t step)
{
    const struct index_entry *entry = likely_entry(ahead, step), *entries = ahead->index->entries;

    if (entry == NULL)
        return;
    if (entry->older != INDEX_NONE)
        __builtin_prefetch(&entries[entry->older]);
    if (entry->newer != INDEX_NONE)
        __builtin_prefetch(&entries[entry->newer]);
}

static void ahead_init(struct ahead *ahead, const struct picker_index *index, const struct block_hash *hashes,
                       size_t n, bool is_reverse)
{
    ahead->index = index;
    ahead->hashes = hashes;
    ahead->n = n;
    ahead->is_reverse = is_reverse;
    for (size_t step = 0; step < AHEAD; step++)
        ask_table(ahead, step);
    for (size_t step = 0; step < AHEAD / 2; step++)
        ask_entry(ahead, step);
}

/* Returns the tag of this step's block; prefetches for later steps. */
static inline uint32_t ahead_step(struct ahead *ahead, size_t step)
{
    uint32_t tag = ahead->tags[step % AHEAD];

    ask_table(ahead, step + AHEAD);
    ask_entry(ahead, step + AHEAD / 2);
    return tag;
}

/* ---- entries ---- */

static void unlink_entry(struct picker_index *index, struct index_entry *entry)
{
    struct index_entry *all = index->entries;

    *(entry->older != INDEX_NONE ? &all[entry->older].newer : &index->oldest[entry->list]) = entry->newer;
    *(entry->newer != INDEX_NONE ? &all[entry->newer].older : &index->newest[entry->list]) = entry->older;
    index->n_cold -= entry->list == INDEX_COLD;
}

static void link_newest(struct picker_index *index, struct index_entry *entry, enum index_list list)
{
    uint32_t at = (uint32_t)(entry - index->entries), before = index->newest[list];

    entry->list = list;
    entry->older = before;
    entry->newer = INDEX_NONE;
    *(before != INDEX_NONE ? &index->entries[before].newer : &index->oldest[list]) = at;
    index->newest[list] = at;
    index->n_cold += list == INDEX_COLD;
}

void index_cool(struct picker_index *index, struct index_entry *entry)
{
    if (entry->list == INDEX_COLD || index_owners_any_in_memory(&index->pages, entry))
        return;
    unlink_entry(index, entry);
    link_newest(index, entry, INDEX_COLD);
}

static void drop_at(struct picker_index *index, uint32_t place)
{
    uint32_t at = (uint32_t)index->table[place] - 1;
    struct index_entry *entry = &index->entries[at];

    picker_index_vacate(index, place);
    unlink_entry(index, entry);
    index_owners_clear(&index->pages, entry);
    entry->newer = index->free;
    index->free = at;
    index->n_live--;
}

void index_drop(struct picker_index *index, const struct index_entry *entry)
{
    uint32_t at;

    drop_at(index, picker_index_find(index, &entry->hash, tag_of(index, &entry->hash), &at));
}

static bool is_expired(const struct picker_index *index, const struct index_entry *entry, uint64_t now_ns)
{
    return now_ns - entry->used_ns > index->lifetime_ns;
}

static struct index_entry *find_live(struct picker_index *index, const struct block_hash *hash, uint32_t tag,
                                     uint64_t now_ns)
{
    uint32_t at, place = picker_index_find(index, hash, tag, &at);

    if (at == INDEX_NONE)
        return NULL;
    if (is_expired(index, &index->entries[at], now_ns)) {
        drop_at(index, place);
        return NULL;
    }
    return &index->entries[at];
}

/* Evicts one entry for a new one that goes to list `more`. Takes the least recently used entry of the list
 * that is due. Prefetches for the next evictions. */
static void picker_index_evict(struct picker_index *index, enum index_list more)
{
    uint32_t n_cold = index->n_cold + (more == INDEX_COLD);
    enum index_list list = n_cold > index->max_entries / 2 && index->n_cold > 0 ? INDEX_COLD : INDEX_HOT;
    const struct index_entry *next;

    index_drop(index, &index->entries[index->oldest[list]]);
    if (index->oldest[list] == INDEX_NONE)
        return;
    next = &index->entries[index->oldest[list]];
    __builtin_prefetch(&index->table[tag_of(index, &next->hash) & index->mask]);
    if (next->newer != INDEX_NONE)
        __builtin_prefetch(&index->entries[next->newer]);
}

/* A new entry without columns: the caller adds one at once. */
static struct index_entry *picker_index_add(struct picker_index *index, const struct block_hash *hash,
                                            uint32_t tag, enum index_list list)
{
    uint32_t at, ignored;
    struct index_entry *entry;

    if (index->n_live == index->max_entries)
        picker_index_evict(index, list);
    at = index->free;
    if (at != INDEX_NONE)
        index->free = index->entries[at].newer;
    else
        at = index->n_made++;
    entry = &index->entries[at];
    entry->hash = *hash;
    entry->n_owners = 0;
    entry->page = INDEX_NONE;
    link_newest(index, entry, list);
    index->table[picker_index_find(index, hash, tag, &ignored)] = (uint64_t)tag << 32 | (at + 1);
    index->n_live++;
    return entry;
}

/* ---- learning ---- */

/* The block's entry, which becomes the newest of this list; made if it is not known. A hot entry that a
 * worker has on disk keeps its place. */
static struct index_entry *picker_index_touch(struct picker_index *index, const struct block_hash *hash,
                                              uint32_t tag, uint64_t now_ns, enum index_list list)
{
    struct index_entry *entry = find_live(index, hash, tag, now_ns);

    if (entry == NULL) {
        entry = picker_index_add(index, hash, tag, list);
    } else if ((entry->list == list || list == INDEX_HOT) &&
               index->newest[list] != (uint32_t)(entry - index->entries)) {
        unlink_entry(index, entry);
        link_newest(index, entry, list);
    }
    entry->used_ns = now_ns;
    return entry;
}

static uint16_t column_to_learn(struct picker_index *index, uint32_t slot)
{
    uint16_t column = slot != PICKER_NONE ? index->column_of[slot] : INDEX_NO_COLUMN;

    if (column != INDEX_NO_COLUMN)
        index->is_used[column] = true;
    return column;
}

struct index_blocks {                /* a worker has them from now_ns on */
    const struct block_hash *hashes; /* [n] */
    size_t n;
    uint64_t now_ns;
};

/* Inlined, so that neither list's look-ups pay for the other's. */
static inline __attribute__((always_inline)) void index_learn(struct picker_index *index,
                                                              const uint32_t slots[2],
                                                              struct index_blocks blocks,
                                                              enum index_list list)
{
    const struct block_hash *hashes = blocks.hashes;
    size_t n = blocks.n;
    uint32_t n_slots = (slots[0] != PICKER_NONE) + (slots[1] != PICKER_NONE);
    uint16_t columns[2];
    struct ahead ahead;

    picker_index_sweep(index, n_slots * (SWEEP_SHARE + (uint32_t)n / 2));
    columns[0] = column_to_learn(index, slots[0]);
    columns[1] = column_to_learn(index, slots[1]);
    if (columns[0] == INDEX_NO_COLUMN && columns[1] == INDEX_NO_COLUMN)
        return;
    ahead_init(&ahead, index, hashes, n, true);
    for (size_t step = 0; step < n; step++) {
        uint32_t tag = ahead_step(&ahead, step);
        struct index_entry *entry =
            picker_index_touch(index, &hashes[n - 1 - step], tag, blocks.now_ns, list);

        ask_neighbours(&ahead, step + AHEAD / 4);
        for (int i = 0; i < 2; i++)
            if (columns[i] != INDEX_NO_COLUMN)
                index_owners_put(&index->pages, entry, columns[i], list == INDEX_COLD, &index->dead);
        if (list == INDEX_COLD)
            index_cool(index, entry);
    }
}

void picker_index_learn_pair(struct picker_index *index, const uint32_t slots[2],
                             const struct block_hash *hashes, size_t n, uint64_t now_ns)
{
    index_learn(index, slots, (struct index_blocks){hashes, n, now_ns}, INDEX_HOT);
}

void picker_index_learn(struct picker_index *index, uint32_t slot, const struct block_hash *hashes, size_t n,
                        uint64_t now_ns)
{
    index_learn(index, (const uint32_t[2]){slot, PICKER_NONE}, (struct index_blocks){hashes, n, now_ns},
                INDEX_HOT);
}

void picker_index_learn_on_disk(struct picker_index *index, uint32_t slot, const struct block_hash *hashes,
                                size_t n, uint64_t now_ns)
{
    index_learn(index, (const uint32_t[2]){slot, PICKER_NONE}, (struct index_blocks){hashes, n, now_ns},
                INDEX_COLD);
}

void picker_index_unlearn(struct picker_index *index, uint32_t slot, const struct block_hash *hashes,
                          size_t from, size_t n)
{
    uint16_t column = index->column_of[slot];
    struct ahead ahead;

    if (from >= n)
        return;
    hashes += from;
    n -= from;
    picker_index_sweep(index, SWEEP_SHARE + (uint32_t)n / 2);
    if (column == INDEX_NO_COLUMN)
        return;
    ahead_init(&ahead, index, hashes, n, false);
    for (size_t i = 0; i < n; i++) {
        uint32_t at, place = picker_index_find(index, &hashes[i], ahead_step(&ahead, i), &at);

        ask_neighbours(&ahead, i + AHEAD / 4);
        if (at == INDEX_NONE)
            continue;
        index_owners_remove(&index->pages, &index->entries[at], column);
        if (index->entries[at].n_owners == 0)
            drop_at(index, place);
        else
            index_cool(index, &index->entries[at]);
    }
}

/* ---- prefix match ---- */

void picker_index_match(struct picker_index *index, const struct picker_query *query,
                        struct picker_found *found_out)
{
    const struct index_entry *entry, *last = NULL;
    struct ahead ahead;
    struct prefix_match match; /* not cleared: that would write half a KiB per match */
    size_t i = 0;

    prefix_match_init(&match, index, found_out, query->n_slots);
    ahead_init(&ahead, index, query->hashes, query->n, false);
    for (; i < query->n; i++, last = entry) {
        entry = find_live(index, &query->hashes[i], ahead_step(&ahead, i), query->now_ns);
        if (entry == NULL)
            break;
        if (last == NULL)
            prefix_match_begin(&match, entry);
        else if (!prefix_match_has_same_owners(entry, last) &&
                 !prefix_match_narrow(&match, entry, (uint32_t)i))
            return;
    }
    if (last != NULL)
        prefix_match_end(&match, (uint32_t)i);
}

bool picker_index_knows(struct picker_index *index, const struct block_hash *hash, uint64_t now_ns)
{
    return find_live(index, hash, tag_of(index, hash), now_ns) != NULL;
}

/* The same for an entry without a page: its few columns need no bitmap. */
static uint32_t last_replica_inline(const struct picker_index *index, const struct index_entry *entry)
{
    uint32_t found = PICKER_NONE;

    for (uint32_t i = 0; i < entry->n_owners; i++) {
        uint16_t owner = entry->owners[i];

        if ((owner & INDEX_ON_DISK) != 0 || index_set_has(&index->dead, owner))
            continue;
        if (found != PICKER_NONE)
            return PICKER_NONE;
        found = index->slot_of[owner];
    }
    return found;
}

uint32_t picker_index_last_replica(struct picker_index *index, const struct block_hash *hash, uint64_t now_ns)
{
    const struct index_entry *entry = find_live(index, hash, tag_of(index, hash), now_ns);
    struct index_set owners, on_disk;
    uint32_t found = PICKER_NONE;
    bool has_disk;

    if (entry == NULL)
        return PICKER_NONE;
    if (entry->page == INDEX_NONE)
        return last_replica_inline(index, entry);
    has_disk = index_owners_load(&index->pages, entry, &owners, &on_disk);
    for (uint32_t i = 0; i < INDEX_WORDS; i++) {
        uint64_t left = owners.words[i] & ~index->dead.words[i] & ~(has_disk ? on_disk.words[i] : 0);

        if (left == 0)
            continue;
        if (found != PICKER_NONE || (left & (left - 1)) != 0)
            return PICKER_NONE;
        found = index->slot_of[64 * i + (uint32_t)__builtin_ctzll(left)];
    }
    return found;
}
