/* SPDX-License-Identifier: Apache-2.0 */
/* The pool as a prefix cache: sealed blocks are found by the hash of their content.
 *
 * The eviction order is in pool.h.  Engine thread only. */
#ifndef CACHE_KV_POOL_CACHE_H
#define CACHE_KV_POOL_CACHE_H

#include "cache/kv/pool.h"

/* FILLING -> SEALED under hash.  If another block already holds that hash, this one is a duplicate: it is
 * sealed but not findable, and both stay valid.  It becomes findable if it outlives the other.  The caller
 * keeps its reference. */
void kv_seal(struct kv_pool *pool, kv_block_id id, const struct block_hash *hash);
/* The same for a block that only this worker looks for: neither on_block() nor kv_each() tell of it. */
void kv_seal_quiet(struct kv_pool *pool, kv_block_id id, const struct block_hash *hash);
/* Pins the block until until_ns (the pool's clock): it outlives unpinned blocks, memory permitting, and its
 * lifetime.  An earlier pin that ends later stands.  The block has a reference; its duplicate, if any,
 * inherits the pin. */
void kv_pin(struct kv_pool *pool, kv_block_id id, uint64_t until_ns);
/* The content of a SEALED block is in doubt: it is no longer findable, and is freed when released. */
void kv_forget(struct kv_pool *pool, kv_block_id id);

/* Finds the longest run hashes[0..k): refs each block and writes its id.  Returns k (0: a miss). */
uint32_t kv_match(struct kv_pool *pool, const struct block_hash *hashes, uint32_t n, kv_block_id *ids_out);
/* The same without references: how many blocks would hit. */
uint32_t kv_peek(const struct kv_pool *pool, const struct block_hash *hashes, uint32_t n);

/* Visits the hash of every findable block that is not quiet, in no order.  The visit must not change the pool. */
void kv_each(const struct kv_pool *pool, void (*visit)(void *arg, const struct block_hash *hash), void *arg);

/* Another worker is known to hold a duplicate: once cached here, the block is evicted before others of the
 * same age (see eviction.c).  Only a hint; it ends when the block is freed.  The block has a reference. */
void kv_set_replicated(struct kv_pool *pool, kv_block_id id, bool is_replicated);
bool kv_is_replicated(const struct kv_pool *pool, kv_block_id id);
/* The SEALED block is unlikely to be of use, or it is not: a spare block is evicted before all that are not
 * pinned, and no tier saves it.  It stops being spare when kv_match() finds it, or when a duplicate that is not
 * spare is released. */
void kv_set_spare(struct kv_pool *pool, kv_block_id id, bool is_spare);
/* No other worker holds it any more: withdraws the hint of kv_set_replicated(). */
void kv_clear_replicated(struct kv_pool *pool, const struct block_hash *hash);

#endif
