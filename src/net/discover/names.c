/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of the options for a source's thread, because the caller may free its configuration first. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "net/discover/discover_priv.h"

static int names_copy(char **out, const char *path)
{
    *out = path != NULL && path[0] != '\0' ? strdup(path) : NULL;
    return path != NULL && path[0] != '\0' && *out == NULL ? E_NOMEM : 0;
}

int discover_names_open(struct discover_names *names, const struct discover_tls *tls)
{
    int rc = names_copy(&names->ca, tls->ca);

    if (rc == 0)
        rc = names_copy(&names->certificate, tls->certificate);
    return rc == 0 ? names_copy(&names->key, tls->key) : rc;
}

void discover_names_fini(struct discover_names *names)
{
    free(names->ca);
    free(names->certificate);
    free(names->key);
}
