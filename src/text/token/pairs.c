/* SPDX-License-Identifier: Apache-2.0 */
/* The table that each merge reads: do two neighbours merge, and with which rank?
 *
 * It uses open addressing and is at most half full. Key, rank and result of an entry lie together in 16
 * bytes, so a look-up reads one cache line. The hash multiplies the key by an odd number, drawn at random for
 * each table. So no vocabulary can be built whose pairs all collide. */
#include "text/token/tokenizer_priv.h"

#include "base/err.h"
#include "base/rng.h"

#include <stdlib.h>

static struct pair_slot *new_slots(unsigned bits)
{
    struct pair_slot *slots = malloc(sizeof(*slots) << bits);

    for (size_t i = 0; slots != NULL && i < (size_t)1 << bits; i++)
        slots[i].key = UINT64_MAX;
    return slots;
}

int pairs_init(struct pair_table *table)
{
    table->bits = 10;
    table->n = 0;
    table->n_ranks = 0;
    table->slots = new_slots(table->bits);
    rng_system(&table->multiplier, sizeof(table->multiplier));
    table->multiplier |= 1;
    return table->slots == NULL ? E_NOMEM : 0;
}

void pairs_fini(struct pair_table *table)
{
    free(table->slots);
    table->slots = NULL;
}

/* The slot at which the search for a key begins. */
static size_t pairs_place_of(const struct pair_table *table, uint64_t key)
{
    return (size_t)((key ^ key >> 32) * table->multiplier >> (64 - table->bits));
}

/* The slot that holds the key, or the free slot where it belongs. */
static struct pair_slot *pairs_slot_of(const struct pair_table *table, uint64_t key)
{
    size_t mask = ((size_t)1 << table->bits) - 1;
    size_t at = pairs_place_of(table, key);

    while (table->slots[at].key != key && table->slots[at].key != UINT64_MAX)
        at = (at + 1) & mask;
    return &table->slots[at];
}

static int pairs_grow(struct pair_table *table)
{
    struct pair_table larger = *table;

    larger.bits++;
    larger.slots = new_slots(larger.bits);
    if (larger.slots == NULL)
        return E_NOMEM;
    for (size_t i = 0; i < (size_t)1 << table->bits; i++) {
        if (table->slots[i].key != UINT64_MAX)
            *pairs_slot_of(&larger, table->slots[i].key) = table->slots[i];
    }
    free(table->slots);
    *table = larger;
    return 0;
}

int pairs_add(struct pair_table *table, uint32_t left, uint32_t right, struct pair pair)
{
    uint64_t key = (uint64_t)left << 32 | right;

    if (table->n >= (size_t)1 << (table->bits - 1) && pairs_grow(table) != 0)
        return E_NOMEM;

    struct pair_slot *slot = pairs_slot_of(table, key);
    table->n_ranks = pair.rank >= table->n_ranks ? pair.rank + 1 : table->n_ranks;
    if (slot->key == key) {
        if (pair.rank < slot->pair.rank)
            slot->pair = pair;
        return 0;
    }
    *slot = (struct pair_slot){.key = key, .pair = pair};
    table->n++;
    return 0;
}

struct pair pairs_get(const struct pair_table *table, uint32_t left, uint32_t right)
{
    uint64_t key = (uint64_t)left << 32 | right;
    const struct pair_slot *slot = pairs_slot_of(table, key);

    return slot->key == key ? slot->pair : (struct pair){.rank = PAIR_NONE};
}

void pairs_prefetch(const struct pair_table *table, uint32_t left, uint32_t right)
{
    __builtin_prefetch(&table->slots[pairs_place_of(table, (uint64_t)left << 32 | right)]);
}
