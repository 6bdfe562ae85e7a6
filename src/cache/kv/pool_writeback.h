/* SPDX-License-Identifier: Apache-2.0 */
/* The writeback queue of a pool with a tier below: which blocks are saved next.
 *
 * Engine thread only. */
#ifndef CACHE_KV_POOL_WRITEBACK_H
#define CACHE_KV_POOL_WRITEBACK_H

#include "cache/kv/pool_cache.h"
#include "cache/kv/pool_quota.h"

struct kv_save { /* a block to be saved */
    kv_block_id id;
    struct block_hash hash;
    kv_tenant tenant; /* whose quota it uses; KV_TENANT_NONE also for a tenant without a place in the table */
    uint64_t pin_end_ns; /* the pin's end, as of kv_pin(); 0: not pinned */
};

/* With a tier: returns the cached block, without other references, that has waited longest in the writeback
 * queue.  It has a reference and a lease until kv_save_end() says that its bytes were read.  A block is
 * offered once; with has_failed it is offered again if it is still, or once more, cached.  False: the queue
 * is empty. */
bool kv_save_next(struct kv_pool *pool, struct kv_save *out);
void kv_save_end(struct kv_pool *pool, kv_block_id id, bool has_failed);
/* The sealed block was read from the tier: it need not be saved. */
void kv_set_saved(struct kv_pool *pool, kv_block_id id);

#endif
