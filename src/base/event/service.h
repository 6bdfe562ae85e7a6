/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon's life as its service manager sees it: ready, reloading, stopping, alive.
 *
 *    SIGTERM, SIGINT   first: lame duck, drain, then stop
 *                      second: stop at once; the process ends within SERVICE_STOP_S even if a thread hangs
 *    SIGHUP            reload
 *    SIGPIPE           ignored
 *    SIGALRM           reserved for this file
 *
 * Speaks sd_notify(3) when there is a notify socket, else stays silent.  The loop feeds the watchdog, and
 * only while has_progress says that the daemon's other threads make progress too. */
#ifndef BASE_EVENT_SERVICE_H
#define BASE_EVENT_SERVICE_H

#include "base/event/loop.h"

struct service;

/* The daemon's state.  The daemon owns it, because its operator can change it too. */
enum daemon_life {
    DAEMON_SERVING,
    DAEMON_DRAINED,   /* the operator drained it and may undo that: it gets no new work */
    DAEMON_LAME_DUCK, /* a stop signal came: it serves as before and announces that it will go */
    DAEMON_DRAINING   /* takes no new work; stops when running work has ended, or at the time limit */
};

enum {
    SERVICE_STOP_S = 3, /* seconds from the second signal to the end of the process */
    SERVICE_END_S = 10  /* seconds for service_ending() */
};

struct service_calls {
    /* A stop signal came.  Announces it to the senders of work, and returns for how long (ns) to serve on
     * before drain. 0, or NULL: drain at once. */
    uint64_t (*lame_duck)(void *arg);
    void (*drain)(void *arg);        /* starts the drain; calls ev_loop_stop() when done */
    void (*stop)(void *arg);         /* stops now; the service calls ev_loop_stop() after it */
    void (*reload)(void *arg);       /* begins a reload; service_reloaded() tells its end */
    bool (*has_progress)(void *arg); /* NULL: turns of the loop are enough */
};

int service_new(struct ev_loop *loop, const struct service_calls *calls, void *arg, struct service **out);
void service_free(struct service *service); /* accepts NULL */

/* Brackets long work on the loop's own thread.  Between hold and release the first stop signal is deferred;
 * service_is_asked_to_stop() says whether one waits.  A caller that gives up because of it need not call
 * release.  A second signal ends the process all the same. */
void service_hold(struct service *service);
bool service_is_asked_to_stop(const struct service *service);
void service_release(struct service *service);
/* The loop has ended and the daemon begins to free its objects.  The process ends within within_s seconds
 * even if that hangs. */
void service_ending(struct service *service, unsigned within_s);

void service_ready(struct service *service);
void service_reloaded(struct service *service); /* the reload has ended, with or without success */
__attribute__((format(printf, 2, 3))) void service_status(struct service *service, const char *format, ...);
/* Asks the service manager for more time to start or stop. */
void service_extend(struct service *service, uint64_t by_ns);

#endif
