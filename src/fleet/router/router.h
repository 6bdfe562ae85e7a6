/* SPDX-License-Identifier: Apache-2.0 */
/* The router daemon: build, run, drain. */
#ifndef FLEET_ROUTER_ROUTER_H
#define FLEET_ROUTER_ROUTER_H

#include "base/fault.h"
#include "fleet/router/router_conf.h"

/* Runs until SIGTERM or SIGINT, drains, then stops.  A second signal stops at once. SIGHUP calls reload,
 * which returns a new snapshot, or NULL to keep the old one. The caller of router_run owns the snapshot until
 * the next reload. Returns 0, or an error with the fault filled when the daemon could not start. */
int router_run(const struct router_conf *conf, const struct router_conf *(*reload)(void *arg),
               void *reload_arg, struct fault *fault);
/* Checks settings that the table of keys cannot check by itself. */
void router_check(struct config_check *check);
const char *router_libraries(void); /* for --version */

#endif
