/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and their limits have one life. */
#include "serve/access/access_keys.h"

#include <stdlib.h>

#include "base/err.h"

int access_keys_load(const char *path, const struct access_keys *old, struct fault *fault,
                     struct access_keys **out)
{
    struct access_keys *keys = calloc(1, sizeof(*keys));
    int rc = keys == NULL ? fault_set(fault, E_NOMEM, "out of memory") : 0;

    if (rc == 0)
        rc = auth_keys_load(path, fault, &keys->auth);
    if (rc == 0 && limits_make(keys->auth, old != NULL ? old->limits : NULL, &keys->limits) < 0)
        rc = fault_set(fault, E_NOMEM, "out of memory");
    if (rc < 0)
        access_keys_free(keys);
    else
        *out = keys;
    return rc;
}

bool access_keys_are_idle(const struct access_keys *keys)
{
    return limits_are_idle(keys->limits);
}

void access_keys_free(struct access_keys *keys)
{
    if (keys == NULL)
        return;
    limits_free(keys->limits);
    auth_keys_free(keys->auth);
    free(keys);
}
