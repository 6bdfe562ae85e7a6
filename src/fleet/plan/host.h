/* SPDX-License-Identifier: Apache-2.0 */
/* A host as a device, from the output of baton-model bench --json. */
#ifndef FLEET_PLAN_HOST_H
#define FLEET_PLAN_HOST_H

#include "fleet/plan/constants.h"
#include "fleet/plan/device.h"

/* Adds the host under id, with its measured rates, to devices, and fills in constants for Baton's engine on it:
 * the parts of the limits that its prefill and decode runs reached.  The memory stays unknown.  E_FORMAT,
 * E_NOT_FOUND (what the file lacks), E_EXISTS (id). */
int plan_host_add(struct bytes bench, const char *id, struct plan_devices *devices,
                  struct plan_constants *constants, struct fault *fault);

#endif
