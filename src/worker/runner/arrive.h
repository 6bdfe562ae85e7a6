/* SPDX-License-Identifier: Apache-2.0 */
/* KV receive: the receiving end of a hand-off on a worker. struct handoff_side:
 * worker/runner/engine_thread.h. */
#ifndef WORKER_RUNNER_ARRIVE_H
#define WORKER_RUNNER_ARRIVE_H

#include "worker/runner/engine_thread.h"

const struct handoff_side *arrive_side(void);

#endif
