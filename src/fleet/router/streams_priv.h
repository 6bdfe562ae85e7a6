/* SPDX-License-Identifier: Apache-2.0 */
/* Streams in the store that routers share: for clients that return to a router which has not their stream's worker
 * (streams.c).  Loop thread.  Without a store the calls do nothing. */
#ifndef FLEET_ROUTER_STREAMS_PRIV_H
#define FLEET_ROUTER_STREAMS_PRIV_H

#include "fleet/router/router_priv.h"

void router_streams_keep(struct job *job); /* it was placed: keeps its order, once */
/* The job is freed: its order is kept for a minute if its answer ended or its client was left, else removed. */
void router_streams_over(struct job *job);
/* Asks for the order of a job in RESUMING, once, and goes on with it.  False: there is nothing to ask. */
bool router_streams_ask(struct job *job);
void router_streams_unask(struct job *job); /* the job leaves RESUMING: the question ends without an answer */
/* Another router continues the stream, and has its order in the store. */
void router_streams_moved(struct job *job);

#endif
