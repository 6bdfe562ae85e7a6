/* SPDX-License-Identifier: Apache-2.0 */
/* Limits that are common to several routers: the router's side of it (spending.c). */
#ifndef FLEET_ROUTER_SPENDING_PRIV_H
#define FLEET_ROUTER_SPENDING_PRIV_H

#include "fleet/router/router_priv.h"

struct common_limits;

int router_spending_open(struct router *router, const uint8_t key[32]); /* E_NOMEM */
void router_spending_close(struct router *router);
struct common_limits *router_spending_common(const struct router *router); /* NULL: none */
void router_spending_worker_up(struct router *router, uint32_t slot);
void router_spending_worker_down(struct router *router, uint32_t slot);
void router_spending_hear(struct router *router, uint32_t slot, const Baton__Spending *spending);
void router_spending_tick(struct router *router);

#endif
