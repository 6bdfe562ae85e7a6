/* SPDX-License-Identifier: Apache-2.0 */
/* The remote tier of a worker: lets prompts wait for blocks from the shared store, and writes blocks to it. Engine
 * thread only, except open and close. */
#ifndef WORKER_RUNNER_REMOTE_PRIV_H
#define WORKER_RUNNER_REMOTE_PRIV_H

#include "worker/runner/engine_thread_priv.h"

/* If the tier cannot be opened, logs kv_remote_off; the worker starts without it. */
void worker_remote_open(struct worker_engine *engine);
void worker_remote_close(struct worker_engine *engine);

/* True: the task waits for the store, and worker_tasks_read() will be called. False: there is nothing to wait for. */
bool worker_remote_wait(struct worker_engine *engine, struct task *task);
void worker_remote_stop_waiting(struct worker_engine *engine, struct task *task); /* waiting or not */
/* Completes answers of the store, and writes blocks. Called before and after each step. */
void worker_remote_turn(struct worker_engine *engine);
void worker_remote_tick(struct worker_engine *engine, uint64_t now_ns); /* ends waits that take too long */
/* is_on: the worker drains, so write every cached block. */
void worker_remote_drain(struct worker_engine *engine, bool is_on);
/* Call it when the thread ends: waits until all blocks are written, for remote.flush_ns at most. */
void worker_remote_flush(struct worker_engine *engine);
void worker_remote_report(const struct worker_engine *engine, struct load_report *out);
/* Reports blocks that the store has: at most `most` to one router; the changes since the last call to all routers. */
void worker_remote_publish_all(struct worker_engine *engine, uint32_t router, uint32_t most);
void worker_remote_publish_changes(struct worker_engine *engine);
/* What the store is expected to have of blocks that the pool lacks, and how fast it is. Zeros: it is not used now. */
struct remote_hope {
    uint32_t n_blocks; /* of the first ones */
    double bytes_per_s, ask_s;
};
struct remote_hope worker_remote_hope(const struct worker_engine *engine, const struct block_hash *hashes,
                                      uint32_t n);
bool worker_remote_is_waited_for(const struct worker_engine *engine);

#endif
