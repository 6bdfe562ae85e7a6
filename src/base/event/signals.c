/* SPDX-License-Identifier: Apache-2.0 */
/* Signals through libevent: its handler writes the number into a socket pair that the loop reads.
 *
 * So a signal may arrive on any thread, and the call still runs on the loop, where any function is allowed.
 * Compute threads and job threads block all signals anyway (base/team.c, base/event/jobs.c). */
#include "base/event/signals.h"

#include <event2/event_struct.h>
#include <stdlib.h>

#include "base/err.h"

struct ev_signal {
    struct event event;
    ev_call call;
    void *arg;
};

static void on_signal(evutil_socket_t number, short what, void *arg)
{
    struct ev_signal *watch = arg;

    watch->call(watch->arg);
}

int ev_signal_new(struct ev_loop *loop, int number, ev_call call, void *arg, struct ev_signal **out)
{
    struct ev_signal *watch = calloc(1, sizeof(*watch));
    if (watch == NULL)
        return E_NOMEM;

    watch->call = call;
    watch->arg = arg;
    evsignal_assign(&watch->event, ev_loop_base(loop), number, on_signal, watch);
    if (evsignal_add(&watch->event, NULL) != 0) {
        free(watch);
        return E_INVAL;
    }
    *out = watch;
    return 0;
}

void ev_signal_free(struct ev_signal *signal)
{
    if (signal == NULL)
        return;
    evsignal_del(&signal->event);
    free(signal);
}
