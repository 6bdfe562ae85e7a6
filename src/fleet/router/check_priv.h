/* SPDX-License-Identifier: Apache-2.0 */
/* A check of the network between all daemons (check.c). Loop thread. */
#ifndef FLEET_ROUTER_CHECK_PRIV_H
#define FLEET_ROUTER_CHECK_PRIV_H

#include "fleet/router/router_priv.h"

/* Asks each connected worker to connect to the router and to all others. E_AGAIN: a check runs. E_NOMEM. */
int router_check_begin(struct router *router, struct fault *fault);
void router_check_receive(struct router *router, uint32_t slot, const Baton__Probed *probed);
/* Appends the check's head (row -1) or one worker's findings. E_NOT_FOUND. */
int router_check_json(struct router *router, int32_t row, struct buf *out);
void router_check_free(struct router *router);

#endif
