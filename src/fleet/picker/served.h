/* SPDX-License-Identifier: Apache-2.0 */
/* Service that a router reports to the others, so that a tenant's turns count it at all of them.  Pure functions; the
 * router and the simulator link the same code. */
#ifndef FLEET_PICKER_SERVED_H
#define FLEET_PICKER_SERVED_H

#include "base/fair.h"

enum { PICKER_SERVED_ROWS = 256 };

struct picker_served_key {
    uint64_t model, class_of, tenant; /* by any numbering that the routers share */
};

struct picker_served { /* since the last report; zeroed: nothing */
    struct picker_served_row {
        struct picker_served_key key;
        uint64_t n_milli; /* thousandths of a token of weight 1: base/fair.h divides by its largest weight */
    } rows[PICKER_SERVED_ROWS];
    uint32_t n; /* at PICKER_SERVED_ROWS further tenants are not reported */
};

/* Thousandths of a token of weight 1, of n_tokens of a request of this weight. */
uint64_t picker_served_milli(uint64_t n_tokens, uint32_t weight);
/* A tenant was served n_tokens of a request of this weight. */
void picker_served_note(struct picker_served *served, const struct picker_served_key *key, uint64_t n_tokens,
                        uint32_t weight);
/* Charges the service that another router reported.  A tenant gets ahead of the others by a bounded amount only, so one
 * that is served elsewhere for hours is not locked out here. */
void picker_served_charge(struct fair *turns, uint64_t tenant, uint64_t n_milli);

#endif
