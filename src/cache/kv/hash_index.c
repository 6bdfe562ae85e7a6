/* SPDX-License-Identifier: Apache-2.0 */
/* Block hash -> block id: open addressing with linear probing over a table of ids.
 *
 * The table holds only ids; the pool's array has the hash of each id.  The table has at least twice as many
 * slots as there are blocks, so probes are short and it never grows.  Hashes come from a keyed MAC, which no
 * outsider can steer, so their first bytes serve as the hash value.  Removal moves later entries of the same
 * cluster back (no tombstones), so the table does not age. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/err.h"
#include "cache/kv/pool_priv.h"

int hash_index_init(struct hash_index *index, const struct block_hash *hashes, uint32_t n_ids)
{
    size_t n_slots = 4;

    while (n_slots < 2 * (size_t)n_ids)
        n_slots *= 2;
    *index = (struct hash_index){.mask = (uint32_t)(n_slots - 1), .hashes = hashes};
    index->slots = malloc(n_slots * sizeof(*index->slots));
    if (index->slots == NULL)
        return E_NOMEM;
    memset(index->slots, 0xff, n_slots * sizeof(*index->slots)); /* KV_BLOCK_NONE */
    return 0;
}

void hash_index_fini(struct hash_index *index)
{
    free(index->slots);
    index->slots = NULL;
}

static uint32_t hash_index_home(const struct hash_index *index, const struct block_hash *hash)
{
    return get_u32(hash->bytes) & index->mask;
}

kv_block_id hash_index_find(const struct hash_index *index, const struct block_hash *hash)
{
    for (uint32_t at = hash_index_home(index, hash);; at = (at + 1) & index->mask) {
        kv_block_id id = index->slots[at];

        if (id == KV_BLOCK_NONE || block_hash_equal(&index->hashes[id], hash))
            return id;
    }
}

void hash_index_add(struct hash_index *index, kv_block_id id)
{
    uint32_t at = hash_index_home(index, &index->hashes[id]);

    while (index->slots[at] != KV_BLOCK_NONE) {
        ASSERT(!block_hash_equal(&index->hashes[index->slots[at]], &index->hashes[id]));
        at = (at + 1) & index->mask;
    }
    index->slots[at] = id;
}

void hash_index_remove(struct hash_index *index, kv_block_id id)
{
    uint32_t hole = hash_index_home(index, &index->hashes[id]);

    while (index->slots[hole] != id) {
        ASSERT(index->slots[hole] != KV_BLOCK_NONE);
        hole = (hole + 1) & index->mask;
    }

    /* Move back each later entry of the cluster whose home is not between the hole and its slot. */
    for (uint32_t at = (hole + 1) & index->mask; index->slots[at] != KV_BLOCK_NONE;
         at = (at + 1) & index->mask) {
        uint32_t home = hash_index_home(index, &index->hashes[index->slots[at]]);

        if (((at - home) & index->mask) >= ((at - hole) & index->mask)) {
            index->slots[hole] = index->slots[at];
            hole = at;
        }
    }
    index->slots[hole] = KV_BLOCK_NONE;
}
