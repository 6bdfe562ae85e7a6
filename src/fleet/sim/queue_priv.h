/* SPDX-License-Identifier: Apache-2.0 */
/* Classes, the queue of a simulated router, and streams that are paused for a higher class.  Shared by front.c,
 * queue.c, pause.c and admit.c. */
#ifndef FLEET_SIM_QUEUE_PRIV_H
#define FLEET_SIM_QUEUE_PRIV_H

#include "fleet/sim/sim_priv.h"

/* Requests of a kind without a class have the first one. */
static inline uint32_t sim_job_class_at(const struct sim *sim, const struct sim_job *job)
{
    return job->request.kind < sim->classes.n ? job->request.kind : 0;
}

static inline const struct picker_class *sim_job_class(const struct sim *sim, const struct sim_job *job)
{
    return &sim->classes.all[sim_job_class_at(sim, job)];
}

/* front.c */
/* Sets goals and sim->place for a choice.  False: no memory, in sim->rc. */
bool sim_front_choose_prepare(struct sim *sim, struct sim_job *job, struct picker_goals *goals);
/* Tries to place the job now: 0, or the picker's code. */
int sim_front_try(struct sim *sim, struct sim_job *job);
void sim_front_refuse(struct sim *sim, struct sim_job *job, enum refusal_reason why);
/* The job leaves its prefill worker (which 0) or its decode worker (1), if it has one. */
void sim_front_leave_worker(struct sim *sim, struct sim_job *job, unsigned which);

/* queue.c */
struct fair *sim_queue_turns(const struct sim_job *job); /* of its class */
/* The job holds its tenant's flow from now on.  False: no memory, in sim->rc. */
bool sim_queue_hold_flow(struct sim *sim, struct sim_job *job);
bool sim_queue_share_is_used(const struct sim *sim,
                             const struct sim_job *job); /* its class has no place left */
/* True if one more request of its class may wait.  In a full queue, the tenant of the class with the most waiting
 * requests makes room for a tenant with fewer. */
bool sim_queue_has_room(struct sim *sim, const struct sim_job *job);
void sim_queue_add(struct sim *sim, struct sim_job *job);
void sim_queue_leave(struct sim_job *job); /* nothing if it does not wait */
void sim_queue_watch(struct sim *sim);     /* sim_queue_expire() is called soon */
void sim_queue_turn(struct sim *sim);      /* places queued requests and paused streams */
void sim_queue_expire(struct sim *sim);    /* refuses what waited too long */

/* pause.c */
void sim_pause_open(struct sim_router *router);
/* Pauses streams of lower classes and places the job, which has not begun, in their seat.  False: not possible, and
 * sim->place.choice is as before. */
bool sim_pause_for(struct sim *sim, struct sim_job *job);
/* True if a paused stream must be placed before this new job. */
bool sim_pause_is_first(const struct sim *sim, const struct sim_job *job);
/* Places the next paused stream of the class.  False: none can be placed now. */
bool sim_pause_go_on(struct sim *sim, struct sim_router *router, uint32_t class_at);
/* Places streams that were paused for as long as their class allows, at the least bad worker. */
void sim_pause_tick(struct sim *sim, struct sim_router *router);
/* The time between tokens that the job's placement must keep. */
uint64_t sim_pause_itl_ns(const struct sim *sim, const struct sim_job *job);
void sim_pause_placed(struct sim *sim, struct sim_job *job); /* the job goes to its workers */
void sim_pause_seat(struct sim *sim, struct sim_job *job);   /* its answer is being decoded */
void sim_pause_unseat(struct sim_job *job);                  /* it leaves its decode worker */
void sim_pause_over(struct sim *sim, struct sim_job *job);   /* its pause, if it is paused */

#endif
