/* SPDX-License-Identifier: Apache-2.0 */
/* Margins of predictions, which routers of the same workers keep alike (margins.c).  Loop thread. */
#ifndef FLEET_ROUTER_MARGINS_PRIV_H
#define FLEET_ROUTER_MARGINS_PRIV_H

#include "fleet/router/router_priv.h"

enum { MARGINS_ROW_BYTES = 16, MARGINS_MAX_ROWS = 256 };

/* Appends rows for each model that has learned since the last call. */
void margins_pack(struct router *router, struct buf *margins, struct buf *moves);
/* Forgets how far the margins moved: the others learned the same meanwhile. */
void margins_skip(struct router *router);
/* Moves this router's margins towards those of another router. */
void margins_receive(struct router *router, struct bytes section);
/* Moves them as that router's samples moved its own. */
void margins_receive_moves(struct router *router, struct bytes section);

#endif
