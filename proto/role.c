/* SPDX-License-Identifier: Apache-2.0 */
/* See proto/role.h. */
#include "proto/role.h"

#include "base/str.h"

static const char *const names[] = {[BATON__ROLE__ROLE_PREFILL] = "prefill",
                                    [BATON__ROLE__ROLE_DECODE] = "decode",
                                    [BATON__ROLE__ROLE_BOTH] = "both"};

bool role_is_worker(Baton__Role role)
{
    return role == BATON__ROLE__ROLE_PREFILL || role == BATON__ROLE__ROLE_DECODE ||
           role == BATON__ROLE__ROLE_BOTH;
}

const char *role_text(Baton__Role role)
{
    return role_is_worker(role) ? names[role] : "";
}

bool role_read(struct bytes text, Baton__Role *out)
{
    for (int role = BATON__ROLE__ROLE_PREFILL; role <= BATON__ROLE__ROLE_BOTH; role++) {
        if (!bytes_is(text, names[role]))
            continue;
        *out = (Baton__Role)role;
        return true;
    }
    return false;
}
