/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that go ahead to workers, which have not begun them (ahead.c).  Loop thread. */
#ifndef FLEET_ROUTER_AHEAD_PRIV_H
#define FLEET_ROUTER_AHEAD_PRIV_H

#include "fleet/picker/place.h"
#include "fleet/router/router_priv.h"

/* The job was placed, and its worker has not begun it.  May be repeated. */
void router_ahead_enter(struct job *job);
/* The worker has begun the job, or the job leaves.  May be repeated. */
void router_ahead_leave(struct job *job);
/* True if the job is placed although no placement keeps the objectives: its tenant gets a turn at the worker before the
 * backlog of others.  place has the best choice, and gets another one if the job goes there.  is_judged: admission asks
 * whether the job may wait for that. */
bool router_ahead_goes(struct job *job, struct picker_place *place, bool is_judged);
/* Routers that use these workers, this one included, as far as it knows. */
uint32_t router_ahead_n_routers(const struct router *router);

#endif
