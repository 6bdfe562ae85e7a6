/* SPDX-License-Identifier: Apache-2.0 */
/* One libevent base for each thread, and a mailbox through which other threads post calls.
 *
 *     other threads --ev_post--> mailbox (call, arg) --eventfd--> on_posts() on the loop's own thread
 *
 * Only the loop's own thread touches libevent objects, so libevent needs no locks and has none.  The mailbox
 * is the only shared object.  A stop is a flag and a wake through the same mailbox.
 *
 * The loop runs turn by turn (EVLOOP_ONCE) and counts turns: the watchdog reads the counter and trusts only
 * loops that make progress.  A turn runs at most POSTS_PER_TURN posted calls.  So neither a flood of calls
 * nor calls that post again can starve descriptors and timers.
 *
 * Timers need a precise clock: libevent's default one ticks in steps of up to 4 ms. */
#include "base/event/loop.h"

#include <event2/event_struct.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mailbox.h"
#include "base/event/work_priv.h"

enum { MAX_POSTS = 64 * 1024, POSTS_PER_TURN = 1024 };

#define LONGEST_DELAY_NS (UINT64_C(10) * 365 * 86400 * NS_PER_S)

struct ev_loop {
    struct event_base *base;
    struct mailbox *posts;
    struct ev_fd *posts_watch;
    struct ev_watch watch;
    _Atomic uint64_t turns;
    atomic_bool is_stopping;
};

struct ev_timer {
    struct event event;
    struct event_base *base;
    ev_call call;
    void *arg;
};

struct ev_fd {
    struct event event;
    struct event_base *base;
    int fd;
    ev_fd_call call;
    void *arg;
};

static void log_libevent(int severity, const char *text)
{
    if (severity >= EVENT_LOG_WARN)
        log_warn("libevent", LOG_STR("text", text));
}

static void set_up_libevent(void)
{
    event_set_log_callback(log_libevent);
}

/* Runs at most max posted calls; returns whether more may be waiting. */
static bool run_posts(struct ev_loop *loop, unsigned max)
{
    for (unsigned n = 0; n < max; n++) {
        struct ev_posting *post = mailbox_receive(loop->posts);
        if (post == NULL)
            return false;

        struct ev_posting copy = *post;
        free(post);
        ev_work_begin("call");
        copy.call(copy.arg);
        ev_work_end();
    }
    return true;
}

static void on_posts(void *arg, int fd, unsigned ready)
{
    struct ev_loop *loop = arg;

    mailbox_drain_fd(loop->posts);
    ev_work_end(); /* each call is one piece of work */
    if (run_posts(loop, POSTS_PER_TURN))
        mailbox_wake(loop->posts);
    ev_work_begin("descriptor");
}

static struct event_base *new_base(void)
{
    struct event_config *config = event_config_new();
    if (config == NULL)
        return NULL;

    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_PRECISE_TIMER);
    struct event_base *base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
}

int ev_loop_new(struct ev_loop **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct ev_loop *loop = calloc(1, sizeof(*loop));
    int rc = E_NOMEM;

    if (loop == NULL)
        return E_NOMEM;
    pthread_once(&once, set_up_libevent);
    loop->base = new_base();
    if (loop->base == NULL)
        goto fail;
    rc = mailbox_new(MAX_POSTS, &loop->posts);
    if (rc != 0)
        goto fail;
    rc = ev_fd_new(loop, mailbox_fd(loop->posts), on_posts, loop, &loop->posts_watch);
    if (rc != 0)
        goto fail;
    *out = loop;
    return 0;

fail:
    ev_loop_free(loop);
    return rc;
}

void ev_loop_free(struct ev_loop *loop)
{
    struct ev_posting *post;

    if (loop == NULL)
        return;
    if (loop->posts != NULL)
        while ((post = mailbox_receive(loop->posts)) != NULL)
            free(post);
    ev_fd_free(loop->posts_watch);
    mailbox_free(loop->posts);
    if (loop->base != NULL)
        event_base_free(loop->base);
    free(loop);
}

int ev_loop_run(struct ev_loop *loop)
{
    int rc = 0;

    ev_work_enter(&loop->watch);
    while (rc == 0 && !atomic_exchange(&loop->is_stopping, false)) {
        if (event_base_loop(loop->base, EVLOOP_ONCE) < 0)
            rc = E_IO;
        atomic_fetch_add_explicit(&loop->turns, 1, memory_order_relaxed);
        ev_work_turn();
    }
    ev_work_enter(NULL);
    if (rc == 0)
        ev_loop_drain(loop);
    return rc;
}

struct ev_watch *ev_loop_watch(struct ev_loop *loop)
{
    return &loop->watch;
}

void ev_loop_stop(struct ev_loop *loop)
{
    atomic_store(&loop->is_stopping, true);
    mailbox_wake(loop->posts);
}

void ev_loop_drain(struct ev_loop *loop)
{
    run_posts(loop, MAX_POSTS);
}

struct event_base *ev_loop_base(struct ev_loop *loop)
{
    return loop->base;
}

uint64_t ev_loop_turns(const struct ev_loop *loop)
{
    return atomic_load_explicit(&loop->turns, memory_order_relaxed);
}

int ev_post(struct ev_loop *loop, ev_call call, void *arg)
{
    struct ev_posting *post = malloc(sizeof(*post));
    if (post == NULL)
        return E_NOMEM;

    *post = (struct ev_posting){.call = call, .arg = arg};
    int rc = ev_post_made(loop, post);
    if (rc != 0)
        free(post);
    return rc;
}

int ev_post_made(struct ev_loop *loop, struct ev_posting *posting)
{
    return mailbox_send(loop->posts, posting);
}

/* Rounds up, so that a timer never fires early. */
static struct timeval timeval_of(uint64_t ns)
{
    uint64_t us = ((ns < LONGEST_DELAY_NS ? ns : LONGEST_DELAY_NS) + NS_PER_US - 1) / NS_PER_US;

    return (struct timeval){.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
}

static void event_loop_on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct ev_timer *timer = arg;

    ev_work_begin("timer");
    timer->call(timer->arg); /* may free the timer */
    ev_work_end();
}

static void event_loop_arm(struct ev_timer *timer, uint64_t ns, short flags)
{
    struct timeval delay = timeval_of(ns);

    event_del(&timer->event);
    event_assign(&timer->event, timer->base, -1, flags, event_loop_on_timer, timer);
    ASSERT(event_add(&timer->event, &delay) == 0);
}

int ev_timer_new(struct ev_loop *loop, ev_call call, void *arg, struct ev_timer **out)
{
    struct ev_timer *timer = calloc(1, sizeof(*timer));
    if (timer == NULL)
        return E_NOMEM;

    timer->base = loop->base;
    timer->call = call;
    timer->arg = arg;
    event_assign(&timer->event, loop->base, -1, 0, event_loop_on_timer, timer);
    *out = timer;
    return 0;
}

void ev_timer_free(struct ev_timer *timer)
{
    if (timer == NULL)
        return;
    event_del(&timer->event);
    free(timer);
}

void ev_timer_start(struct ev_timer *timer, uint64_t delay_ns)
{
    event_loop_arm(timer, delay_ns, 0);
}

void ev_timer_repeat(struct ev_timer *timer, uint64_t period_ns)
{
    ASSERT(period_ns > 0);
    event_loop_arm(timer, period_ns, EV_PERSIST);
}

void ev_timer_stop(struct ev_timer *timer)
{
    event_del(&timer->event);
}

static void on_fd(evutil_socket_t fd, short what, void *arg)
{
    struct ev_fd *watch = arg;
    unsigned ready = (what & EV_READ ? EV_FD_READ : 0) | (what & EV_WRITE ? EV_FD_WRITE : 0);

    ev_work_begin("descriptor");
    watch->call(watch->arg, fd, ready); /* may free the watch */
    ev_work_end();
}

static int watch_fd(struct ev_fd *watch, unsigned wants)
{
    short what =
        (short)((wants & EV_FD_READ ? EV_READ : 0) | (wants & EV_FD_WRITE ? EV_WRITE : 0) | EV_PERSIST);

    event_assign(&watch->event, watch->base, watch->fd, what, on_fd, watch);
    if (wants == 0)
        return 0;
    return event_add(&watch->event, NULL) == 0 ? 0 : E_IO;
}

int ev_fd_new(struct ev_loop *loop, int fd, ev_fd_call call, void *arg, struct ev_fd **out)
{
    struct ev_fd *watch = calloc(1, sizeof(*watch));
    if (watch == NULL)
        return E_NOMEM;

    *watch = (struct ev_fd){.base = loop->base, .fd = fd, .call = call, .arg = arg};
    int rc = watch_fd(watch, EV_FD_READ);
    if (rc != 0) {
        free(watch);
        return rc;
    }
    *out = watch;
    return 0;
}

void ev_fd_want(struct ev_fd *watch, unsigned wants)
{
    event_del(&watch->event);
    /* libevent accepted the descriptor before, so only lack of memory can make this fail. */
    ASSERT(watch_fd(watch, wants) == 0);
}

void ev_fd_free(struct ev_fd *watch)
{
    if (watch == NULL)
        return;
    event_del(&watch->event);
    free(watch);
}
