/* SPDX-License-Identifier: Apache-2.0 */
/* Which waiting request is tried next, and which placement it accepts: the rules of the router's queue, without
 * the queue.  Pure functions over base/fair.h; the router and the simulator call the same code. */
#ifndef FLEET_PICKER_TURN_H
#define FLEET_PICKER_TURN_H

#include "base/fair.h"
#include "fleet/picker/picker.h"

/* How many tokens a tenant with requests under way may be behind the others (base/fair.h). Under admission control the
 * queue is short, so a tenant often has nothing waiting although it asks for its share. */
#define PICKER_TURN_CREDIT 16384

struct picker_patience {
    uint64_t ttft_slo_ns, queue_timeout_ns;
    bool is_waiting; /* it is in the queue, since waited_ns */
    uint64_t waited_ns;
    bool is_full;          /* the queue has no room */
    bool is_refused_early; /* it is refused rather than kept beyond its limit (fleet/picker/admit.h) ... */
    bool takes_any;        /* ... and this is the last attempt before */
};

/* A request takes any worker where it begins at once, if its objective is broken in any case: by the
 * workers' current speed, by its own wait, or because the queue is full. */
enum picker_yield picker_yield_for(const struct picker_patience *patience);

/* The order within a tenant's line: by deadline, which is the arrival plus the limit of the first token. So a short
 * prompt passes long ones until they have aged. Among equal deadlines (10 ms), mostly cached prompts go first. */
uint64_t picker_turn_order(uint64_t arrived_ns, double limit_s, bool is_warm);

struct picker_turn { /* one queue and its owner's functions */
    struct fair *turns;
    void *arg;
    /* Tries to place the request now; on success it leaves the line.  picker_pick()'s codes. */
    int (*try_place)(void *arg, struct fair_item *item);
    /* Whether no worker that is there could ever run it, by try_place()'s code: other requests must not wait
     * for it.  NULL: never. */
    bool (*is_odd)(void *arg, struct fair_item *item, int rc);
    void (*make_odd)(void *arg, struct fair_item *item);    /* takes it out of the line */
    uint32_t *(*passed)(void *arg, struct fair_item *item); /* requests placed while it was in front */
    uint32_t max_passed;                                    /* so many may be; 0: 64 */
};

/* Under admission control a request in front waits for time at a worker, and a shorter one that passes it takes that
 * time: one may pass for each four workers of the model. */
uint32_t picker_turn_max_passed(uint32_t n_workers);

/* Places one request, or takes an odd one out: then there may be more.  False: none can be placed now.  When a
 * tenant's first request cannot be placed, other tenants' first requests are tried, a few at most.  After a
 * request was passed often enough, none may pass it any more, so a large request gets its room. */
bool picker_turn_next(const struct picker_turn *turn);

#endif
