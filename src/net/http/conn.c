/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a connection.
 *
 *      accept ──> HANDSHAKE (with TLS) ──h2──> H2 ──no stream left, or abuse──> LINGER
 *        v          │ http/1.1, or no ALPN
 *        v<─────────┘
 *        v        first byte        head whole        body whole
 *      IDLE ────────────> HEAD ────────────> BODY ────────────> RUNNING
 *        ^                 │ refused          │ refused           │ answered
 *        │                 v                  v                   v
 *        └──────────── (answered) <───────────┴───────────────────┘
 *        ^                 │ body unread, small     │ last exchange
 *        └── DISCARD <─────┘                        └──> LINGER ──client closed, or time is up──> DEAD
 *
 * Each state has one function, which consumes input and says whether to go on. Only conn_enter changes the
 * state; it also sets the state's deadline. Deadlines are absolute: they are computed when the timer
 * fires, so a client that sends a byte now and then does not move them.
 *
 * Reading stays enabled while a request runs, up to a small high-water mark, to notice at once that a
 * client went away. A half-close counts as going away.
 *
 * The handler's calls (http_reply and so on) never run the machine: they queue the connection for the next
 * turn of the loop (kick). So no function here is re-entered, and only the outermost caller frees a
 * connection. */
#include "net/http/conn_priv.h"

#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "net/http/h2_priv.h"

#define MAX_LINGER_BYTES (UINT64_C(256) << 20) /* bytes that a closing connection reads and drops */
#define DRAIN_LINGER_NS  NS_PER_S
#define MAX_EMPTY_BYTES  16 /* room for the empty lines before a request */

static void conn_run(struct http_conn *conn);

/* ---- deadlines ---- */

/* Deadline of the state; UINT64_MAX: none. */
static uint64_t deadline_of(const struct http_conn *conn)
{
    const struct http_limits *limits = &conn->server->limits;
    const struct http_exchange *x = &conn->exchange;
    uint64_t body_bytes;

    switch (conn->state) {
    case CONN_HANDSHAKE:
        return conn->state_began_ns + limits->handshake_ns;
    case CONN_H2:
        return h2_deadline(conn->h2);
    case CONN_IDLE:
        if (http_conn_unsent(conn) > 0)
            return UINT64_MAX; /* the stall timer watches this state */
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
        if (conn->server->state == SERVER_DRAINING && limits->linger_ns > DRAIN_LINGER_NS)
            return conn->state_began_ns + DRAIN_LINGER_NS;
        return conn->state_began_ns + limits->linger_ns;
    case CONN_RUNNING:
    case CONN_DEAD:
        break;
    }
    return UINT64_MAX;
}

void http_conn_arm(struct http_conn *conn)
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
    http_conn_arm(conn);
}

/* ---- ends ---- */

void http_conn_abort(struct http_conn *conn, enum http_abort why)
{
    struct http_exchange *x = &conn->exchange;

    if (conn->state == CONN_DEAD)
        return;
    conn_enter(conn, CONN_DEAD);
    if (why == HTTP_ABORT_SLOW_READER && conn->server->slow_readers != NULL)
        metric_add(conn->server->slow_readers, 1);
    if (conn->h2 != NULL)
        h2_abort(conn->h2, why);
    if (!x->is_seen || x->answer == ANSWER_DONE)
        return;
    x->answer = ANSWER_DONE;
    conn->server->opts.handler->on_abort(conn->server->opts.handler_arg, x, why);
}

void http_conn_reap(struct http_conn *conn)
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

/* A closing connection has sent everything: the client sees the end even while it still writes. */
static void shut_down_sending(struct http_conn *conn)
{
    conn_enter(conn, conn->is_eof ? CONN_DEAD : CONN_LINGER);
    if (!conn->is_eof)
        http_conn_shut_sending(conn);
}

void http_conn_end(struct http_conn *conn)
{
    conn->is_closing = true;
    conn_enter(conn, CONN_LINGER);
    if (http_conn_unsent(conn) == 0)
        shut_down_sending(conn);
}

/* ---- ends of answers ---- */

/* The exchange is answered: chooses the next state. */
static void finish_exchange(struct http_conn *conn)
{
    struct http_exchange *x = &conn->exchange;

    conn->over_since_ns = 0;
    conn->is_pause_reported = false;
    conn->n_requests++;
    http_body_uncount(x);
    buf_fini(&x->body);
    if (conn->is_closing) {
        http_conn_end(conn);
        return;
    }
    if (!x->is_body_whole) {
        conn_enter(conn, CONN_DISCARD);
        return;
    }
    http_exchange_reset(x);
    conn_enter(conn, CONN_IDLE);
}

/* The server itself refuses the request. The connection ends with this answer. */
static void http_conn_refuse(struct http_conn *conn, int status, const char *why)
{
    struct http_exchange *x = &conn->exchange;

    conn->is_closing = true;
    http_server_count_refusal(conn->server, status);
    conn->server->opts.handler->on_refused(conn->server->opts.handler_arg, x, status, why);
    if (x->answer != ANSWER_DONE)
        http_conn_abort(conn, HTTP_ABORT_SERVER);
    else
        finish_exchange(conn);
}

/* ---- one function per state; true: run the next ---- */

static bool run_idle(struct http_conn *conn)
{
    struct evbuffer *input = bufferevent_get_input(conn->bev);

    if (evbuffer_get_length(input) == 0) {
        if (conn->is_eof)
            conn_enter(conn, http_conn_unsent(conn) > 0 ? CONN_LINGER : CONN_DEAD);
        return false;
    }
    /* A client that pipelines without reading its answers waits here. */
    if (http_conn_unsent(conn) > conn->server->limits.max_queue_bytes)
        return false;
    conn_enter(conn, CONN_HEAD);
    conn->exchange.began_ns = conn->state_began_ns;
    conn->scanned_bytes = 0;
    return true;
}

/* on_head has answered, or the body can be read. */
static bool begin_body(struct http_conn *conn)
{
    struct http_exchange *x = &conn->exchange;
    const struct http_limits *limits = &conn->server->limits;

    if (x->answer == ANSWER_DONE) {
        finish_exchange(conn);
        return true;
    }
    if (x->head.framing == HTTP_BODY_LENGTH && x->head.content_length > limits->max_body_bytes) {
        http_conn_refuse(conn, 413, "request body too large");
        return true;
    }
    if (x->head.framing != HTTP_BODY_NONE && conn->server->bodies_bytes > limits->max_bodies_bytes) {
        http_conn_refuse(conn, 503, "too many request bodies are being received");
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

static bool http_conn_take_head(struct http_conn *conn, struct bytes text)
{
    struct http_exchange *x = &conn->exchange;
    struct evbuffer *input = bufferevent_get_input(conn->bev);

    if (buf_append(&x->head_text, text.data, x->head.len_bytes) < 0) {
        http_conn_abort(conn, HTTP_ABORT_SERVER);
        return false;
    }
    evbuffer_drain(input, x->head.len_bytes);
    x->is_body_whole = x->head.framing == HTTP_BODY_NONE;
    x->body_left_bytes = x->head.content_length;
    if (!x->head.keeps_alive || conn->server->state != SERVER_SERVING ||
        conn->n_requests + 1 >= conn->server->limits.max_requests_per_conn)
        conn->is_closing = true;
    http_exchange_begin(x);
    return begin_body(conn);
}

static void begin_h2(struct http_conn *conn)
{
    if (h2_new(conn, &conn->h2) < 0)
        http_conn_abort(conn, HTTP_ABORT_SERVER);
    else
        conn_enter(conn, CONN_H2);
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

    if (conn->server->opts.has_h2c && conn->ssl == NULL && conn->n_requests == 0) {
        rc = h2_find_preface(input);
        if (rc > 0)
            begin_h2(conn);
        if (rc >= 0)
            return rc > 0;
    }
    if (len > limits->max_head_bytes + 1)
        len = limits->max_head_bytes + 1;
    text = bytes_of(evbuffer_pullup(input, (ssize_t)len), len);
    if (text.data == NULL && len > 0) {
        http_conn_abort(conn, HTTP_ABORT_SERVER);
        return false;
    }
    /* Parse again only after a new line end, or if a limit may be exceeded: a head that arrives byte by
     * byte then costs one look per byte, not one parse. The first bytes may be empty lines, which are
     * checked before a line end. */
    rc = 0;
    if (len > limits->max_line_bytes || conn->scanned_bytes < MAX_EMPTY_BYTES ||
        memchr(text.data + conn->scanned_bytes, '\n', len - conn->scanned_bytes) != NULL)
        rc = http_parse_request(text, &head_limits, &x->head, &refusal);
    conn->scanned_bytes = len;
    if (rc < 0) {
        http_exchange_blank_head(x);
        http_conn_refuse(conn, refusal.status, refusal.why);
        return true;
    }
    if (rc == 0) {
        if (conn->is_eof)
            conn_enter(conn, CONN_DEAD);
        return false;
    }
    return http_conn_take_head(conn, text);
}

static bool run_body(struct http_conn *conn)
{
    struct http_exchange *x = &conn->exchange;
    int rc;

    if (x->answer == ANSWER_DONE) { /* the handler gave it up in the meantime */
        finish_exchange(conn);
        return true;
    }
    rc = x->is_body_whole ? 1 : http_body_take(conn);

    if (rc == E_RANGE) {
        http_conn_refuse(conn, 413, "request body too large");
    } else if (rc == E_NOMEM) {
        http_conn_refuse(conn, 503, "out of memory");
    } else if (rc < 0) {
        http_conn_refuse(conn, 400, "malformed chunked body");
    } else if (conn->server->bodies_bytes > conn->server->limits.max_bodies_bytes) {
        http_conn_refuse(conn, 503, "too many request bodies are being received");
    } else if (rc == 0) {
        if (conn->is_eof)
            http_conn_abort(conn, HTTP_ABORT_CLIENT);
        return false;
    } else {
        http_body_uncount(x);
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

static bool http_conn_run_state(struct http_conn *conn)
{
    switch (conn->state) {
    case CONN_HANDSHAKE:
        return false;
    case CONN_H2:
        h2_run(conn->h2);
        return false;
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
    uint64_t begun_ns = clock_now_ns();

    while (!conn->is_broken && http_conn_run_state(conn)) {
        /* Be fair to other connections when one has many requests: the next turn continues. */
        if (conn->state == CONN_IDLE && clock_now_ns() - begun_ns > HTTP_TURN_NS) {
            http_conn_kick(conn);
            break;
        }
    }
    if (conn->is_broken)
        http_conn_abort(conn, conn->break_why);
}

/* ---- callbacks of the loop ---- */

static void conn_go_on(struct http_conn *conn)
{
    conn_run(conn);
    http_conn_reap(conn);
    ev_work_end();
}

/* Connections on the list for the next turn come before new input and sent output. So once one connection has used
 * up its HTTP_TURN_NS, all connections together have HTTP_TURN_NS per turn. */
static void conn_take_turn(struct http_conn *conn)
{
    if (conn->state == CONN_DEAD || list_is_empty(&conn->server->kicked)) {
        conn_go_on(conn);
        return;
    }
    http_conn_kick(conn);
    ev_work_end();
}

static void http_conn_on_read(struct bufferevent *bev, void *arg)
{
    ev_work_begin("http read");
    conn_take_turn(arg);
}

static void http_conn_report_pause(struct http_conn *conn)
{
    bool is_over = conn->over_since_ns != 0;

    if (conn->state != CONN_RUNNING || conn->exchange.answer != ANSWER_STREAMING ||
        conn->is_pause_reported == is_over)
        return;
    conn->is_pause_reported = is_over;
    conn->server->opts.handler->on_pause(conn->server->opts.handler_arg, &conn->exchange, is_over);
}

static void on_write(struct bufferevent *bev, void *arg)
{
    struct http_conn *conn = arg;
    size_t unsent = http_conn_unsent(conn);

    ev_work_begin("http write");
    http_conn_report_pause(conn); /* a write reported it, so the end of the pause must be reported too */
    if (unsent <= conn->server->limits.max_queue_bytes / 4)
        conn->over_since_ns = 0;
    http_conn_report_pause(conn);
    if (conn->state == CONN_LINGER && unsent == 0)
        shut_down_sending(conn);
    else if (conn->state == CONN_IDLE && unsent == 0)
        conn_enter(conn, CONN_IDLE); /* the idle time starts now */
    conn_take_turn(conn);
}

/* The TLS handshake is done: ALPN decides between HTTP/1 and HTTP/2. */
static void finish_handshake(struct http_conn *conn)
{
    const unsigned char *name;
    unsigned len;

    SSL_get0_alpn_selected(conn->ssl, &name, &len);
    if (len == 2 && memcmp(name, "h2", 2) == 0)
        begin_h2(conn);
    else
        conn_enter(conn, CONN_IDLE);
}

/* True: a handler works for this connection and must stop if the client goes away. */
static bool http_conn_is_wanted(const struct http_conn *conn)
{
    return conn->state == CONN_HANDSHAKE || conn->state == CONN_H2 ||
           (conn->state == CONN_RUNNING && conn->exchange.answer != ANSWER_DONE);
}

static void http_conn_on_event(struct bufferevent *bev, short what, void *arg)
{
    struct http_conn *conn = arg;

    ev_work_begin("http event");
    if (what & BEV_EVENT_CONNECTED)
        finish_handshake(conn);
    if (what & BEV_EVENT_EOF) {
        conn->is_eof = true;
        /* Over TLS, the end of reading also stops writing; the client may still want the rest of the
         * output. */
        if (conn->ssl != NULL)
            bufferevent_enable(bev, EV_WRITE);
    }
    if ((what & BEV_EVENT_ERROR) || ((what & BEV_EVENT_EOF) && http_conn_is_wanted(conn)))
        http_conn_abort(conn, HTTP_ABORT_CLIENT);
    conn_go_on(conn);
}

void http_conn_on_deadline(void *arg)
{
    struct http_conn *conn = arg;

    if (clock_now_ns() < deadline_of(conn)) {
        http_conn_arm(conn);
        return;
    }
    if (conn->state == CONN_HEAD || conn->state == CONN_BODY) {
        if (conn->state == CONN_HEAD)
            http_exchange_blank_head(&conn->exchange);
        http_conn_refuse(conn, 408, "the request took too long to arrive");
        conn_run(conn);
    } else if (conn->state == CONN_H2) {
        h2_expire(conn->h2);
        conn_run(conn);
    } else {
        conn_enter(conn, CONN_DEAD);
    }
    http_conn_reap(conn);
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
    http_conn_report_pause(conn);
    conn_run(conn);
    http_conn_reap(conn);
}

void http_conn_drain(struct http_conn *conn)
{
    conn->is_closing = true;
    if (conn->state == CONN_H2) {
        h2_drain(conn->h2);
    } else if (conn->state == CONN_HANDSHAKE) {
        conn_enter(conn, CONN_DEAD);
    } else if (conn->state == CONN_IDLE && evbuffer_get_length(bufferevent_get_input(conn->bev)) == 0) {
        conn_enter(conn, http_conn_unsent(conn) > 0 ? CONN_LINGER : CONN_DEAD);
    } else if (conn->state == CONN_LINGER) {
        http_conn_arm(conn);
    }
    http_conn_reap(conn);
}

int http_conn_start(struct http_conn *conn)
{
    const struct http_limits *limits = &conn->server->limits;

    bufferevent_setcb(conn->bev, http_conn_on_read, on_write, http_conn_on_event, conn);
    bufferevent_setwatermark(conn->bev, EV_READ, 0, limits->max_pipeline_bytes);
    bufferevent_setwatermark(conn->bev, EV_WRITE, limits->max_queue_bytes / 4, 0);
    if (evbuffer_add_cb(bufferevent_get_output(conn->bev), http_conn_on_output, conn) == NULL ||
        bufferevent_enable(conn->bev, EV_READ | EV_WRITE) < 0)
        return E_NOMEM;
    conn_enter(conn, conn->ssl != NULL ? CONN_HANDSHAKE : CONN_IDLE);
    return 0;
}
