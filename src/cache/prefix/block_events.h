/* SPDX-License-Identifier: Apache-2.0 */
/* Block events: a worker's messages about its cached blocks, and how a reader notices missing ones.
 *
 *    worker:  pool --came, moved, went--> block_log --numbered--> BLOCK_EVENTS --> every router
 *    router:  BLOCK_EVENTS --> block_follower --> apply | drop | forget everything first | ask for everything
 *
 * Events are numbered from 1 in each life of a worker.  The writer may lose events at any time (no memory, a
 * full mailbox, a link that was down).  The numbers go on, so the reader sees the gap and asks for a
 * snapshot.  A snapshot names the number of the next event.  A reader that has all of its parts follows from
 * there.  The reader also asks for a snapshot periodically, because its knowledge expires.
 *
 * No I/O, no clock; one thread each. */
#ifndef CACHE_PREFIX_BLOCK_EVENTS_H
#define CACHE_PREFIX_BLOCK_EVENTS_H

#include "cache/prefix/block_hash.h"

enum block_tier { /* the best place where a block is now; the wire's BlockTier */
                  BLOCK_GONE = 0,
                  BLOCK_IN_MEMORY = 1,
                  BLOCK_ON_DISK = 2
};

struct block_event {
    struct block_hash hash;
    uint8_t tier; /* enum block_tier */
};

/* Events in one message, at most, as the writer splits a report.  A reader receives a message whole (35 KB), and all
 * of its streams wait meanwhile: 16 times as many took 1.5 ms of a router's loop, and 4.7 ms with a full queue. */
#define BLOCK_PART_EVENTS 2048u

/* ---- the writer ---- */

struct block_log { /* zeroed: empty, before event 1 */
    struct block_event *events;
    uint32_t n_events, cap_events;
    uint64_t n_before; /* number of events before these, lost ones included */
};

void block_log_add(struct block_log *log, const struct block_hash *hash, enum block_tier tier);
/* Takes the events out: a heap array that the caller owns, NULL when there are none.  The log is empty
 * afterwards and its numbers go on. */
struct block_event *block_log_take(struct block_log *log, uint32_t *n_out, uint64_t *first_number_out);
uint64_t block_log_next(const struct block_log *log); /* the number of the next event */
void block_log_fini(struct block_log *log);

/* ---- the reader ---- */

enum block_follow {
    FOLLOW_DROP,    /* known already, or useless before the snapshot */
    FOLLOW_APPLY,   /* the next events: apply them */
    FOLLOW_REPLACE, /* a snapshot begins: forget everything of this worker, then apply */
    FOLLOW_ASK      /* drop them and ask for a snapshot */
};

enum block_follower_state {
    FOLLOWER_IDLE,    /* no link, nothing is known */
    FOLLOWER_ASKING,  /* a snapshot was requested; earlier events are useless */
    FOLLOWER_READING, /* some parts of the snapshot have arrived */
    FOLLOWER_LIVE     /* everything up to the next number is known */
};

struct block_follower { /* zeroed: IDLE */
    enum block_follower_state state;
    uint64_t next_number;
    uint32_t next_part;
    uint64_t asked_ns;
};

struct block_part { /* the header of one message */
    uint64_t first_number;
    uint32_t n_events;
    bool is_snapshot, is_last;
    uint32_t part;
};

void block_follower_begin(struct block_follower *follower, uint64_t now_ns); /* link up; ask */
void block_follower_end(struct block_follower *follower);                    /* link down */
/* After FOLLOW_ASK the caller asks for a snapshot. */
enum block_follow block_follower_feed(struct block_follower *follower, const struct block_part *part,
                                      uint64_t now_ns);
/* True: the caller asks for a snapshot (again), because none came or the last is older than refresh_ns.  The
 * follower then counts it as asked. */
bool block_follower_is_due(struct block_follower *follower, uint64_t refresh_ns, uint64_t now_ns);

#endif
