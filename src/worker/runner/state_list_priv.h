/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of blocks that make a prefix usable for models with recurrent state: state_list.c. */
#ifndef WORKER_RUNNER_STATE_LIST_PRIV_H
#define WORKER_RUNNER_STATE_LIST_PRIV_H

#include "worker/runner/engine_thread_priv.h"

struct state_source { /* where to look for blocks */
    bool (*has)(void *arg, const struct block_hash *hash);
    void *arg;
};

/* Number of blocks of one recurrent state; 0: the model has none. */
uint32_t worker_state_blocks(const struct worker_engine *engine);
/* Returns the list for a prompt of these hashes; the caller frees it.
 * NULL: no usable prefix, or no memory. */
struct block_hash *worker_state_list(const struct worker_engine *engine, const struct state_source *source,
                                     const struct block_hash *hashes, uint32_t n, uint32_t *n_out);
/* Returns how many leading blocks a prompt of these hashes would reuse: a run in the pool with its state. */
uint32_t worker_state_hit(const struct worker_engine *engine, const struct block_hash *hashes, uint32_t n);
/* Like kv_match(), for the list of blocks in the pool.  ids_out: [n + worker_state_blocks()]. */
uint32_t worker_state_match(const struct worker_engine *engine, const struct block_hash *hashes, uint32_t n,
                            kv_block_id *ids_out);

#endif
