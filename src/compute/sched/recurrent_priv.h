/* SPDX-License-Identifier: Apache-2.0 */
/* The recurrent state of a sequence, for models that have one: recurrent.c. */
#ifndef COMPUTE_SCHED_RECURRENT_PRIV_H
#define COMPUTE_SCHED_RECURRENT_PRIV_H

#include <stdbool.h>

#include "cache/kv/state.h"

struct sched;
struct seq;
struct engine_item;

enum { RECURRENT_SNAPSHOTS = 16 }; /* the most snapshots in a sequence's part of a step */

struct seq_recurrent {   /* arrays of ids have sched.n_state_blocks entries */
    kv_block_id *own;    /* the state at n_computed, once a token is computed here; FILLING */
    kv_block_id *found;  /* the state that the cached prefix ends with, until the first step has read it */
    kv_block_id *latest; /* the latest snapshot of decoding */
    bool has_own, has_found, has_latest;
    uint32_t fork; /* leading blocks that were cached, not all with a state: another sequence had the same
                    * beginning */

    struct kv_state_cut cuts[RECURRENT_SNAPSHOTS + 1]; /* cuts of the running step; the last one writes own */
    uint32_t ends[RECURRENT_SNAPSHOTS];                /* each cut's number of leading blocks */
    kv_block_id *taken;                                /* [RECURRENT_SNAPSHOTS] states to become snapshots */
    uint32_t n_taken;
};

int recurrent_init(const struct sched *sched, struct seq *seq); /* E_NOMEM */
void recurrent_fini(struct seq *seq);
/* Returns how many leading blocks, at most n, the cache has with keys, values, and a state after the last. */
uint32_t recurrent_peek(const struct sched *sched, const struct seq *seq, uint32_t n);
/* Takes the state after n_matched blocks, and blocks for the sequence's own state.
 * E_KV_FULL: nothing was taken. */
int recurrent_match(struct sched *sched, struct seq *seq, uint32_t n_matched);
void recurrent_give_back(struct sched *sched, struct seq *seq);
/* Leaves the latest snapshot of the answer to the cache, which may evict it. True: there was one. */
bool recurrent_release_latest(struct sched *sched, struct seq *seq);
/* Sets where the item of the coming step reads and writes the state.
 * Takes blocks for snapshots where there is room. */
void recurrent_plan(struct sched *sched, struct seq *seq, struct engine_item *item);
/* Call it after the step and seq_seal(): makes the snapshots findable. */
void recurrent_seal(struct sched *sched, struct seq *seq);
/* Removes the sequence's snapshots from the prefix cache,
 * because the state may be damaged.  Not during a step. */
void recurrent_forget(struct sched *sched, struct seq *seq);
/* Call it when a transfer has written the sequence's own state. */
void recurrent_arrived(struct sched *sched, struct seq *seq);

#endif
