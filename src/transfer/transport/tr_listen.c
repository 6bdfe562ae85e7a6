/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets of a node: listening, accepting, dialling.
 *
 * Accepted sockets are strangers until they prove that they know the cluster key. base/event/strangers.h
 * bounds them, in total and per address, and evicts the oldest. So a flood does not keep peers out, and a
 * port scan costs one descriptor. Addresses of peers with a link that is up have priority. When
 * descriptors run out, accepting pauses briefly.
 *
 * The UNIX socket's file may be left over from a dead process; it is removed only if no process answers
 * behind it. It gets mode 0666 because the daemons of one host run as different users; each connection
 * authenticates itself. */
#include "transfer/transport/tr_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/socket_owner.h"
#include "base/log.h"

/* Parses "127.0.0.1:80" or "[::1]:80". Numeric only: this thread never looks a name up. */
static int tr_listen_parse_address(const char *text, struct fault *fault, struct sockaddr_storage *out,
                                   socklen_t *len_out)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct addrinfo *info = NULL;
    const char *colon = strrchr(text, ':');
    char host[64] = "";
    size_t from = text[0] == '[', len_bytes = colon != NULL ? (size_t)(colon - text) : 0;

    if (from == 1 && len_bytes > 1 && text[len_bytes - 1] == ']')
        len_bytes -= 2;
    if (len_bytes > 0 && len_bytes < sizeof(host))
        memcpy(host, text + from, len_bytes);
    if (host[0] == '\0' || getaddrinfo(host, colon + 1, &hints, &info) != 0)
        return fault_set(fault, E_FORMAT, "'%s': not a numeric address and port", text);
    memcpy(out, info->ai_addr, info->ai_addrlen);
    *len_out = info->ai_addrlen;
    freeaddrinfo(info);
    return 0;
}

static int tr_listen_unix_address(const char *path, struct fault *fault, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (path[0] == '\0' || strlen(path) >= sizeof(out->sun_path))
        return fault_set(fault, E_INVAL, "'%s': a socket's path has 1 to %zu bytes", path,
                         sizeof(out->sun_path) - 1);
    strcpy(out->sun_path, path);
    return 0;
}

static void tr_listen_tune_tcp(const struct tr_node *node, int fd)
{
    const int on = 1, idle_s = 10, interval_s = 5, probes = 3;
    unsigned timeout_ms = (unsigned)(node->opts.io_timeout_ns / NS_PER_MS);

    /* Best effort. Only keep-alive finds a peer whose host vanished while the connection is idle. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    /* Measured: BBR, the default on some hosts, costs a quarter of the rate on short fat paths. */
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
}

void tr_listen_know(struct tr_node *node, const char *address)
{
    struct sockaddr_storage sa;
    socklen_t sa_bytes;

    if (node->tcp.strangers != NULL && tr_listen_parse_address(address, NULL, &sa, &sa_bytes) == 0)
        strangers_know(node->tcp.strangers, (const struct sockaddr *)&sa);
}

/* ---- dialling ---- */

static int tr_listen_open_socket(const struct tr_node *node, bool is_unix, const char *address,
                                 struct fault *fault)
{
    union {
        struct sockaddr sa;
        struct sockaddr_storage storage;
        struct sockaddr_un un;
    } to = {0};
    socklen_t len_bytes = sizeof(to.un);
    int err = is_unix ? tr_listen_unix_address(address, fault, &to.un)
                      : tr_listen_parse_address(address, fault, &to.storage, &len_bytes);
    int fd;

    if (err != 0)
        return err;
    fd = socket(to.sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fault_set(fault, E_IO, "no socket: %s", strerror(errno));
    if (!is_unix)
        tr_listen_tune_tcp(node, fd);
    if (connect(fd, &to.sa, len_bytes) != 0 && errno != EINPROGRESS) {
        err = fault_set(fault, E_CLOSED, "cannot connect to %s: %s", address, strerror(errno));
        close(fd);
        return err;
    }
    return fd;
}

int tr_conn_dial(struct tr_node *node, struct tr_peer *peer, struct fault *fault)
{
    int fd = tr_listen_open_socket(node, tr_kind_socket(peer->kind) == TR_SHM, peer->address, fault);
    struct tr_conn *conn;
    int err;

    if (fd < 0)
        return fd;
    err = tr_conn_new(node, peer->kind, fd, peer, &conn);
    if (err != 0) {
        close(fd);
        return fault_set(fault, err, "cannot connect to %s: %s", peer->address, err_text(err));
    }
    while ((peer->used_indexes >> conn->index & 1) != 0)
        conn->index++;
    peer->used_indexes |= 1u << conn->index;
    list_push_back(&peer->conns, &conn->peer_node);
    atomic_fetch_add_explicit(&node->totals.connections_made, 1, memory_order_relaxed);
    return 0;
}

/* ---- accepting ---- */

static void tr_listen_rest(struct tr_listener *listener)
{
    ev_fd_want(listener->watch, 0);
    ev_timer_start(listener->resume, ACCEPT_REST_NS);
}

static void tr_listen_on_resume(void *arg)
{
    struct tr_listener *listener = arg;

    ev_fd_want(listener->watch, EV_FD_READ);
}

static bool tr_listen_has_room(const struct tr_node *node)
{
    return atomic_load_explicit(&node->totals.connections_open, memory_order_relaxed) < TR_MAX_ACCEPTED;
}

static void tr_listen_on_evicted(void *owner)
{
    struct tr_conn *conn = owner;
    struct tr_node *node = conn->owner;
    struct fault fault;

    conn->stranger = NULL;
    fault_set(&fault, E_LIMIT, "evicted: too many connections that have not authenticated");
    tr_conn_fail(conn, &fault);
    tr_conns_free_dead(node);
}

static void tr_listen_on_begun(void *arg, int fd, const struct sockaddr *from, struct stranger *stranger)
{
    struct tr_listener *listener = arg;
    struct tr_node *node = listener->node;
    struct tr_conn *conn;

    if (listener->kind == TR_TCP)
        tr_listen_tune_tcp(node, fd);
    if ((!tr_listen_has_room(node) && !strangers_make_room(listener->strangers, NULL)) ||
        tr_conn_new(node, listener->kind, fd, NULL, &conn) != 0) {
        stranger_leave(stranger);
        close(fd);
        return;
    }
    conn->stranger = stranger;
    stranger_bind(stranger, tr_listen_on_evicted, conn);
    atomic_fetch_add_explicit(&node->totals.connections_accepted, 1, memory_order_relaxed);
}

static void tr_listen_on_end(void *arg, enum stranger_end why)
{
    struct tr_listener *listener = arg;
    struct tr_totals *totals = &listener->node->totals;

    atomic_fetch_add_explicit(&totals->strangers_evicted[listener->kind == TR_SHM][why], 1,
                              memory_order_relaxed);
}

static void tr_listen_on_acceptable(void *arg, int fd, unsigned ready)
{
    struct tr_listener *listener = arg;

    for (unsigned n = 0; n < ACCEPT_BATCH; n++) {
        struct sockaddr_storage from = {0};
        socklen_t from_bytes = sizeof(from);
        int new_fd = accept4(fd, (struct sockaddr *)&from, &from_bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (new_fd >= 0) {
            strangers_take(listener->strangers, new_fd, (struct sockaddr *)&from);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR && errno != ECONNABORTED && errno != EPROTO) {
            log_warn("kv_accept_failed", LOG_STR("reason", strerror(errno)));
            tr_listen_rest(listener);
            return;
        }
    }
}

static int tr_listen_start(struct tr_node *node, struct tr_listener *listener, enum tr_kind kind, int fd)
{
    const struct strangers_opts opts = {.loop = node->loop,
                                        .port = kind == TR_SHM ? "kv.unix" : "kv.tcp",
                                        .max = TR_MAX_STRANGERS,
                                        .max_per_address = TR_MAX_STRANGERS / 4,
                                        .begin_ns = STRANGERS_BEGIN_NS,
                                        .awaits_hello = kind == TR_TCP && node->opts.tls_server != NULL,
                                        .on_begun = tr_listen_on_begun,
                                        .on_end = tr_listen_on_end,
                                        .arg = listener};
    int err;

    (void)log_set_limit("kv_connection_failed", ACCEPT_FAILURES_PER_S); /* any stranger can cause this line */
    listener->node = node;
    listener->kind = kind;
    listener->fd = fd;
    err = strangers_new(&opts, &listener->strangers);
    if (err == 0)
        err = ev_timer_new(node->loop, tr_listen_on_resume, listener, &listener->resume);
    if (err == 0)
        err = ev_fd_new(node->loop, fd, tr_listen_on_acceptable, listener, &listener->watch);
    return err;
}

int tr_listen_tcp(struct tr_node *node, const char *address, struct fault *fault)
{
    struct sockaddr_storage sa;
    socklen_t sa_bytes;
    const int on = 1;
    char host[64], port[8];
    int err = tr_listen_parse_address(address, fault, &sa, &sa_bytes);
    int fd;

    if (err != 0)
        return err;
    fd = socket(sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fault_set(fault, E_IO, "no socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sa_bytes = sa.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    if (bind(fd, (struct sockaddr *)&sa, sa_bytes) != 0 || listen(fd, ACCEPT_BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&sa, &sa_bytes) != 0 ||
        getnameinfo((struct sockaddr *)&sa, sa_bytes, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        err = socket_owner_fault(fault, address, (struct sockaddr *)&sa);
        close(fd);
        return err;
    }
    snprintf(node->tcp_address, sizeof(node->tcp_address),
             sa.ss_family == AF_INET ? "%s:%.6s" : "[%.50s]:%.6s", host, port);
    return tr_listen_start(node, &node->tcp, TR_TCP, fd);
}

static bool tr_listen_is_left_over(const struct sockaddr_un *un)
{
    struct stat st;
    int fd;
    bool answers;

    if (lstat(un->sun_path, &st) != 0 || !S_ISSOCK(st.st_mode))
        return false;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    answers = connect(fd, (const struct sockaddr *)un, sizeof(*un)) == 0 || errno != ECONNREFUSED;
    close(fd);
    return !answers;
}

int tr_listen_unix(struct tr_node *node, const char *path, struct fault *fault)
{
    struct sockaddr_un un;
    int err = tr_listen_unix_address(path, fault, &un);
    int fd;

    if (err != 0)
        return err;
    /* Another user may own the file.
     * ENOENT is fine: the process that left it may remove it at the same time. */
    if (tr_listen_is_left_over(&un) && unlink(path) != 0 && errno != ENOENT)
        return fault_set(fault, E_IO,
                         "cannot listen on %s: the socket that was left there cannot be removed: %s", path,
                         strerror(errno));
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fault_set(fault, E_IO, "no socket: %s", strerror(errno));
    if (bind(fd, (struct sockaddr *)&un, sizeof(un)) != 0 || chmod(path, 0666) != 0 ||
        listen(fd, ACCEPT_BACKLOG) != 0) {
        err = socket_owner_fault(fault, path, (struct sockaddr *)&un);
        close(fd);
        return err;
    }
    strcpy(node->unix_path, path);
    return tr_listen_start(node, &node->unix_, TR_SHM, fd);
}

static void tr_listen_close_one(struct tr_listener *listener)
{
    ev_fd_free(listener->watch);
    ev_timer_free(listener->resume);
    strangers_free(listener->strangers);
    if (listener->fd >= 0)
        close(listener->fd);
    listener->fd = -1;
}

void tr_listen_close(struct tr_node *node)
{
    tr_listen_close_one(&node->tcp);
    tr_listen_close_one(&node->unix_);
    if (node->unix_path[0] != '\0')
        unlink(node->unix_path);
}
