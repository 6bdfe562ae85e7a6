/* SPDX-License-Identifier: Apache-2.0 */
/* The arriving end of a hand-off on a worker: see worker/runner/engine_thread.h for what a side is. */
#ifndef WORKER_RUNNER_ARRIVE_H
#define WORKER_RUNNER_ARRIVE_H

#include "worker/runner/engine_thread.h"

const struct handoff_side *arrive_side(void);

#endif
