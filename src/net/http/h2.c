/* SPDX-License-Identifier: Apache-2.0 */
/* An HTTP/2 session (RFC 9113) over libnghttp2. The library handles frames, header compression, stream
 * states and flow control; this file moves its input and output:
 *
 *     bufferevent input ──> nghttp2 ──callbacks──> h2_stream.c ──> handler
 *     bufferevent output <── h2_run <── nghttp2 <──reads── h2_stream.out <── h2_answer.c <── handler
 *
 * Every buffer is bounded. nghttp2 holds no body data: received data goes into the exchange's body, under
 * the same limits as HTTP/1. Data to send is fetched from the stream's queue only if both windows and the
 * output buffer have room. The output buffer stops at half of max_queue_bytes; a stream's queue pauses its
 * handler at max_queue_bytes. A peer that opens no window for a stream loses that stream after stall_ns; a
 * peer that reads nothing loses the connection.
 *
 * A budget limits frames that are free for the peer but cost us work (h2_budget_priv.h).
 *
 * nghttp2's callbacks run inside its functions and must not re-enter it: they may submit, never send.
 * Handlers run from there (on_head, on_request, on_abort) and may answer, which submits. */
#include "net/http/h2_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#define STREAM_WINDOW_BYTES (1 << 20)
#define CONN_WINDOW_BYTES   (4 << 20)
#define MAX_PIECE_BYTES     256 /* given to nghttp2 at once */

/* ---- making and freeing ---- */

static int new_session(struct h2 *h2)
{
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    int rc = E_NOMEM;

    if (nghttp2_session_callbacks_new(&callbacks) == 0 && nghttp2_option_new(&option) == 0) {
        h2_set_input_callbacks(callbacks);
        nghttp2_option_set_no_closed_streams(option, 1);
        nghttp2_option_set_max_outbound_ack(option, 256);
        nghttp2_option_set_max_settings(option, 32);
        nghttp2_option_set_max_continuations(option, 8);
        rc = nghttp2_session_server_new2(&h2->session, callbacks, h2, option) == 0 ? 0 : E_NOMEM;
    }
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return rc;
}

static int h2_greet(struct h2 *h2)
{
    const struct http_limits *limits = &h2->conn->server->limits;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits->max_streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, limits->max_head_bytes},
        {NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL, 0},
    };

    if (nghttp2_submit_settings(h2->session, NGHTTP2_FLAG_NONE, settings,
                                sizeof(settings) / sizeof(settings[0])) != 0 ||
        nghttp2_session_set_local_window_size(h2->session, NGHTTP2_FLAG_NONE, 0, CONN_WINDOW_BYTES) != 0)
        return E_NOMEM;
    return 0;
}

int h2_new(struct http_conn *conn, struct h2 **out)
{
    struct h2 *h2 = calloc(1, sizeof(*h2));

    if (h2 == NULL)
        return E_NOMEM;
    h2->conn = conn;
    list_init(&h2->streams);
    h2->idle_since_ns = clock_now_ns();
    h2_budget_init(&h2->budget, h2->idle_since_ns);
    if (new_session(h2) < 0 || h2_greet(h2) < 0) {
        h2_free(h2);
        return E_NOMEM;
    }
    *out = h2;
    http_conn_kick(conn); /* send the greeting at once */
    if (conn->server->state == SERVER_DRAINING)
        h2_drain(h2);
    return 0;
}

void h2_free(struct h2 *h2)
{
    if (h2 == NULL)
        return;
    nghttp2_session_del(h2->session); /* runs no callback */
    list_for_each_safe (node, spare, &h2->streams)
        h2_stream_free(container_of(node, struct h2_stream, node));
    free(h2);
}

int h2_find_preface(struct evbuffer *input)
{
    uint8_t begin[NGHTTP2_CLIENT_MAGIC_LEN];
    ev_ssize_t n = evbuffer_copyout(input, begin, sizeof(begin));

    if (n <= 0)
        return 0;
    if (memcmp(begin, NGHTTP2_CLIENT_MAGIC, (size_t)n) != 0)
        return E_FORMAT;
    return n == NGHTTP2_CLIENT_MAGIC_LEN;
}

/* ---- ends ---- */

void h2_abort(struct h2 *h2, enum http_abort why)
{
    list_for_each_safe (node, spare, &h2->streams)
        h2_stream_report_abort(container_of(node, struct h2_stream, node), why);
}

void h2_warn(struct h2 *h2)
{
    if (h2->state != H2_OPEN)
        return;
    h2->state = H2_WARNED;
    (void)nghttp2_submit_shutdown_notice(h2->session);
    http_conn_kick(h2->conn);
}

void h2_drain(struct h2 *h2)
{
    if (h2->state >= H2_LEAVING)
        return;
    h2->state = H2_LEAVING;
    nghttp2_submit_goaway(h2->session, NGHTTP2_FLAG_NONE, h2->newest_id, NGHTTP2_NO_ERROR, NULL, 0);
    http_conn_kick(h2->conn);
}

void h2_calm(struct h2 *h2, const char *why)
{
    if (h2->state == H2_CALMED)
        return;
    h2->state = H2_CALMED;
    /* Any client can cause it: counted, not logged. */
    http_server_count_why(h2->conn->server, "h2_abuse");
    log_debug("h2_abuse", LOG_STR("peer", h2->conn->peer), LOG_STR("reason", why));
    nghttp2_session_terminate_session(h2->session, NGHTTP2_ENHANCE_YOUR_CALM);
}

/* The session is over. */
static void h2_end(struct h2 *h2)
{
    h2_abort(h2, HTTP_ABORT_CLIENT);
    http_conn_end(h2->conn);
}

/* ---- input and output ---- */

/* Takes input for HTTP_TURN_NS: a read may hold a hundred requests. The next turn goes on. The pieces are
 * small, because a request takes twenty bytes. False: the session must end. */
static bool h2_take_input(struct h2 *h2)
{
    struct evbuffer *input = bufferevent_get_input(h2->conn->bev);
    uint64_t begun_ns = clock_now_ns();

    while (evbuffer_get_length(input) > 0 && h2->state != H2_CALMED) {
        size_t len = evbuffer_get_contiguous_space(input);

        if (clock_now_ns() - begun_ns > HTTP_TURN_NS) {
            http_conn_kick(h2->conn);
            break;
        }
        len = len < MAX_PIECE_BYTES ? len : MAX_PIECE_BYTES;

        const uint8_t *data = evbuffer_pullup(input, (ev_ssize_t)len);
        ssize_t n = data == NULL ? -1 : nghttp2_session_mem_recv(h2->session, data, len);

        if (n < 0)
            return false;
        evbuffer_drain(input, (size_t)n);
        if (n == 0)
            break;
    }
    return true;
}

static bool send_output(struct h2 *h2)
{
    struct http_conn *conn = h2->conn;
    size_t max_bytes = conn->server->limits.max_queue_bytes / 2;
    bool has_sent = false;
    ssize_t n = 0;

    while (http_conn_unsent(conn) < max_bytes) {
        const uint8_t *data;

        n = nghttp2_session_mem_send(h2->session, &data);
        if (n <= 0)
            break;
        has_sent = true;
        if (bufferevent_write(conn->bev, data, (size_t)n) < 0) {
            n = -1;
            break;
        }
    }
    if (has_sent)
        http_conn_wrote(conn);
    return n >= 0;
}

static void h2_report_pause(struct h2_stream *stream)
{
    const struct http_server *server = stream->h2->conn->server;
    bool is_over = stream->over_since_ns != 0, is_due = stream->is_pause_due;

    stream->is_pause_due = false;
    if (stream->exchange.answer != ANSWER_STREAMING)
        return;
    if (is_due && !is_over && !stream->is_pause_reported) /* it is over already, but a write reported it */
        server->opts.handler->on_pause(server->opts.handler_arg, &stream->exchange, false);
    if (stream->is_pause_reported == is_over)
        return;
    stream->is_pause_reported = is_over;
    server->opts.handler->on_pause(server->opts.handler_arg, &stream->exchange, is_over);
}

/* Handles stream failures and pauses that were noticed where no handler may be called. */
static void look_at_streams(struct h2 *h2)
{
    list_for_each_safe (node, spare, &h2->streams) {
        struct h2_stream *stream = container_of(node, struct h2_stream, node);

        if (stream->is_broken)
            h2_stream_reset(stream, stream->break_why);
        else
            h2_report_pause(stream);
    }
}

void h2_run(struct h2 *h2)
{
    struct http_conn *conn = h2->conn;

    if (!h2_take_input(h2)) {
        (void)send_output(h2);
        h2_end(h2);
        return;
    }
    if (h2->is_stale)
        look_at_streams(h2);
    if (!send_output(h2)) {
        http_conn_break(conn, HTTP_ABORT_SERVER);
        return;
    }
    /* nghttp2 wants nothing more once GOAWAY is sent and no stream is left, or at once after a fault. */
    if (!nghttp2_session_want_read(h2->session) && !nghttp2_session_want_write(h2->session)) {
        h2_end(h2);
        return;
    }
    if (h2->is_stale) {
        h2->is_stale = false;
        look_at_streams(h2);
        http_conn_arm(conn);
    }
}

/* ---- deadlines ---- */

static uint64_t h2_earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t h2_deadline(const struct h2 *h2)
{
    const struct http_limits *limits = &h2->conn->server->limits;
    uint64_t now = clock_now_ns();
    uint64_t at = UINT64_MAX;

    if (h2->n_streams == 0)
        at = h2->idle_since_ns + (h2->n_opened == 0 ? limits->head_ns : limits->idle_ns);
    if (h2->head_began_ns != 0)
        at = h2_earlier(at, h2->head_began_ns + limits->head_ns);
    list_for_each (node, &h2->streams)
        at = h2_earlier(at, h2_stream_deadline(container_of(node, struct h2_stream, node), now));
    return at;
}

void h2_expire(struct h2 *h2)
{
    const struct http_limits *limits = &h2->conn->server->limits;
    uint64_t now = clock_now_ns();

    h2->is_stale = true;
    if (h2->head_began_ns != 0 && now >= h2->head_began_ns + limits->head_ns) {
        /* Inside a header block this connection can carry nothing else. */
        http_server_count_refusal(h2->conn->server, 408);
        http_conn_break(h2->conn, HTTP_ABORT_CLIENT);
        return;
    }
    if (h2->n_streams == 0) {
        if (h2->state >= H2_LEAVING) /* the client did not close after GOAWAY */
            http_conn_break(h2->conn, HTTP_ABORT_CLIENT);
        h2_drain(h2);
        h2->idle_since_ns = now;
        return;
    }
    list_for_each_safe (node, spare, &h2->streams) {
        struct h2_stream *stream = container_of(node, struct h2_stream, node);

        if (now < h2_stream_deadline(stream, now))
            continue;
        if (!stream->exchange.is_body_whole && stream->exchange.answer == ANSWER_NONE)
            h2_stream_refuse(stream, 408, "the request took too long to arrive");
        else
            h2_stream_reset(stream, HTTP_ABORT_SLOW_READER);
    }
}
