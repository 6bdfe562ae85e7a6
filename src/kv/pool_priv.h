/* SPDX-License-Identifier: Apache-2.0 */
/* The two indexes of the pool: free blocks by id, sealed blocks by hash. */
#ifndef KV_POOL_PRIV_H
#define KV_POOL_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#include "kv/layout.h"
#include "prefix/block_hash.h"

/* ---- free_map.c: a set of ids, taken in runs ---- */

struct free_map {
    uint64_t *words; /* bit set: free */
    uint32_t n_ids;
    uint32_t n_free;
    uint32_t first_word; /* no free id in the words before */
};

int free_map_init(struct free_map *map, uint32_t n_ids); /* all free; E_NOMEM */
void free_map_fini(struct free_map *map);
void free_map_put(struct free_map *map, kv_block_id id);
void free_map_take(struct free_map *map, uint32_t n, kv_block_id *ids_out); /* n <= n_free */

/* ---- hash_index.c: hash -> id ---- */

struct hash_index {
    kv_block_id *slots; /* [mask + 1], KV_BLOCK_NONE: empty */
    uint32_t mask;
    const struct block_hash *hashes; /* borrowed: [id] */
};

int hash_index_init(struct hash_index *index, const struct block_hash *hashes, uint32_t n_ids); /* E_NOMEM */
void hash_index_fini(struct hash_index *index);
kv_block_id hash_index_find(const struct hash_index *index, const struct block_hash *hash);
void hash_index_add(struct hash_index *index, kv_block_id id); /* its hash is not in yet */
void hash_index_remove(struct hash_index *index, kv_block_id id);

#endif
