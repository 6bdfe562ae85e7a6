/* SPDX-License-Identifier: Apache-2.0 */
/* How long a loop works on one thing at a time.
 *
 * Every call of a loop (posts, timers, descriptors) is one piece of work; callbacks that come from libevent
 * itself say so with begin and end.  Pieces of EV_LONG_NS or more are told to whoever watches the loop.  All
 * of it is of the thread that runs the loop; on others these do nothing. */
#ifndef BASE_EVENT_WORK_H
#define BASE_EVENT_WORK_H

#include "base/event/loop.h"

#define EV_LONG_NS UINT64_C(100000)

/* what: the name that the piece was given last.  cpu_ns: what the thread itself worked, so that a thread that
 * was not let run is not taken for one that works; with what went before in the same turn it may be up to
 * EV_LONG_NS too much for each piece. */
typedef void (*ev_long_call)(void *arg, const char *what, uint64_t cpu_ns, uint64_t wall_ns);

/* From the loop's next run on.  "turn" is all that a turn of the loop did. */
void ev_work_watch(struct ev_loop *loop, ev_long_call call, void *arg);

/* May nest: the outermost pair is the piece. */
void ev_work_begin(const char *what);
void ev_work_end(void);
/* Says what the piece under way is about; what lives for ever. */
void ev_work_name(const char *what);

#endif
