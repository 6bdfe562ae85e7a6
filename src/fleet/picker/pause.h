/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the running streams to pause, so that a request of a higher class gets a decode seat at their worker.
 *
 * A paused stream gives back its seat, its blocks and its part of the step.  The worker caches the blocks until it
 * needs them.  The stream continues later, on this or another worker, with the same tokens.
 *
 * Pure functions. */
#ifndef FLEET_PICKER_PAUSE_H
#define FLEET_PICKER_PAUSE_H

#include "fleet/picker/classes.h"
#include "fleet/picker/place.h"

#define PICKER_MAX_PAUSED 8  /* most streams that are paused for one request */
#define PICKER_PAUSE_COST 10 /* placements that one pause tries, at most */

/* Bounds of the streams' owner, the same in the router and in the simulator. */
#define PICKER_PAUSE_LOOKED   1024               /* streams that a request visits, at most */
#define PICKER_PAUSE_STREAMS  128                /* and considers */
#define PICKER_PAUSE_GO_ON    4                  /* paused streams that are tried in one call */
#define PICKER_PAUSE_RETRY_NS UINT64_C(10000000) /* between a failed attempt and the next one */

struct picker_stream {                    /* one running stream that may be paused */
    const struct picker_booking *booking; /* at its decode worker */
    uint32_t context_tokens;
};

struct picker_pause {
    uint32_t n;
    uint32_t chosen[PICKER_MAX_PAUSED]; /* indices of streams, all on one worker */
};

/* Chooses the least number of streams to pause, so that picker_place_choose() can place the request at their worker
 * within the goals.  The streams are in the order in which to pause them.  Sets the place's choice and does not
 * change the fleet.  False: no pause helps. */
bool picker_pause_choose(struct picker_place *place, const struct picker_goals *goals,
                         const struct picker_stream *streams, uint32_t n_streams, struct picker_pause *out);

/* ---- the rules of the streams' owner ---- */

struct picker_pause_past { /* a stream's pauses; zeroed: none */
    uint32_t n;
    uint32_t went_on_at; /* tokens answered when the latest one ended */
    uint64_t paused_ns;  /* of those that are over, all together */
};

/* True if a running stream with so many answered tokens may be paused: it has begun, has made progress since its
 * latest pause, and has pause time left.  most_ns: that of its class. */
bool picker_pause_may(const struct picker_pause_past *past, uint32_t answered, uint64_t most_ns);
/* The time between tokens that a placement of this class must keep: its own and, if it may be paused, that of the
 * higher classes with sequences at workers.  n_at_workers: of each class. */
uint64_t picker_pause_itl_ns(const struct picker_classes *classes, uint32_t class_at,
                             const uint32_t n_at_workers[PICKER_MAX_CLASSES]);

/* Placements tried for pauses and for streams that continue: a bounded number in each interval. Zeroed: none yet. */
struct picker_pause_budget {
    uint64_t since_ns;
    uint32_t n_tried;
};

#define PICKER_PAUSE_BUDGET_NS UINT64_C(10000000) /* the interval */

/* Takes n placements from the budget.  False: it has too few until since_ns + PICKER_PAUSE_BUDGET_NS. */
bool picker_pause_affords(struct picker_pause_budget *budget, uint32_t n, uint64_t now_ns);

#endif
