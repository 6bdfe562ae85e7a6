/* SPDX-License-Identifier: Apache-2.0 */
/* The disk tier of a worker: which cached blocks are saved, and which prompts wait for blocks that are read
 * back. Engine thread only, but for open and close. */
#ifndef WORKER_RUNNER_DISK_PRIV_H
#define WORKER_RUNNER_DISK_PRIV_H

#include "worker/runner/engine_thread_priv.h"

/* A store that cannot be opened is logged (kv_disk_off) and done without: a worker starts all the same. */
void worker_disk_open(struct worker_engine *engine);
void worker_disk_close(struct worker_engine *engine);

/* Whether the task waits for blocks of its prompt: worker_tasks_read() will be called.  False: nothing there,
 * or nothing that pays. */
bool worker_disk_wait(struct worker_engine *engine, struct task *task, const struct prefix_roots *roots);
void worker_disk_stop_waiting(struct worker_engine *engine, struct task *task); /* also one that does not */
/* What is done is booked, what was cached is saved; before and after each step. */
void worker_disk_turn(struct worker_engine *engine);
void worker_disk_tick(struct worker_engine *engine,
                      uint64_t now_ns); /* reads that take too long; lifetimes */
void worker_disk_report(const struct worker_engine *engine, struct load_report *out);
/* Whether a block could be read back, how many could be, and which: cache/kv/tier.h. */
bool worker_disk_has(const struct worker_engine *engine, const struct block_hash *hash);
uint32_t worker_disk_count(const struct worker_engine *engine);
void worker_disk_each(const struct worker_engine *engine, uint32_t most,
                      void (*visit)(void *arg, const struct block_hash *hash), void *arg);
uint32_t worker_disk_peek(const struct worker_engine *engine, const struct block_hash *hashes,
                          uint32_t n);                       /* leading ones */
double worker_disk_rate(const struct worker_engine *engine); /* bytes per second, all reads; 0: no disk */
/* Begins to read those of a run of hashes that follow what the pool has, for whom they count meanwhile, or
 * finds that they are being read.  The number of the read, of which worker_loans_read() will tell; 0: none.
 */
uint64_t worker_disk_fetch(struct worker_engine *engine, uint64_t tenant, const struct block_hash *hashes,
                           uint32_t n);
bool worker_disk_is_waited_for(const struct worker_engine *engine);

#endif
