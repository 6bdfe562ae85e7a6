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
 * backlog of others.  place has the best choice, and gets another one if the job goes there. */
bool router_ahead_goes(struct job *job, struct picker_place *place);

#endif
