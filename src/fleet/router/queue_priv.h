/* SPDX-License-Identifier: Apache-2.0 */
/* The router's queue: who waits for a placement, and whose turn it is (queue.c). */
#ifndef FLEET_ROUTER_QUEUE_PRIV_H
#define FLEET_ROUTER_QUEUE_PRIV_H

#include "base/fair.h"
#include "base/list.h"
#include "base/event/loop.h"
#include "base/metrics/metrics.h"

struct gen_handle;
struct router;

struct queue_place {              /* a job's */
    struct fair_flow *flow;       /* its tenant's in model.turns, held for the job's life */
    struct fair_item turn;        /* there, while it waits, and ... */
    struct fair_flow *crowd_flow; /* ... its tenant's in router.turns.crowd, held while it has ... */
    struct fair_item seat;        /* ... this one; or else ... */
    struct list odd;              /* ... it is in router.turns.odd */
    bool is_ahead;                /* at a worker that has not begun it */
    uint32_t n_passed;            /* jobs that were placed while it was before them */
};

struct router_queue {
    struct list odd;            /* jobs that are tried each by itself */
    struct list pushed_out;     /* jobs that are to hear of it, by job.waiting */
    struct fair *crowd;         /* of the others: who has how many in the queue, of any model */
    struct ev_timer *push_turn; /* of telling; NULL: nobody does, but router_queue_tell() */
    uint64_t n_enqueued;
    struct metric *m_tenants, *m_pushed_out, *m_wait_placed, *m_wait_left;
};

int router_queue_open(struct router *router);   /* E_NOMEM */
void router_queue_close(struct router *router); /* no job is left */
int router_queue_enter(struct gen_handle *job); /* a new job: its tenant's account; E_NOMEM */
void router_queue_exit(struct gen_handle *job); /* it goes: what it answered is charged */
/* Its workers got so many tokens to compute. */
void router_queue_charge(struct gen_handle *job, uint64_t n_tokens);
/* Its worker has begun it, or it goes: it is not ahead of others any more.  May be said again. */
void router_queue_begun(struct gen_handle *job);
/* Nobody keeps the objectives for it, and only because of what other tenants have at the workers: there it
 * begins before that, so it need not wait here. */
bool router_queue_is_owed(struct gen_handle *job, uint32_t decode_slot);
/* In its tenant's line, or else (it was placed before) by itself and before all others. */
void router_queue_add(struct gen_handle *job, bool is_again);
void router_queue_remove(struct gen_handle *job, bool is_placed); /* nothing if it is in no queue */
/* Whether there is room for one more; for a tenant that has less in the full queue than another one, that
 * one's newest job makes room. */
bool router_queue_has_room(struct gen_handle *job);
void router_queue_tell(struct router *router);   /* those pushed out */
void router_place_queued(struct router *router); /* as many as can be placed now */

/* dispatch.c: tries to place the job now.  0, E_OVERLOADED, E_NOT_FOUND, E_LIMIT, E_NOMEM. */
int router_job_place(struct gen_handle *job);

#endif
