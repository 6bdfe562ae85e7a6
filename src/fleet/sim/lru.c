/* SPDX-License-Identifier: Apache-2.0 */
/* A linear-probing table of entries in a circular list.  Ids are hashes already (sim_block_id()), so their low
 * bits choose the place.  A removal moves later entries of the probe run back, so there are no tombstones. */
#include "fleet/sim/lru_priv.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/err.h"

#define LRU_FIRST_CAP 64

static uint32_t lru_find(const struct sim_lru *lru, uint64_t id)
{
    uint32_t at = (uint32_t)id & lru->mask;

    while (lru->table[at] != 0 && lru->entries[lru->table[at]].id != id)
        at = (at + 1) & lru->mask;
    return at;
}

static void lru_unlink(struct sim_lru *lru, uint32_t i)
{
    struct sim_lru_entry *entry = &lru->entries[i];

    lru->entries[entry->older].newer = entry->newer;
    lru->entries[entry->newer].older = entry->older;
}

static void lru_link(struct sim_lru *lru, uint32_t i, uint32_t list) /* as the newest: before the head */
{
    uint32_t last = lru->entries[list].older;

    lru->entries[i].list = list;
    lru->entries[i].older = last;
    lru->entries[i].newer = list;
    lru->entries[last].newer = i;
    lru->entries[list].older = i;
}

static int lru_grow(struct sim_lru *lru)
{
    uint32_t cap = lru->cap ? 2 * lru->cap : LRU_FIRST_CAP;
    struct sim_lru_entry *entries = realloc(lru->entries, (cap + 2ul) * sizeof(*entries));
    uint32_t *table = entries != NULL ? calloc(2ul * cap, sizeof(*table)) : NULL;

    if (entries != NULL)
        lru->entries = entries;
    if (table == NULL)
        return E_NOMEM;
    for (uint32_t list = 0; lru->cap == 0 && list < 2; list++)
        entries[list] = (struct sim_lru_entry){.older = list, .newer = list, .list = list};
    lru->n_made = lru->n_made > 1 ? lru->n_made : 1;
    free(lru->table);
    lru->table = table;
    lru->mask = 2 * cap - 1;
    lru->cap = cap;
    for (uint32_t list = 0; list < 2; list++)
        for (uint32_t i = entries[list].newer; i != list; i = entries[i].newer)
            table[lru_find(lru, entries[i].id)] = i;
    return 0;
}

int sim_lru_touch(struct sim_lru *lru, uint64_t id, uint64_t now_ns)
{
    uint32_t at, i;

    if (lru->n == lru->cap && lru_grow(lru) < 0)
        return E_NOMEM;
    at = lru_find(lru, id);
    i = lru->table[at];
    if (i != 0) {
        lru_unlink(lru, i);
        lru_link(lru, i, lru->entries[i].list);
        lru->entries[i].used_ns = now_ns;
        return 1;
    }
    i = lru->free;
    if (i != 0)
        lru->free = lru->entries[i].newer;
    else
        i = ++lru->n_made;
    lru->entries[i].id = id;
    lru->entries[i].used_ns = now_ns;
    lru->table[at] = i;
    lru_link(lru, i, 0);
    lru->n++;
    return 0;
}

bool sim_lru_has(const struct sim_lru *lru, uint64_t id)
{
    return lru->n > 0 && lru->table[lru_find(lru, id)] != 0;
}

bool sim_lru_remove(struct sim_lru *lru, uint64_t id)
{
    uint32_t at, i, hole;

    if (lru->n == 0)
        return false;
    at = lru_find(lru, id);
    i = lru->table[at];
    if (i == 0)
        return false;
    lru_unlink(lru, i);
    lru->entries[i].newer = lru->free;
    lru->free = i;
    lru->n--;
    lru->table[at] = 0;
    for (hole = at, at = (at + 1) & lru->mask; lru->table[at] != 0; at = (at + 1) & lru->mask) {
        uint32_t home = (uint32_t)lru->entries[lru->table[at]].id & lru->mask;

        if (((at - home) & lru->mask) < ((at - hole) & lru->mask))
            continue;
        lru->table[hole] = lru->table[at];
        lru->table[at] = 0;
        hole = at;
    }
    return true;
}

void sim_lru_set_replicated(struct sim_lru *lru, uint64_t id, bool is_shared)
{
    uint32_t i = lru->n > 0 ? lru->table[lru_find(lru, id)] : 0;

    if (i == 0 || lru->entries[i].list == (uint32_t)is_shared)
        return;
    lru_unlink(lru, i);
    lru_link(lru, i, is_shared);
}

uint64_t sim_lru_evict(struct sim_lru *lru, uint64_t now_ns)
{
    uint32_t plain = lru->entries[0].newer, shared = lru->entries[1].newer, i;
    uint64_t id;

    ASSERT(lru->n > 0);
    i = plain;
    if (shared != 1 &&
        (plain == 0 || 2 * (now_ns - lru->entries[shared].used_ns) >= now_ns - lru->entries[plain].used_ns))
        i = shared;
    id = lru->entries[i].id;
    sim_lru_remove(lru, id);
    return id;
}

void sim_lru_clear(struct sim_lru *lru)
{
    sim_lru_fini(lru);
}

void sim_lru_fini(struct sim_lru *lru)
{
    free(lru->entries);
    free(lru->table);
    *lru = (struct sim_lru){0};
}
