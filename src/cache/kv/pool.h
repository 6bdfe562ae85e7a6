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
 * Eviction order: unpinned blocks (LRU), expired pins (LRU), live pins by expiry.  kv_keep() pins a block.
 * An unpinned block that other workers hold too (kv_share) counts as twice as old as it is.
 *
 * Blocks belong to the tenant that took them.  The pool is divided into equal quotas among the tenants that
 * have blocks in it.  A tenant that needs room takes it from tenants above their quota (their unpinned blocks
 * first), then from its own blocks.  It takes blocks within other quotas only when nothing else is left.
 * kv_available_to() says how much a tenant can take without that last resort.
 *
 * A lease (kv_lease / kv_unlease) holds a block for a transfer, whatever its references.  A FILLING block
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
    bool has_tier; /* cached blocks are saved to a tier below: kv_save_next() */
};

/* The tenant whose quota a block uses: any number that stands for a tenant.  Tenants beyond the first
 * KV_MAX_TENANTS that have blocks at a time count as one. */
typedef uint64_t kv_tenant;
#define KV_TENANT_NONE 0 /* anonymous; counts as a tenant, too */
enum { KV_MAX_TENANTS = 64 };

struct kv_pool_counts { /* blocks by state; cumulative counters */
    uint32_t n_free, n_filling, n_sealed, n_cached, n_zombie;
    uint32_t n_leased;
    uint32_t n_kept;                                 /* of the cached ones: pinned, as of the last look */
    uint32_t n_shared;                               /* of the cached ones: other workers have a duplicate */
    uint64_t n_evicted, n_expired, n_hits, n_misses; /* in blocks */
    uint64_t n_lost;    /* with a tier: evicted or expired before they were saved */
    uint32_t n_unsaved; /* with a tier: in the writeback queue */
    uint32_t n_tenants; /* that have blocks */
};

int kv_pool_new(const struct kv_pool_opts *opts, struct kv_pool **out); /* E_INVAL, E_NOMEM */
void kv_pool_free(struct kv_pool *pool);
uint32_t kv_pool_size(const struct kv_pool *pool); /* in blocks */
uint32_t kv_pool_block_tokens(const struct kv_pool *pool);

/* Takes n blocks for writing, all or none, and evicts cached blocks as needed.  On success ids_out holds n
 * ids, each FILLING with one reference.  Prefers runs of adjacent ids.  Returns E_KV_FULL. */
int kv_take(struct kv_pool *pool, uint32_t n, kv_block_id *ids_out);
int kv_take_for(struct kv_pool *pool, kv_tenant tenant, uint32_t n, kv_block_id *ids_out);
/* The number of blocks that kv_take could return now (free + evictable). */
uint32_t kv_available(const struct kv_pool *pool);
/* The same, without the blocks that other tenants have within their quotas. */
uint32_t kv_available_to(const struct kv_pool *pool, kv_tenant tenant);
/* The tenant's blocks (held and cached), and its quota, which other tenants cannot take. */
uint32_t kv_tenant_blocks(const struct kv_pool *pool, kv_tenant tenant);
uint32_t kv_tenant_share(const struct kv_pool *pool, kv_tenant tenant);
/* Adds a reference to a block that has one. */
void kv_ref(struct kv_pool *pool, kv_block_id id);
void kv_unref(struct kv_pool *pool, kv_block_id id);

/* FILLING -> SEALED under hash.  If another block already holds that hash, this one is a duplicate: it is
 * sealed but not findable, and both stay valid.  It becomes findable if it outlives the other.  The caller
 * keeps its reference. */
void kv_seal(struct kv_pool *pool, kv_block_id id, const struct block_hash *hash);
/* Pins the block until until_ns (the pool's clock): it outlives unpinned blocks, memory permitting, and its
 * lifetime.  An earlier pin that ends later stands.  The block has a reference; its duplicate, if any,
 * inherits the pin. */
void kv_keep(struct kv_pool *pool, kv_block_id id, uint64_t until_ns);
/* The content of a SEALED block is in doubt: it is no longer findable, and is freed when released. */
void kv_forget(struct kv_pool *pool, kv_block_id id);

/* Finds the longest run hashes[0..k): refs each block and writes its id.  Returns k (0: a miss). */
uint32_t kv_match(struct kv_pool *pool, const struct block_hash *hashes, uint32_t n, kv_block_id *ids_out);
/* The same without references: how many blocks would hit. */
uint32_t kv_peek(const struct kv_pool *pool, const struct block_hash *hashes, uint32_t n);

/* Visits the hash of every findable block, in no order.  The visit must not change the pool. */
void kv_each(const struct kv_pool *pool, void (*visit)(void *arg, const struct block_hash *hash), void *arg);

/* Another worker is known to hold a duplicate: once cached here, the block is evicted before others of the
 * same age (see shelf.c).  Only a hint; it ends when the block is freed.  The block has a reference. */
void kv_share(struct kv_pool *pool, kv_block_id id, bool is_shared);
bool kv_is_shared(const struct kv_pool *pool, kv_block_id id);
/* No other worker holds it any more: withdraws the hint of kv_share(). */
void kv_unshare(struct kv_pool *pool, const struct block_hash *hash);

/* One kv_unlease() for each kv_lease().  Only a block that has a reference can be leased. */
void kv_lease(struct kv_pool *pool, kv_block_id id);
void kv_unlease(struct kv_pool *pool, kv_block_id id);

struct kv_save { /* a block to be saved */
    kv_block_id id;
    struct block_hash hash;
    kv_tenant tenant; /* whose quota it uses; KV_TENANT_NONE also for a tenant without a place in the table */
    uint64_t keep_ns; /* the pin's end, as of kv_keep(); 0: not pinned */
};

/* With a tier: returns the cached block, without other holders, that has waited longest in the writeback
 * queue.  It has a reference and a lease until kv_save_end() says that its bytes were read.  A block is
 * offered once; with has_failed it is offered again if it is still, or once more, cached.  False: the queue
 * is empty. */
bool kv_save_next(struct kv_pool *pool, struct kv_save *out);
void kv_save_end(struct kv_pool *pool, kv_block_id id, bool has_failed);
/* The sealed block was read from the tier: it need not be saved. */
void kv_set_saved(struct kv_pool *pool, kv_block_id id);

/* Frees cached blocks whose lifetime ended; call it periodically.  (They are not findable in any case.) */
void kv_expire(struct kv_pool *pool);
void kv_clear(struct kv_pool *pool); /* frees all cached blocks */
enum kv_state kv_state_of(const struct kv_pool *pool, kv_block_id id);
void kv_pool_counts(const struct kv_pool *pool, struct kv_pool_counts *out);

#endif
