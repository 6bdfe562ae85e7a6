/* SPDX-License-Identifier: Apache-2.0 */
/* Responses that a client cancels at one router and another one runs (cancels.c).  Loop thread. */
#ifndef FLEET_ROUTER_CANCELS_PRIV_H
#define FLEET_ROUTER_CANCELS_PRIV_H

#include "fleet/router/router_priv.h"

/* Asks the other routers (struct front_opts).  False: there is no way to one. */
bool router_cancels_ask(void *router, const char *tenant, struct bytes id, uint64_t number);
/* Another router asks; asker: its epoch. */
void router_cancels_receive(struct router *router, uint64_t asker, struct bytes section);
/* Another router's answer, perhaps to this one. */
void router_cancels_receive_end(struct router *router, struct bytes section);

#endif
