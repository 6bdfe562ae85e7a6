/* SPDX-License-Identifier: Apache-2.0 */
/* What other routers told through the shared store before this one began to read: of each router and account the last
 * row.  Loop thread. */
#ifndef FLEET_ROUTER_STATE_HISTORY_PRIV_H
#define FLEET_ROUTER_STATE_HISTORY_PRIV_H

#include "fleet/router/news_priv.h"
#include "fleet/router/router_priv.h"

struct state_history;

int state_history_new(struct state_history **out);      /* E_NOMEM */
void state_history_free(struct state_history *history); /* NULL is fine */
/* Keeps the rows of a message that is age_ms old; the order is that of the store.  At most 2,048 rows are kept, the
 * latest.  told->node: the name of the router.
 * history may be NULL. */
void state_history_keep(struct state_history *history, const Baton__Spending *told, uint64_t age_ms);
void state_history_goodbye(struct state_history *history,
                           uint64_t epoch); /* the router ended; NULL is fine */
/* Lets the limits hear all of it, and that this was all.  Routers that may live are watched from then on. */
void state_history_tell(struct state_history *history, struct router *router);

#endif
