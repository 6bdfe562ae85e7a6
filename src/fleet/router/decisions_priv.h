/* SPDX-License-Identifier: Apache-2.0 */
/* The router's latest placements: the reasons of each choice, and the time of its parts.
 *
 * A ring of fixed size.  The router writes it when a job is placed, refused or over; `batonctl why` and `trace`
 * read it.  It has estimates and times, never prompts, answers or tenants.  Loop thread only. */
#ifndef FLEET_ROUTER_DECISIONS_PRIV_H
#define FLEET_ROUTER_DECISIONS_PRIV_H

#include "base/bytes.h"
#include "fleet/picker/place.h"
#include "proto/frame.h"

struct router;
struct job;
struct decisions;

int router_decisions_open(struct router *router); /* E_NOMEM */
void router_decisions_close(struct router *router);
void router_decisions_tick(struct router *router); /* updates the list of candidate workers */

/* The job was placed by this placement; it has its number and its parts. */
void router_decisions_placed(const struct job *job, const struct picker_place *place);
/* The job was refused; reason: static. */
void router_decisions_refused(const struct job *job, const char *reason);
/* Adds a worker's times of an attempt, if its answer has any.  They may arrive after the job's end. */
void router_decisions_times(const struct router *router, uint32_t slot, const Baton__Answer *answer);
/* The attempt is over; error 0: in order. */
void router_decisions_over(const struct job *job, int error);

/* Appends a JSON object with all placements of the request that are still in the ring. E_NOT_FOUND: there is none. */
int router_decisions_json(const struct router *router, const char *request_id, struct buf *out);

/* Appends a JSON object with the latest placements in brief, the newest first. */
int router_decisions_list(const struct router *router, struct buf *out);

#endif
