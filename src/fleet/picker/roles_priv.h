/* SPDX-License-Identifier: Apache-2.0 */
/* The judgement of a change of roles: see roles_trial.c.  The caller is roles.c. */
#ifndef FLEET_PICKER_ROLES_PRIV_H
#define FLEET_PICKER_ROLES_PRIV_H

#include "fleet/picker/roles.h"

/* Takes the share of refused and late requests of this second, if all of its window is later than the latest change. */
void roles_trial_watch(struct picker_roles *roles, const struct picker_load *load, uint64_t now_ns);
/* True if a share of the requests that is worth a trial is refused or late, since the latest change. */
bool roles_trial_is_missing(const struct picker_roles *roles);
/* True if a larger share of the requests is refused or late than before the change, under the same load. */
bool roles_trial_failed(const struct picker_roles *roles, const struct picker_load *load, uint64_t now_ns,
                        uint64_t period_ns);
/* True if the plan's change failed a while ago under the load that there is now. */
bool roles_trial_is_barred(const struct picker_roles *roles, const struct picker_roles_plan *plan,
                           uint64_t now_ns);
/* The plan's change takes place, for this reason: it is the next trial, or takes back the present one. */
void roles_trial_next(struct picker_roles *roles, const struct picker_roles_plan *plan,
                      enum picker_roles_reason why, uint64_t period_ns);

#endif
