/* SPDX-License-Identifier: Apache-2.0 */
/* The admin endpoint of a daemon, as the cluster key and http.admin say: opened at the start, with new tokens after a
 * reload. */
#ifndef SERVE_SETUP_ADMIN_ACCESS_H
#define SERVE_SETUP_ADMIN_ACCESS_H

#include "serve/endpoint/admin.h"
#include "serve/setup/link_access.h"

/* An address of this host only, or a fault.  E_INVAL. */
int admin_access_check(const char *listen, struct fault *fault);
/* Opens the endpoint with the tokens of all accepted cluster keys; opts->tokens is not read.  On failure fault says
 * why. */
int admin_access_open(const struct link_access *access, const struct admin_opts *opts, struct fault *fault,
                      struct admin **out);
/* The endpoint wants the tokens of the keys that are accepted now.  Loop thread. */
void admin_access_renew(const struct link_access *access, struct admin *admin);

#endif
