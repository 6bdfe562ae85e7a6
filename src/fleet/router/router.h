/* SPDX-License-Identifier: Apache-2.0 */
/* The router daemon: build, run, drain. */
#ifndef FLEET_ROUTER_ROUTER_H
#define FLEET_ROUTER_ROUTER_H

#include "base/bytes.h"
#include "base/fault.h"
#include "fleet/router/router_conf.h"

struct router_opts {
    const struct router_conf *conf;
    /* On SIGHUP: returns a new snapshot, or NULL to keep the old one.  A job thread. */
    const struct router_conf *(*reload)(void *arg);
    /* Appends the changes that a reload would make, as JSON. E_FORMAT with the fault.  Runs on a job thread, never
     * during a reload. */
    int (*diff)(void *arg, struct buf *out, struct fault *fault);
    void *reload_arg;
};

/* Runs until SIGTERM or SIGINT: drains, then stops; a second signal stops at once. The caller owns the snapshot
 * until the next reload. Returns 0, or an error with the fault if the daemon could not start. */
int router_run(const struct router_opts *opts, struct fault *fault);
/* Checks settings that the table of keys cannot check by itself. */
void router_check(struct config_check *check);
const char *router_libraries(void); /* for --version */

#endif
