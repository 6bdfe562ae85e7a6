/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that other routers sent through the shared store before this one began to read: the last row of each router
 * and account.  Loop thread. */
#ifndef FLEET_ROUTER_STATE_HISTORY_PRIV_H
#define FLEET_ROUTER_STATE_HISTORY_PRIV_H

#include "fleet/router/router_message_priv.h"
#include "fleet/router/router_priv.h"

struct state_history;

int state_history_new(struct state_history **out);      /* E_NOMEM */
void state_history_free(struct state_history *history); /* accepts NULL */
/* Keeps the rows of a message that is age_ms old.  Call it in the store's order; the latest 2,048 rows are kept.
 * received->node: the name of the router. history may be NULL. */
void state_history_keep(struct state_history *history, const Baton__Spending *received, uint64_t age_ms);
void state_history_goodbye(struct state_history *history,
                           uint64_t epoch); /* the router ended; accepts NULL */
/* Passes all rows to the limits and marks their end.  From then on it watches the routers that may still run. */
void state_history_replay(struct state_history *history, struct router *router);

#endif
