/* SPDX-License-Identifier: Apache-2.0 */
/* The layouts of a worker of a device type: the number of devices, and how they share a model. */
#ifndef FLEET_PLAN_POOLS_H
#define FLEET_PLAN_POOLS_H

#include "fleet/plan/search.h"

enum plan_role { ROLE_BOTH, ROLE_PREFILL, ROLE_DECODE };

struct plan_pools_ask { /* all borrowed */
    const struct plan_model *model;
    const struct plan_constants *constants;
    const char *engine; /* NULL: any */
    const char *weights, *kv;
    const struct plan_work *work;
    double tp;    /* only this number of devices; 0: all usual numbers */
    bool is_wide; /* also experts over many devices with data-parallel attention */
};

struct plan_pools { /* a zeroed struct is empty */
    struct plan_pool *list;
    size_t n;
};

/* Adds the workers of a device.  If there is none, the fault names the missing number or the limit:
 * E_NOT_FOUND (a number), E_FULL (memory), E_UNSUPPORTED. The device is borrowed. */
int plan_pools_add(struct plan_pools *pools, const struct plan_pools_ask *ask,
                   const struct plan_device *device, enum plan_role role, struct fault *fault);
void plan_pools_fini(struct plan_pools *pools);
/* "TP4", "EP32", "TP4 EP4", "PP84"; for tables. */
void plan_pool_layout(const struct plan_pool *pool, char *out, size_t cap);

#endif
