/* SPDX-License-Identifier: Apache-2.0 */
/* What the loop works at for long, where operators see it: metrics, and the log. */
#ifndef FRONT_STALL_H
#define FRONT_STALL_H

#include "ev/loop.h"
#include "metrics/metrics.h"

struct stall;

/* Watches loop (borrowed, as metrics is) from its next run on. */
int stall_new(struct ev_loop *loop, struct metrics *metrics, struct stall **out);
void stall_free(struct stall *stall); /* the loop does not run; NULL is fine */

#endif
