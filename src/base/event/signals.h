/* SPDX-License-Identifier: Apache-2.0 */
/* Signals as calls on a loop.  Only one loop of a process can receive signals (libevent's rule): the control
 * loop. */
#ifndef BASE_EVENT_SIGNALS_H
#define BASE_EVENT_SIGNALS_H

#include "base/event/loop.h"

struct ev_signal;

int ev_signal_new(struct ev_loop *loop, int number, ev_call call, void *arg, struct ev_signal **out);
void ev_signal_free(struct ev_signal *signal);

#endif
