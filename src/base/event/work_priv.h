/* SPDX-License-Identifier: Apache-2.0 */
/* The part of work.c that only base/event/loop.c calls. */
#ifndef BASE_EVENT_WORK_PRIV_H
#define BASE_EVENT_WORK_PRIV_H

#include "base/event/work.h"

struct ev_watch {
    ev_long_call call; /* NULL: no watcher */
    void *arg;
};

struct ev_watch *ev_loop_watch(struct ev_loop *loop);
/* Declares that this thread runs a loop whose turns are reported to watch.  NULL: it runs no loop any
 * more. */
void ev_work_enter(const struct ev_watch *watch);
void ev_work_turn(void); /* one turn has ended */

#endif
