/* SPDX-License-Identifier: Apache-2.0 */
/* The indexes of the pool: free blocks by id, sealed blocks by hash, cached blocks by eviction order. */
#ifndef CACHE_KV_POOL_PRIV_H
#define CACHE_KV_POOL_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/kv/pool.h"

/* ---- free_map.c: a set of ids, taken in runs ---- */

struct free_map {
    uint64_t *words; /* bit set: free */
    uint32_t n_ids;
    uint32_t n_free;
    uint32_t first_word; /* the words before have no free id */
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
void hash_index_add(struct hash_index *index, kv_block_id id); /* its hash is not in the index yet */
void hash_index_remove(struct hash_index *index, kv_block_id id);

/* ---- shelf.c: the eviction queue of a tenant's cached blocks ---- */

struct shelf_place {          /* of one block, in a queue or not */
    kv_block_id older, newer; /* in the list */
    uint32_t heap_at;
    uint8_t where;
    uint64_t used_ns, used_order;
    uint64_t keep_ns; /* pinned until then; 0: not pinned */
    bool is_shared;   /* other workers have a duplicate */
};

struct shelf_heap {
    kv_block_id *ids;
    uint32_t n;
};

struct shelf {                  /* one tenant's */
    struct shelf_place *places; /* [id], borrowed: the pool's; a block is in one queue at most */
    kv_block_id oldest, newest; /* of the unpinned list */
    struct shelf_heap shared, lapsed, kept;
    uint64_t n_used;
};

/* E_NOMEM: call shelf_fini all the same. */
int shelf_init(struct shelf *shelf, struct shelf_place *places, uint32_t n_ids);
void shelf_fini(struct shelf *shelf);
void shelf_put(struct shelf *shelf, kv_block_id id, uint64_t now_ns); /* it was just used */
void shelf_remove(struct shelf *shelf, kv_block_id id);
/* Pins a block that is not in the queue, until until_ns.  An earlier pin that ends later stands. */
void shelf_keep(struct shelf *shelf, kv_block_id id, uint64_t until_ns);
/* Other workers have a duplicate, or no longer do.  Call it for any block at any time.  A queued block that
 * becomes the last replica counts as an expired pin.  A queued block that gets a duplicate counts as shared
 * from its next shelf_put(). */
void shelf_share(struct shelf *shelf, kv_block_id id, bool is_shared);
void shelf_unmark(struct shelf *shelf, kv_block_id id);       /* neither pinned nor shared */
kv_block_id shelf_next(struct shelf *shelf, uint64_t now_ns); /* the next to evict; KV_BLOCK_NONE: empty */
/* The eviction rank of a queued block, after shelf_next(): lower ranks are evicted first. */
unsigned shelf_rank(const struct shelf *shelf, kv_block_id id);
/* A block whose lifetime ended; KV_BLOCK_NONE: there is none. */
kv_block_id shelf_expired(struct shelf *shelf, uint64_t now_ns, uint64_t lifetime_ns);
bool shelf_is_expired(const struct shelf *shelf, kv_block_id id, uint64_t now_ns, uint64_t lifetime_ns);

/* ---- shares.c: the tenants' quotas ---- */

struct share { /* of one tenant */
    kv_tenant tenant;
    uint32_t n_blocks; /* all blocks that are not free */
    uint32_t n_cached;
    bool has_shelf;
    struct shelf shelf; /* of its cached blocks */
};

struct shares {
    struct share all[KV_MAX_TENANTS]; /* [0]: anonymous, and tenants that found no place */
    unsigned n_seen;                  /* places ever used */
    uint32_t n_ids;
    struct shelf_place *places; /* [id] */
};

int shares_init(struct shares *shares, uint32_t n_ids); /* E_NOMEM: call shares_fini all the same */
void shares_fini(struct shares *shares);
/* The place in all[] of a tenant that is about to get blocks. */
unsigned shares_place(struct shares *shares, kv_tenant tenant);
/* The tenant's place, or KV_MAX_TENANTS if it has none. */
unsigned shares_find(const struct shares *shares, kv_tenant tenant);
/* The quota: an equal part for each tenant that has blocks.  The tenant at `at` always counts
 * (KV_MAX_TENANTS: a tenant without a place). */
uint32_t shares_each(const struct shares *shares, unsigned at);
/* The block to evict for the tenant at `at`, which is about to have n_more blocks besides.  There is always
 * one. */
kv_block_id shares_victim(struct shares *shares, unsigned at, uint32_t n_more, uint64_t now_ns);

/* ---- unsaved.c: the writeback queue: cached blocks to be saved, longest waiting first ---- */

struct unsaved {
    kv_block_id *older, *newer; /* [id]; NULL: there is no tier */
    kv_block_id oldest, newest;
    uint32_t n;
};

int unsaved_init(struct unsaved *unsaved, uint32_t n_ids); /* E_NOMEM: call unsaved_fini all the same */
void unsaved_fini(struct unsaved *unsaved);
void unsaved_add(struct unsaved *unsaved, kv_block_id id);
bool unsaved_remove(struct unsaved *unsaved, kv_block_id id); /* returns whether it was queued */

#endif
