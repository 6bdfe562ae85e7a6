/* SPDX-License-Identifier: Apache-2.0 */
/* The writeback queues of a pool with tiers below: which blocks are saved next.
 *
 * All cached blocks are saved to the disk tier.  The remote tier gets those that were used twice: computed by one
 * request, and found or computed once more by another.  After kv_save_all() it gets all.
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

/* The two calls below say where blocks are in their chain.  Only blocks whose place is known are saved in runs of more
 * than one block. */
/* A prompt of n whole blocks found the first n_matched.  If it parts there from a chain that was saved, the shared
 * blocks are saved once more, so that other prompts find them without the rest. */
void kv_note_match(struct kv_pool *pool, const struct block_hash *hashes, uint32_t n_matched, uint32_t n);
void kv_note_block(struct kv_pool *pool, const struct block_hash *hashes,
                   uint32_t at); /* block `at` was sealed */

/* Returns the cached block, without other references, that has waited longest in the queue of this tier.  It has
 * a reference and a lease until kv_save_end() says that its bytes were read.  A block is offered once; with
 * has_failed it is offered again if it is still, or once more, cached, and is as old as before.  False: the queue is empty. */
bool kv_save_next(struct kv_pool *pool, enum kv_below below, struct kv_save *out);
void kv_save_end(struct kv_pool *pool, enum kv_below below, kv_block_id id, bool has_failed);
/* The same for the remote tier and a run: consecutive blocks of one chain, at most n_most (at least 1), in its order.
 * Runs end at multiples of n_most in the chain, and where chains part.  Each block has a reference and a lease until
 * kv_save_end(), which is called for the last one first.  Returns their number; 0: the queue is empty. */
uint32_t kv_save_run(struct kv_pool *pool, uint32_t n_most, struct kv_save *out);
/* The sealed block was read from this tier: it need not be saved there. */
void kv_set_saved(struct kv_pool *pool, enum kv_below below, kv_block_id id);
/* The tier no longer has the block, or may have lost all: the next use saves a block again. */
void kv_clear_saved(struct kv_pool *pool, enum kv_below below, const struct block_hash *hash);
void kv_clear_all_saved(struct kv_pool *pool, enum kv_below below);
/* The sealed block was read from a run of the remote tier that does not end with it. */
void kv_set_inside(struct kv_pool *pool, kv_block_id id);
/* is_on: from now on the remote tier gets every cached block, also those that are cached now: first those that it never
 * got, then those that it may have lost. Else, as at first, those that were used twice. */
void kv_save_all(struct kv_pool *pool, bool is_on);

#endif
