/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of disk.c, publish.c and remote.c: a worker around them, and a simulated tier, which ends reads and writes at the test's
 * command. */
#ifndef TESTS_UNIT_WORKER_DISK_RIG_H
#define TESTS_UNIT_WORKER_DISK_RIG_H

#include "tests/unit/check.h"

#include "base/clock.h"
#include "cache/kv/tier.h"
#include "worker/runner/engine_thread_priv.h"

enum { N_BLOCKS = 64, TOKENS = 8, PROMPT_BLOCKS = 12, N_TASKS = 4 };

struct kv_tier {
    struct kv_tier_opts opts;
    struct block_hash there[64];
    uint32_t n_there;
    struct kv_tier_event begun[64]; /* in order */
    uint32_t n_begun, n_done, n_polled;
    uint64_t read_ns; /* time to read a block */
    int write_with;   /* result of kv_tier_write() */
    bool rests;
    uint32_t n_writes;
    kv_tenant written_for; /* tenant of the last one */
};

extern struct kv_tier tier;
extern double prefill_tokens_per_s;
extern uint32_t n_running; /* sequences */
extern struct worker_engine engine;
extern struct task tasks[N_TASKS];
extern struct prefix_roots roots;
extern struct block_hash hashes[PROMPT_BLOCKS]; /* of the tasks' prompt */
extern uint32_t n_went_on;                      /* tasks that waited for a read, and continued */
extern uint64_t serve_read;                     /* the latest read that ended for a serve */

int disk_rig_open(void **state);
int disk_rig_close(void **state); /* ends all reads and writes; no block may be held after them */
void put_on_disk(uint32_t n);     /* the prompt's first blocks */
void cache(uint32_t n);           /* in the pool */
bool waits(uint32_t task);

#endif
