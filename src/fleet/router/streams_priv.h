/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of streams in the store that routers share, or with workers, for clients that return to a router whose workers
 * have no tail of the stream (streams.c).  Loop thread. */
#ifndef FLEET_ROUTER_STREAMS_PRIV_H
#define FLEET_ROUTER_STREAMS_PRIV_H

#include "fleet/router/router_priv.h"

void router_streams_keep(struct job *job); /* call it after a placement: keeps the order, once */
/* Call it when the job is freed.  Its order stays if the stream was left to another router or a limit refused it, and in a
 * store for a minute if the answer ended or the failure has a time to come back; otherwise it is removed. */
void router_streams_over(struct job *job);
/* Asks for the order of a job in RESUMING, once, and continues with it; call it again later while the job has no
 * question.  False: there are no workers and no store to ask, or they were asked. */
bool router_streams_ask(struct job *job);
/* Takes a kept order for the job, with the model that began the stream.  E_NOT_FOUND: that model is not here; E_MISMATCH: the
 * order of another body; E_PROTO, E_NOMEM. */
int router_streams_adopt(struct job *job, struct bytes value);
/* backend_ops.restart: the front admits a job in READMITTING. */
void router_streams_restart(void *self, struct gen_handle *handle);
void router_streams_unask(struct job *job); /* drops the question, because the job leaves RESUMING */
/* Another router continues the stream, and has its order in the store. */
void router_streams_moved(struct job *job);

#endif
