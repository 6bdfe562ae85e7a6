/* SPDX-License-Identifier: Apache-2.0 */
/* A worker daemon of either role: build, run, drain. */
#ifndef WORKER_LOOP_WORKER_H
#define WORKER_LOOP_WORKER_H

#include "base/bytes.h"
#include "base/fault.h"
#include "worker/runner/engine_thread.h"
#include "worker/loop/worker_conf.h"

struct worker_opts {
    const char *daemon; /* the program's name */
    const struct worker_conf *conf;
    /* Called on SIGHUP: returns a new snapshot, or NULL to keep the old one. */
    const struct worker_conf *(*reload)(void *arg);
    /* Appends the changes that a reload would make, as JSON. E_FORMAT with the fault.  Runs on a job thread, never
     * during a reload. */
    int (*diff)(void *arg, struct buf *out, struct fault *fault);
    void *reload_arg;
};

/* Runs until SIGTERM or SIGINT, and until the drain that follows is over.  Returns 0.  If the worker cannot
 * start, returns an error and fills in fault. */
int worker_run(const struct worker_opts *opts, struct fault *fault);
/* Checks settings of both roles that the table of keys cannot check by itself. */
void worker_check(struct config_check *check);
/* Measures this machine again, with the configuration's threads and kernels,
 * and appends a table for people. */
int worker_tune(const void *conf, struct buf *out, struct fault *fault);
const char *worker_libraries(void); /* for --version */

#endif
