/* SPDX-License-Identifier: Apache-2.0 */
/* The disk tier of a worker: writes cached blocks to disk, and lets prompts wait for blocks that are read
 * back. Engine thread only, except open and close. */
#ifndef WORKER_RUNNER_DISK_PRIV_H
#define WORKER_RUNNER_DISK_PRIV_H

#include "worker/runner/engine_thread_priv.h"

/* Both stores below the pool, the disk and the shared one (remote.c), hold these parts of it. */
#define STORE_POOL_SHARE_READS 4 /* reads: at most 1/4 */
#define STORE_POOL_SHARE_SAVES 8
#define STORE_SAVES_PER_TURN   32
#define STORE_LOOK_AGAIN                                                                                     \
    16 /* of this many reads that would not pay, one is tried, to measure the store again */

/* If the store cannot be opened, logs kv_disk_off; the worker starts without a disk tier. */
void worker_disk_open(struct worker_engine *engine);
void worker_disk_close(struct worker_engine *engine);

/* Everything that determines the meaning of a block's bytes and the arithmetic that computed them. */
void worker_disk_generation(const struct worker_engine *engine, char out[256]);

/* True: the task waits for blocks of its prompt, and worker_tasks_read() will be called. False: no block
 * is on disk, or reading does not pay. */
bool worker_disk_wait(struct worker_engine *engine, struct task *task);
/* The task may or may not wait, and the tier may be closed. */
void worker_disk_stop_waiting(struct worker_engine *engine, struct task *task);
/* Completes finished reads and writes, and writes newly cached blocks. Called before and after each step. */
void worker_disk_turn(struct worker_engine *engine);
void worker_disk_tick(struct worker_engine *engine,
                      uint64_t now_ns); /* ends reads that take too long, and expired blocks */
void worker_disk_report(const struct worker_engine *engine, struct load_report *out);
/* These three ask the tier whether it has a block, how many it has, and which: cache/kv/tier.h. */
bool worker_disk_has(const struct worker_engine *engine, const struct block_hash *hash);
uint32_t worker_disk_count(const struct worker_engine *engine);
void worker_disk_each(const struct worker_engine *engine, uint32_t most,
                      void (*visit)(void *arg, const struct block_hash *hash), void *arg);
uint32_t worker_disk_peek(const struct worker_engine *engine, const struct block_hash *hashes,
                          uint32_t n);                       /* number of leading blocks on disk */
double worker_disk_rate(const struct worker_engine *engine); /* bytes per second, all reads; 0: no disk */
/* Reads a run of hashes from disk: the blocks after those in the pool, on this tenant's account.  Joins reads
 * under way.  Returns the number for the later worker_prefix_serve_read().  0: no read. */
uint64_t worker_disk_fetch(struct worker_engine *engine, uint64_t tenant, const struct block_hash *hashes,
                           uint32_t n);
bool worker_disk_is_waited_for(const struct worker_engine *engine);

#endif
