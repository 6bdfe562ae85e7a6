/* SPDX-License-Identifier: Apache-2.0 */
/* The router's queue: the jobs that wait for a placement, and their order (queue.c). */
#ifndef FLEET_ROUTER_QUEUE_PRIV_H
#define FLEET_ROUTER_QUEUE_PRIV_H

#include "base/fair.h"
#include "base/list.h"
#include "base/event/loop.h"
#include "base/metrics/metrics.h"
#include "fleet/picker/ahead.h"

struct job;
struct router;

struct queue_waiting { /* jobs of one class, or of several */
    uint64_t n_tokens; /* uncached tokens of their prompts */
    uint32_t n;
};

struct queue_place {                    /* a job's place in the queue */
    struct fair_flow *flow;             /* its tenant's flow in model.turns, held for the job's life */
    struct fair_item turn;              /* its item in that flow while it waits, and ... */
    struct fair_flow *crowd_flow;       /* ... its tenant's flow in router.turns.crowd, held while ... */
    struct fair_item seat;              /* ... it has this item there; or else ... */
    struct list odd;                    /* ... its link in router.turns.odd */
    bool is_ahead;                      /* placed at a worker that has not begun it: ... */
    uint32_t ahead_decode, ahead_reads; /* ... one of these, which decodes or reads its prompt */
    uint32_t n_tokens;                  /* uncached prompt tokens, counted while it waits */
    uint32_t n_passed;                  /* jobs placed while this one was in front of them */
};

struct router_queue {
    struct list odd;           /* jobs that are tried one by one, before the tenants' turns */
    struct picker_lines lines; /* of this router's jobs at workers that have not begun them (ahead.c) */
    struct list pushed_out;    /* jobs whose clients will be refused, linked by job.waiting */
    struct fair *crowd;        /* of the jobs not in odd: how many each tenant has queued, all models
                                 * together */
    struct ev_timer
        *push_turn; /* calls router_queue_fail_pushed() in the loop's next turn; NULL: the owner calls
                                 * it */
    uint64_t n_enqueued;
    struct metric *m_tenants, *m_pushed_out, *m_wait_placed, *m_wait_left;
};

int router_queue_open(struct router *router);   /* Opens the queue.  E_NOMEM. */
void router_queue_close(struct router *router); /* requires that no job is left */
int router_queue_enter(struct job *job);        /* a new job: opens its tenant's account; E_NOMEM */
void router_queue_exit(struct job *job);        /* the job is freed: charges its answer */
/* Charges the tokens that its workers were given to compute. */
void router_queue_charge(struct job *job, uint64_t n_tokens);
/* Returns how many prompt tokens the tenant has in the queue. */
uint32_t router_queue_own(struct router *router, uint64_t tenant);
/* The jobs of its model that are placed before the job, or take turns with it: those of its own and higher classes. */
struct queue_waiting router_queue_before(const struct job *job);
uint64_t router_queue_credit(const struct job *job); /* tokens that its tenant is behind the others */
/* Adds the job to its tenant's line. is_again: it was placed before, so it goes to odd. */
void router_queue_add(struct job *job, bool is_again);
void router_queue_remove(struct job *job, bool is_placed); /* nothing if it is in no queue */
/* True if there is room for one more job.  If the queue is full and another tenant has more in it, that
 * tenant's newest job makes room. */
bool router_queue_has_room(struct job *job);
void router_queue_fail_pushed(struct router *router); /* fails the jobs in pushed_out */
void router_place_queued(struct router *router);      /* places as many as possible, in slices */

/* dispatch.c: tries to place the job now.  0, E_OVERLOADED, E_NOT_FOUND, E_LIMIT, E_NOMEM. */
int router_job_place(struct job *job);

#endif
