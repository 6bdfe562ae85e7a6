/* SPDX-License-Identifier: Apache-2.0 */
/* The router daemon: build, run, drain. */
#ifndef FLEET_ROUTER_ROUTER_H
#define FLEET_ROUTER_ROUTER_H

#include "base/fault.h"
#include "fleet/router/router_conf.h"

/* Runs until SIGTERM or SIGINT has been obeyed (drain, then stop; a second signal stops at once).  reload is
 * called on SIGHUP and gives a new snapshot (owned by the caller of router_run until the next reload), or
 * NULL to keep the old one. 0, or an error with the fault filled when the daemon could not start. */
int router_run(const struct router_conf *conf, const struct router_conf *(*reload)(void *arg),
               void *reload_arg, struct fault *fault);
/* What the table of keys cannot see. */
void router_check(struct config_check *check);
const char *router_libraries(void); /* for --version */

#endif
