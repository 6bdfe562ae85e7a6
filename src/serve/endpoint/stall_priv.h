/* SPDX-License-Identifier: Apache-2.0 */
/* What the loop works at for long, where operators see it: metrics, and the log. */
#ifndef SERVE_ENDPOINT_STALL_PRIV_H
#define SERVE_ENDPOINT_STALL_PRIV_H

#include "base/event/loop.h"
#include "base/metrics/metrics.h"

struct stall;

/* Watches loop (borrowed, as metrics is) from its next run on. */
int stall_new(struct ev_loop *loop, struct metrics *metrics, struct stall **out);
void stall_free(struct stall *stall); /* the loop does not run; NULL is fine */

#endif
