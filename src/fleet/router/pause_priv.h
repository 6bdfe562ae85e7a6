/* SPDX-License-Identifier: Apache-2.0 */
/* Streams that are paused for a request of a higher class (pause.c). */
#ifndef FLEET_ROUTER_PAUSE_PRIV_H
#define FLEET_ROUTER_PAUSE_PRIV_H

#include "base/event/loop.h"
#include "base/list.h"
#include "base/metrics/metrics.h"
#include "fleet/picker/pause.h"
#include "fleet/router/job_priv.h"
#include "fleet/router/workers_priv.h"

struct model_pauses {                       /* of one model's jobs */
    struct list paused[PICKER_MAX_CLASSES]; /* jobs in PAUSED, the first paused first */
    struct list seated[PICKER_MAX_CLASSES]; /* jobs whose streams may be paused, the youngest first */
    uint64_t failed_ns;                     /* time of the latest failed attempt for a waiting job */
};

struct router_pauses { /* pause.c */
    struct model_pauses models[ROUTER_MAX_MODELS];
    uint32_t n_paused;
    struct picker_pause_budget budget;
    struct ev_timer *turn; /* tries again with the next budget; NULL: the owner calls router_place_queued() */
    struct metric *m_begun[PICKER_MAX_CLASSES], *m_now, *m_seconds; /* pauses, streams in one, their times */
};

void router_pause_open(struct router *router);
void router_pause_declare(struct router *router);
/* Call it when the job has left the state `was`. */
void router_pause_track(struct job *job, enum job_state was);
/* Pauses streams of lower classes and places the job, which has not begun, in their seat.  False: not possible. */
bool router_pause_for(struct job *job);
/* True if a paused stream of its model must be placed before this new job. */
bool router_pause_is_first(const struct job *job);
/* Places the next paused stream of the class.  False: none can be placed now. */
bool router_pause_go_on(struct router *router, struct router_model *model, uint32_t class_at);
void router_pause_tick(struct router *router);
/* The time between tokens that a job's placement must keep: its own and, if it may be paused, that of the higher
 * classes with streams of its model. */
uint64_t router_pause_itl_ns(const struct job *job);

#endif
