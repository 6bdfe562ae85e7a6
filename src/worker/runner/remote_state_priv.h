/* SPDX-License-Identifier: Apache-2.0 */
/* State of a worker's remote tier, for remote.c, which reads, and remote_save.c, which writes.  Engine thread only. */
#ifndef WORKER_RUNNER_REMOTE_STATE_PRIV_H
#define WORKER_RUNNER_REMOTE_STATE_PRIV_H

#include "cache/remote/remote.h"
#include "worker/runner/read_hold_priv.h"
#include "worker/runner/remote_metrics_priv.h"
#include "worker/runner/remote_priv.h"
#include "worker/runner/remote_seen_priv.h"

enum remote_read_state {
    REMOTE_ASKING,  /* the question is on its way */
    REMOTE_READING, /* the blocks are */
    REMOTE_LET_GO   /* no task waits any more; it ends with its last answer */
};

struct remote_block {
    struct remote_read *read;
    kv_block_id id;
    struct block_hash hash, name; /* name: of the value that has it ... */
    uint32_t n_after;             /* ... before so many other blocks */
    bool is_sealed;               /* and holds a reference */
};

struct remote_read { /* a run of blocks that tasks wait for */
    struct list all;
    enum remote_read_state state;
    uint64_t number;
    kv_tenant tenant;
    uint64_t began_ns, until_ns;
    uint32_t n_run;              /* blocks of the prompt that were asked for */
    struct remote_block *blocks; /* [n] */
    uint32_t n, n_done;
    struct read_hold hold;      /* the blocks of its prompt that are in the pool; none after it is let go */
    struct block_hash hashes[]; /* [n_run], then the first block of an end state beside each */
};

struct worker_remote {
    struct kv_remote *remote;
    struct list reads;
    uint64_t next_number;
    uint32_t n_reading, n_saving, n_waiting; /* blocks, blocks, tasks */
    uint32_t n_overdue;                      /* answers that no task waits for any more */
    uint64_t paused_until_ns, pause_ns;      /* of saves, after a failure */
    uint64_t counted_ns;
    bool was_up;
    uint64_t doubted_ns;    /* since then cached blocks count as saved */
    uint64_t n_passed_over; /* reads that would not have paid */
    struct remote_seen seen;
    struct remote_metrics metrics;
};

/* ---- remote_save.c ---- */

void worker_remote_save(struct worker_engine *engine); /* saves some of the blocks that wait for it */
void worker_remote_on_saved(struct worker_engine *engine, const struct kv_remote_event *event);

#endif
