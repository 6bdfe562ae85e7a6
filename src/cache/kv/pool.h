/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of KV blocks, their states, and the prefix cache over them.
 *
 *          kv_take          kv_seal           unref -> 0        evict / expire
 *    FREE ---------> FILLING ------> SEALED -----------> CACHED ------> FREE
 *     ^                | one writer    ^ immutable, shared,  |
 *     |         unref -> 0             | counted             |
 *     |                |               +------ kv_match -----+
 *     |   no lease     v     leased
 *     +-------<-----------+--> ZOMBIE --last unlease--> FREE
 *
 * A SEALED block with a hash can be found by that hash.  At zero references it becomes CACHED and stays
 * findable.  It is evicted when kv_take needs room, or when its lifetime ends.  An unsealed block goes to
 * FREE at zero references.
 *
 * pool_cache.h finds blocks by content, pool_quota.h divides the pool among tenants, and pool_writeback.h names
 * the blocks to be saved.
 *
 * eviction.c has the order of evictions.  Marks of a block change it: spare (kv_set_spare), replicated
 * (kv_set_replicated: other workers have it too) and pinned (kv_pin).
 *
 * Blocks belong to the tenant that took them.  The pool is divided into equal quotas among the tenants that
 * have blocks in it.  A tenant that needs room takes it from tenants above their quota (their unpinned blocks
 * first), then from its own blocks.  It takes blocks within other quotas only when nothing else is left.
 * kv_available_to() says how much a tenant can take without that last resort.
 *
 * A lease (kv_lease / kv_unlease) holds a block for a transfer, with or without references.  A FILLING block
 * without references waits as a ZOMBIE until its last lease ends; a SEALED one stays SEALED until then.
 *
 * Release a sequence's blocks in reverse order.  Then children are older than their parents and are evicted
 * before them.  Engine thread only; nothing here allocates after kv_pool_new. */
#ifndef CACHE_KV_POOL_H
#define CACHE_KV_POOL_H

#include <stdbool.h>

#include "cache/kv/layout.h"
#include "cache/prefix/block_hash.h"

struct kv_pool;

enum kv_state {
    KV_FREE,    /* no owner; the bytes mean nothing */
    KV_FILLING, /* its only owner, or the transfer that leases it, writes it */
    KV_SEALED,  /* full and immutable; held by references, leases or both */
    KV_CACHED,  /* sealed, no reference and no lease; findable by hash until evicted */
    KV_ZOMBIE   /* released while FILLING, but leased: a transfer may still touch the bytes */
};

struct kv_pool_opts {
    uint32_t n_blocks;
    uint32_t block_tokens;    /* tokens in a block; the pool only stores the number */
    uint64_t lifetime_ns;     /* of a cached block after its last use; 0: five minutes */
    uint64_t (*now_ns)(void); /* NULL: the monotonic clock; simulators pass their own */
    /* The content becomes findable here, or stops being so.  Called from inside any call below that changes
     * the pool; it must not call the pool.  NULL: no callback. */
    void (*on_block)(void *arg, const struct block_hash *hash, bool is_here);
    void *on_block_arg;
    bool has_tier;   /* cached blocks are saved to the disk tier: kv_save_next() */
    bool has_remote; /* ... and to the remote tier, once they were used twice (past_uses.c) */
};

struct kv_pool_counts { /* blocks by state; cumulative counters */
    uint32_t n_free, n_filling, n_sealed, n_cached, n_zombie;
    uint32_t n_leased;
    uint32_t n_pinned;                               /* of the cached ones: pinned, as of the last look */
    uint32_t n_replicated;                           /* of the cached ones: other workers have a duplicate */
    uint32_t n_spare;                                /* of the cached ones: kv_set_spare() */
    uint64_t n_evicted, n_expired, n_hits, n_misses; /* in blocks */
    uint64_t n_lost;      /* with a tier: evicted or expired before they were saved */
    uint32_t n_writeback; /* with a tier: in the writeback queue */
    uint32_t n_writeback_remote;
    uint32_t n_tenants; /* that have blocks */
};

int kv_pool_new(const struct kv_pool_opts *opts, struct kv_pool **out); /* E_INVAL, E_NOMEM */
void kv_pool_free(struct kv_pool *pool);
uint32_t kv_pool_size(const struct kv_pool *pool); /* in blocks */
uint32_t kv_pool_block_tokens(const struct kv_pool *pool);

/* Takes n blocks for writing, all or none, and evicts cached blocks as needed.  On success ids_out holds n
 * ids, each FILLING with one reference.  Prefers runs of adjacent ids.  Returns E_KV_FULL. */
int kv_take(struct kv_pool *pool, uint32_t n, kv_block_id *ids_out);
/* The number of blocks that kv_take could return now (free + evictable). */
uint32_t kv_available(const struct kv_pool *pool);
/* Adds a reference to a block that has one. */
void kv_ref(struct kv_pool *pool, kv_block_id id);
void kv_unref(struct kv_pool *pool, kv_block_id id);

/* One kv_unlease() for each kv_lease().  Only a block that has a reference can be leased. */
void kv_lease(struct kv_pool *pool, kv_block_id id);
void kv_unlease(struct kv_pool *pool, kv_block_id id);

/* Frees cached blocks whose lifetime ended; call it periodically.  (They are not findable in any case.) */
void kv_expire(struct kv_pool *pool);
void kv_clear(struct kv_pool *pool); /* frees all cached blocks */
enum kv_state kv_state_of(const struct kv_pool *pool, kv_block_id id);
void kv_pool_counts(const struct kv_pool *pool, struct kv_pool_counts *out);

#endif
