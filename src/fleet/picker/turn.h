/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the router's queue, without the queue: which waiting request is tried next, and which placement it
 * accepts.  Pure functions over base/fair.h; the router and the simulator call the same code. */
#ifndef FLEET_PICKER_TURN_H
#define FLEET_PICKER_TURN_H

#include "base/fair.h"
#include "fleet/picker/picker.h"

/* How many tokens a tenant with running requests may be behind the others (base/fair.h). Under admission control
 * the queue is short, so a tenant often has nothing waiting although it uses its share. */
#define PICKER_TURN_CREDIT 16384

struct picker_patience {
    uint64_t ttft_slo_ns, queue_timeout_ns;
    bool is_waiting; /* it is in the queue, since waited_ns */
    uint64_t waited_ns;
    bool is_full;          /* the queue has no room */
    bool is_refused_early; /* it is refused rather than kept beyond its limit (fleet/picker/admit.h) ... */
    bool takes_any;        /* ... and this is the last attempt before */
};

/* A request accepts any worker where it begins at once if it cannot keep its objective anyway: because of the
 * workers' current speed, its own wait, or a full queue. */
enum picker_yield picker_yield_for(const struct picker_patience *patience);

/* The order within a tenant's line: by deadline, which is the arrival plus the limit of the first token. So a short
 * prompt passes long ones until they have aged. Among equal deadlines (10 ms), mostly cached prompts go first. */
uint64_t picker_turn_order(uint64_t arrived_ns, double limit_s, bool is_warm);

struct picker_turn { /* one queue and its owner's functions */
    struct fair *turns;
    void *arg;
    /* Tries to place the request now; on success it leaves the line.  picker_pick()'s codes. */
    int (*try_place)(void *arg, struct fair_item *item);
    /* True if try_place()'s code means that no connected worker could ever run the request.  Other requests must
     * not wait for it.  NULL: never. */
    bool (*is_odd)(void *arg, struct fair_item *item, int rc);
    void (*make_odd)(void *arg, struct fair_item *item, int rc); /* takes it out of the line */
    uint32_t *(*passed)(void *arg, struct fair_item *item);      /* requests placed while it was in front */
    uint32_t max_passed;                                         /* limit of that number; 0: 64 */
};

/* Under admission control a request in front waits for time at a worker, and a shorter one that passes takes that
 * time.  So the limit is one pass for each four workers of the model. */
uint32_t picker_turn_max_passed(uint32_t n_workers);

/* Places one request, or removes an odd one, and returns true: call it again.  False: none can be placed now.  When
 * a tenant's first request cannot be placed, it tries the first requests of a few other tenants.  After max_passed
 * passes no request may pass the first one, so a large request gets its room. */
bool picker_turn_next(const struct picker_turn *turn);

#endif
