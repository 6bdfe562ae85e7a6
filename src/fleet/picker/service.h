/* SPDX-License-Identifier: Apache-2.0 */
/* The service that tenants had lately at all routers of the same workers.
 *
 * Each router counts its own service and what the others report (served.h), and all of it fades at the same rate.  So the
 * routers agree on which tenant had less, also after one of them missed a report: the difference between two accounts fades
 * too.  The turns of one router's queue (base/fair.h) cannot say this.  They have a virtual time of their own, which depends
 * on the requests that wait there, and they forget tenants without any.  By these each of four routers took its own tenants
 * to be behind those of the others.
 *
 * Pure functions; the router and the simulator link the same code. */
#ifndef FLEET_PICKER_SERVICE_H
#define FLEET_PICKER_SERVICE_H

#include "fleet/picker/served.h"

enum { PICKER_SERVICE_ROWS = 256 };

struct picker_service { /* zeroed: none */
    struct picker_service_row {
        struct picker_served_key key;
        double n_tokens; /* of weight 1, faded */
    } rows[PICKER_SERVICE_ROWS];
    uint32_t n; /* at PICKER_SERVICE_ROWS the tenant with least makes room */
    uint64_t faded_ns;
};

struct picker_service_view { /* one tenant, among those of its model and class; tokens of weight 1 */
    uint64_t own, most, others;
};

/* n_milli: as in picker_served_row.  now_ns does not go back. */
void picker_service_add(struct picker_service *service, const struct picker_served_key *key, uint64_t n_milli,
                        uint64_t now_ns);
void picker_service_view(struct picker_service *service, const struct picker_served_key *key, uint64_t now_ns,
                         struct picker_service_view *out);

#endif
