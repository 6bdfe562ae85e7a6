/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that go ahead: a worker gets them before it can begin them, although no placement keeps the objectives.
 *
 *     placed --picker_ahead_enter()--> waits at its worker --the worker begins it, or it ends--> picker_ahead_leave()
 *
 * This does not undo the order of the router's queue, because the workers' schedulers take turns too:
 *
 * - A tenant with nothing waiting at a worker begins there at once.  So its request is placed even if other tenants'
 *   backlog breaks the objectives: one at a time, while the worker has a seat.  Not under admission by prediction: a flood
 *   would have one there all the time, while others are refused and have none in the queue.
 * - Where sequences of other routers fill a worker's seats, each router keeps a few requests waiting there.  Then the
 *   worker gives the next seat, by tenant and weight, and its turns are common to all routers.  Without them the seat
 *   would go to the router that hears of it first.  They are a few, because several sequences may end in one step, and
 *   the next request comes a message later.
 * - Where other routers' sequences break the objectives before the seats are full, and are more than this router's, one
 *   request for each worker goes ahead, if the whole queue there lets it begin in time.  Those routers take the time that
 *   becomes free, so a request that waits here may wait for ever.  It may use its whole limit, without the margin that it
 *   was admitted with: otherwise it would stay the more surely the longer it has waited.  But where the time between tokens
 *   is what breaks, the margin counts, because each sequence more makes all answers of the worker late.  Where other tenants
 *   are served too, two of their prompts may overtake it for each one in the queue.
 * - Where a tenant had less service than tenants of other routers, a few of its requests for each worker go ahead: the
 *   workers' turns favour it, whatever this router's queue predicts.  It gets at least every second turn, so its request
 *   begins after its own prompts that are ahead and as many of others.  Where that is too late, it does not go: requests
 *   that all workers favour and none begins in time would be late, and make those of others late.  The same holds for the
 *   time between tokens, which it may exceed by a tenth.  The requests are spread
 *   over the workers, because a worker gives the tenant its turns only while one of them waits there.
 *
 * Under admission by prediction the requests of the second and the third rule are those whose turn was predicted to come in
 * time.  One of the fourth is not refused for its prediction, which counts the whole queue of the workers.
 *
 * Pure functions: no clock, no I/O, no randomness.  The router and the simulator link the same code. */
#ifndef FLEET_PICKER_AHEAD_H
#define FLEET_PICKER_AHEAD_H

#include "fleet/picker/admit.h"
#include "fleet/picker/service.h"

struct picker_ahead { /* requests of one model, placed by this router, that their workers have not begun */
    uint32_t n, n_tenants;
};

struct picker_lines {                     /* the same requests of all models, by worker; zeroed: none */
    uint32_t n[PICKER_MAX_WORKERS];       /* that will decode there ... */
    struct picker_slots full;             /* ... where enough of them wait for a seat */
    uint32_t n_reads[PICKER_MAX_WORKERS]; /* whose prompts it will compute */
};

struct picker_ahead_entry {
    uint32_t decode;   /* its decode worker; PICKER_NONE: none */
    uint32_t reads;    /* the worker that computes its prompt */
    uint32_t max_seqs; /* seats there; 0: unknown */
    uint32_t *n_own;   /* the counter of its tenant */
};

/* Counts a request that was placed; uncounts it when its worker has begun it, or it has ended. */
void picker_ahead_enter(struct picker_ahead *ahead, struct picker_lines *lines,
                        const struct picker_ahead_entry *entry);
void picker_ahead_leave(struct picker_ahead *ahead, struct picker_lines *lines,
                        const struct picker_ahead_entry *entry);

struct picker_ahead_turn { /* a request for which no placement keeps the objectives now */
    const struct picker_fleet *fleet;
    const struct picker_lines *lines;
    const struct picker_choice *choice; /* its best placement */
    struct picker_ahead ahead;          /* of its model */
    uint32_t group;
    uint32_t n_own;                     /* of its tenant's requests are ahead */
    uint64_t before_tokens;             /* of its tenant's prompts that wait for a placement before it */
    struct picker_service_view service; /* of its tenant and others, lately */
    double ttft_slo_s;                  /* its objective */
    double waited_s;                    /* since its arrival */
    double itl_slo_s;                   /* its objective between tokens, less the margin of that */
    double margin;                      /* picker_lateness_margin() */
    const struct picker_local_prefill
        *local_prefill;    /* NULL: prefill workers compute all prompts that wait */
    uint32_t n_routers;    /* that use these workers, this one included */
    bool is_refused_early; /* admission by prediction ... */
    bool has_waited;       /* ... has let it wait for its turn, ... */
    bool is_judged;        /* ... or asks now whether it may: only because its tenant is behind */
};

bool picker_ahead_goes(const struct picker_ahead_turn *turn);
/* True if too many requests wait at the workers of the choice, so that another choice is worth asking about: adds the
 * workers that it must not use. */
bool picker_ahead_other(const struct picker_ahead_turn *turn, struct picker_slots *excluded);

#endif
