/* SPDX-License-Identifier: Apache-2.0 */
/* The writeback queues of a pool with tiers below: which blocks are saved next.
 *
 * All cached blocks are saved to the disk tier.  The remote tier gets those that were used twice: computed by one
 * request and found by another.  After kv_save_all() it gets all.
 *
 * Engine thread only. */
#ifndef CACHE_KV_POOL_WRITEBACK_H
#define CACHE_KV_POOL_WRITEBACK_H

#include "cache/kv/pool_cache.h"
#include "cache/kv/pool_quota.h"

enum kv_below { KV_BELOW_DISK, KV_BELOW_REMOTE, KV_N_BELOW };

struct kv_save { /* a block to be saved */
    kv_block_id id;
    struct block_hash hash;
    kv_tenant tenant;    /* whose quota it uses; also KV_TENANT_NONE for a tenant beyond the table's size */
    uint64_t pin_end_ns; /* the pin's end, as of kv_pin(); 0: not pinned */
};

/* Returns the cached block that has waited longest in this tier's queue and has no other references.  It has a
 * reference and a lease until kv_save_end(), which the caller calls once it has read the bytes.  A block is offered
 * once.  After has_failed it is offered again while it is cached.  False: the queue is empty. */
bool kv_save_next(struct kv_pool *pool, enum kv_below below, struct kv_save *out);
void kv_save_end(struct kv_pool *pool, enum kv_below below, kv_block_id id, bool has_failed);
/* The sealed block was read from this tier: it need not be saved there. */
void kv_set_saved(struct kv_pool *pool, enum kv_below below, kv_block_id id);
/* is_on: the remote tier gets every cached block, also those that are cached already. Otherwise (the default) it
 * gets those that were used twice. */
void kv_save_all(struct kv_pool *pool, bool is_on);

#endif
