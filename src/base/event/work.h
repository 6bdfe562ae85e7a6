/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how long a loop works on one piece of work.
 *
 * Every call of a loop (posts, timers, descriptors) is one piece of work.  Callbacks that come from libevent
 * itself mark their piece with begin and end.  The watcher gets a report of each piece of EV_LONG_NS or
 * more.  All functions act on the thread that runs the loop; on other threads they do nothing. */
#ifndef BASE_EVENT_WORK_H
#define BASE_EVENT_WORK_H

#include "base/event/loop.h"

#define EV_LONG_NS UINT64_C(100000)

/* Reports a long piece. what: the last name given to the piece. cpu_ns: CPU time of the thread, so a thread
 * that was descheduled does not count as working. cpu_ns may include up to EV_LONG_NS of earlier pieces of
 * the same turn. */
typedef void (*ev_long_call)(void *arg, const char *what, uint64_t cpu_ns, uint64_t wall_ns);

/* Takes effect at the loop's next run.  The name "turn" stands for a whole turn of the loop. */
void ev_work_watch(struct ev_loop *loop, ev_long_call call, void *arg);

/* May nest: the outermost pair is the piece of work. */
void ev_work_begin(const char *what);
void ev_work_end(void);
/* Wall time since the current piece of work began.  0: the loop has no watcher. */
uint64_t ev_work_age_ns(void);
/* Names the current piece of work; what must be a string that is never freed. */
void ev_work_name(const char *what);

#endif
