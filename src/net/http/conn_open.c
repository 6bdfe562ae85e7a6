/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and frees connections; conn.c has the states in between. */
#include "net/http/conn_priv.h"

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <netdb.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "net/http/h2_priv.h"

static void name_peer(struct http_conn *conn, const struct sockaddr *from)
{
    char host[INET6_ADDRSTRLEN] = "";
    char port[8] = "";
    socklen_t len = from->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

    if (from->sa_family == AF_UNIX)
        snprintf(conn->peer, sizeof(conn->peer), "unix");
    else if (getnameinfo(from, len, host, sizeof(host), port, sizeof(port),
                         NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        snprintf(conn->peer, sizeof(conn->peer), from->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host,
                 port);
    else
        snprintf(conn->peer, sizeof(conn->peer), "?");
}

int http_conn_new(struct http_server *server, int fd, const struct sockaddr *from, struct http_conn **out)
{
    struct http_conn *conn = calloc(1, sizeof(*conn));

    if (conn == NULL)
        return E_NOMEM;
    conn->server = server;
    conn->exchange.conn = conn;
    list_init(&conn->node);
    list_init(&conn->kicked);
    name_peer(conn, from);
    if (ev_timer_new(server->opts.loop, http_conn_on_deadline, conn, &conn->deadline) < 0 ||
        ev_timer_new(server->opts.loop, http_conn_on_stall, conn, &conn->stall) < 0)
        goto fail;
    conn->bev = http_server_bufferevent(server, fd, &conn->ssl);
    if (conn->bev == NULL)
        goto fail;
    if (http_conn_start(conn) < 0) {
        bufferevent_free(conn->bev);
        fd = -1; /* the bufferevent closed it; the caller must not close it again */
        goto fail;
    }
    list_push_back(&server->conns, &conn->node);
    *out = conn;
    return 0;

fail:
    ev_timer_free(conn->deadline);
    ev_timer_free(conn->stall);
    free(conn);
    return fd < 0 ? E_CLOSED : E_NOMEM;
}

/* Sends the TLS alert that distinguishes an end from a cut. Sent at once or not at all: the server does
 * not wait for it. */
static void conn_send_tls_close(struct http_conn *conn)
{
    if (conn->ssl == NULL || !SSL_is_init_finished(conn->ssl) ||
        (SSL_get_shutdown(conn->ssl) & SSL_SENT_SHUTDOWN) != 0)
        return;
    (void)SSL_shutdown(conn->ssl);
    ERR_clear_error();
}

void http_conn_shut_sending(struct http_conn *conn)
{
    conn_send_tls_close(conn);
    shutdown(bufferevent_getfd(conn->bev), SHUT_WR);
}

void http_conn_free(struct http_conn *conn)
{
    stranger_leave(conn->stranger);
    conn->stranger = NULL;
    http_conn_abort(conn, HTTP_ABORT_SERVER);
    h2_free(conn->h2);
    http_body_uncount(&conn->exchange);
    list_remove(&conn->node);
    list_remove(&conn->kicked);
    ev_timer_free(conn->deadline);
    ev_timer_free(conn->stall);
    if (!conn->is_broken && http_conn_unsent(conn) == 0)
        conn_send_tls_close(conn);
    bufferevent_free(conn->bev);
    http_exchange_fini(&conn->exchange);
    http_server_closed(conn->server, conn);
    free(conn);
}

/* Runs while another connection is accepted, so no call of this connection is on the stack. */
void http_conn_evict(void *owner)
{
    struct http_conn *conn = owner;

    conn->stranger = NULL;
    http_conn_abort(conn, HTTP_ABORT_SERVER);
    http_conn_free(conn);
}
