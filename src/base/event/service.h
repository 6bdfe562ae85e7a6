/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon's life as its service manager sees it: ready, reloading, stopping, alive.
 *
 *   SIGTERM, SIGINT: lame duck, drain, then stop; once more: stop at once, and within SERVICE_STOP_S whatever
 *   hangs.   SIGHUP: reload.   SIGPIPE is ignored.   SIGALRM is this file's.
 *
 * Speaks sd_notify(3) when there is a notify socket and is silent otherwise.  The watchdog is fed from the
 * loop, and only while has_progress says that the daemon's other threads move too. */
#ifndef BASE_EVENT_SERVICE_H
#define BASE_EVENT_SERVICE_H

#include "base/event/loop.h"

struct service;

/* Where a daemon is in its life; the daemon's own state, since its operator changes it too. */
enum daemon_life {
    DAEMON_SERVING,
    DAEMON_DRAINED,   /* by its operator, who may undo it: it is not to be given new work */
    DAEMON_LAME_DUCK, /* a signal to stop came: it serves as before and says that it is going */
    DAEMON_DRAINING   /* nothing new is taken; it stops when what runs has ended, or at the limit */
};

enum {
    SERVICE_STOP_S = 3, /* from the second signal to the end */
    SERVICE_END_S = 10  /* for service_ending() */
};

struct service_calls {
    /* Asked to stop: says so to whoever sends work, and returns for how long (ns) to serve on before drain.
     * 0, or NULL: drain at once. */
    uint64_t (*lame_duck)(void *arg);
    void (*drain)(void *arg); /* begin to drain; call ev_loop_stop when done */
    void (*stop)(void *arg);  /* stop now: ev_loop_stop is called after it */
    void (*reload)(void *arg);
    bool (*has_progress)(void *arg); /* NULL: the loop's turning is enough */
};

int service_new(struct ev_loop *loop, const struct service_calls *calls, void *arg, struct service **out);
void service_free(struct service *service); /* NULL is fine */

/* Between hold and release, for work on the loop's own thread that takes long: the first signal to stop
 * waits, and this says whether one does.  Who gives up because of it need not release.  The second one ends
 * the process all the same. */
void service_hold(struct service *service);
bool service_is_asked_to_stop(const struct service *service);
void service_release(struct service *service);
/* The loop is over and what was made is about to be freed: the process ends within so long, however much of
 * it hangs. */
void service_ending(struct service *service, unsigned within_s);

void service_ready(struct service *service);
__attribute__((format(printf, 2, 3))) void service_status(struct service *service, const char *format, ...);
/* Asks for more time to start or stop. */
void service_extend(struct service *service, uint64_t by_ns);

#endif
