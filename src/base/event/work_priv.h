/* SPDX-License-Identifier: Apache-2.0 */
/* For base/event/loop.c. */
#ifndef BASE_EVENT_WORK_PRIV_H
#define BASE_EVENT_WORK_PRIV_H

#include "base/event/work.h"

struct ev_watch {
    ev_long_call call; /* NULL: nobody watches */
    void *arg;
};

struct ev_watch *ev_loop_watch(struct ev_loop *loop);
/* This thread runs a loop, and turns are told to watch; NULL: it runs none any more. */
void ev_work_enter(const struct ev_watch *watch);
void ev_work_turn(void); /* one is over */

#endif
