/* SPDX-License-Identifier: Apache-2.0 */
/* Pending block events: a reader's queue of event lists from all the workers that it follows.
 *
 *    a worker's message --> [ event list | event list | ... ] --BLOCK_SLICE blocks at a time--> calls.apply
 *    a worker's link is lost, or its snapshot begins --> its lists are dropped, calls.forget
 *
 * One message may list a hundred thousand blocks, which takes milliseconds to apply.  So the reader applies a
 * few slices, does its other work, then continues.  One queue keeps each worker's events in order.
 *
 * A router applies events to its index, a worker to its peer map.  One thread uses the queue; another may
 * make the lists. */
#ifndef CACHE_PREFIX_BLOCK_QUEUE_H
#define CACHE_PREFIX_BLOCK_QUEUE_H

#include "base/list.h"
#include "cache/prefix/block_events.h"

/* One slice takes some tens of microseconds to apply. */
#define BLOCK_SLICE 128

struct block_list { /* the events of one message, in order; heap */
    struct list node;
    uint32_t source;            /* the worker, by the reader's number */
    bool is_snapshot;           /* part of a snapshot: lists the worker's blocks, reports no change */
    bool is_anew;               /* the reader forgets the worker's blocks first */
    uint32_t n, at;             /* those before `at` are applied */
    const uint8_t *tiers;       /* [n] enum block_tier */
    struct block_hash hashes[]; /* [n], followed by the tiers */
};

struct block_slice { /* a part of one list; borrowed */
    uint32_t source;
    const struct block_hash *hashes; /* [n], n <= BLOCK_SLICE */
    const uint8_t *tiers;            /* [n] enum block_tier */
    size_t n;
    bool is_snapshot;
};

struct block_queue_calls {
    void (*apply)(void *arg, const struct block_slice *slice); /* may drop and forget, but not work */
    void (*forget)(void *arg, uint32_t source);                /* all blocks of this worker */
    void *arg;
};

struct block_queue {
    struct block_queue_calls calls;
    struct list lists;
    size_t n_blocks, n_lists; /* of the lists in the queue, applied blocks included */
};

/* Copies n events; hashes may be unaligned.
 * Heap, owned by the caller, who frees it with free(); NULL: no memory. */
struct block_list *block_list_new(uint32_t source, const uint8_t *hashes, const uint8_t *tiers, uint32_t n);

void block_queue_init(struct block_queue *queue, const struct block_queue_calls *calls);
void block_queue_fini(struct block_queue *queue); /* drops all; zeroed or initialised */
/* Takes the list.  If is_anew is set, it first does the same as block_queue_forget(). */
void block_queue_add(struct block_queue *queue, struct block_list *list);
/* Applies slices until `most` blocks are applied; a list counts as one more.  True: more are pending. */
bool block_queue_work(struct block_queue *queue, size_t most);
/* Drops the worker's pending events, and calls forget. */
void block_queue_forget(struct block_queue *queue, uint32_t source);

#endif
