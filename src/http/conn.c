/* SPDX-License-Identifier: Apache-2.0 */
/* One connection's life.
 *
 *      accept
 *        v        first byte        head whole        body whole
 *      IDLE ────────────> HEAD ────────────> BODY ────────────> RUNNING
 *        ^                 │ refused          │ refused           │ answered
 *        │                 v                  v                   v
 *        └──────────── (answered) <───────────┴───────────────────┘
 *        ^                 │ body unread, small     │ last exchange
 *        └── DISCARD <─────┘                        └──> LINGER ──client closed, or time is up──> DEAD
 *
 * Each state has one function, which consumes input and says whether to go on; conn_enter is the only place
 * that changes the state and it sets the state's deadline.  Deadlines are absolute: they are computed when
 * the timer fires, and a client that sends a byte now and then does not move them.
 *
 * Reading stays enabled while a request runs, up to a small high-water mark, so that a client that goes away
 * is noticed at once.  Half a close counts as going away.
 *
 * The handler's own calls (http_reply and so on) never run the machine: they queue the connection for the
 * next turn of the loop (kick).  So nothing here is entered twice, and a connection is freed only by the
 * outermost caller. */
#include "http/conn_priv.h"

#include <event2/buffer.h>
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"

/* At most this much is read and dropped on a connection that is closing. */
#define MAX_LINGER_BYTES (UINT64_C(256) << 20)
#define DRAIN_LINGER_NS  NS_PER_S

static void conn_run(struct http_conn *conn);

/* ---- deadlines ---- */

/* When the state must be over; UINT64_MAX: it may last. */
static uint64_t deadline_of(const struct http_conn *conn)
{
    const struct http_limits *limits = &conn->server->limits;
    const struct http_exchange *x = &conn->exchange;
    uint64_t body_bytes;

    switch (conn->state) {
    case CONN_IDLE:
        if (http_conn_unsent(conn) > 0)
            return UINT64_MAX; /* the stall timer watches */
        return conn->state_began_ns + (conn->n_requests == 0 ? limits->head_ns : limits->idle_ns);
    case CONN_HEAD:
        return conn->state_began_ns + limits->head_ns;
    case CONN_BODY:
    case CONN_DISCARD:
        body_bytes = x->head.framing == HTTP_BODY_LENGTH ? x->head.content_length : x->body_received_bytes;
        if (body_bytes > limits->max_body_bytes)
            body_bytes = limits->max_body_bytes;
        return conn->state_began_ns + limits->body_ns + (body_bytes >> 20) * limits->body_ns_per_mib;
    case CONN_LINGER:
        if (http_conn_unsent(conn) > 0)
            return UINT64_MAX;
        if (conn->server->is_draining && limits->linger_ns > DRAIN_LINGER_NS)
            return conn->state_began_ns + DRAIN_LINGER_NS;
        return conn->state_began_ns + limits->linger_ns;
    case CONN_RUNNING:
    case CONN_DEAD:
        break;
    }
    return UINT64_MAX;
}

static void arm_deadline(struct http_conn *conn)
{
    uint64_t at = deadline_of(conn);
    uint64_t now = clock_now_ns();

    if (at == UINT64_MAX)
        ev_timer_stop(conn->deadline);
    else
        ev_timer_start(conn->deadline, at > now ? at - now : 0);
}

static void conn_enter(struct http_conn *conn, enum http_conn_state state)
{
    conn->state = state;
    conn->state_began_ns = clock_now_ns();
    arm_deadline(conn);
}

/* ---- ends ---- */

static void conn_abort(struct http_conn *conn, enum http_abort why)
{
    struct http_exchange *x = &conn->exchange;

    if (conn->state == CONN_DEAD)
        return;
    conn_enter(conn, CONN_DEAD);
    if (why == HTTP_ABORT_SLOW_READER && conn->server->slow_readers != NULL)
        metric_add(conn->server->slow_readers, 1);
    if (!x->is_seen || x->answer == ANSWER_DONE)
        return;
    x->answer = ANSWER_DONE;
    conn->server->opts.handler->on_abort(conn->server->opts.handler_arg, x, why);
}

/* The outermost caller's last word: after this, conn may be gone. */
static void reap(struct http_conn *conn)
{
    if (conn->state == CONN_DEAD)
        http_conn_free(conn);
}

void http_conn_break(struct http_conn *conn, enum http_abort why)
{
    if (conn->is_broken)
        return;
    conn->is_broken = true;
    conn->break_why = why;
    http_conn_kick(conn);
}

/* All is sent on a closing connection: the client may see the end while it is still writing. */
static void shut_down_sending(struct http_conn *conn)
{
    conn_enter(conn, conn->is_eof ? CONN_DEAD : CONN_LINGER);
    if (!conn->is_eof)
        shutdown(bufferevent_getfd(conn->bev), SHUT_WR);
}

/* ---- answers that end ---- */

/* The exchange is answered: what now? */
static void finish_exchange(struct http_conn *conn)
{
    struct http_exchange *x = &conn->exchange;

    conn->over_since_ns = 0;
    conn->is_pause_told = false;
    conn->n_requests++;
    http_body_settle(conn);
    buf_fini(&x->body);
    if (conn->is_closing) {
        conn_enter(conn, CONN_LINGER);
        if (http_conn_unsent(conn) == 0)
            shut_down_sending(conn);
        return;
    }
    if (!x->is_body_whole) {
        conn_enter(conn, CONN_DISCARD);
        return;
    }
    http_exchange_reset(x);
    conn_enter(conn, CONN_IDLE);
}

/* The server itself says no.  The connection ends with this answer. */
static void refuse(struct http_conn *conn, int status, const char *why)
{
    struct http_exchange *x = &conn->exchange;

    conn->is_closing = true;
    http_server_count_refusal(conn->server, status);
    conn->server->opts.handler->on_refused(conn->server->opts.handler_arg, x, status, why);
    if (x->answer != ANSWER_DONE)
        conn_abort(conn, HTTP_ABORT_SERVER);
    else
        finish_exchange(conn);
}

/* ---- one function per state; true: look again ---- */

static bool run_idle(struct http_conn *conn)
{
    struct evbuffer *input = bufferevent_get_input(conn->bev);

    if (evbuffer_get_length(input) == 0) {
        if (conn->is_eof)
            conn_enter(conn, http_conn_unsent(conn) > 0 ? CONN_LINGER : CONN_DEAD);
        return false;
    }
    /* Someone who pipelines without reading waits here. */
    if (http_conn_unsent(conn) > conn->server->limits.max_queue_bytes)
        return false;
    conn_enter(conn, CONN_HEAD);
    conn->exchange.began_ns = conn->state_began_ns;
    conn->scanned_bytes = 0;
    return true;
}

/* An answer came from on_head, or the body can be read. */
static bool begin_body(struct http_conn *conn)
{
    struct http_exchange *x = &conn->exchange;
    const struct http_limits *limits = &conn->server->limits;

    if (x->answer == ANSWER_DONE) {
        finish_exchange(conn);
        return true;
    }
    if (x->head.framing == HTTP_BODY_LENGTH && x->head.content_length > limits->max_body_bytes) {
        refuse(conn, 413, "request body too large");
        return true;
    }
    if (x->head.framing != HTTP_BODY_NONE && conn->server->bodies_bytes > limits->max_bodies_bytes) {
        refuse(conn, 503, "too many request bodies are being received");
        return true;
    }
    if (x->head.expects_continue && evbuffer_get_length(bufferevent_get_input(conn->bev)) == 0) {
        static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";

        if (bufferevent_write(conn->bev, text, sizeof(text) - 1) < 0)
            http_conn_break(conn, HTTP_ABORT_SERVER);
        http_conn_wrote(conn);
    }
    conn_enter(conn, CONN_BODY);
    return true;
}

static bool take_head(struct http_conn *conn, struct bytes text)
{
    struct http_exchange *x = &conn->exchange;
    struct evbuffer *input = bufferevent_get_input(conn->bev);

    if (buf_append(&x->head_text, text.data, x->head.len_bytes) < 0) {
        conn_abort(conn, HTTP_ABORT_SERVER);
        return false;
    }
    evbuffer_drain(input, x->head.len_bytes);
    x->is_body_whole = x->head.framing == HTTP_BODY_NONE;
    x->body_left_bytes = x->head.content_length;
    x->is_seen = true;
    if (!x->head.keeps_alive || conn->server->is_draining ||
        conn->n_requests + 1 >= conn->server->limits.max_requests_per_conn)
        conn->is_closing = true;
    conn->server->opts.handler->on_head(conn->server->opts.handler_arg, x);
    return begin_body(conn);
}

static bool run_head(struct http_conn *conn)
{
    struct http_exchange *x = &conn->exchange;
    const struct http_limits *limits = &conn->server->limits;
    const struct http_head_limits head_limits = {limits->max_line_bytes, limits->max_head_bytes,
                                                 limits->max_fields};
    struct evbuffer *input = bufferevent_get_input(conn->bev);
    size_t len = evbuffer_get_length(input);
    struct http_refusal refusal;
    struct bytes text;
    int rc;

    if (len > limits->max_head_bytes + 1)
        len = limits->max_head_bytes + 1;
    text = bytes_of(evbuffer_pullup(input, (ssize_t)len), len);
    if (text.data == NULL && len > 0) {
        conn_abort(conn, HTTP_ABORT_SERVER);
        return false;
    }
    /* Parsing again is worth it only after a new line end or when a bound may be passed: a head that drips in
     * byte by byte costs one look per byte, not one parse. */
    rc = 0;
    if (len > limits->max_line_bytes ||
        memchr(text.data + conn->scanned_bytes, '\n', len - conn->scanned_bytes) != NULL)
        rc = http_parse_request(text, &head_limits, &x->head, &refusal);
    conn->scanned_bytes = len;
    if (rc < 0) {
        memset(&x->head, 0, sizeof(x->head));
        x->head.method = HTTP_OTHER;
        x->head.minor = 1;
        refuse(conn, refusal.status, refusal.why);
        return true;
    }
    if (rc == 0) {
        if (conn->is_eof)
            conn_enter(conn, CONN_DEAD);
        return false;
    }
    return take_head(conn, text);
}

static bool run_body(struct http_conn *conn)
{
    struct http_exchange *x = &conn->exchange;
    int rc;

    if (x->answer == ANSWER_DONE) { /* given up by the handler meanwhile */
        finish_exchange(conn);
        return true;
    }
    rc = x->is_body_whole ? 1 : http_body_take(conn);

    if (rc == E_RANGE) {
        refuse(conn, 413, "request body too large");
    } else if (rc == E_NOMEM) {
        refuse(conn, 503, "out of memory");
    } else if (rc < 0) {
        refuse(conn, 400, "malformed chunked body");
    } else if (conn->server->bodies_bytes > conn->server->limits.max_bodies_bytes) {
        refuse(conn, 503, "too many request bodies are being received");
    } else if (rc == 0) {
        if (conn->is_eof)
            conn_abort(conn, HTTP_ABORT_CLIENT);
        return false;
    } else {
        http_body_settle(conn);
        conn_enter(conn, CONN_RUNNING);
        conn->server->opts.handler->on_request(conn->server->opts.handler_arg, x);
    }
    return true;
}

static bool run_running(struct http_conn *conn)
{
    if (conn->exchange.answer != ANSWER_DONE)
        return false;
    finish_exchange(conn);
    return true;
}

static bool run_discard(struct http_conn *conn)
{
    int rc = http_body_take(conn);

    if (rc == 0 && !conn->is_eof)
        return false;
    if (rc <= 0) {
        conn_enter(conn, CONN_DEAD);
        return false;
    }
    http_exchange_reset(&conn->exchange);
    conn_enter(conn, CONN_IDLE);
    return true;
}

static bool run_linger(struct http_conn *conn)
{
    struct evbuffer *input = bufferevent_get_input(conn->bev);
    size_t len = evbuffer_get_length(input);

    conn->discarded_bytes += len;
    evbuffer_drain(input, len);
    if ((conn->is_eof && http_conn_unsent(conn) == 0) || conn->discarded_bytes > MAX_LINGER_BYTES)
        conn_enter(conn, CONN_DEAD);
    return false;
}

static bool run_state(struct http_conn *conn)
{
    switch (conn->state) {
    case CONN_IDLE:
        return run_idle(conn);
    case CONN_HEAD:
        return run_head(conn);
    case CONN_BODY:
        return run_body(conn);
    case CONN_RUNNING:
        return run_running(conn);
    case CONN_DISCARD:
        return run_discard(conn);
    case CONN_LINGER:
        return run_linger(conn);
    case CONN_DEAD:
        break;
    }
    return false;
}

static void conn_run(struct http_conn *conn)
{
    while (!conn->is_broken && run_state(conn))
        ;
    if (conn->is_broken)
        conn_abort(conn, conn->break_why);
}

/* ---- what the loop calls ---- */

static void on_read(struct bufferevent *bev, void *arg)
{
    struct http_conn *conn = arg;

    conn_run(conn);
    reap(conn);
}

static void tell_pause(struct http_conn *conn)
{
    bool is_over = conn->over_since_ns != 0;

    if (conn->state != CONN_RUNNING || conn->exchange.answer != ANSWER_STREAMING ||
        conn->is_pause_told == is_over)
        return;
    conn->is_pause_told = is_over;
    conn->server->opts.handler->on_pause(conn->server->opts.handler_arg, &conn->exchange, is_over);
}

static void on_write(struct bufferevent *bev, void *arg)
{
    struct http_conn *conn = arg;
    size_t unsent = http_conn_unsent(conn);

    if (unsent <= conn->server->limits.max_queue_bytes / 4)
        conn->over_since_ns = 0;
    tell_pause(conn);
    if (conn->state == CONN_LINGER && unsent == 0)
        shut_down_sending(conn);
    else if (conn->state == CONN_IDLE && unsent == 0)
        conn_enter(conn, CONN_IDLE); /* the time to be idle begins now */
    conn_run(conn);
    reap(conn);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    struct http_conn *conn = arg;

    if (what & BEV_EVENT_EOF)
        conn->is_eof = true;
    if ((what & BEV_EVENT_ERROR) ||
        ((what & BEV_EVENT_EOF) && conn->state == CONN_RUNNING && conn->exchange.answer != ANSWER_DONE))
        conn_abort(conn, HTTP_ABORT_CLIENT);
    else
        conn_run(conn);
    reap(conn);
}

static void on_deadline(void *arg)
{
    struct http_conn *conn = arg;

    if (clock_now_ns() < deadline_of(conn)) {
        arm_deadline(conn);
        return;
    }
    if (conn->state == CONN_HEAD || conn->state == CONN_BODY) {
        if (conn->state == CONN_HEAD) {
            memset(&conn->exchange.head, 0, sizeof(conn->exchange.head));
            conn->exchange.head.method = HTTP_OTHER;
            conn->exchange.head.minor = 1;
        }
        refuse(conn, 408, "the request took too long to arrive");
        conn_run(conn);
    } else {
        conn_enter(conn, CONN_DEAD);
    }
    reap(conn);
}

static void on_stall(void *arg)
{
    struct http_conn *conn = arg;
    uint64_t stall_ns = conn->server->limits.stall_ns;
    uint64_t now = clock_now_ns();
    uint64_t at = conn->progress_ns + stall_ns;

    conn->is_stall_running = false;
    if (http_conn_unsent(conn) == 0)
        return;
    if (conn->over_since_ns != 0 && conn->over_since_ns + stall_ns < at)
        at = conn->over_since_ns + stall_ns;
    if (now >= at) {
        conn_abort(conn, HTTP_ABORT_SLOW_READER);
    } else {
        conn->is_stall_running = true;
        ev_timer_start(conn->stall, at - now);
    }
    reap(conn);
}

static void on_output_change(struct evbuffer *output, const struct evbuffer_cb_info *info, void *arg)
{
    struct http_conn *conn = arg;

    conn->has_unsent = info->orig_size + info->n_added > info->n_deleted;
    if (info->n_deleted > 0)
        conn->progress_ns = clock_now_ns();
}

void http_conn_kick(struct http_conn *conn)
{
    if (!list_is_empty(&conn->kicked))
        return;
    if (list_is_empty(&conn->server->kicked))
        ev_timer_start(conn->server->kick, 0);
    list_push_back(&conn->server->kicked, &conn->kicked);
}

void http_conn_kicked(struct http_conn *conn)
{
    tell_pause(conn);
    conn_run(conn);
    reap(conn);
}

void http_conn_wrote(struct http_conn *conn)
{
    if (conn->is_stall_running)
        return;
    conn->is_stall_running = true;
    conn->progress_ns = clock_now_ns();
    ev_timer_start(conn->stall, conn->server->limits.stall_ns);
}

size_t http_conn_unsent(const struct http_conn *conn)
{
    return evbuffer_get_length(bufferevent_get_output(conn->bev));
}

void http_conn_drain(struct http_conn *conn)
{
    conn->is_closing = true;
    if (conn->state == CONN_IDLE && evbuffer_get_length(bufferevent_get_input(conn->bev)) == 0) {
        conn_enter(conn, http_conn_unsent(conn) > 0 ? CONN_LINGER : CONN_DEAD);
    } else if (conn->state == CONN_LINGER) {
        arm_deadline(conn);
    }
    reap(conn);
}

/* ---- making and freeing ---- */

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
    const struct http_limits *limits = &server->limits;

    if (conn == NULL)
        return E_NOMEM;
    conn->server = server;
    list_init(&conn->node);
    list_init(&conn->kicked);
    name_peer(conn, from);
    if (ev_timer_new(server->opts.loop, on_deadline, conn, &conn->deadline) < 0 ||
        ev_timer_new(server->opts.loop, on_stall, conn, &conn->stall) < 0)
        goto fail;
    conn->bev = http_server_bufferevent(server, fd);
    if (conn->bev == NULL)
        goto fail;
    bufferevent_setcb(conn->bev, on_read, on_write, on_event, conn);
    bufferevent_setwatermark(conn->bev, EV_READ, 0, limits->max_pipeline_bytes);
    bufferevent_setwatermark(conn->bev, EV_WRITE, limits->max_queue_bytes / 4, 0);
    if (evbuffer_add_cb(bufferevent_get_output(conn->bev), on_output_change, conn) == NULL ||
        bufferevent_enable(conn->bev, EV_READ | EV_WRITE) < 0) {
        bufferevent_free(conn->bev);
        conn->bev = NULL;
        fd = -1; /* went with the bufferevent; the caller must not close it again */
        goto fail;
    }
    list_push_back(&server->conns, &conn->node);
    conn_enter(conn, CONN_IDLE);
    *out = conn;
    return 0;

fail:
    ev_timer_free(conn->deadline);
    ev_timer_free(conn->stall);
    free(conn);
    return fd < 0 ? E_CLOSED : E_NOMEM;
}

void http_conn_free(struct http_conn *conn)
{
    conn_abort(conn, HTTP_ABORT_SERVER);
    http_body_settle(conn);
    list_remove(&conn->node);
    list_remove(&conn->kicked);
    ev_timer_free(conn->deadline);
    ev_timer_free(conn->stall);
    bufferevent_free(conn->bev);
    http_exchange_fini(&conn->exchange);
    http_server_closed(conn->server, conn);
    free(conn);
}
