/* SPDX-License-Identifier: Apache-2.0 */
/* A hash map from block hash to the set of workers (a bit per slot), with an LRU list through the entries.
 *
 * A chain is matched from its first block on; the set of workers that hold block i is a subset of those that
 * hold block i-1 as far as a prefix cache is concerned, so the walk keeps an intersection and ends when it is
 * empty. */
#include "picker/index.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/hashmap.h"
#include "base/list.h"
#include "picker/picker.h"

struct entry {
    struct list lru; /* most recent last */
    struct block_hash hash;
    uint64_t holders;
    uint64_t used_ns;
};

struct picker_index {
    struct hashmap *map;
    struct list lru;
    uint32_t max_entries;
    uint64_t lifetime_ns;
};

int picker_index_new(uint32_t max_entries, uint64_t lifetime_ns, struct picker_index **out)
{
    struct picker_index *index = calloc(1, sizeof(*index));

    if (index == NULL)
        return E_NOMEM;
    list_init(&index->lru);
    index->max_entries = max_entries;
    index->lifetime_ns = lifetime_ns;
    if (hashmap_new(sizeof(struct block_hash), &index->map) < 0) {
        free(index);
        return E_NOMEM;
    }
    *out = index;
    return 0;
}

static void drop(struct picker_index *index, struct entry *entry)
{
    hashmap_remove(index->map, &entry->hash);
    list_remove(&entry->lru);
    free(entry);
}

void picker_index_free(struct picker_index *index)
{
    if (index == NULL)
        return;
    while (!list_is_empty(&index->lru))
        drop(index, container_of(index->lru.next, struct entry, lru));
    hashmap_free(index->map);
    free(index);
}

static struct entry *find_live(struct picker_index *index, const struct block_hash *hash, uint64_t now_ns)
{
    struct entry *entry = hashmap_get(index->map, hash);

    if (entry != NULL && now_ns - entry->used_ns > index->lifetime_ns) {
        drop(index, entry);
        return NULL;
    }
    return entry;
}

static struct entry *add(struct picker_index *index, const struct block_hash *hash)
{
    struct entry *entry;

    if (hashmap_count(index->map) >= index->max_entries)
        drop(index, container_of(index->lru.next, struct entry, lru));
    entry = calloc(1, sizeof(*entry));
    if (entry == NULL)
        return NULL;
    entry->hash = *hash;
    list_init(&entry->lru);
    if (hashmap_put(index->map, hash, entry, NULL) < 0) {
        free(entry);
        return NULL;
    }
    return entry;
}

void picker_index_learn(struct picker_index *index, uint32_t slot, const struct block_hash *hashes, size_t n,
                        uint64_t now_ns)
{
    for (size_t i = 0; i < n; i++) {
        struct entry *entry = find_live(index, &hashes[i], now_ns);

        if (entry == NULL)
            entry = add(index, &hashes[i]);
        if (entry == NULL)
            return; /* an index that knows less is still right */
        entry->holders |= UINT64_C(1) << slot;
        entry->used_ns = now_ns;
        list_remove(&entry->lru);
        list_push_back(&index->lru, &entry->lru);
    }
}

void picker_index_match(struct picker_index *index, const struct block_hash *hashes, size_t n,
                        uint64_t now_ns, uint32_t *blocks_out, uint32_t n_slots)
{
    uint64_t holders = UINT64_MAX;

    for (uint32_t slot = 0; slot < n_slots; slot++)
        blocks_out[slot] = 0;
    for (size_t i = 0; i < n && holders != 0; i++) {
        struct entry *entry = find_live(index, &hashes[i], now_ns);

        holders &= entry ? entry->holders : 0;
        for (uint64_t left = holders; left != 0; left &= left - 1) {
            uint32_t slot = (uint32_t)__builtin_ctzll(left);
            if (slot < n_slots)
                blocks_out[slot]++;
        }
    }
}

void picker_index_unlearn(struct picker_index *index, uint32_t slot, const struct block_hash *hashes,
                          size_t from, size_t n)
{
    for (size_t i = from; i < n; i++) {
        struct entry *entry = hashmap_get(index->map, &hashes[i]);

        if (entry == NULL)
            continue;
        entry->holders &= ~(UINT64_C(1) << slot);
        if (entry->holders == 0)
            drop(index, entry);
    }
}

void picker_index_forget(struct picker_index *index, uint32_t slot)
{
    list_for_each_safe (node, spare, &index->lru) {
        struct entry *entry = container_of(node, struct entry, lru);

        entry->holders &= ~(UINT64_C(1) << slot);
        if (entry->holders == 0)
            drop(index, entry);
    }
}

size_t picker_index_count(const struct picker_index *index)
{
    return hashmap_count(index->map);
}
