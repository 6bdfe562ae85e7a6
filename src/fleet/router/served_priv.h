/* SPDX-License-Identifier: Apache-2.0 */
/* Service of tenants, which routers report to each other so that turns count it (served.c).  Loop thread. */
#ifndef FLEET_ROUTER_SERVED_PRIV_H
#define FLEET_ROUTER_SERVED_PRIV_H

#include "fleet/router/router_priv.h"

enum { SERVED_MAX_ROWS = 256, SERVED_ROW_BYTES = 32 };

struct served_key {
    uint64_t model, class_of, tenant; /* digests of fingerprint and name; the tenant's number */
};

struct served { /* since the last tick; zeroed: nothing */
    struct served_row {
        struct served_key key;
        uint64_t n_milli; /* thousandths of a token of weight 1 */
    } rows[SERVED_MAX_ROWS];
    uint32_t n; /* at SERVED_MAX_ROWS further tenants are not reported */
};

/* The job's tenant was served n_tokens of its weight. */
void served_note(struct served *served, const struct job *job, uint64_t n_tokens);
void served_pack(struct served *served, struct buf *out); /* appends the rows and forgets them */
/* Charges the service that another router reported to the turns here. */
void served_receive(struct router *router, struct bytes section);

#endif
