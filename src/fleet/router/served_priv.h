/* SPDX-License-Identifier: Apache-2.0 */
/* Service of tenants, which routers report to each other so that turns count it (served.c).  Loop thread. */
#ifndef FLEET_ROUTER_SERVED_PRIV_H
#define FLEET_ROUTER_SERVED_PRIV_H

#include "fleet/picker/service.h"
#include "fleet/router/router_priv.h"

enum { SERVED_ROW_BYTES = 32 };

/* The job's tenant was served n_tokens of its weight: notes them for the other routers, and counts them here. */
void served_note(struct picker_served *served, struct picker_service *service, const struct job *job,
                 uint64_t n_tokens);
void served_pack(struct picker_served *served, struct buf *out); /* appends the rows and forgets them */
/* Charges the service that another router reported to the turns here, and counts it. */
void served_receive(struct router *router, struct picker_service *service, struct bytes section);
struct picker_service_view served_view(struct picker_service *service, const struct job *job);

#endif
