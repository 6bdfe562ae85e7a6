/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of KV blocks, their states, and the prefix cache over them.
 *
 *         kv_take          kv_seal           unref -> 0        evict / expire
 *   FREE ---------> FILLING ------> SEALED -----------> CACHED ------> FREE
 *    ^                | one writer    ^ immutable, shared,  |
 *    |         unref -> 0             | counted             |
 *    |                |               +------ kv_match -----+
 *    |   no lease     v     leased
 *    +-------<-----------+--> ZOMBIE --last unlease--> FREE
 *
 * A SEALED block with a hash can be found by it; at zero references it becomes CACHED, stays findable, and is
 * evicted when kv_take needs room or when its lifetime ends.  Evicted are first those never marked by
 * kv_keep(), then those whose mark has run out, both in LRU order, then the others by when theirs does.  Of
 * the unmarked ones those that other workers hold too (kv_share) count as twice as old as they are.  An
 * unsealed block goes to FREE at zero references.
 *
 * Blocks belong to the tenant that took them.  The pool is divided into equal shares among tenants that have
 * blocks in it; who needs room takes it from tenants above their share (and there from those never marked,
 * first), then from his own, and from others' shares only when nothing else is left.  kv_available_to() says
 * how much a tenant could take without that last resort.
 *
 * A lease (kv_lease / kv_unlease) pins a block for a transfer whatever its references: a FILLING block that
 * is given up waits as a ZOMBIE, a SEALED one stays SEALED, until the last lease is gone too.
 *
 * Give a sequence's blocks back last one first: then children are older than their parents and leave before
 * them.  Engine thread only; nothing here allocates after kv_pool_new. */
#ifndef CACHE_KV_POOL_H
#define CACHE_KV_POOL_H

#include <stdbool.h>

#include "cache/kv/layout.h"
#include "cache/prefix/block_hash.h"

struct kv_pool;

enum kv_state {
    KV_FREE,    /* nobody's; what it holds means nothing */
    KV_FILLING, /* being written by its one owner, or by the transfer that holds a lease */
    KV_SEALED,  /* full and immutable; held by references, leases or both */
    KV_CACHED,  /* sealed, held by nobody, found by its hash until it is evicted */
    KV_ZOMBIE   /* given up while FILLING, but leased: somebody may still touch the bytes */
};

struct kv_pool_opts {
    uint32_t n_blocks;
    uint32_t block_tokens;    /* what a block holds; the pool only remembers it */
    uint64_t lifetime_ns;     /* of a cached block since its last use; 0: five minutes */
    uint64_t (*now_ns)(void); /* NULL: the monotonic clock; simulators bring their own */
    /* Content can be found here from now on, or can no longer.  From inside any call below that changes
     * something; it must not call back.  NULL: nobody wants to know. */
    void (*on_block)(void *arg, const struct block_hash *hash, bool is_here);
    void *on_block_arg;
    bool has_tier; /* cached blocks are saved to a tier below: kv_save_next() */
};

/* Who a block counts for.  Any number that stands for a tenant; tenants beyond the first KV_MAX_TENANTS that
 * have blocks at a time count as one. */
typedef uint64_t kv_tenant;
#define KV_TENANT_NONE 0 /* nobody: counts as a tenant, too */
enum { KV_MAX_TENANTS = 64 };

struct kv_pool_counts { /* blocks by state; cumulative counters */
    uint32_t n_free, n_filling, n_sealed, n_cached, n_zombie;
    uint32_t n_leased;
    uint32_t n_kept;   /* of the cached ones: marked for longer, as of the last look */
    uint32_t n_shared; /* of the cached ones: held elsewhere too */
    uint64_t n_evicted, n_expired, n_hits, n_misses; /* in blocks */
    uint64_t n_lost;    /* with a tier: evicted or expired before they were saved */
    uint32_t n_unsaved; /* with a tier: cached, to be saved */
    uint32_t n_tenants; /* that have blocks */
};

int kv_pool_new(const struct kv_pool_opts *opts, struct kv_pool **out); /* E_INVAL, E_NOMEM */
void kv_pool_free(struct kv_pool *pool);
uint32_t kv_pool_size(const struct kv_pool *pool); /* in blocks */
uint32_t kv_pool_block_tokens(const struct kv_pool *pool);

/* Takes n blocks for writing, all or none, evicting cached ones as needed.  On success ids_out holds n ids,
 * each FILLING with one reference.  Prefers runs of adjacent ids.  E_KV_FULL. */
int kv_take(struct kv_pool *pool, uint32_t n, kv_block_id *ids_out);
int kv_take_for(struct kv_pool *pool, kv_tenant tenant, uint32_t n, kv_block_id *ids_out);
/* How many kv_take could give now (free + evictable). */
uint32_t kv_available(const struct kv_pool *pool);
/* The same, without what other tenants have within their shares. */
uint32_t kv_available_to(const struct kv_pool *pool, kv_tenant tenant);
/* What it has (held and cached), and what it could have before others may be served at its cost. */
uint32_t kv_tenant_blocks(const struct kv_pool *pool, kv_tenant tenant);
uint32_t kv_tenant_share(const struct kv_pool *pool, kv_tenant tenant);
/* One more reference to a block that has one. */
void kv_ref(struct kv_pool *pool, kv_block_id id);
void kv_unref(struct kv_pool *pool, kv_block_id id);

/* FILLING -> SEALED under hash.  If another block already holds that hash, this one is sealed without being
 * findable (both stay valid); it takes the name over if it outlives the other.  The caller keeps its
 * reference. */
void kv_seal(struct kv_pool *pool, kv_block_id id, const struct block_hash *hash);
/* It is wanted until then (the pool's clock): kept longer than others, memory permitting, and beyond its
 * lifetime.  An earlier mark for longer stands.  The block has a reference; its twin, if it has one, inherits
 * the mark. */
void kv_keep(struct kv_pool *pool, kv_block_id id, uint64_t until_ns);
/* The content of a SEALED block is in doubt: it can no longer be found and is freed when given back. */
void kv_forget(struct kv_pool *pool, kv_block_id id);

/* Longest run hashes[0..k) present: refs each and writes its id.  Returns k (0: a miss). */
uint32_t kv_match(struct kv_pool *pool, const struct block_hash *hashes, uint32_t n, kv_block_id *ids_out);
/* The same without taking references: how much would hit. */
uint32_t kv_peek(const struct kv_pool *pool, const struct block_hash *hashes, uint32_t n);

/* Everything that can be found, in no order.  The visit must not change the pool. */
void kv_each(const struct kv_pool *pool, void (*visit)(void *arg, const struct block_hash *hash), void *arg);

/* Another worker is known to hold the same content: when it is cached here, it goes before others that were
 * used as lately (see shelf.c).  Only a hint; ends when the block is freed.  The block has a reference. */
void kv_share(struct kv_pool *pool, kv_block_id id, bool is_shared);
bool kv_is_shared(const struct kv_pool *pool, kv_block_id id);
/* Nobody else holds it any more: the hint was right once. */
void kv_unshare(struct kv_pool *pool, const struct block_hash *hash);

/* For each lease one unlease.  Only a block that has a reference can be leased. */
void kv_lease(struct kv_pool *pool, kv_block_id id);
void kv_unlease(struct kv_pool *pool, kv_block_id id);

struct kv_save { /* a block to be saved */
    kv_block_id id;
    struct block_hash hash;
    kv_tenant tenant; /* whom it counts for; KV_TENANT_NONE: also of one without a place of his own */
    uint64_t keep_ns; /* as of kv_keep(); 0: not marked */
};

/* With a tier: the cached block that waits longest to be saved, and is not held otherwise.  It gets a
 * reference and a lease, until kv_save_end() says that its bytes were read.  It is offered once, unless
 * has_failed (and it is cached still or again).  False: none waits. */
bool kv_save_next(struct kv_pool *pool, struct kv_save *out);
void kv_save_end(struct kv_pool *pool, kv_block_id id, bool has_failed);
/* A sealed block came from the tier: it need not be saved. */
void kv_set_saved(struct kv_pool *pool, kv_block_id id);

/* Frees cached blocks whose lifetime ended; call now and then.  (They are not found any more in any case.) */
void kv_expire(struct kv_pool *pool);
void kv_clear(struct kv_pool *pool); /* frees all cached blocks */
enum kv_state kv_state_of(const struct kv_pool *pool, kv_block_id id);
void kv_pool_counts(const struct kv_pool *pool, struct kv_pool_counts *out);

#endif
