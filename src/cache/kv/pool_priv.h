/* SPDX-License-Identifier: Apache-2.0 */
/* The indexes of the pool: free blocks by id, sealed blocks by hash, cached blocks by eviction order. */
#ifndef CACHE_KV_POOL_PRIV_H
#define CACHE_KV_POOL_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/kv/pool_quota.h"

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

/* ---- eviction.c: the eviction queue of a tenant's cached blocks ---- */

/* Where a block is in its tenant's queue.  Lower ranks are evicted first (eviction.c has one exception). */
enum eviction_rank {
    EVICTION_NOWHERE,    /* not in the queue; those after it in the order of eviction */
    EVICTION_SPARE,      /* unlikely to be of use */
    EVICTION_REPLICATED, /* not pinned, other workers have it */
    EVICTION_PLAIN,      /* not pinned */
    EVICTION_PIN_ENDED,  /* the pin has expired */
    EVICTION_PINNED,     /* pinned */
    EVICTION_N_RANKS,
    EVICTION_FIRST = EVICTION_NOWHERE + 1
};

struct eviction_entry {       /* of one block, in a queue or not */
    kv_block_id older, newer; /* in the list */
    uint32_t heap_at;
    uint8_t rank; /* enum eviction_rank */
    uint64_t used_ns, used_order;
    uint64_t pin_end_ns; /* pinned until then; 0: not pinned */
    bool is_replicated;  /* other workers have a duplicate */
    bool is_spare;       /* unlikely to be of use */
};

struct eviction_heap {
    kv_block_id *ids;
    uint32_t n;
};

struct eviction_queue {            /* one tenant's */
    struct eviction_entry *places; /* [id], borrowed: the pool's; a block is in one queue at most */
    kv_block_id oldest, newest;    /* the list of EVICTION_PLAIN */
    struct eviction_heap heaps[EVICTION_N_RANKS]; /* of the other ranks */
    uint64_t n_used;
};

/* E_NOMEM: call eviction_fini all the same. */
int eviction_init(struct eviction_queue *queue, struct eviction_entry *places, uint32_t n_ids);
void eviction_fini(struct eviction_queue *queue);
void eviction_put(struct eviction_queue *queue, kv_block_id id, uint64_t now_ns); /* queues a block that was
                                                                                   * just used */
/* Queues a block at its place by its latest use, because it was removed for no use. */
void eviction_put_back(struct eviction_queue *queue, kv_block_id id, uint64_t now_ns);
void eviction_remove(struct eviction_queue *queue, kv_block_id id);
/* Pins a block that is not in the queue, until until_ns.  An earlier pin that ends later stands. */
void eviction_pin(struct eviction_queue *queue, kv_block_id id, uint64_t until_ns);
/* Other workers have a duplicate, or no longer do.  Call it for any block at any time.  A queued block that
 * becomes the last replica counts as an expired pin.  A queued block that gets a duplicate counts as
 * replicated from its next eviction_put(). */
void eviction_set_replicated(struct eviction_queue *queue, kv_block_id id, bool is_replicated);
void eviction_reset(struct eviction_queue *queue, kv_block_id id); /* not pinned, replicated or spare */
kv_block_id eviction_next(struct eviction_queue *queue,
                          uint64_t now_ns); /* the next to evict; KV_BLOCK_NONE: empty */
/* The eviction rank of a queued block, after eviction_next(): lower ranks are evicted first. */
unsigned eviction_rank(const struct eviction_queue *queue, kv_block_id id);
/* A block whose lifetime ended; KV_BLOCK_NONE: there is none. */
kv_block_id eviction_expired(struct eviction_queue *queue, uint64_t now_ns, uint64_t lifetime_ns);
bool eviction_is_expired(const struct eviction_queue *queue, kv_block_id id, uint64_t now_ns,
                         uint64_t lifetime_ns);

/* ---- quota.c: the tenants' quotas ---- */

struct quota { /* of one tenant */
    kv_tenant tenant;
    uint32_t n_blocks; /* all blocks that are not free */
    uint32_t n_cached;
    bool has_queue;
    struct eviction_queue queue; /* of its cached blocks */
};

struct quotas {
    struct quota all[KV_MAX_TENANTS]; /* [0]: anonymous, and tenants beyond the table's size */
    unsigned n_seen;                  /* places ever used */
    const struct kv_pool_opts *opts;  /* borrowed: the pool's */
    struct eviction_entry *places;    /* [id] */
};

int quotas_init(struct quotas *quotas, const struct kv_pool_opts *opts); /* E_NOMEM: call quotas_fini too */
void quotas_fini(struct quotas *quotas);
/* The place in all[] of a tenant that is about to get blocks. */
unsigned quotas_place(struct quotas *quotas, kv_tenant tenant);
/* The tenant's place, or KV_MAX_TENANTS if it has none. */
unsigned quotas_find(const struct quotas *quotas, kv_tenant tenant);
/* The quota: an equal part for each tenant that has blocks.  The tenant at `at` always counts
 * (KV_MAX_TENANTS: a tenant without a place). */
uint32_t quotas_each(const struct quotas *quotas, unsigned at);
/* The block to evict for the tenant at `at`, which is about to have n_more blocks besides.  There is always
 * one. */
kv_block_id quotas_victim(struct quotas *quotas, unsigned at, uint32_t n_more, uint64_t now_ns);

/* ---- writeback.c: the writeback queue: cached blocks to be saved, longest waiting first ---- */

struct writeback {
    kv_block_id *older, *newer; /* [id]; NULL: there is no tier */
    kv_block_id oldest, newest;
    uint32_t n;
};

int writeback_init(struct writeback *writeback,
                   uint32_t n_ids); /* E_NOMEM: call writeback_fini all the same */
void writeback_fini(struct writeback *writeback);
void writeback_add(struct writeback *writeback, kv_block_id id);
bool writeback_has(const struct writeback *writeback, kv_block_id id);
bool writeback_remove(struct writeback *writeback, kv_block_id id); /* returns whether it was queued */

/* ---- past_uses.c: blocks that left the pool after one use ---- */

struct past_uses { /* zeroed: it remembers nothing */
    uint64_t *words;
    size_t mask;
};

int past_uses_init(struct past_uses *past, uint32_t n_blocks); /* E_NOMEM */
void past_uses_fini(struct past_uses *past);
void past_uses_add(struct past_uses *past, const struct block_hash *hash);
bool past_uses_take(struct past_uses *past,
                    const struct block_hash *hash); /* true: it was there, and is forgotten */

#endif
