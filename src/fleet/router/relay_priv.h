/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between routers that share workers and no store (relay.c).  Loop thread. */
#ifndef FLEET_ROUTER_RELAY_PRIV_H
#define FLEET_ROUTER_RELAY_PRIV_H

#include "fleet/router/router_priv.h"

int router_relay_open(struct router *router, struct fault *fault); /* E_NOMEM */
void router_relay_close(struct router *router);
/* True if a worker that relays has other routers.  False without router_relay_open(). */
bool router_relay_has_others(const struct router *router);
/* The routers of a worker, or the workers, have changed. */
void router_relay_changed(struct router *router);
void router_relay_send(struct router *router, struct bytes received);
void router_relay_receive(struct router *router, const Baton__RouterMessage *received);

#endif
