/* SPDX-License-Identifier: Apache-2.0 */
/* See redis_conn.h.  The socket never blocks; only poll() waits, and always with a time limit.
 *
 *     socket --recv, SSL_read--> in[at, end) --> resp.c --> items that point into `in`
 *
 * A reply stays in `in` until the next call, so a value is copied once, by the kernel or by TLS.  `in` grows to
 * the longest reply, max_reply_bytes at most. */
#include "net/redis/redis_conn.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "net/redis/redis_error.h"

#define REDIS_WAIT_NS    (100 * NS_PER_MS) /* how often is_ending is checked */
#define REDIS_READ_BYTES (64u * 1024)
#define REDIS_PART_BYTES (512u * 1024) /* of a read with on_part: the bytes are still in the cache then */
#define REDIS_WAKE_BYTES (256u * 1024) /* of a long reply: the thread sleeps until so many are there */
#define REDIS_PARTS      8             /* of one sendmsg() */

struct redis_conn {
    struct redis_conn_opts opts;
    int fd;
    SSL *ssl;
    uint8_t *in; /* [cap] */
    size_t at, end, cap;
    int wake_bytes;     /* of the socket, SO_RCVLOWAT */
    size_t reply_bytes; /* of the reply that the caller has; dropped by the next call */
    void (*on_part)(void *arg, struct bytes beginning);
    void *on_part_arg;
};

/* ---- waiting ---- */

static bool redis_conn_is_ending(const struct redis_conn *conn)
{
    return conn->opts.is_ending != NULL && atomic_load_explicit(conn->opts.is_ending, memory_order_relaxed);
}

/* Waits until the socket is ready.  E_TIMEOUT, E_CANCELLED, E_IO. */
static int redis_conn_wait(const struct redis_conn *conn, short events)
{
    uint64_t until_ns = clock_now_ns() + conn->opts.stall_ns;

    for (;;) {
        uint64_t now_ns = clock_now_ns(), left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
        struct pollfd ready = {.fd = conn->fd, .events = events};
        int n, rest_ms = (int)((left_ns < REDIS_WAIT_NS ? left_ns : REDIS_WAIT_NS) / NS_PER_MS) + 1;

        if (redis_conn_is_ending(conn))
            return E_CANCELLED;
        n = poll(&ready, 1, rest_ms);
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return E_IO;
        if (left_ns == 0)
            return E_TIMEOUT;
    }
}

static void redis_conn_wake_at(struct redis_conn *conn, int n_bytes)
{
    if (conn->wake_bytes != n_bytes &&
        setsockopt(conn->fd, SOL_SOCKET, SO_RCVLOWAT, &n_bytes, sizeof(n_bytes)) == 0)
        conn->wake_bytes = n_bytes;
}

/* Waits for bytes.  While many are missing it sleeps until many are there, but not for longer than REDIS_WAIT_NS. */
static int redis_conn_wait_bytes(struct redis_conn *conn, size_t n_missing)
{
    struct pollfd ready = {.fd = conn->fd, .events = POLLIN};

    if (n_missing >= REDIS_WAKE_BYTES) {
        redis_conn_wake_at(conn, REDIS_WAKE_BYTES);
        if (poll(&ready, 1, (int)(REDIS_WAIT_NS / NS_PER_MS)) > 0)
            return 0;
    }
    redis_conn_wake_at(conn, 1);
    return redis_conn_wait(conn, POLLIN);
}

/* After an SSL call that returned n <= 0: waits until the socket is ready for it.  E_AUTH: the peer's
 * certificate. */
static int redis_conn_tls_wait(const struct redis_conn *conn, int n)
{
    switch (SSL_get_error(conn->ssl, n)) {
    case SSL_ERROR_WANT_READ:
        return redis_conn_wait(conn, POLLIN);
    case SSL_ERROR_WANT_WRITE:
        return redis_conn_wait(conn, POLLOUT);
    case SSL_ERROR_ZERO_RETURN:
        return E_CLOSED;
    default:
        return SSL_get_verify_result(conn->ssl) != X509_V_OK ? E_AUTH : E_IO;
    }
}

/* ---- bytes ---- */

/* One system call for all parts. */
static int redis_conn_send_parts(struct redis_conn *conn, const struct bytes *parts, unsigned n, size_t *sent)
{
    struct iovec vectors[REDIS_PARTS];
    struct msghdr message = {.msg_iov = vectors, .msg_iovlen = n < REDIS_PARTS ? n : REDIS_PARTS};
    ssize_t len;

    for (unsigned i = 0; i < message.msg_iovlen; i++)
        vectors[i] = (struct iovec){(void *)(uintptr_t)parts[i].data, parts[i].len_bytes};
    len = sendmsg(conn->fd, &message, MSG_NOSIGNAL);
    *sent = len > 0 ? (size_t)len : 0;
    if (len >= 0 || errno == EINTR)
        return 0;
    return errno == EAGAIN || errno == EWOULDBLOCK ? redis_conn_wait(conn, POLLOUT) : E_IO;
}

int redis_conn_send(struct redis_conn *conn, struct bytes *parts, unsigned n)
{
    while (n > 0) {
        size_t sent = 0;
        int rc = 0;

        if (parts->len_bytes == 0) {
            parts++;
            n--;
            continue;
        }
        if (conn->ssl != NULL) {
            ERR_clear_error();
            rc = SSL_write_ex(conn->ssl, parts->data, parts->len_bytes, &sent);
            rc = rc == 1 ? 0 : redis_conn_tls_wait(conn, rc);
        } else {
            rc = redis_conn_send_parts(conn, parts, n, &sent);
        }
        if (rc < 0)
            return rc;
        for (; sent > 0 && sent >= parts->len_bytes; parts++, n--)
            sent -= parts->len_bytes;
        if (sent > 0)
            *parts = bytes_of(parts->data + sent, parts->len_bytes - sent);
    }
    return 0;
}

/* Reads waiting bytes, or waits for some.  most_bytes: of a long reply, what is missing; so the next reply begins in an
 * empty buffer, and nothing is moved. */
static int redis_conn_receive(struct redis_conn *conn, size_t most_bytes)
{
    size_t room = conn->cap - conn->end, got = 0;

    if (redis_conn_is_ending(conn)) /* also while the server sends without a pause */
        return E_CANCELLED;
    if (conn->on_part != NULL && room > REDIS_PART_BYTES)
        room = REDIS_PART_BYTES;
    if (most_bytes >= REDIS_READ_BYTES && room > most_bytes)
        room = most_bytes;
    if (conn->ssl != NULL) {
        int rc;

        ERR_clear_error();
        rc = SSL_read_ex(conn->ssl, conn->in + conn->end, room, &got);
        if (rc != 1)
            return redis_conn_tls_wait(conn, rc);
    } else {
        ssize_t n = recv(conn->fd, conn->in + conn->end, room, 0);

        if (n == 0)
            return E_CLOSED;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? redis_conn_wait_bytes(conn, most_bytes)
                   : errno == EINTR                        ? 0
                                                           : E_IO;
        got = (size_t)n;
    }
    conn->end += got;
    return 0;
}

/* Makes room for a reply of need bytes from `at` on, and for a read. */
static int redis_conn_room(struct redis_conn *conn, size_t need)
{
    size_t held = conn->end - conn->at, want = need > held ? need : held + REDIS_READ_BYTES;
    uint8_t *in;

    if (need > conn->opts.max_reply_bytes || held > conn->opts.max_reply_bytes)
        return E_PROTO;
    if (conn->at + want <= conn->cap && conn->end < conn->cap)
        return 0;
    if (conn->at > 0)
        memmove(conn->in, conn->in + conn->at, held);
    conn->at = 0;
    conn->end = held;
    if (want <= conn->cap && conn->end < conn->cap)
        return 0;
    want += REDIS_READ_BYTES;
    in = realloc(conn->in, want);
    if (in == NULL)
        return E_NOMEM;
    conn->in = in;
    conn->cap = want;
    return 0;
}

void redis_conn_watch(struct redis_conn *conn, void (*on_part)(void *arg, struct bytes beginning), void *arg)
{
    conn->on_part = on_part;
    conn->on_part_arg = arg;
}

/* Shows the string's bytes that are there.  need: those of the whole reply. */
static void redis_conn_show(struct redis_conn *conn, struct bytes image, size_t need)
{
    size_t line = image.len_bytes < 32 ? image.len_bytes : 32, from;
    const uint8_t *end = line > 0 && image.data[0] == '$' ? memchr(image.data, '\n', line) : NULL;

    if (conn->on_part == NULL || end == NULL || need < 2)
        return;
    from = (size_t)(end + 1 - image.data);
    if (image.len_bytes > need - 2)
        image.len_bytes = need - 2; /* the end of the line is no part of the string */
    if (image.len_bytes > from)
        conn->on_part(conn->on_part_arg, bytes_of(image.data + from, image.len_bytes - from));
}

int redis_conn_reply(struct redis_conn *conn, struct resp_item *item_out, struct bytes *all_out)
{
    conn->at += conn->reply_bytes;
    conn->reply_bytes = 0;
    for (;;) {
        struct bytes image = bytes_of(conn->in + conn->at, conn->end - conn->at);
        size_t used = 0, need = 0;
        int rc = resp_reply_bytes(image, &need);

        if (rc == 0) {
            rc = resp_item_parse(image, item_out, &used);
            if (rc == 0 && item_out->kind == RESP_PUSH) {
                conn->at += need;
                continue;
            }
            conn->reply_bytes = need;
            if (all_out != NULL)
                *all_out = bytes_of(image.data, need);
            return rc;
        }
        if (rc == E_AGAIN) {
            redis_conn_show(conn, image, need);
            rc = redis_conn_room(conn, need);
        }
        if (rc == 0)
            rc = redis_conn_receive(conn, need > image.len_bytes ? need - image.len_bytes : 0);
        if (rc < 0)
            return rc;
    }
}

int redis_conn_ask(struct redis_conn *conn, const char *const *words, struct resp_item *item_out,
                   struct bytes *all_out)
{
    struct bytes args[8];
    struct buf command = {0};
    unsigned n = 0;
    int rc;

    for (; n < 8 && words[n] != NULL; n++)
        args[n] = bytes_str(words[n]);
    rc = resp_command(&command, args, n);
    if (rc == 0)
        rc = redis_conn_send(conn, &(struct bytes){command.data, command.len_bytes}, 1);
    buf_fini(&command);
    return rc < 0 ? rc : redis_conn_reply(conn, item_out, all_out);
}

/* ---- opening ---- */

int redis_tls_new(const char *ca_path, struct fault *fault, void **out)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());

    if (ctx == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) == 1 &&
        (ca_path != NULL && ca_path[0] != '\0' ? SSL_CTX_load_verify_file(ctx, ca_path)
                                               : SSL_CTX_set_default_verify_paths(ctx)) == 1) {
        *out = ctx;
        return 0;
    }
    SSL_CTX_free(ctx);
    return fault_set(fault, E_IO, "%s has no certificates that can be read",
                     ca_path != NULL && ca_path[0] != '\0' ? ca_path : "the system's store");
}

void redis_tls_free(void *tls)
{
    SSL_CTX_free(tls);
}

static int redis_conn_tls(struct redis_conn *conn, const struct redis_node *node, struct fault *fault)
{
    bool is_numeric;
    int n, rc = 0;

    conn->ssl = SSL_new(conn->opts.tls);
    if (conn->ssl == NULL || SSL_set_fd(conn->ssl, conn->fd) != 1)
        return fault_set(fault, E_NOMEM, "out of memory");
    is_numeric = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(conn->ssl), node->host) == 1;
    if (!is_numeric &&
        (SSL_set1_host(conn->ssl, node->host) != 1 || SSL_set_tlsext_host_name(conn->ssl, node->host) != 1))
        return fault_set(fault, E_NOMEM, "out of memory");
    ERR_clear_error();
    while (rc == 0 && (n = SSL_connect(conn->ssl)) != 1) {
        rc = redis_conn_tls_wait(conn, n);
        if (rc == E_CLOSED)
            rc = E_IO;
    }
    if (rc == E_AUTH)
        return fault_set(fault, rc, "TLS: %s",
                         X509_verify_cert_error_string(SSL_get_verify_result(conn->ssl)));
    if (rc == E_IO || rc == E_TIMEOUT)
        return fault_set(fault, rc, "TLS: %s; if this port has no TLS, use redis://", err_text(rc));
    return rc < 0 ? fault_set(fault, rc, "TLS: %s", err_text(rc)) : 0;
}

static int redis_conn_socket(struct redis_conn *conn, const struct addrinfo *at)
{
    int one = 1, error = 0, rc;
    socklen_t len = sizeof(error);

    conn->fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (conn->fd < 0)
        return E_IO;
    (void)setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(conn->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    if (connect(conn->fd, at->ai_addr, at->ai_addrlen) == 0)
        return 0;
    rc = errno == EINPROGRESS ? redis_conn_wait(conn, POLLOUT) : E_IO;
    if (rc == 0 && (getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 || error != 0))
        rc = E_IO;
    if (rc < 0) {
        close(conn->fd);
        conn->fd = -1;
    }
    return rc;
}

static int redis_conn_dial(struct redis_conn *conn, const struct redis_node *node, struct fault *fault)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG};
    struct addrinfo *list = NULL;
    char port[8];
    int rc = E_IO, error;

    if (redis_conn_is_ending(conn))
        return E_CANCELLED;
    snprintf(port, sizeof(port), "%u", node->port);
    error = getaddrinfo(node->host, port, &hints, &list);
    if (error != 0)
        return fault_set(fault, E_IO, "%s: %s", node->host, gai_strerror(error));
    for (struct addrinfo *at = list; at != NULL && rc != 0 && rc != E_CANCELLED; at = at->ai_next)
        rc = redis_conn_socket(conn, at);
    freeaddrinfo(list);
    return rc < 0 ? fault_set(fault, rc, "cannot connect to %s port %s", node->host, port) : 0;
}

static int redis_conn_refused(const struct redis_conn *conn, struct resp_item *item, struct fault *fault)
{
    bool is_login = bytes_starts_with(item->text, "WRONGPASS") || bytes_starts_with(item->text, "NOAUTH") ||
                    bytes_starts_with(item->text, "NOPERM");

    return redis_error_fault(conn->opts.url, item->text, is_login ? E_AUTH : E_PROTO, fault);
}

static int redis_conn_want(struct redis_conn *conn, const char *const *words, struct fault *fault)
{
    struct resp_item item;
    int rc = redis_conn_ask(conn, words, &item, NULL);

    if (rc < 0)
        return fault_set(fault, rc, "%s: %s", words[0], err_text(rc));
    return item.kind == RESP_ERROR ? redis_conn_refused(conn, &item, fault) : 0;
}

/* HELLO 3 with the login.  Servers before 6.0 do not know HELLO: then AUTH, and RESP2. */
static int redis_conn_login(struct redis_conn *conn, struct fault *fault)
{
    const struct redis_url *url = conn->opts.url;
    const char *user = url->user[0] != '\0' ? url->user : "default";
    const char *const hello[] = {"HELLO", "3", url->password[0] ? "AUTH" : NULL, user, url->password, NULL};
    struct resp_item item;
    char db[8];
    int rc = redis_conn_ask(conn, hello, &item, NULL);

    if ((rc == E_IO || rc == E_CLOSED) && conn->ssl == NULL)
        return fault_set(fault, rc, "HELLO: %s; if this port has TLS, use rediss://", err_text(rc));
    if (rc < 0)
        return fault_set(fault, rc, "HELLO: %s", err_text(rc));
    if (item.kind == RESP_ERROR && !bytes_starts_with(item.text, "ERR unknown command") &&
        !bytes_starts_with(item.text, "NOPROTO"))
        return redis_conn_refused(conn, &item, fault);
    if (item.kind == RESP_ERROR && url->password[0] != '\0')
        rc = redis_conn_want(conn,
                             url->user[0] ? (const char *const[]){"AUTH", user, url->password, NULL}
                                          : (const char *const[]){"AUTH", url->password, NULL},
                             fault);
    snprintf(db, sizeof(db), "%u", url->db);
    if (rc == 0 && url->db != 0)
        rc = redis_conn_want(conn, (const char *const[]){"SELECT", db, NULL}, fault);
    if (rc == 0 && conn->opts.reads_replicas)
        rc = redis_conn_want(conn, (const char *const[]){"READONLY", NULL}, fault);
    return rc;
}

int redis_conn_open(const struct redis_conn_opts *opts, const struct redis_node *node, struct fault *fault,
                    struct redis_conn **out)
{
    struct redis_conn *conn = calloc(1, sizeof(*conn));
    int rc;

    if (conn == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    conn->opts = *opts;
    conn->fd = -1;
    rc = redis_conn_dial(conn, node, fault);
    if (rc == 0 && opts->tls != NULL)
        rc = redis_conn_tls(conn, node, fault);
    if (rc == 0)
        rc = redis_conn_login(conn, fault);
    if (rc < 0) {
        redis_conn_close(conn);
        return rc;
    }
    *out = conn;
    return 0;
}

void redis_conn_close(struct redis_conn *conn)
{
    if (conn == NULL)
        return;
    SSL_free(conn->ssl); /* no closing alert: the server sees the end of the socket */
    if (conn->fd >= 0)
        close(conn->fd);
    free(conn->in);
    free(conn);
}
