/* SPDX-License-Identifier: Apache-2.0 */
/* Values that workers keep for all of their routers (kept.c).  Loop thread. */
#ifndef FLEET_ROUTER_KEPT_PRIV_H
#define FLEET_ROUTER_KEPT_PRIV_H

#include "fleet/router/router_priv.h"
#include "net/state/state_values.h"

/* cluster_key: 32 bytes.  E_NOMEM, E_INTERNAL, with the fault. */
int router_kept_open(struct router *router, const uint8_t cluster_key[32], struct fault *fault);
void router_kept_close(struct router *router);
/* None, unless router_kept_open() was called. */
struct state_values router_kept_values(struct router *router);
/* True if a worker did not answer a question in time, so that it is not asked now: a value that was not found may exist. */
bool router_kept_is_late(const struct router *router);
uint32_t router_kept_n_workers(const struct router *router); /* that keep values now */
/* A worker that states it keeps values is up; it is down. */
void router_kept_worker_up(struct router *router, uint32_t slot);
void router_kept_worker_down(struct router *router, uint32_t slot);
void router_kept_worker_drains(struct router *router, uint32_t slot); /* it leaves soon */
void router_kept_listed(struct router *router, uint32_t slot, const Baton__Listed *listed);
void router_kept_receive(struct router *router, uint32_t slot, const Baton__Fetched *fetched);

#endif
