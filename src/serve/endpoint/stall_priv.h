/* SPDX-License-Identifier: Apache-2.0 */
/* Reports long work on the loop thread to operators, in metrics and log. */
#ifndef SERVE_ENDPOINT_STALL_PRIV_H
#define SERVE_ENDPOINT_STALL_PRIV_H

#include "base/event/loop.h"
#include "base/metrics/metrics.h"

struct stall;

/* Watches loop from its next run on.  Borrows loop and metrics. */
int stall_new(struct ev_loop *loop, struct metrics *metrics, struct stall **out);
void stall_free(struct stall *stall); /* call when the loop does not run; accepts NULL */

#endif
