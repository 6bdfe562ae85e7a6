/* SPDX-License-Identifier: Apache-2.0 */
/* The pool as a prefix cache: sealed blocks are found by the hash of their content.
 *
 * The eviction order is in pool.h.  Engine thread only. */
#ifndef CACHE_KV_POOL_CACHE_H
#define CACHE_KV_POOL_CACHE_H

#include "cache/kv/pool.h"

/* FILLING -> SEALED under hash.  If another block already has that hash, this one is a duplicate: it is sealed but
 * not findable, and both stay valid.  It becomes findable if it outlives the other.  The caller keeps its
 * reference. */
void kv_seal(struct kv_pool *pool, kv_block_id id, const struct block_hash *hash);
/* The same for a block that only this worker uses: on_block() and kv_each() skip it. */
void kv_seal_quiet(struct kv_pool *pool, kv_block_id id, const struct block_hash *hash);
/* Pins the block until until_ns (the pool's clock).  It then stays longer than unpinned blocks, memory permitting,
 * and longer than its lifetime.  An existing pin that ends later stays.  The block must have a reference; its
 * duplicate, if any, inherits the pin. */
void kv_pin(struct kv_pool *pool, kv_block_id id, uint64_t until_ns);
/* The content of a SEALED block is in doubt: it is no longer findable, and is freed when released. */
void kv_forget(struct kv_pool *pool, kv_block_id id);

/* Finds the longest run hashes[0..k): refs each block and writes its id.  Returns k (0: a miss). */
uint32_t kv_match(struct kv_pool *pool, const struct block_hash *hashes, uint32_t n, kv_block_id *ids_out);
/* The same without references: how many blocks would hit. */
uint32_t kv_peek(const struct kv_pool *pool, const struct block_hash *hashes, uint32_t n);
/* Refs the block with this hash for a prompt that will match it later.  It counts neither as a hit nor as a use.
 * KV_BLOCK_NONE: the pool does not have it. */
kv_block_id kv_hold(struct kv_pool *pool, const struct block_hash *hash);

/* Visits the hash of every findable block that is not quiet, in no order.  The visit must not change the pool. */
void kv_each(const struct kv_pool *pool, void (*visit)(void *arg, const struct block_hash *hash), void *arg);

/* Marks that another worker has a duplicate.  Once cached here, the block is evicted before others of the same age
 * (see eviction.c).  Only a hint; it ends when the block is freed.  The block must have a reference. */
void kv_set_replicated(struct kv_pool *pool, kv_block_id id, bool is_replicated);
bool kv_is_replicated(const struct kv_pool *pool, kv_block_id id);
/* Marks a SEALED block as spare (unlikely to be of use), or removes the mark.  Spare blocks are evicted before all
 * other unpinned blocks, and no tier saves them.  The mark ends when kv_match() finds the block, or when a
 * duplicate that is not spare is released. */
void kv_set_spare(struct kv_pool *pool, kv_block_id id, bool is_spare);
/* Withdraws the hint of kv_set_replicated(), because no other worker has the block any more. */
void kv_clear_replicated(struct kv_pool *pool, const struct block_hash *hash);

#endif
