/* SPDX-License-Identifier: Apache-2.0 */
/* Block events: what a worker tells about its cached blocks, and how a reader notices that it missed some.
 *
 *   worker:  pool --came, moved, went--> block_log --numbered--> BLOCK_EVENTS --> every router
 *   router:  BLOCK_EVENTS --> block_follower --> apply | drop | forget everything first | ask for everything
 *
 * Events are numbered from 1 in each life of a worker.  The writer may lose events at any time (no memory, a
 * full mailbox, a link that was down): the numbers go on, so the reader sees the gap and asks for a snapshot.
 * A snapshot names the number of the event that comes next, and whoever read all of its parts follows from
 * there.  A snapshot is also asked for now and then without a gap: what a reader believes expires.
 *
 * No I/O, no clock; one thread each. */
#ifndef CACHE_PREFIX_BLOCK_EVENTS_H
#define CACHE_PREFIX_BLOCK_EVENTS_H

#include "cache/prefix/block_hash.h"

enum block_tier { /* where a block is now, at best; the wire's BlockTier */
                  BLOCK_GONE = 0,
                  BLOCK_IN_MEMORY = 1,
                  BLOCK_ON_DISK = 2
};

struct block_event {
    struct block_hash hash;
    uint8_t tier; /* enum block_tier */
};

/* ---- the writer ---- */

struct block_log { /* zeroed: empty, before event 1 */
    struct block_event *events;
    uint32_t n_events, cap_events;
    uint64_t n_before; /* events before these, those lost included */
};

void block_log_add(struct block_log *log, const struct block_hash *hash, enum block_tier tier);
/* Hands the events over: heap, the caller's, NULL when there are none.  The log is empty then and numbers go
 * on. */
struct block_event *block_log_take(struct block_log *log, uint32_t *n_out, uint64_t *first_number_out);
uint64_t block_log_next(const struct block_log *log); /* the number of the event that comes next */
void block_log_fini(struct block_log *log);

/* ---- the reader ---- */

enum block_follow {
    FOLLOW_DROP,    /* known already, or of no use before the snapshot */
    FOLLOW_APPLY,   /* the next ones */
    FOLLOW_REPLACE, /* a snapshot begins: forget everything of this worker, then apply */
    FOLLOW_ASK      /* drop them, and ask for a snapshot */
};

enum block_follower_state {
    FOLLOWER_IDLE,    /* no link, nothing is known */
    FOLLOWER_ASKING,  /* a snapshot was asked for; events before it are of no use */
    FOLLOWER_READING, /* some of its parts are here */
    FOLLOWER_LIVE     /* everything up to the next number is known */
};

struct block_follower { /* zeroed: IDLE */
    enum block_follower_state state;
    uint64_t next_number;
    uint32_t next_part;
    uint64_t asked_ns;
};

struct block_part { /* what came in one message */
    uint64_t first_number;
    uint32_t n_events;
    bool is_snapshot, is_last;
    uint32_t part;
};

void block_follower_begin(struct block_follower *follower, uint64_t now_ns); /* link up: the caller asks */
void block_follower_end(struct block_follower *follower);                    /* link down */
/* After FOLLOW_ASK the caller asks. */
enum block_follow block_follower_feed(struct block_follower *follower, const struct block_part *part,
                                      uint64_t now_ns);
/* Whether to ask (again): a snapshot does not come, or the last is older than refresh_ns.  True counts as
 * asked. */
bool block_follower_is_due(struct block_follower *follower, uint64_t refresh_ns, uint64_t now_ns);

#endif
