/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's part of a check of the network (probe.c). Loop thread. */
#ifndef WORKER_LOOP_PROBE_PRIV_H
#define WORKER_LOOP_PROBE_PRIV_H

#include "worker/loop/worker_priv.h"

/* Connects to the addresses and answers the router; does nothing while an earlier probe runs. */
void worker_probe_run(struct worker *worker, const struct worker_router *router, const Baton__Probe *wanted);
void worker_probe_close(struct worker *worker); /* waits for a probe that runs: two seconds at most */

#endif
