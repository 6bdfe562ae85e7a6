/* SPDX-License-Identifier: Apache-2.0 */
/* The notify protocol is libsystemd's; what is ours is when to speak.  The watchdog period comes from the
 * environment (WATCHDOG_USEC); it is fed at a third of it.
 *
 *    RUNNING ──signal──> LAME_DUCK ──its time is over──> DRAINING ──the daemon is done──> (loop stopped)
 *                            └──────── signal ───────────────┴──────> STOPPING ──────────────^
 */
#include "ev/service.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <systemd/sd-daemon.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "ev/signals.h"

#define EXTRA_NS (10 * NS_PER_S) /* for the manager, beyond what is planned */

enum service_state {
    SERVICE_RUNNING,
    SERVICE_LAME_DUCK, /* until the timer */
    SERVICE_DRAINING,
    SERVICE_STOPPING
};

struct service {
    struct ev_loop *loop;
    const struct service_calls *calls;
    void *arg;
    struct ev_signal *term, *interrupt, *hangup;
    struct ev_timer *watchdog, *lame_duck;
    enum service_state state;
};

static void on_lame_duck_over(void *arg)
{
    struct service *service = arg;

    service->state = SERVICE_DRAINING;
    sd_notify(0, "STOPPING=1\nSTATUS=draining");
    service->calls->drain(service->arg);
}

static void begin_to_stop(struct service *service)
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

static void on_stop_signal(void *arg)
{
    struct service *service = arg;

    if (service->state == SERVICE_RUNNING) {
        begin_to_stop(service);
        return;
    }
    service->state = SERVICE_STOPPING;
    ev_timer_stop(service->lame_duck);
    service->calls->stop(service->arg);
    ev_loop_stop(service->loop);
}

static void on_reload_signal(void *arg)
{
    struct service *service = arg;

    if (service->state != SERVICE_RUNNING)
        return; /* READY would take STOPPING back */
    sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, clock_now_ns() / NS_PER_US);
    service->calls->reload(service->arg);
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
    if (ev_signal_new(loop, SIGTERM, on_stop_signal, service, &service->term) < 0 ||
        ev_signal_new(loop, SIGINT, on_stop_signal, service, &service->interrupt) < 0 ||
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
    ev_signal_free(service->term);
    ev_signal_free(service->interrupt);
    ev_signal_free(service->hangup);
    ev_timer_free(service->watchdog);
    ev_timer_free(service->lame_duck);
    free(service);
}

static sigset_t stop_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    return set;
}

void service_hold(struct service *service)
{
    sigset_t set = stop_signals();

    (void)service;
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

bool service_is_asked_to_stop(const struct service *service)
{
    sigset_t pending;

    (void)service;
    return sigpending(&pending) == 0 &&
           (sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1);
}

void service_release(struct service *service)
{
    sigset_t set = stop_signals();

    (void)service;
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
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
