/* SPDX-License-Identifier: Apache-2.0 */
/* One request and its answer, as the handler sees them. h2_answer.c has the answers over HTTP/2.
 *
 * Answers go into the connection's output buffer at once and leave it when the loop turns. So a head and a
 * first event written together share one packet. The head must say whether the connection closes, so that
 * is decided when the head is written. These functions only kick the state machine; they never run it. */
#include "net/http/conn_priv.h"

#include <event2/buffer.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/http/h2_priv.h"
#include "net/http/response.h"

void http_exchange_reset(struct http_exchange *exchange)
{
    struct buf head_text = exchange->head_text;
    struct http_conn *conn = exchange->conn;

    buf_clear(&head_text);
    buf_fini(&exchange->body);
    memset(exchange, 0, sizeof(*exchange));
    exchange->head_text = head_text;
    exchange->conn = conn;
}

void http_exchange_blank_head(struct http_exchange *exchange)
{
    memset(&exchange->head, 0, sizeof(exchange->head));
    exchange->head.method = HTTP_OTHER;
    exchange->head.minor = 1;
}

void http_exchange_begin(struct http_exchange *exchange)
{
    const struct http_server_opts *opts = &exchange->conn->server->opts;

    if (http_cors_answer(exchange))
        return;
    exchange->is_seen = true;
    opts->handler->on_head(opts->handler_arg, exchange);
}

void http_exchange_fini(struct http_exchange *exchange)
{
    buf_fini(&exchange->head_text);
    buf_fini(&exchange->body);
}

enum http_method http_exchange_method(const struct http_exchange *exchange)
{
    return exchange->head.method;
}

static struct bytes http_exchange_text_of(const struct http_exchange *exchange)
{
    return buf_view(&exchange->head_text);
}

struct bytes http_exchange_path(const struct http_exchange *exchange)
{
    return http_span_of(exchange->head.path, http_exchange_text_of(exchange));
}

struct bytes http_exchange_query(const struct http_exchange *exchange)
{
    return http_span_of(exchange->head.query, http_exchange_text_of(exchange));
}

struct bytes http_exchange_field(const struct http_exchange *exchange, const char *name)
{
    return http_head_get(&exchange->head, http_exchange_text_of(exchange), name, NULL);
}

const char *http_exchange_peer(const struct http_exchange *exchange)
{
    return exchange->conn->peer;
}

struct bytes http_exchange_body(const struct http_exchange *exchange)
{
    return buf_view(&exchange->body);
}

void http_exchange_take_body(struct http_exchange *exchange, struct buf *out)
{
    *out = exchange->body;
    memset(&exchange->body, 0, sizeof(exchange->body));
}

uint64_t http_exchange_began_ns(const struct http_exchange *exchange)
{
    return exchange->began_ns;
}

void http_exchange_prove(struct http_exchange *exchange)
{
    stranger_prove(exchange->conn->stranger);
    exchange->conn->stranger = NULL;
}

void http_exchange_set_user(struct http_exchange *exchange, void *user)
{
    exchange->user = user;
}

void *http_exchange_user(const struct http_exchange *exchange)
{
    return exchange->user;
}

/* ---- answers ---- */

/* True: the rest of the body can be read and dropped, so that the connection may stay open. */
static bool is_body_droppable(const struct http_exchange *x)
{
    if (x->is_body_whole)
        return true;
    return x->head.framing == HTTP_BODY_LENGTH && !x->head.expects_continue &&
           x->body_left_bytes <= HTTP_MAX_DISCARD_BYTES;
}

/* length_bytes: length of the body, or UINT64_MAX for a streamed answer. */
static int http_exchange_put_head(struct http_exchange *x, int status, const struct http_fields *fields,
                                  uint64_t length_bytes)
{
    struct http_conn *conn = x->conn;
    struct http_fields extra = {0};
    struct buf text = {0};
    int rc;

    x->is_chunking = length_bytes == UINT64_MAX && x->head.minor >= 1;
    if (!is_body_droppable(x) || (length_bytes == UINT64_MAX && !x->is_chunking) ||
        conn->server->state != SERVER_SERVING)
        conn->is_closing = true;
    http_fields_add_str(&extra, "date", http_server_date(conn->server));
    if (conn->is_closing)
        http_fields_add_str(&extra, "connection", "close");
    else if (x->head.minor == 0)
        http_fields_add_str(&extra, "connection", "keep-alive");
    http_cors_add(x, &extra);
    if (x->is_chunking)
        http_fields_add_str(&extra, "transfer-encoding", "chunked");
    else if (length_bytes != UINT64_MAX && status != 204)
        http_fields_addf(&extra, "content-length", "%llu", (unsigned long long)length_bytes);

    rc = extra.text.is_bad ? E_NOMEM : http_put_response_head(&text, status, fields, &extra);
    if (rc == 0 && text.is_bad)
        rc = E_NOMEM;
    if (rc == 0 && bufferevent_write(conn->bev, text.data, text.len_bytes) < 0)
        rc = E_NOMEM;
    http_fields_fini(&extra);
    buf_fini(&text);
    if (rc < 0)
        http_conn_break(conn, HTTP_ABORT_SERVER);
    return rc;
}

static void http_exchange_finish(struct http_exchange *x)
{
    struct http_conn *conn = x->conn;

    x->answer = ANSWER_DONE;
    http_conn_wrote(conn);
    http_conn_kick(conn);
}

void http_reply(struct http_exchange *exchange, int status, const struct http_fields *fields,
                struct bytes body)
{
    struct http_conn *conn = exchange->conn;

    ASSERT(exchange->answer == ANSWER_NONE);
    if (exchange->stream != NULL) {
        h2_reply(exchange->stream, status, fields, body);
        return;
    }
    if (!conn->is_broken && http_exchange_put_head(exchange, status, fields, body.len_bytes) == 0 &&
        exchange->head.method != HTTP_HEAD && body.len_bytes > 0 &&
        bufferevent_write(conn->bev, body.data, body.len_bytes) < 0)
        http_conn_break(conn, HTTP_ABORT_SERVER);
    http_exchange_finish(exchange);
}

static void release_held(const void *data, size_t len_bytes, void *arg)
{
    struct http_held *held = arg;

    held->release(held->arg);
    free(held);
}

int http_add_held(struct evbuffer *output, const struct http_held *held)
{
    struct http_held *kept = malloc(sizeof(*kept));

    if (kept == NULL)
        return E_NOMEM;
    *kept = *held;
    if (evbuffer_add_reference(output, held->body.data, held->body.len_bytes, release_held, kept) == 0)
        return 0;
    free(kept);
    return E_NOMEM;
}

void http_reply_held(struct http_exchange *exchange, int status, const struct http_fields *fields,
                     const struct http_held *held)
{
    struct http_conn *conn = exchange->conn;
    bool is_taken = false;

    ASSERT(exchange->answer == ANSWER_NONE && held->body.len_bytes > 0);
    if (exchange->stream != NULL) {
        is_taken = h2_reply_held(exchange->stream, status, fields, held);
    } else {
        if (!conn->is_broken && http_exchange_put_head(exchange, status, fields, held->body.len_bytes) == 0 &&
            exchange->head.method != HTTP_HEAD) {
            is_taken = http_add_held(bufferevent_get_output(conn->bev), held) == 0;
            if (!is_taken)
                http_conn_break(conn, HTTP_ABORT_SERVER);
        }
        http_exchange_finish(exchange);
    }
    if (!is_taken)
        held->release(held->arg);
}

int http_reply_begin(struct http_exchange *exchange, int status, const struct http_fields *fields)
{
    struct http_conn *conn = exchange->conn;
    int rc;

    ASSERT(exchange->answer == ANSWER_NONE);
    exchange->answer = ANSWER_STREAMING;
    if (exchange->stream != NULL)
        return h2_reply_begin(exchange->stream, status, fields);
    if (conn->is_broken)
        return E_CLOSED;
    rc = http_exchange_put_head(exchange, status, fields, UINT64_MAX);
    http_conn_wrote(conn);
    return rc;
}

void http_exchange_fetch(const struct http_exchange *exchange)
{
    uintptr_t conn = (uintptr_t)exchange - offsetof(struct http_conn, exchange);

    if (exchange != NULL)
        mem_prefetch((const void *)conn, offsetof(struct http_conn, exchange) + 3 * MEM_CACHE_LINE);
}

int http_reply_write(struct http_exchange *exchange, struct bytes piece)
{
    struct http_conn *conn = exchange->conn;
    size_t max_bytes = conn->server->limits.max_queue_bytes, n_before;
    struct evbuffer *output;
    int rc = 0;

    ASSERT(exchange->answer == ANSWER_STREAMING);
    if (exchange->stream != NULL)
        return h2_reply_write(exchange->stream, piece);
    if (conn->is_broken)
        return E_CLOSED;
    if (piece.len_bytes == 0 || exchange->head.method == HTTP_HEAD)
        return 0;
    if (http_conn_send_now(conn, piece, exchange->is_chunking))
        return conn->is_broken ? E_CLOSED : 0;
    output = bufferevent_get_output(conn->bev);
    n_before = evbuffer_get_length(output);
    if (exchange->is_chunking)
        rc |= evbuffer_add_printf(output, "%zx\r\n", piece.len_bytes) < 0;
    rc |= evbuffer_add(output, piece.data, piece.len_bytes) < 0;
    if (exchange->is_chunking)
        rc |= evbuffer_add(output, "\r\n", 2) < 0;
    http_conn_wrote(conn);
    if (rc != 0) {
        http_conn_break(conn, HTTP_ABORT_SERVER);
        return E_NOMEM;
    }
    if (evbuffer_get_length(output) > max_bytes && conn->over_since_ns == 0) {
        conn->over_since_ns = clock_now_ns();
        http_conn_kick(conn);
    }
    if (conn->is_pause_reported && n_before > max_bytes * HTTP_HARD_QUEUE_FACTOR) {
        http_conn_break(conn, HTTP_ABORT_SLOW_READER);
        return E_FULL;
    }
    return conn->over_since_ns != 0;
}

void http_reply_end(struct http_exchange *exchange)
{
    struct http_conn *conn = exchange->conn;

    ASSERT(exchange->answer == ANSWER_STREAMING);
    if (exchange->stream != NULL) {
        h2_reply_end(exchange->stream);
        return;
    }
    if (exchange->is_chunking && exchange->head.method != HTTP_HEAD && !conn->is_broken &&
        bufferevent_write(conn->bev, "0\r\n\r\n", 5) < 0)
        http_conn_break(conn, HTTP_ABORT_SERVER);
    http_exchange_finish(exchange);
}
