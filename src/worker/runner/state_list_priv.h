/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of blocks that make a prefix usable, for models with recurrent state or windowed blocks: state_list.c. */
#ifndef WORKER_RUNNER_STATE_LIST_PRIV_H
#define WORKER_RUNNER_STATE_LIST_PRIV_H

#include "worker/runner/engine_thread_priv.h"

struct state_source { /* where to look for blocks */
    bool (*has)(void *arg, const struct block_hash *hash);
    void *arg;
};

/* True if a prefix needs more than its run of blocks. */
bool worker_has_end_states(const struct worker_engine *engine);
/* Number of blocks of the end state of a run.  It does not shrink when the run grows. */
uint32_t worker_end_state_blocks(const struct worker_engine *engine, uint32_t n_run);
/* Returns the length of the run in a list of n_list blocks; 0: no list has this length. */
uint32_t worker_end_state_run(const struct worker_engine *engine, uint32_t n_list);
/* Derives the end state's hashes from those of the run, which is not empty. */
void worker_end_state_hashes(const struct worker_engine *engine, const struct block_hash *hashes,
                             uint32_t n_run, struct block_hash *hashes_out);
/* Seals a block of an end state that came from elsewhere, as the scheduler seals its own.  Returns true if peers get an
 * event for it; they get none for windowed blocks.  Engine thread. */
bool worker_end_state_seal(struct worker_engine *engine, kv_block_id id, const struct block_hash *hash);
/* Number of blocks at the end of a run that have parts in the end state. */
uint32_t worker_end_state_span(const struct worker_engine *engine);
/* Derives a hash that stands for all blocks of end states that belong to this block: that of the first one. */
void worker_end_state_key(const struct worker_engine *engine, const struct block_hash *block,
                          struct block_hash *key_out);
/* Returns the list for a prompt of these hashes; the caller frees it.
 * NULL: no usable prefix, or no memory. */
struct block_hash *worker_state_list(const struct worker_engine *engine, const struct state_source *source,
                                     const struct block_hash *hashes, uint32_t n, uint32_t *n_out);
/* Returns how many leading blocks a prompt of these hashes would reuse: a run in the pool with its state. */
uint32_t worker_state_hit(const struct worker_engine *engine, const struct block_hash *hashes, uint32_t n);
/* Like kv_match(), for the list of blocks in the pool.  ids_out: [n + worker_end_state_blocks()]. */
uint32_t worker_state_match(const struct worker_engine *engine, const struct block_hash *hashes, uint32_t n,
                            kv_block_id *ids_out);

#endif
