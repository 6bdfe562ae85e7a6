/* SPDX-License-Identifier: Apache-2.0 */
/* A call takes an idle connection or opens one. When the answer is complete the connection becomes idle,
 * if both sides keep it alive; otherwise it is closed.
 *
 *                   connected            answer whole, kept alive
 *     CONNECTING ──────────────> CALLING ──────────────────────────> IDLE
 *        │                        ^   │                             │    │
 *        │ fails: next address;   │   │ cut, malformed:   next call │    │ idle_ns, or the server closed:
 *        v none left: on_end      │   v on_end, freed               │    v freed
 *                                 └─────────────────────────────────┘
 *
 * The server may close an idle connection while the next request is on its way. If no byte of an answer
 * came, a call that may be repeated moves to a fresh connection, once.
 *
 * Callbacks come from the loop only: bufferevents run deferred, and a connection that fails at once fails
 * by a timer. A callback may cancel its own call. So take_answer() checks after each callback whether the
 * connection still has the call. If a connection is closed while it is being read, its reader frees it. */
#include "net/http/client_priv.h"

#include <errno.h>
#include <event2/buffer.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"

enum { READ_AHEAD_BYTES = 256 * 1024 };

static void conn_try_next(struct client_conn *conn, int error);
static void on_conn_read(struct bufferevent *bev, void *arg);
static void on_conn_event(struct bufferevent *bev, short what, void *arg);

static void conn_drop_socket(struct client_conn *conn)
{
    if (conn->bev == NULL)
        return;
    /* libevent closes the descriptor on a later turn of the loop, or never; shutdown() tells the server
     * now. */
    (void)shutdown(bufferevent_getfd(conn->bev), SHUT_RDWR);
    bufferevent_free(conn->bev);
    conn->bev = NULL;
}

void http_client_conn_leave_idle(struct client_conn *conn)
{
    if (conn->state != CLIENT_CONN_IDLE)
        return;
    list_remove(&conn->in_idle);
    conn->client->n_idle--;
    conn->state = CLIENT_CONN_CALLING;
}

void http_client_conn_close(struct client_conn *conn)
{
    http_client_conn_leave_idle(conn);
    conn->is_dead = true;
    if (conn->is_reading)
        return;
    conn_drop_socket(conn);
    ev_timer_free(conn->timer);
    list_remove(&conn->in_conns);
    free(conn);
}

void http_client_conn_fail(struct client_conn *conn, int result, const char *why)
{
    struct http_call *call = conn->call;
    struct fault fault;

    if (call != NULL)
        call->conn = NULL;
    conn->call = NULL;
    fault_set(&fault, result, "%s: %s", conn->client->host, why);
    http_client_conn_close(conn);
    if (call != NULL)
        http_client_call_end(call, result, &fault);
}

static void on_conn_timer(void *arg)
{
    struct client_conn *conn = arg;

    if (conn->state == CLIENT_CONN_IDLE)
        http_client_conn_close(conn);
    else if (conn->bev == NULL)
        http_client_conn_fail(conn, E_IO, strerror(conn->connect_errno));
    else
        conn_try_next(conn, ETIMEDOUT);
}

static void conn_send(struct client_conn *conn)
{
    struct http_call *call = conn->call;

    conn->state = CLIENT_CONN_CALLING;
    ev_timer_stop(conn->timer);
    if (bufferevent_write(conn->bev, call->request.data, call->request.len_bytes) < 0)
        http_client_conn_fail(conn, E_NOMEM, "out of memory");
}

/* Makes a socket that connects to the next address. Returns its descriptor, or -1 with errno. */
static int http_client_conn_dial(const struct server_address *address)
{
    int one = 1;
    int fd = socket(address->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(fd, (const struct sockaddr *)&address->sa, address->sa_bytes) < 0 && errno != EINPROGRESS) {
        int saved = errno;

        close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

void http_client_conn_open(struct client_conn *conn)
{
    struct http_client *client = conn->client;
    int fd = -1;

    conn->state = CLIENT_CONN_CONNECTING;
    while (fd < 0 && conn->n_tried < client->n_addresses) {
        fd = http_client_conn_dial(
            &client->addresses[(client->good_address + conn->n_tried) % client->n_addresses]);
        if (fd < 0) {
            conn->connect_errno = errno;
            conn->n_tried++;
        }
    }
    if (fd >= 0) {
        conn->bev = bufferevent_socket_new(ev_loop_base(client->opts.loop), fd,
                                           BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
        if (conn->bev == NULL) {
            close(fd);
            conn->connect_errno = ENOMEM;
            conn->n_tried = client->n_addresses;
        }
    }
    if (conn->bev == NULL) {
        ev_timer_start(conn->timer, 0);
        return;
    }
    bufferevent_setcb(conn->bev, on_conn_read, NULL, on_conn_event, conn);
    bufferevent_setwatermark(conn->bev, EV_READ, 0, READ_AHEAD_BYTES);
    bufferevent_socket_connect(conn->bev, NULL, 0); /* the descriptor is already connecting */
    bufferevent_enable(conn->bev, EV_READ | EV_WRITE);
    ev_timer_start(conn->timer, client->opts.connect_ns);
}

static void conn_try_next(struct client_conn *conn, int error)
{
    conn->connect_errno = error;
    conn->n_tried++;
    conn_drop_socket(conn);
    http_client_conn_open(conn);
}

struct client_conn *http_client_conn_new(struct http_client *client)
{
    struct client_conn *conn = calloc(1, sizeof(*conn));

    if (conn == NULL)
        return NULL;
    conn->client = client;
    list_init(&conn->in_idle);
    list_init(&conn->in_conns);
    if (ev_timer_new(client->opts.loop, on_conn_timer, conn, &conn->timer) < 0) {
        free(conn);
        return NULL;
    }
    list_push_back(&client->conns, &conn->in_conns);
    return conn;
}

void http_client_conn_attach(struct client_conn *conn, struct http_call *call)
{
    conn->call = call;
    call->conn = conn;
}

static void conn_rest(struct client_conn *conn)
{
    struct http_client *client = conn->client;

    if (client->n_idle >= client->opts.max_idle_conns ||
        evbuffer_get_length(bufferevent_get_output(conn->bev)) > 0 ||
        evbuffer_get_length(bufferevent_get_input(conn->bev)) > 0) {
        http_client_conn_close(conn);
        return;
    }
    conn->is_used = true;
    conn->state = CLIENT_CONN_IDLE;
    list_push_front(&client->idle, &conn->in_idle);
    client->n_idle++;
    ev_timer_start(conn->timer, client->opts.idle_ns);
}

/* ---- the answer ---- */

static int http_client_conn_take_head(struct client_conn *conn, struct http_call *call,
                                      struct evbuffer *input)
{
    struct http_head head;
    size_t len = evbuffer_get_length(input);
    const uint8_t *data = evbuffer_pullup(input, -1);
    struct bytes text = bytes_of(data, len);
    int rc;

    if (data == NULL)
        return len == 0 ? 0 : E_NOMEM;
    rc = http_parse_response(text, call->is_for_head, &head);
    if (rc <= 0)
        return rc;
    if (head.status >= 200) {
        call->has_head = true;
        call->framing = head.framing;
        call->left_bytes = head.content_length;
        call->keeps_alive = head.keeps_alive;
        call->events->on_head(call->arg, &head, text);
    } else if (head.status == 101) {
        return E_FORMAT; /* the request asked for no upgrade */
    }
    evbuffer_drain(input, head.len_bytes);
    return 1;
}

/* Passes on the next piece of the body. 1: the body is complete; 0: needs more; negative: error.
 * *again_out: input was consumed. */
static int take_body(struct http_call *call, struct evbuffer *input, bool *again_out)
{
    struct evbuffer_iovec piece;
    struct bytes data = {0};
    size_t used;
    int rc = 0;

    if (call->framing == HTTP_BODY_NONE)
        return 1;
    if (evbuffer_peek(input, -1, NULL, &piece, 1) < 1 || piece.iov_len == 0)
        return 0;
    data = bytes_of(piece.iov_base, piece.iov_len);
    used = data.len_bytes;
    if (call->framing == HTTP_BODY_CHUNKED) {
        rc = http_chunked_take(&call->chunked, data, &used, &data);
        if (rc < 0)
            return rc;
    } else if (call->framing == HTTP_BODY_LENGTH) {
        if (used > call->left_bytes)
            used = data.len_bytes = (size_t)call->left_bytes;
        call->left_bytes -= used;
        rc = call->left_bytes == 0;
    }
    if (data.len_bytes > 0) {
        struct client_conn *conn = call->conn;

        call->events->on_body(call->arg, data);
        if (conn->call != call)
            return E_CANCELLED;
    }
    evbuffer_drain(input, used);
    *again_out = used > 0;
    return rc;
}

/* The answer is complete: the connection becomes idle or closes, then on_end. */
static void call_done(struct client_conn *conn)
{
    struct http_call *call = conn->call;

    call->conn = NULL;
    conn->call = NULL;
    if (call->keeps_alive)
        conn_rest(conn);
    else
        http_client_conn_close(conn);
    http_client_call_end(call, 0, NULL);
}

static void take_answer(struct client_conn *conn)
{
    struct evbuffer *input = bufferevent_get_input(conn->bev);
    struct http_call *call = conn->call;
    bool again = true;
    int rc = 0;

    if (call == NULL) { /* a server must not send on an idle connection */
        http_client_conn_close(conn);
        return;
    }
    conn->is_reading = true;
    while (again && rc == 0) {
        again = false;
        if (evbuffer_get_length(input) > 0)
            call->has_bytes = true;
        if (!call->has_head) {
            rc = http_client_conn_take_head(conn, call, input);
            again = rc == 1;
            rc = rc == 1 ? 0 : rc;
        } else {
            rc = take_body(call, input, &again);
        }
        if (conn->call != call)
            rc = E_CANCELLED;
    }
    conn->is_reading = false;
    if (conn->is_dead)
        http_client_conn_close(conn);
    else if (rc == 1)
        call_done(conn);
    else if (rc < 0)
        http_client_conn_fail(conn, rc,
                              rc == E_NOMEM ? "out of memory" : "the answer is not HTTP/1.1 as it should be");
}

static void on_conn_read(struct bufferevent *bev, void *arg)
{
    take_answer(arg);
}

/* The server closed, or the network broke. */
static void conn_cut(struct client_conn *conn, bool is_error, int error)
{
    struct http_call *call = conn->call;

    if (call == NULL) {
        http_client_conn_close(conn);
    } else if (!is_error && call->has_head && call->framing == HTTP_BODY_TO_CLOSE) {
        call_done(conn);
    } else if (!call->has_bytes && conn->is_used && call->may_repeat) {
        conn_drop_socket(conn);
        conn->is_used = false;
        call->may_repeat = false;
        conn->n_tried = 0;
        http_client_conn_open(conn);
    } else if (is_error) {
        http_client_conn_fail(conn, call->has_head ? E_TRUNCATED : E_CLOSED, strerror(error));
    } else {
        http_client_conn_fail(conn, call->has_head ? E_TRUNCATED : E_CLOSED,
                              call->has_head ? "the connection was closed in mid-answer"
                                             : "the connection was closed without an answer");
    }
}

static void on_conn_event(struct bufferevent *bev, short what, void *arg)
{
    struct client_conn *conn = arg;
    struct http_client *client = conn->client;
    int error = errno;

    if ((what & BEV_EVENT_CONNECTED) != 0) {
        client->good_address = (client->good_address + conn->n_tried) % client->n_addresses;
        conn_send(conn);
    } else if (conn->state == CLIENT_CONN_CONNECTING) {
        conn_try_next(conn, error);
    } else {
        conn_cut(conn, (what & BEV_EVENT_ERROR) != 0, error);
    }
}
