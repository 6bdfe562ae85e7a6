/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP server: listeners, accepting within limits, draining. conn.c handles the connections.
 *
 * A connection is a stranger (base/event/strangers.h) until one of its requests shows a key. Above the
 * limit of connections, in total or per address, the oldest stranger there is evicted. If there is none,
 * the new connection gets a ready-made answer and is closed. With TLS, a connection allocates nothing
 * before its first byte. When the process runs out of descriptors, accepting pauses briefly instead of
 * spinning. */
#include "net/http/server.h"

#include <errno.h>
#include <event2/bufferevent_ssl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/socket_owner.h"
#include "base/log.h"
#include "net/http/congestion.h"
#include "net/http/conn_priv.h"
#include "net/http/h2_priv.h"
#include "net/http/response.h"

#define NOTSENT_LOWAT_BYTES (16 << 10)
#define MAX_READ_BYTES      (64 << 10)

static const char default_busy_answer[] =
    "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n"
    "content-length: 0\r\n\r\n";

static void http_server_on_begun(void *arg, int fd, const struct sockaddr *from, struct stranger *stranger);
static void http_server_on_stranger_end(void *arg, enum stranger_end why);

static void set_default_u32(uint32_t *value, uint32_t if_zero)
{
    if (*value == 0)
        *value = if_zero;
}

static void set_default_u64(uint64_t *value, uint64_t if_zero)
{
    if (*value == 0)
        *value = if_zero;
}

static void fill_limits(struct http_limits *limits)
{
    set_default_u32(&limits->max_line_bytes, 8 << 10);
    set_default_u32(&limits->max_head_bytes, 64 << 10);
    set_default_u32(&limits->max_fields, HTTP_MAX_FIELDS);
    set_default_u64(&limits->max_body_bytes, UINT64_C(32) << 20);
    set_default_u64(&limits->max_bodies_bytes, UINT64_C(1) << 30);
    set_default_u32(&limits->max_conns, 10000);
    set_default_u32(&limits->max_conns_per_address, 256);
    set_default_u32(&limits->max_strangers, 2048);
    set_default_u64(&limits->begin_ns, STRANGERS_BEGIN_NS);
    set_default_u32(&limits->max_requests_per_conn, 10000);
    set_default_u32(&limits->max_queue_bytes, 256 << 10);
    set_default_u32(&limits->max_pipeline_bytes, 64 << 10);
    set_default_u32(&limits->max_streams, 100);
    set_default_u64(&limits->handshake_ns, 10 * NS_PER_S);
    set_default_u64(&limits->head_ns, 10 * NS_PER_S);
    set_default_u64(&limits->body_ns, 30 * NS_PER_S);
    set_default_u64(&limits->body_ns_per_mib, NS_PER_S);
    set_default_u64(&limits->idle_ns, 60 * NS_PER_S);
    set_default_u64(&limits->stall_ns, 30 * NS_PER_S);
    set_default_u64(&limits->linger_ns, 15 * NS_PER_S);
    if (limits->begin_ns > limits->handshake_ns)
        limits->begin_ns = limits->handshake_ns;
    /* A head must fit into the bytes that are read ahead. */
    if (limits->max_pipeline_bytes < limits->max_head_bytes + 1)
        limits->max_pipeline_bytes = limits->max_head_bytes + 1;
}

static void on_kick(void *arg)
{
    struct http_server *server = arg;
    uint64_t begun_ns = clock_now_ns();
    struct list *node;

    /* A connection with more input puts itself on the list again. */
    while ((node = list_pop_front(&server->kicked)) != NULL) {
        http_conn_kicked(container_of(node, struct http_conn, kicked));
        if (clock_now_ns() - begun_ns > HTTP_TURN_NS && !list_is_empty(&server->kicked)) {
            ev_timer_start(server->kick, 0);
            return;
        }
    }
    if (server->state == SERVER_DRAINING && server->n_conns == 0 && server->on_drained != NULL) {
        ev_call done = server->on_drained;

        server->on_drained = NULL;
        done(server->on_drained_arg);
    }
}

static void on_accept_again(void *arg)
{
    struct http_server *server = arg;

    server->n_accepted = 0;
    for (unsigned i = 0; i < server->n_listeners; i++)
        evconnlistener_enable(server->listeners[i]);
}

static void make_metrics(struct http_server *server)
{
    struct metrics *metrics = server->opts.metrics;

    if (metrics == NULL)
        return;
    server->conns_gauge =
        metric_single(metrics, METRIC_GAUGE, "baton_http_connections", "Open HTTP connections.");
    server->refused_family =
        metric_family(metrics, METRIC_COUNTER, "baton_http_refused_total",
                      "Requests refused before they were understood, and connections over a limit.", "why");
    server->slow_readers = metric_single(metrics, METRIC_COUNTER, "baton_http_slow_readers_total",
                                         "Connections cut because the client read too slowly.");
}

static int http_server_open_strangers(struct http_server *server)
{
    const struct http_limits *limits = &server->limits;
    const struct strangers_opts opts = {
        /* Without TLS: the first head's deadline applies. */
        .loop = server->opts.loop,
        .port = server->opts.port != NULL ? server->opts.port : "http",
        .max = limits->max_strangers < limits->max_conns ? limits->max_strangers : limits->max_conns,
        .max_per_address = limits->max_conns_per_address,
        .begin_ns = server->opts.tls != NULL ? limits->begin_ns : 0,
        .awaits_hello = server->opts.tls != NULL,
        .on_begun = http_server_on_begun,
        .on_end = http_server_on_stranger_end,
        .arg = server};

    stranger_counts_init(&server->stranger_counts, server->opts.port_metrics, opts.port);
    return strangers_new(&opts, &server->strangers);
}

int http_server_new(const struct http_server_opts *opts, struct http_server **out)
{
    struct http_server *server = calloc(1, sizeof(*server));

    if (server == NULL)
        return E_NOMEM;
    server->opts = *opts;
    server->limits = opts->limits;
    fill_limits(&server->limits);
    if (server->opts.busy_answer.len_bytes == 0)
        server->opts.busy_answer = bytes_str(default_busy_answer);
    list_init(&server->conns);
    list_init(&server->kicked);
    if (hashmap_new(16, &server->addresses) < 0 || http_server_open_strangers(server) < 0 ||
        ev_timer_new(opts->loop, on_kick, server, &server->kick) < 0 ||
        ev_timer_new(opts->loop, on_accept_again, server, &server->accept_again) < 0) {
        http_server_free(server);
        return E_NOMEM;
    }
    make_metrics(server);
    *out = server;
    return 0;
}

void http_server_free(struct http_server *server)
{
    if (server == NULL)
        return;
    for (unsigned i = 0; i < server->n_listeners; i++)
        evconnlistener_free(server->listeners[i]);
    server->on_drained = NULL;
    list_for_each_safe (node, spare, &server->conns)
        http_conn_free(container_of(node, struct http_conn, node));
    strangers_free(server->strangers);
    ev_timer_free(server->kick);
    ev_timer_free(server->accept_again);
    hashmap_free(server->addresses);
    free(server);
}

/* ---- accepting ---- */

static bool address_key(const struct sockaddr *from, uint8_t key[16])
{
    memset(key, 0, 16);
    if (from->sa_family == AF_INET) {
        key[10] = key[11] = 0xff;
        memcpy(key + 12, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
        return true;
    }
    if (from->sa_family == AF_INET6) {
        const struct in6_addr *a = &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr;

        memcpy(key, a, IN6_IS_ADDR_V4MAPPED(a) ? 16 : 8);
        return true;
    }
    return false;
}

/* Counts a connection of this address. False: one too many. *out is NULL for sockets without addresses. */
static bool count_address(struct http_server *server, const struct sockaddr *from, struct http_address **out)
{
    struct http_address *address;
    uint8_t key[16];

    *out = NULL;
    if (!address_key(from, key))
        return true;
    address = hashmap_get(server->addresses, key);
    if (address == NULL) {
        address = calloc(1, sizeof(*address));
        if (address == NULL)
            return false;
        memcpy(address->key, key, sizeof(key));
        if (hashmap_put(server->addresses, key, address, NULL) < 0) {
            free(address);
            return false;
        }
    }
    if (address->n_conns >= server->limits.max_conns_per_address)
        return false;
    address->n_conns++;
    *out = address;
    return true;
}

static void uncount_address(struct http_server *server, struct http_address *address)
{
    if (address == NULL || --address->n_conns > 0)
        return;
    hashmap_remove(server->addresses, address->key);
    free(address);
}

void http_server_count_why(struct http_server *server, const char *why)
{
    if (server->refused_family != NULL)
        metric_add(metric_series(server->refused_family, &why), 1);
}

void http_server_count_refusal(struct http_server *server, int status)
{
    char why[16];

    snprintf(why, sizeof(why), "%d", status);
    http_server_count_why(server, why);
}

static void turn_away(struct http_server *server, int fd)
{
    struct bytes answer = server->opts.busy_answer;

    http_server_count_why(server, "connections");
    /* Best effort: the answer fits into an empty socket buffer, or it is lost. A TLS client could not read
     * it. */
    if (server->opts.tls == NULL && send(fd, answer.data, answer.len_bytes, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        shutdown(fd, SHUT_WR);
    close(fd);
}

/* Counts a connection, and evicts a stranger if that makes room. False: one too many. */
static bool count_conn(struct http_server *server, const struct sockaddr *from, struct http_address **out)
{
    if (server->n_conns >= server->limits.max_conns && !strangers_make_room(server->strangers, NULL))
        return false;
    return count_address(server, from, out) ||
           (strangers_make_room(server->strangers, from) && count_address(server, from, out));
}

/* Takes fd and stranger. */
static int http_server_adopt_from(struct http_server *server, int fd, const struct sockaddr *from,
                                  struct stranger *stranger)
{
    struct http_address *address = NULL;
    struct http_conn *conn;
    int rc;

    if (!count_conn(server, from, &address)) {
        stranger_leave(stranger);
        turn_away(server, fd);
        return E_FULL;
    }
    rc = http_conn_new(server, fd, from, &conn);
    if (rc < 0) {
        stranger_leave(stranger);
        uncount_address(server, address);
        if (rc != E_CLOSED)
            turn_away(server, fd);
        return E_NOMEM;
    }
    conn->address = address;
    conn->stranger = stranger;
    stranger_bind(stranger, http_conn_evict, conn);
    server->n_conns++;
    if (server->conns_gauge != NULL)
        metric_add(server->conns_gauge, 1);
    return 0;
}

static void http_server_on_begun(void *arg, int fd, const struct sockaddr *from, struct stranger *stranger)
{
    (void)http_server_adopt_from(arg, fd, from, stranger);
}

static void http_server_on_stranger_end(void *arg, enum stranger_end why)
{
    const struct http_server *server = arg;

    stranger_counts_add(&server->stranger_counts, why, 1);
}

int http_server_adopt(struct http_server *server, int fd)
{
    struct sockaddr_storage from = {.ss_family = AF_UNIX};
    socklen_t len = sizeof(from);

    (void)getpeername(fd, (struct sockaddr *)&from, &len);
    if (evutil_make_socket_nonblocking(fd) < 0) {
        close(fd);
        return E_NOMEM;
    }
    return http_server_adopt_from(server, fd, (const struct sockaddr *)&from, NULL);
}

static void http_server_rest(struct http_server *server, uint64_t for_ns)
{
    for (unsigned i = 0; i < server->n_listeners; i++)
        evconnlistener_disable(server->listeners[i]);
    ev_timer_start(server->accept_again, for_ns);
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from,
                      int from_len, void *arg)
{
    struct http_server *server = arg;

    ev_work_begin("http accept");
    strangers_take(server->strangers, fd, from);
    if (++server->n_accepted >= ACCEPT_BATCH && server->state != SERVER_DRAINING)
        http_server_rest(server, 0); /* libevent would accept for as long as a flood lasts */
    ev_work_end();
}

static void on_accept_error(struct evconnlistener *listener, void *arg)
{
    int error = errno;

    log_warn("http_accept_failed", LOG_STR("reason", strerror(error)));
    http_server_rest(arg, ACCEPT_REST_NS);
}

/* On failure it takes neither fd nor any other argument. */
static struct bufferevent *new_tls_bufferevent(struct http_server *server, int fd, SSL **ssl_out)
{
    SSL *ssl = http_tls_accept(server->opts.tls);
    struct bufferevent *bev;

    if (ssl == NULL)
        return NULL;
    bev = bufferevent_openssl_socket_new(ev_loop_base(server->opts.loop), fd, ssl, BUFFEREVENT_SSL_ACCEPTING,
                                         BEV_OPT_CLOSE_ON_FREE);
    if (bev == NULL) {
        SSL_free(ssl);
        return NULL;
    }
    bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    *ssl_out = ssl;
    return bev;
}

struct bufferevent *http_server_bufferevent(struct http_server *server, int fd, SSL **ssl_out)
{
    struct bufferevent *bev;
    int one = 1;
    int lowat = NOTSENT_LOWAT_BYTES;

    /* Without NODELAY a small answer over TLS waits 40 ms for the acknowledgement of its first record.
     * Both calls fail on UNIX sockets, which need neither. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowat, sizeof(lowat));
    *ssl_out = NULL;
    if (server->opts.tls != NULL)
        bev = new_tls_bufferevent(server, fd, ssl_out);
    else
        bev = bufferevent_socket_new(ev_loop_base(server->opts.loop), fd, BEV_OPT_CLOSE_ON_FREE);
    if (bev != NULL)
        bufferevent_set_max_single_read(bev, MAX_READ_BYTES);
    return bev;
}

void http_server_closed(struct http_server *server, struct http_conn *conn)
{
    uncount_address(server, conn->address);
    server->n_conns--;
    if (server->conns_gauge != NULL)
        metric_add(server->conns_gauge, -1);
    if (server->state == SERVER_DRAINING && server->n_conns == 0 && server->on_drained != NULL)
        ev_timer_start(server->kick, 0);
}

/* ---- listening ---- */

static int add_listener(struct http_server *server, int fd)
{
    struct evconnlistener *listener;
    struct sockaddr_storage bound;
    socklen_t len = sizeof(bound);

    if (server->n_listeners == HTTP_MAX_LISTENERS)
        return E_LIMIT;
    listener = evconnlistener_new(ev_loop_base(server->opts.loop), on_accept, server,
                                  LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, ACCEPT_BACKLOG, fd);
    if (listener == NULL)
        return E_IO;
    evconnlistener_set_error_cb(listener, on_accept_error);
    server->listeners[server->n_listeners++] = listener;
    if (server->port == 0 && getsockname(fd, (struct sockaddr *)&bound, &len) == 0) {
        if (bound.ss_family == AF_INET)
            server->port = ntohs(((struct sockaddr_in *)(void *)&bound)->sin_port);
        else if (bound.ss_family == AF_INET6)
            server->port = ntohs(((struct sockaddr_in6 *)(void *)&bound)->sin6_port);
    }
    return 0;
}

/* Takes a listening socket. */
static int listen_fd(struct http_server *server, int fd)
{
    int rc = evutil_make_socket_nonblocking(fd) < 0 ? E_IO : add_listener(server, fd);

    if (rc < 0)
        close(fd);
    return rc;
}

static int bind_one(const struct http_server *server, const struct addrinfo *info)
{
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int one = 1;

    if (fd < 0)
        return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        (server->opts.shares_port && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) < 0) ||
        (info->ai_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)) < 0) ||
        http_congestion_set(fd, server->opts.congestion) < 0 ||
        bind(fd, info->ai_addr, info->ai_addrlen) < 0 || listen(fd, ACCEPT_BACKLOG) < 0) {
        int error = errno;

        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

int http_server_listen(struct http_server *server, const char *address, struct fault *fault)
{
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    const char *colon = strrchr(address, ':');
    struct addrinfo *found = NULL;
    char host[256];
    unsigned n_bound = 0;
    int rc;

    if (colon == NULL || (size_t)(colon - address) >= sizeof(host) || colon[1] == '\0')
        return fault_set(fault, E_FORMAT, "%s: not HOST:PORT", address);
    snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
    if (host[0] == '[' && host[strlen(host) - 1] == ']') {
        memmove(host, host + 1, strlen(host));
        host[strlen(host) - 1] = '\0';
    }
    rc = http_congestion_check(server->opts.congestion, fault);
    if (rc < 0)
        return rc;
    rc = getaddrinfo(host[0] == '\0' || strcmp(host, "*") == 0 ? NULL : host, colon + 1, &hints, &found);
    if (rc != 0)
        return fault_set(fault, E_FORMAT, "%s: %s", address, gai_strerror(rc));
    rc = 0;
    for (const struct addrinfo *info = found; info != NULL && rc == 0; info = info->ai_next) {
        int fd = bind_one(server, info);

        if (fd < 0) {
            /* A host without IPv6 may still resolve a name to an IPv6 address. */
            if (info->ai_family == AF_INET6 && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL))
                continue;
            rc = socket_owner_fault(fault, address, info->ai_addr);
        } else {
            rc = listen_fd(server, fd);
            n_bound += rc == 0;
        }
    }
    freeaddrinfo(found);
    if (rc == 0 && n_bound == 0)
        rc = fault_set(fault, E_IO, "cannot listen on %s: no usable address", address);
    return rc;
}

uint16_t http_server_port(const struct http_server *server)
{
    return server->port;
}

void http_server_set_lame_duck(struct http_server *server, bool is_on)
{
    if (server->state == SERVER_DRAINING)
        return;
    server->state = is_on ? SERVER_LAME_DUCK : SERVER_SERVING;
    if (!is_on)
        return;
    list_for_each (node, &server->conns) {
        struct http_conn *conn = container_of(node, struct http_conn, node);

        if (conn->h2 != NULL)
            h2_warn(conn->h2);
    }
}

void http_server_drain(struct http_server *server, ev_call done, void *arg)
{
    server->state = SERVER_DRAINING;
    strangers_close_silent(server->strangers);
    server->on_drained = done;
    server->on_drained_arg = arg;
    ev_timer_stop(server->accept_again);
    for (unsigned i = 0; i < server->n_listeners; i++)
        evconnlistener_free(server->listeners[i]);
    server->n_listeners = 0;
    list_for_each_safe (node, spare, &server->conns)
        http_conn_drain(container_of(node, struct http_conn, node));
    if (server->n_conns == 0)
        ev_timer_start(server->kick, 0);
}

uint32_t http_server_n_conns(const struct http_server *server)
{
    return server->n_conns;
}

const char *http_server_date(struct http_server *server)
{
    uint64_t now_s = clock_unix_ns() / NS_PER_S;

    if (now_s != server->date_unix_s) {
        server->date_unix_s = now_s;
        http_date(now_s, server->date);
    }
    return server->date;
}
