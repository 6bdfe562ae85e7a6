/* SPDX-License-Identifier: Apache-2.0 */
/* Admission: objectives and classes of jobs, and which jobs may wait for a turn (admission.c). Loop thread. */
#ifndef FLEET_ROUTER_ADMISSION_PRIV_H
#define FLEET_ROUTER_ADMISSION_PRIV_H

#include "fleet/router/router_priv.h"

/* admission.c */
void router_admission_declare(struct router *router);
void router_refused(const struct job *job, enum refusal_reason reason); /* counts it, keeps it for `why` */
/* False while a worker that could hold the job may come back: the router or that worker was restarted. */
bool router_size_is_final(const struct job *job);
void router_refuse_size(struct job *job); /* refusals.c: a waiting job that no connected worker could hold */
/* The job's objectives; whether its class may have one more job in the queue. */
struct picker_class router_job_class(const struct job *job);
bool router_class_has_room(const struct job *job);
int router_classes_open(struct router *router, struct fault *fault); /* E_FORMAT */
bool router_admission_predicts(const struct router *router);
/* The objectives of its placement. */
void router_admission_goals(const struct job *job, struct picker_goals *goals);
uint32_t router_admission_answer(const struct job *job); /* tokens still expected of its answer */
void router_admission_wrote(struct job *job);            /* tells the ledger how far its answer is */
void router_admission_placed(struct job *job, bool is_owed);
void router_admission_first_token(struct job *job); /* once, while predicted_s > 0 */
void router_admission_ended(struct job *job);       /* its answer ended by itself */
/* True if the job may wait for its turn. False: its first token would come too late. */
bool router_admission_takes(struct job *job, uint32_t *retry_s_out);
/* Seconds after which the client of a job that is refused for another reason may retry: the fleet then has a seat, and
 * has served the requests refused before.  Those of a class's share have a schedule of the class, which delays no
 * other class. */
uint32_t router_admission_come_back_s(struct job *job, enum refusal_reason reason);
/* Places the job on an idle worker that can begin it, even if it misses the objectives.  False: there is none. */
bool router_admission_last_resort(struct job *job);
/* True if router_admission_is_late() ends the job's wait, instead of queue.timeout. */
bool router_admission_bounds(const struct job *job);
/* True if a waiting job would miss its limit even if it began now. */
bool router_admission_is_late(const struct job *job, uint64_t now_ns);

#endif
