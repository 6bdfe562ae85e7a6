/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks in the pool that a read from a store completes.  The read holds a reference to each of them, because without
 * them the blocks that it reads are of no use, and making room for those would evict them first: the beginning of
 * a prompt that was evicted in part is the least recently used prefix.  Engine thread only. */
#ifndef WORKER_RUNNER_READ_HOLD_PRIV_H
#define WORKER_RUNNER_READ_HOLD_PRIV_H

#include "worker/runner/engine_thread_priv.h"

struct read_hold { /* zeroed: it holds none */
    kv_block_id *ids;
    uint32_t n;
};

/* Holds the block with this hash.  False: the pool does not have it, or out of memory. */
bool read_hold_add(struct read_hold *hold, struct kv_pool *pool, const struct block_hash *hash);
/* True if the running sequences have a free block each, beside n blocks that are to be held.  A read holds nothing else:
 * its prompt then risks its beginning, and the sequences are not preempted. */
bool read_hold_has_room(const struct worker_engine *engine, uint32_t n);
/* Releases all, the last one first: of a prompt, the end is evicted before the beginning. */
void read_hold_release(struct read_hold *hold, struct kv_pool *pool);
/* When the pool is closed, too. */
void read_hold_free(struct read_hold *hold);
/* How many blocks a read for this tenant may take when reads of the same store have n_reading. */
uint32_t read_room(const struct worker_engine *engine, kv_tenant tenant, uint32_t n_reading);

#endif
