/* SPDX-License-Identifier: Apache-2.0 */
/* Work over many jobs, in slices of a loop turn (slices.c). */
#ifndef FLEET_ROUTER_SLICES_PRIV_H
#define FLEET_ROUTER_SLICES_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "fleet/picker/picker.h"

struct job;
struct router;

enum router_slice {
    SLICE_SWEEP,  /* all jobs, after a worker was lost or came up (stream.c) */
    SLICE_PLACE,  /* waiting jobs: places as many as possible (queue.c); waits for SWEEP */
    SLICE_TIMED,  /* jobs in one of JOB_TIMED: ends what took too long (stream.c) */
    SLICE_EXPIRE, /* waiting jobs: refuses those that waited for too long (refusals.c) */
    SLICE_KINDS
};

struct router_walk {   /* through a list whose nodes may leave it between two steps.  Zeroed: at no node */
    struct list *next; /* NULL: it has not begun */
};

struct router_slices {
    uint64_t most_ns;          /* of a loop turn; 0: no limit, each kind ends before its call returns */
    uint64_t turn, spent_ns;   /* the latest loop turn with such work, and what it took */
    bool is_running, has_turn; /* has_turn: router_turn_soon() started the timer */
    uint32_t asked, begun;     /* kinds, as bits: to begin; to go on with */
    unsigned first;            /* kind that the next slice begins with */
    struct router_walk jobs, odd, timed, queue;
    uint32_t model;               /* PLACE: 0: odd jobs, else jobs of the model before this number */
    struct picker_slots came, up; /* workers that came up: for the next sweep; for the present one */
};

/* Does the work now, as far as the loop turn's time allows, and the rest in the next turns.  Called from within such
 * work, it is done after that. */
void router_slices_ask(struct router *router, enum router_slice kind);
void router_slices_go(struct router *router); /* the loop's next turn: goes on with what is left */
/* The loop's next turn goes on with deferred work of any kind. */
void router_turn_soon(struct router *router);
/* True if the work begins anew after what is under way. */
bool router_slices_is_asked(const struct router *router, enum router_slice kind);

/* The next node; NULL: the walk is over, and the next step begins a new one. */
struct list *router_walk_step(struct router_walk *walk, struct list *head);
/* Call it before the job leaves these lists. */
void router_slices_leave_queue(struct job *job);
void router_slices_leave_timed(struct job *job);
void router_slices_leave(struct job *job); /* all of them */

/* One step of each kind: the next job, or the next few of a line.  False: all were visited. */
bool router_stream_sweep_step(struct router *router);
bool router_place_step(struct router *router);
bool router_stream_timed_step(struct router *router);
bool router_expire_step(struct router *router);

#endif
