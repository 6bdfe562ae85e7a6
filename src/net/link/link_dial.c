/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting: name lookup, socket, TLS object.
 *
 * Numeric addresses connect directly. Each attempt looks a name up again, so that it finds a peer that
 * moved. If a name has several addresses, attempts take them in turn.
 *
 * Callbacks must be deferred (BEV_OPT_DEFER_CALLBACKS). Otherwise a write to a bufferevent can call its
 * error callback inside link_send(), while the caller still uses the link. */
#include "net/link/link_priv.h"

#include <errno.h>
#include <event2/bufferevent_ssl.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"

#define BEV_FLAGS (BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS)

void link_tune_socket(const struct link *link, int fd)
{
    const int on = 1;
    uint64_t dead_ms = 3 * link->opts.heartbeat_ns / NS_PER_MS;
    unsigned user_timeout_ms = dead_ms < 1000 ? 1000 : dead_ms > INT32_MAX ? INT32_MAX : (unsigned)dead_ms;

    /* Best effort: a test may pass a socket pair. Without NODELAY a small frame waits for the ACK of the
     * previous one. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout_ms, sizeof(user_timeout_ms));
}

int link_make_bufferevent(struct link *link, int fd, bool is_server)
{
    struct event_base *base = ev_loop_base(link->opts.loop);
    SSL *ssl;

    if (link->opts.is_plaintext) {
        link->bev = bufferevent_socket_new(base, fd, BEV_FLAGS);
        return link->bev != NULL ? 0 : E_NOMEM;
    }
    ssl = SSL_new(is_server ? tls_server(link->opts.tls) : tls_client(link->opts.tls));
    if (ssl == NULL)
        return E_NOMEM;
    link->bev = bufferevent_openssl_socket_new(
        base, fd, ssl, is_server ? BUFFEREVENT_SSL_ACCEPTING : BUFFEREVENT_SSL_CONNECTING, BEV_FLAGS);
    if (link->bev == NULL) {
        SSL_free(ssl);
        return E_NOMEM;
    }
    bufferevent_openssl_set_allow_dirty_shutdown(link->bev, 1);
    return 0;
}

static void fail_to_connect(struct link *link, int code, const char *what)
{
    struct fault fault;

    fault_set(&fault, code, "%s: %s", link->address, what);
    link_fail(link, &fault);
}

static void connect_to(struct link *link, const struct sockaddr *sa, int sa_bytes)
{
    int err = link_make_bufferevent(link, -1, false);

    if (err != 0) {
        fail_to_connect(link, err, err_text(err));
        return;
    }
    link_set_state(link, LINK_CONNECTING);
    link_set_callbacks(link);
    if (bufferevent_socket_connect(link->bev, sa, sa_bytes) != 0) {
        fail_to_connect(link, E_IO, strerror(errno));
        return;
    }
    link_tune_socket(link, bufferevent_getfd(link->bev));
}

void link_stop_resolving(struct link *link)
{
    resolve_free(link->lookup);
    link->lookup = NULL;
}

static void on_resolved(void *arg, const struct addr *list, unsigned n, const struct fault *fault)
{
    struct link *link = arg;

    link_enter(link);
    link_stop_resolving(link);
    if (n == 0) {
        link_fail(link, fault);
    } else {
        const struct addr *to = &list[link->n_attempts % n];

        connect_to(link, (const struct sockaddr *)&to->sa, (int)to->sa_bytes);
    }
    link_leave(link);
}

static void link_dial_look_up(struct link *link)
{
    int err = resolve_new(link->opts.loop, &link->addr, on_resolved, link, &link->lookup);

    if (err != 0)
        fail_to_connect(link, err, "cannot look the name up");
    else
        link_set_state(link, LINK_RESOLVING);
}

/* The caller has already started the deadline of the whole handshake. */
void link_start_dialling(struct link *link)
{
    if (link->addr.is_numeric)
        connect_to(link, (const struct sockaddr *)&link->addr.sa, (int)link->addr.sa_bytes);
    else
        link_dial_look_up(link);
}
