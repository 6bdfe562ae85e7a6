/* SPDX-License-Identifier: Apache-2.0 */
/* The writer and the reader of block events (block_events.h).
 *
 * The log is bounded, because no events leave it while the mailbox to the loop is full, and one snapshot
 * replaces the events of a thousand steps.  Beyond MAX_EVENTS, or without memory, it drops its events and
 * keeps only their number.
 *
 *    IDLE --begin--> ASKING --part 0--> READING --last part--> LIVE
 *                      ^                   |                     |
 *                      +---- another part than the next ---------+-- a gap */
#include "cache/prefix/block_events.h"

#include <stdlib.h>

#define MAX_EVENTS (1u << 16)
#define AGAIN_NS   UINT64_C(2000000000)

static void block_events_lose(struct block_log *log)
{
    log->n_before += log->n_events;
    log->n_events = 0;
}

void block_log_add(struct block_log *log, const struct block_hash *hash, enum block_tier tier)
{
    if (log->n_events >= MAX_EVENTS)
        block_events_lose(log);
    if (log->n_events == log->cap_events) {
        uint32_t cap = log->cap_events ? 2 * log->cap_events : 64;
        struct block_event *grown = realloc(log->events, cap * sizeof(*grown));

        if (grown == NULL) {
            block_events_lose(log);
            log->n_before++;
            return;
        }
        log->events = grown;
        log->cap_events = cap;
    }
    log->events[log->n_events++] = (struct block_event){.hash = *hash, .tier = (uint8_t)tier};
}

struct block_event *block_log_take(struct block_log *log, uint32_t *n_out, uint64_t *first_number_out)
{
    struct block_event *events = log->events;

    if (log->n_events == 0)
        return NULL;
    *n_out = log->n_events;
    *first_number_out = log->n_before + 1;
    block_events_lose(log);
    log->events = NULL;
    log->cap_events = 0;
    return events;
}

uint64_t block_log_next(const struct block_log *log)
{
    return log->n_before + log->n_events + 1;
}

void block_log_fini(struct block_log *log)
{
    free(log->events);
    *log = (struct block_log){0};
}

/* ---- the reader ---- */

void block_follower_begin(struct block_follower *follower, uint64_t now_ns)
{
    *follower = (struct block_follower){.state = FOLLOWER_ASKING, .asked_ns = now_ns};
}

void block_follower_end(struct block_follower *follower)
{
    *follower = (struct block_follower){0};
}

static enum block_follow block_events_ask(struct block_follower *follower, uint64_t now_ns)
{
    block_follower_begin(follower, now_ns);
    return FOLLOW_ASK;
}

static enum block_follow block_events_feed_snapshot(struct block_follower *follower,
                                                    const struct block_part *part, uint64_t now_ns)
{
    bool is_first = part->part == 0;

    if (follower->state == FOLLOWER_IDLE)
        return FOLLOW_DROP;
    if (!is_first && follower->state == FOLLOWER_ASKING)
        return FOLLOW_DROP; /* part of a snapshot whose beginning was lost; another one is on its way */
    if (!is_first && (follower->state != FOLLOWER_READING || part->part != follower->next_part ||
                      part->first_number != follower->next_number))
        return block_events_ask(follower, now_ns);
    follower->state = part->is_last ? FOLLOWER_LIVE : FOLLOWER_READING;
    follower->next_number = part->first_number;
    follower->next_part = part->part + 1;
    return is_first ? FOLLOW_REPLACE : FOLLOW_APPLY;
}

enum block_follow block_follower_feed(struct block_follower *follower, const struct block_part *part,
                                      uint64_t now_ns)
{
    if (part->is_snapshot)
        return block_events_feed_snapshot(follower, part, now_ns);
    switch (follower->state) {
    case FOLLOWER_IDLE:
    case FOLLOWER_ASKING:
        return FOLLOW_DROP;
    case FOLLOWER_READING: /* parts arrive in order, so the rest of them is lost */
        return block_events_ask(follower, now_ns);
    case FOLLOWER_LIVE:
        break;
    }
    if (part->first_number == follower->next_number) {
        follower->next_number += part->n_events;
        return FOLLOW_APPLY;
    }
    if (part->first_number + part->n_events <= follower->next_number)
        return FOLLOW_DROP;
    return block_events_ask(follower, now_ns);
}

bool block_follower_is_due(struct block_follower *follower, uint64_t refresh_ns, uint64_t now_ns)
{
    uint64_t wait_ns = follower->state == FOLLOWER_LIVE ? refresh_ns : AGAIN_NS;

    if (follower->state == FOLLOWER_IDLE || now_ns - follower->asked_ns < wait_ns)
        return false;
    follower->asked_ns = now_ns;
    return true;
}
