/* SPDX-License-Identifier: Apache-2.0 */
/* libsystemd speaks the notify protocol; this file decides when.  The watchdog period comes from the
 * environment (WATCHDOG_USEC).  The loop feeds the watchdog at a third of that period.
 *
 *    RUNNING ──signal──> LAME_DUCK ──its time is over──> DRAINING ──the daemon is done──> (loop stopped)
 *                            └──────── signal ───────────────┴──────> STOPPING ──────────────^
 *
 *    signal 1   the handler counts it and wakes the loop
 *    signal 2   the handler also sets an alarm; SIGALRM ends the process
 *
 * The end must not depend on the loop or on any other thread, because that thread may be the one that hangs.
 * So the handler itself counts, and sets the alarm at the second signal. service_ending() sets it too.
 * Every other thread blocks all signals (base/team.c, base/event/jobs.c), so a handler runs on the main
 * thread at any time. */
#include "base/event/service.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/event/signals.h"

#define EXTRA_NS (10 * NS_PER_S) /* extra time for the service manager beyond the plan */

enum service_state {
    SERVICE_RUNNING,
    SERVICE_LAME_DUCK, /* one stop signal has come; lasts until the timer fires */
    SERVICE_DRAINING,
    SERVICE_STOPPING /* a second stop signal has come */
};

struct service {
    struct ev_loop *loop;
    const struct service_calls *calls;
    void *arg;
    struct ev_signal *hangup;
    struct ev_fd *stops_watch;
    struct ev_timer *watchdog, *lame_duck;
    bool is_held;
    enum service_state state;
};

/* State that the handlers use; a process has one service. */
static struct {
    atomic_uint n_stops;
    int fd; /* an eventfd; -1: none */
} signals = {.fd = -1};

/* ---- handlers: async-signal-safe calls only ---- */

static void on_stop_signal(int number)
{
    const uint64_t one = 1;
    int was = errno;

    (void)number;
    if (atomic_fetch_add(&signals.n_stops, 1) > 0)
        alarm(SERVICE_STOP_S);
    if (write(signals.fd, &one, sizeof(one)) < 0) { /* it is full, so it is readable anyway */
    }
    errno = was;
}

static void on_alarm(int number)
{
    static const char text[] = "ended: the process did not stop in time\n";

    (void)number;
    if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0) { /* then end without a message */
    }
    _exit(EXIT_FAILURE);
}

static int service_handle(int number, void (*handler)(int))
{
    struct sigaction action;

    memset(&action, 0, sizeof(action));
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    return sigaction(number, &action, NULL);
}

/* ---- on the loop ---- */

static void on_lame_duck_over(void *arg)
{
    struct service *service = arg;

    service->state = SERVICE_DRAINING;
    sd_notify(0, "STOPPING=1\nSTATUS=draining");
    service->calls->drain(service->arg);
}

static void service_begin_to_stop(struct service *service)
{
    uint64_t for_ns;

    service->state = SERVICE_LAME_DUCK;
    for_ns = service->calls->lame_duck != NULL ? service->calls->lame_duck(service->arg) : 0;
    log_info("stopping", LOG_STR("how", "lame duck, then drain; a second signal stops at once"),
             LOG_U64("lame_duck_ms", for_ns / NS_PER_MS));
    if (for_ns == 0) {
        on_lame_duck_over(service);
        return;
    }
    sd_notify(0, "STOPPING=1\nSTATUS=lame duck: serves until clients have gone elsewhere");
    service_extend(service, for_ns + EXTRA_NS);
    ev_timer_start(service->lame_duck, for_ns);
}

static void service_step(struct service *service)
{
    if (service->state == SERVICE_RUNNING && atomic_load(&signals.n_stops) > 0)
        service_begin_to_stop(service);
    if (service->state == SERVICE_STOPPING || atomic_load(&signals.n_stops) < 2)
        return;
    service->state = SERVICE_STOPPING;
    ev_timer_stop(service->lame_duck);
    service->calls->stop(service->arg);
    ev_loop_stop(service->loop);
}

static void on_stops(void *arg, int fd, unsigned ready)
{
    uint64_t n;

    (void)ready;
    if (read(fd, &n, sizeof(n)) > 0 && !((struct service *)arg)->is_held)
        service_step(arg);
}

static void on_reload_signal(void *arg)
{
    struct service *service = arg;

    if (service->state != SERVICE_RUNNING)
        return;
    sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, clock_now_ns() / NS_PER_US);
    service->calls->reload(service->arg);
}

void service_reloaded(struct service *service)
{
    if (service->state == SERVICE_RUNNING) /* READY would cancel STOPPING */
        sd_notify(0, "READY=1");
}

static void on_watchdog(void *arg)
{
    struct service *service = arg;

    if (service->calls->has_progress == NULL || service->calls->has_progress(service->arg))
        sd_notify(0, "WATCHDOG=1");
}

int service_new(struct ev_loop *loop, const struct service_calls *calls, void *arg, struct service **out)
{
    struct service *service = calloc(1, sizeof(*service));
    uint64_t watchdog_us = 0;

    if (service == NULL)
        return E_NOMEM;
    service->loop = loop;
    service->calls = calls;
    service->arg = arg;
    signal(SIGPIPE, SIG_IGN);
    atomic_store(&signals.n_stops, 0);
    signals.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (signals.fd < 0 || ev_fd_new(loop, signals.fd, on_stops, service, &service->stops_watch) < 0 ||
        service_handle(SIGALRM, on_alarm) < 0 || service_handle(SIGTERM, on_stop_signal) < 0 ||
        service_handle(SIGINT, on_stop_signal) < 0 ||
        ev_signal_new(loop, SIGHUP, on_reload_signal, service, &service->hangup) < 0 ||
        ev_timer_new(loop, on_watchdog, service, &service->watchdog) < 0 ||
        ev_timer_new(loop, on_lame_duck_over, service, &service->lame_duck) < 0) {
        service_free(service);
        return E_NOMEM;
    }
    if (sd_watchdog_enabled(0, &watchdog_us) > 0 && watchdog_us > 0)
        ev_timer_repeat(service->watchdog, watchdog_us * NS_PER_US / 3);
    *out = service;
    return 0;
}

void service_free(struct service *service)
{
    if (service == NULL)
        return;
    /* From here on a signal ends the process: it need not free the rest. */
    service_handle(SIGTERM, SIG_DFL);
    service_handle(SIGINT, SIG_DFL);
    ev_fd_free(service->stops_watch);
    if (signals.fd >= 0)
        close(signals.fd);
    signals.fd = -1;
    ev_signal_free(service->hangup);
    ev_timer_free(service->watchdog);
    ev_timer_free(service->lame_duck);
    free(service);
}

void service_hold(struct service *service)
{
    service->is_held = true;
}

void service_release(struct service *service)
{
    const uint64_t one = 1;

    service->is_held = false;
    if (write(signals.fd, &one, sizeof(one)) < 0) { /* it is full, so it is readable anyway */
    }
}

bool service_is_asked_to_stop(const struct service *service)
{
    (void)service;
    return atomic_load(&signals.n_stops) > 0;
}

void service_ending(struct service *service, unsigned within_s)
{
    unsigned left_s = alarm(0);

    service_extend(service, (within_s + 2) * NS_PER_S);
    alarm(left_s > 0 && left_s < within_s ? left_s : within_s);
}

void service_ready(struct service *service)
{
    sd_notify(0, "READY=1\nSTATUS=ready");
}

void service_status(struct service *service, const char *format, ...)
{
    char text[256];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    sd_notifyf(0, "STATUS=%s", text);
}

void service_extend(struct service *service, uint64_t by_ns)
{
    sd_notifyf(0, "EXTEND_TIMEOUT_USEC=%" PRIu64, by_ns / NS_PER_US);
}
