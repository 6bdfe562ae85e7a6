/* SPDX-License-Identifier: Apache-2.0 */
/* Accepting connections without being drowned by them.
 *
 * The watch on the listening socket is on only while there is room:
 *
 *   room, descriptors left    accept up to BATCH per turn of the loop
 *   at max_connections        off until listener_release(); the kernel's backlog holds the rest
 *   EMFILE and the like       off for PAUSE_NS: a level-triggered watch would spin otherwise
 *
 * An address of all zeros ("*") opens one IPv6 socket for both families. */
#include "net/listener.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#define BATCH       64
#define BACKLOG     1024
#define PAUSE_NS    (100 * NS_PER_MS)
#define DEFAULT_MAX 1024

struct listener {
    struct listener_opts opts;
    int fd;
    char address[ADDR_TEXT_BYTES];
    struct ev_fd *watch;
    struct ev_timer *resume;
    uint32_t n_connections;
    bool is_paused;  /* for good */
    bool is_resting; /* until the timer */
    bool is_accepting;
    bool is_closed; /* inside on_accept; freed when it returns */
};

static void update_watch(struct listener *listener)
{
    bool is_on = !listener->is_paused && !listener->is_resting &&
                 listener->n_connections < listener->opts.max_connections;

    ev_fd_want(listener->watch, is_on ? EV_FD_READ : 0);
}

static void on_resume(void *arg)
{
    struct listener *listener = arg;

    listener->is_resting = false;
    update_watch(listener);
}

static void destroy(struct listener *listener)
{
    ev_fd_free(listener->watch);
    ev_timer_free(listener->resume);
    if (listener->fd >= 0)
        close(listener->fd);
    free(listener);
}

/* False: no more for now. */
static bool accept_one(struct listener *listener)
{
    struct sockaddr_storage sa = {0};
    socklen_t sa_bytes = sizeof(sa);
    char peer[ADDR_TEXT_BYTES];
    const int on = 1;
    int fd = accept4(listener->fd, (struct sockaddr *)&sa, &sa_bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0) {
        if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO)
            return true;
        if (errno == EAGAIN)
            return false;
        log_warn("accept_failed", LOG_STR("address", listener->address), LOG_STR("error", strerror(errno)));
        listener->is_resting = true;
        ev_timer_start(listener->resume, PAUSE_NS);
        return false;
    }
    /* Fails on a UNIX socket that systemd handed over, where it is not needed. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    addr_format((struct sockaddr *)&sa, peer);
    listener->n_connections++;
    listener->opts.on_accept(listener->opts.arg, fd, peer);
    return !listener->is_closed && !listener->is_paused &&
           listener->n_connections < listener->opts.max_connections;
}

static void on_readable(void *arg, int fd, unsigned ready)
{
    struct listener *listener = arg;

    listener->is_accepting = true;
    for (unsigned n = 0; n < BATCH && accept_one(listener); n++)
        ;
    listener->is_accepting = false;
    if (listener->is_closed)
        destroy(listener);
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
        bind(fd, (struct sockaddr *)&addr.sa, addr.sa_bytes) != 0 || listen(fd, BACKLOG) != 0) {
        err = fault_set(fault, E_IO, "cannot listen on '%s': %s", opts->address, strerror(errno));
        close(fd);
        return err;
    }
    return fd;
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
    listener->opts.address = NULL; /* borrowed for this call only */
    err = ev_timer_new(opts->loop, on_resume, listener, &listener->resume);
    if (err == 0)
        err = ev_fd_new(opts->loop, listener->fd, EV_FD_READ, on_readable, listener, &listener->watch);
    if (err != 0)
        goto fail;
    *out = listener;
    return 0;

fail:
    destroy(listener);
    return err;
}

void listener_close(struct listener *listener)
{
    if (listener == NULL)
        return;
    if (listener->is_accepting)
        listener->is_closed = true;
    else
        destroy(listener);
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

const char *listener_address(const struct listener *listener)
{
    return listener->address;
}

void listener_pause(struct listener *listener)
{
    listener->is_paused = true;
    update_watch(listener);
}
