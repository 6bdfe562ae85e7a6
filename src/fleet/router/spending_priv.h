/* SPDX-License-Identifier: Apache-2.0 */
/* Limits that several routers share: the router's side (spending.c). */
#ifndef FLEET_ROUTER_SPENDING_PRIV_H
#define FLEET_ROUTER_SPENDING_PRIV_H

#include "fleet/router/router_priv.h"

struct common_limits;
struct common_message;
struct common_row;

int router_spending_open(struct router *router, const uint8_t key[32]); /* E_NOMEM */
void router_spending_close(struct router *router);
struct common_limits *router_spending_common(const struct router *router); /* NULL: none */
void router_spending_worker_up(struct router *router, uint32_t slot);
void router_spending_worker_down(struct router *router, uint32_t slot, bool has_ended); /* its process, too */
void router_spending_receive(struct router *router, uint32_t slot, const Baton__Spending *spending);
void router_spending_tick(struct router *router);
/* The shared store as a view: it is up or away; a router's message from it. */
void router_spending_store_up(struct router *router, bool is_up);
void router_spending_receive_store(struct router *router, const Baton__Spending *spending);
/* A message that the store kept (is_snapshot); router 0 ends these. */
void router_spending_receive_history(struct router *router, const struct common_message *message);
void router_spending_read_row(const Baton__SpendingRow *received, struct common_row *out);
/* A router is silent in the store.  is_over: it has ended; otherwise it may still run. */
void router_spending_silent(struct router *router, uint64_t epoch, bool is_over);

#endif
