/* SPDX-License-Identifier: Apache-2.0 */
/* Accepts connections within limits.
 *
 * The listening socket is watched only while there is room:
 *
 *     room, descriptors left    accepts up to ACCEPT_BATCH connections per turn of the loop
 *     at max_connections        watch off until listener_release(); the kernel's backlog holds the rest;
 *                               with strangers it stays on: evicts the oldest or closes the newcomer
 *     strangers                 base/event/strangers.h counts them and evicts the oldest; they are not
 *                               in n_connections before they send bytes
 *     EMFILE and the like       watch off for ACCEPT_REST_NS, because a level-triggered watch would spin
 *
 * An address of all zeros ("*") opens one IPv6 socket for both families. */
#include "net/link/listener.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/socket_owner.h"
#include "base/log.h"
#include "net/link/stranger_counts.h"

#define DEFAULT_MAX 1024

struct listener {
    struct listener_opts opts;
    int fd;
    struct strangers *strangers; /* NULL: sockets are handed over at once */
    struct stranger_counts counts;
    char address[ADDR_TEXT_BYTES];
    struct ev_fd *watch;
    struct ev_timer *resume;
    uint32_t n_connections;
    bool is_paused;  /* no timer ends it */
    bool is_resting; /* the timer ends it */
    bool is_accepting;
    bool is_closed; /* inside on_accept; freed when it returns */
};

/* Strangers have their own limits. When one sends bytes, another may be evicted to make room. */
static bool listener_has_room(const struct listener *listener)
{
    return listener->strangers != NULL || listener->n_connections < listener->opts.max_connections;
}

static void update_watch(struct listener *listener)
{
    bool is_on = !listener->is_paused && !listener->is_resting && listener_has_room(listener);

    ev_fd_want(listener->watch, is_on ? EV_FD_READ : 0);
}

static void on_resume(void *arg)
{
    struct listener *listener = arg;

    listener->is_resting = false;
    update_watch(listener);
}

static void listener_destroy(struct listener *listener)
{
    ev_fd_free(listener->watch);
    ev_timer_free(listener->resume);
    if (listener->fd >= 0)
        close(listener->fd);
    strangers_free(listener->strangers);
    free(listener);
}

static void hand_over(struct listener *listener, int fd, const struct sockaddr *sa, struct stranger *stranger)
{
    char peer[ADDR_TEXT_BYTES];

    addr_format(sa, peer);
    listener->n_connections++;
    listener->opts.on_accept(listener->opts.arg, fd, peer, stranger);
}

static void listener_on_begun(void *arg, int fd, const struct sockaddr *sa, struct stranger *stranger)
{
    struct listener *listener = arg;

    if (listener->is_paused || (listener->n_connections >= listener->opts.max_connections &&
                                !strangers_make_room(listener->strangers, NULL))) {
        stranger_leave(stranger);
        close(fd);
        return;
    }
    listener->is_accepting = true;
    hand_over(listener, fd, sa, stranger);
    listener->is_accepting = false;
    if (listener->is_closed)
        listener_destroy(listener);
    else
        update_watch(listener);
}

static void listener_on_stranger_end(void *arg, enum stranger_end why)
{
    struct listener *listener = arg;

    stranger_counts_add(&listener->counts, why, 1);
}

/* False: accept no more for now. */
static bool accept_one(struct listener *listener)
{
    struct sockaddr_storage sa = {0};
    socklen_t sa_bytes = sizeof(sa);
    const int on = 1;
    int fd = accept4(listener->fd, (struct sockaddr *)&sa, &sa_bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0) {
        if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO)
            return true;
        if (errno == EAGAIN)
            return false;
        log_warn("accept_failed", LOG_STR("address", listener->address), LOG_STR("reason", strerror(errno)));
        listener->is_resting = true;
        ev_timer_start(listener->resume, ACCEPT_REST_NS);
        return false;
    }
    /* Fails on a UNIX socket from systemd, which does not need it. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (listener->strangers != NULL)
        strangers_take(listener->strangers, fd, (struct sockaddr *)&sa);
    else
        hand_over(listener, fd, (struct sockaddr *)&sa, NULL);
    return !listener->is_closed && !listener->is_paused && listener_has_room(listener);
}

static void listener_on_readable(void *arg, int fd, unsigned ready)
{
    struct listener *listener = arg;

    listener->is_accepting = true;
    for (unsigned n = 0; n < ACCEPT_BATCH && accept_one(listener); n++)
        ;
    listener->is_accepting = false;
    if (listener->is_closed)
        listener_destroy(listener);
    else
        update_watch(listener);
}

static int bind_socket(const struct listener_opts *opts, struct fault *fault)
{
    struct addr addr;
    const int on = 1, off = 0;
    int err = addr_parse(opts->address, fault, &addr);
    int fd;

    if (err != 0)
        return err;
    if (!addr.is_numeric)
        return fault_set(fault, E_FORMAT, "'%s': an address to listen on is numeric", opts->address);
    fd = socket(addr.sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fault_set(fault, E_IO, "'%s': socket: %s", opts->address, strerror(errno));
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        (opts->is_shared && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0) ||
        (addr.sa.ss_family == AF_INET6 &&
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, strcmp(addr.host, "*") == 0 ? &off : &on, sizeof(on)) !=
             0) ||
        bind(fd, (struct sockaddr *)&addr.sa, addr.sa_bytes) != 0 || listen(fd, ACCEPT_BACKLOG) != 0) {
        err = socket_owner_fault(fault, opts->address, (struct sockaddr *)&addr.sa);
        close(fd);
        return err;
    }
    return fd;
}

static int listener_open_strangers(struct listener *listener)
{
    const struct strangers_opts opts = {.loop = listener->opts.loop,
                                        .port = listener->opts.name,
                                        .max = listener->opts.max_strangers,
                                        .max_per_address = listener->opts.max_strangers_per_address,
                                        .begin_ns = STRANGERS_BEGIN_NS,
                                        .awaits_hello = true,
                                        .on_begun = listener_on_begun,
                                        .on_end = listener_on_stranger_end,
                                        .arg = listener};

    if (opts.max == 0)
        return 0;
    /* Any stranger can cause these lines, so they are limited; log_suppressed counts the rest. */
    (void)log_set_limit("link_failed", ACCEPT_FAILURES_PER_S);
    (void)log_set_limit("link_refused", ACCEPT_FAILURES_PER_S);
    stranger_counts_init(&listener->counts, listener->opts.metrics, opts.port);
    return strangers_new(&opts, &listener->strangers);
}

int listener_open(const struct listener_opts *opts, struct fault *fault, struct listener **out)
{
    struct listener *listener = calloc(1, sizeof(*listener));
    struct sockaddr_storage sa = {0};
    socklen_t sa_bytes = sizeof(sa);
    int err = E_NOMEM;

    if (listener == NULL)
        return E_NOMEM;
    listener->opts = *opts;
    if (listener->opts.max_connections == 0)
        listener->opts.max_connections = DEFAULT_MAX;
    listener->fd = opts->fd > 0 ? opts->fd : -1;
    if (listener->fd < 0) {
        err = bind_socket(opts, fault);
        if (err < 0)
            goto fail;
        listener->fd = err;
    }
    if (getsockname(listener->fd, (struct sockaddr *)&sa, &sa_bytes) != 0) {
        err = fault_set(fault, E_IO, "not a socket: %s", strerror(errno));
        goto fail;
    }
    addr_format((struct sockaddr *)&sa, listener->address);
    listener->opts.address = NULL; /* borrowed during this call only */
    err = ev_timer_new(opts->loop, on_resume, listener, &listener->resume);
    if (err == 0)
        err = listener_open_strangers(listener);
    if (err == 0)
        err = ev_fd_new(opts->loop, listener->fd, listener_on_readable, listener, &listener->watch);
    if (err != 0)
        goto fail;
    *out = listener;
    return 0;

fail:
    listener_destroy(listener);
    return err;
}

void listener_close(struct listener *listener)
{
    if (listener == NULL)
        return;
    if (listener->is_accepting)
        listener->is_closed = true;
    else
        listener_destroy(listener);
}

void listener_release(struct listener *listener)
{
    if (listener->n_connections > 0)
        listener->n_connections--;
    if (!listener->is_closed)
        update_watch(listener);
}

uint32_t listener_connections(const struct listener *listener)
{
    return listener->n_connections;
}

bool listener_make_room(struct listener *listener)
{
    return listener->strangers != NULL && strangers_make_room(listener->strangers, NULL);
}

void listener_know(struct listener *listener, const struct addr *address)
{
    if (listener->strangers != NULL && address->is_numeric)
        strangers_know(listener->strangers, (const struct sockaddr *)&address->sa);
}

const char *listener_address(const struct listener *listener)
{
    return listener->address;
}

void listener_pause(struct listener *listener)
{
    listener->is_paused = true;
    if (listener->strangers != NULL)
        strangers_close_silent(listener->strangers);
    update_watch(listener);
}
