/* SPDX-License-Identifier: Apache-2.0 */
/* KV send: the sending end of a hand-off on a worker. struct handoff_side: worker/runner/engine_thread.h. */
#ifndef WORKER_RUNNER_DEPART_H
#define WORKER_RUNNER_DEPART_H

#include "worker/runner/engine_thread.h"

const struct handoff_side *depart_side(void);

#endif
