/* SPDX-License-Identifier: Apache-2.0 */
/* From frames to exchanges.
 *
 *     HEADERS ──> gathers pseudo fields and fields ──whole──> one HTTP/1.1 head ──parser──> on_head
 *     DATA    ──> the body, counted ──END_STREAM──> on_request
 *     closed before its answer ──> on_abort
 *
 * The gathered head is written as HTTP/1.1 text and goes through the same parser as any other head. So
 * there is one grammar, one set of limits and one kind of head behind the interface. nghttp2 has already
 * refused line ends and NUL in names and values; the parser would refuse them too. */
#include "net/http/h2_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"

/* A client that sends this many times the head limit makes no real request. */
#define MAX_HEAD_FACTOR 4

void h2_stream_free(struct h2_stream *stream)
{
    if (stream == NULL)
        return;
    http_body_uncount(&stream->exchange);
    list_remove(&stream->node);
    http_exchange_fini(&stream->exchange);
    buf_fini(&stream->method);
    buf_fini(&stream->path);
    buf_fini(&stream->authority);
    buf_fini(&stream->fields);
    if (stream->out != NULL)
        evbuffer_free(stream->out);
    free(stream);
}

static struct h2_stream *h2_stream_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

static void h2_stream_charge(struct h2 *h2, uint32_t cost, const char *why)
{
    if (!h2_budget_take(&h2->budget, clock_now_ns(), cost))
        h2_calm(h2, why);
}

/* ---- ends ---- */

void h2_stream_report_abort(struct h2_stream *stream, enum http_abort why)
{
    struct http_exchange *x = &stream->exchange;
    const struct http_server *server = x->conn->server;

    if (x->answer == ANSWER_DONE)
        return;
    x->answer = ANSWER_DONE;
    stream->is_out_ended = true;
    if (x->is_seen)
        server->opts.handler->on_abort(server->opts.handler_arg, x, why);
}

void h2_stream_reset(struct h2_stream *stream, enum http_abort why)
{
    bool is_slow = why == HTTP_ABORT_SLOW_READER && h2_stream_unsent(stream) > 0;
    struct metric *slow_readers = stream->exchange.conn->server->slow_readers;

    if (is_slow && slow_readers != NULL)
        metric_add(slow_readers, 1);
    if (stream->out != NULL)
        evbuffer_drain(stream->out, evbuffer_get_length(stream->out));
    stream->is_broken = false; /* handled */
    if (stream->is_reset)
        return;
    stream->is_reset = true;
    nghttp2_submit_rst_stream(stream->h2->session, NGHTTP2_FLAG_NONE, stream->id,
                              why == HTTP_ABORT_SERVER ? NGHTTP2_INTERNAL_ERROR : NGHTTP2_CANCEL);
    h2_stream_report_abort(stream, why);
    http_conn_kick(stream->h2->conn);
}

void h2_stream_refuse(struct h2_stream *stream, int status, const char *why)
{
    struct http_exchange *x = &stream->exchange;
    const struct http_server *server = x->conn->server;

    if (x->answer != ANSWER_NONE)
        return;
    http_body_uncount(x);
    buf_fini(&x->body);
    http_server_count_refusal(x->conn->server, status);
    server->opts.handler->on_refused(server->opts.handler_arg, x, status, why);
    if (x->answer != ANSWER_DONE)
        h2_stream_reset(stream, HTTP_ABORT_SERVER);
}

uint64_t h2_stream_deadline(const struct h2_stream *stream, uint64_t now_ns)
{
    const struct http_exchange *x = &stream->exchange;
    const struct http_limits *limits = &x->conn->server->limits;
    uint64_t body_bytes =
        x->head.framing == HTTP_BODY_LENGTH ? x->head.content_length : x->body_received_bytes;
    uint64_t at = UINT64_MAX;

    if (!stream->is_head_whole || stream->is_reset)
        return UINT64_MAX; /* the connection's own deadline for heads watches it */
    if (body_bytes > limits->max_body_bytes)
        body_bytes = limits->max_body_bytes;
    if (!x->is_body_whole)
        at = x->began_ns + limits->body_ns + (body_bytes >> 20) * limits->body_ns_per_mib;
    if (h2_stream_unsent(stream) > 0) {
        uint64_t stalled = stream->progress_ns + limits->stall_ns;

        if (stream->over_since_ns != 0 && stream->over_since_ns + limits->stall_ns < stalled)
            stalled = stream->over_since_ns + limits->stall_ns;
        at = stalled < at ? stalled : at;
    } else if (x->answer == ANSWER_STREAMING && now_ns + limits->stall_ns < at) {
        /* Check again then: a stall that begins now would end at that time. */
        at = now_ns + limits->stall_ns;
    }
    return at;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t error, void *arg)
{
    struct h2_stream *stream = h2_stream_of(session, id);
    struct h2 *h2 = arg;

    if (stream == NULL)
        return 0;
    if (stream->exchange.answer != ANSWER_DONE) {
        h2_stream_report_abort(stream, HTTP_ABORT_CLIENT);
        h2_stream_charge(h2, H2_COST_RESET, "streams cancelled");
    }
    nghttp2_session_set_stream_user_data(session, id, NULL);
    h2_stream_free(stream);
    h2->is_stale = true;
    if (--h2->n_streams == 0) {
        h2->idle_since_ns = clock_now_ns();
        if (h2->state == H2_WARNED)
            h2_drain(h2); /* streams that the client has begun are still answered */
    }
    return 0;
}

/* ---- heads ---- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct h2 *h2 = arg;
    struct h2_stream *stream;

    h2->head_began_ns = clock_now_ns();
    h2->is_stale = true;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    /* The GOAWAY that is queued says that this stream was not served: the client may repeat the request
     * elsewhere. */
    if (h2->state >= H2_LEAVING) {
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_REFUSED_STREAM);
        return 0;
    }
    stream = calloc(1, sizeof(*stream));
    if (stream == NULL)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    stream->h2 = h2;
    stream->id = frame->hd.stream_id;
    stream->exchange.conn = h2->conn;
    stream->exchange.stream = stream;
    stream->exchange.began_ns = h2->head_began_ns;
    list_push_back(&h2->streams, &stream->node);
    h2->n_streams++;
    h2->n_opened++;
    h2->newest_id = stream->id;
    nghttp2_session_set_stream_user_data(session, stream->id, stream);
    if (h2->n_opened >= h2->conn->server->limits.max_requests_per_conn)
        h2_drain(h2);
    else if (h2->conn->server->state == SERVER_LAME_DUCK)
        h2_warn(h2);
    return 0;
}

/* The text holds no line end: nghttp2 has checked it, and the parser checks again. */
static void h2_stream_put_field(struct h2_stream *stream, struct bytes name, struct bytes value)
{
    struct buf *pseudo = NULL;

    if (bytes_is(name, ":method"))
        pseudo = &stream->method;
    else if (bytes_is(name, ":path"))
        pseudo = &stream->path;
    else if (bytes_is(name, ":authority"))
        pseudo = &stream->authority;
    else if (name.len_bytes > 0 && name.data[0] == ':')
        return;
    if (pseudo != NULL) {
        buf_append(pseudo, value.data, value.len_bytes);
        return;
    }
    /* If :authority is present, Host must have the same value. */
    if (bytes_is(name, "host") && stream->authority.len_bytes > 0 &&
        bytes_equal(value, buf_view(&stream->authority)))
        return;
    stream->n_fields++;
    buf_append(&stream->fields, name.data, name.len_bytes);
    buf_append_str(&stream->fields, ": ");
    buf_append(&stream->fields, value.data, value.len_bytes);
    buf_append_str(&stream->fields, "\r\n");
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags, void *arg)
{
    struct h2_stream *stream = h2_stream_of(session, frame->hd.stream_id);
    struct h2 *h2 = arg;
    const struct http_limits *limits = &h2->conn->server->limits;

    if (stream == NULL)
        return 0;
    stream->head_bytes += (uint32_t)(name_len + value_len + 32);
    if (stream->head_bytes > MAX_HEAD_FACTOR * (uint64_t)limits->max_head_bytes) {
        h2_calm(h2, "header fields");
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    if (stream->head_bytes > limits->max_head_bytes || stream->n_fields >= limits->max_fields)
        stream->is_head_too_large = true;
    if (!stream->is_head_too_large && !stream->is_head_whole)
        h2_stream_put_field(stream, bytes_of(name, name_len), bytes_of(value, value_len));
    return 0;
}

static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                             size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                             void *arg)
{
    struct h2_stream *stream = h2_stream_of(session, frame->hd.stream_id);

    if (stream != NULL)
        stream->is_head_bad = true;
    return 0;
}

static bool h2_stream_is_plain(const struct buf *text)
{
    for (size_t i = 0; i < text->len_bytes; i++)
        if (text->data[i] <= ' ' || text->data[i] == 0x7f)
            return false;
    return !text->is_bad && text->len_bytes > 0;
}

/* Writes the head as HTTP/1.1 text. */
static int write_down(struct h2_stream *stream)
{
    struct buf *text = &stream->exchange.head_text;
    const struct buf *target = stream->path.len_bytes > 0 ? &stream->path : &stream->authority;

    if (stream->is_head_bad || !h2_stream_is_plain(&stream->method) || !h2_stream_is_plain(target))
        return E_FORMAT;
    buf_append(text, stream->method.data, stream->method.len_bytes);
    buf_append_byte(text, ' ');
    buf_append(text, target->data, target->len_bytes);
    buf_append_str(text, " HTTP/1.1\r\n");
    if (stream->authority.len_bytes > 0) {
        buf_append_str(text, "host: ");
        buf_append(text, stream->authority.data, stream->authority.len_bytes);
        buf_append_str(text, "\r\n");
    }
    buf_append(text, stream->fields.data, stream->fields.len_bytes);
    buf_append_str(text, "\r\n");
    return text->is_bad || stream->fields.is_bad ? E_NOMEM : 0;
}

static void parse_head(struct h2_stream *stream)
{
    struct http_exchange *x = &stream->exchange;
    const struct http_limits *limits = &x->conn->server->limits;
    /* The head's size is already counted; the extra bytes of the HTTP/1.1 text are not, so allow 1 KiB for
     * them. */
    const struct http_head_limits head_limits = {limits->max_line_bytes, limits->max_head_bytes + 1024,
                                                 limits->max_fields};
    struct http_refusal refusal = {400, "malformed header fields"};
    int rc = stream->is_head_too_large ? E_LIMIT : write_down(stream);

    if (rc == 0 && http_parse_request(buf_view(&x->head_text), &head_limits, &x->head, &refusal) == 1) {
        http_exchange_begin(x);
        return;
    }
    if (rc == E_LIMIT)
        refusal = (struct http_refusal){431, "request head too large"};
    else if (rc == E_NOMEM)
        refusal = (struct http_refusal){503, "out of memory"};
    http_exchange_blank_head(x);
    h2_stream_refuse(stream, refusal.status, refusal.why);
}

static void h2_stream_begin(struct h2_stream *stream, bool has_body)
{
    struct http_exchange *x = &stream->exchange;
    const struct http_server *server = x->conn->server;

    stream->is_head_whole = true;
    x->is_body_whole = !has_body;
    parse_head(stream);
    buf_fini(&stream->method);
    buf_fini(&stream->path);
    buf_fini(&stream->authority);
    buf_fini(&stream->fields);
    x->body_left_bytes = x->head.content_length;
    if (x->answer != ANSWER_NONE || !has_body)
        return;
    if (x->head.framing == HTTP_BODY_LENGTH && x->head.content_length > server->limits.max_body_bytes)
        h2_stream_refuse(stream, 413, "request body too large");
    else if (server->bodies_bytes > server->limits.max_bodies_bytes)
        h2_stream_refuse(stream, 503, "too many request bodies are being received");
    else if (x->head.expects_continue)
        h2_reply_continue(stream);
}

/* ---- bodies ---- */

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t len,
                   void *arg)
{
    struct h2_stream *stream = h2_stream_of(session, id);
    struct http_exchange *x;
    const struct http_server *server;
    int rc;

    if (stream == NULL)
        return 0;
    x = &stream->exchange;
    server = x->conn->server;
    x->body_received_bytes += len;
    x->body_left_bytes -= x->body_left_bytes > len ? len : x->body_left_bytes;
    if (x->answer != ANSWER_NONE)
        return 0;
    rc = http_body_add(x, bytes_of(data, len));
    if (rc == E_RANGE)
        h2_stream_refuse(stream, 413, "request body too large");
    else if (rc < 0)
        h2_stream_refuse(stream, 503, "out of memory");
    else if (server->bodies_bytes > server->limits.max_bodies_bytes)
        h2_stream_refuse(stream, 503, "too many request bodies are being received");
    return 0;
}

static void finish_body(struct h2_stream *stream)
{
    struct http_exchange *x = &stream->exchange;
    const struct http_server *server = x->conn->server;

    x->is_body_whole = true;
    stream->h2->is_stale = true;
    http_body_uncount(x);
    if (x->answer == ANSWER_NONE)
        server->opts.handler->on_request(server->opts.handler_arg, x);
}

/* ---- frames ---- */

/* Called before a frame is processed: charges frames that are free for the peer. */
static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *arg)
{
    struct h2 *h2 = arg;

    switch (hd->type) {
    case NGHTTP2_HEADERS:
    case NGHTTP2_RST_STREAM: /* charged when the stream closes */
        break;
    case NGHTTP2_DATA:
        if (hd->length == 0 && (hd->flags & NGHTTP2_FLAG_END_STREAM) == 0)
            h2_stream_charge(h2, H2_COST_FRAME, "empty DATA frames");
        break;
    case NGHTTP2_WINDOW_UPDATE:
        if (!h2_budget_take_window_update(&h2->budget, clock_now_ns()))
            h2_calm(h2, "window updates");
        break;
    default:
        h2_stream_charge(h2, H2_COST_FRAME, "control frames");
        break;
    }
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct h2 *h2 = arg;
    struct h2_stream *stream;

    if (frame->hd.type == NGHTTP2_HEADERS) {
        h2->head_began_ns = 0;
        h2->is_stale = true;
    } else if (frame->hd.type != NGHTTP2_DATA) {
        return 0;
    }
    stream = h2_stream_of(session, frame->hd.stream_id);
    if (stream == NULL || h2->state == H2_CALMED)
        return 0;
    if (!stream->is_head_whole)
        h2_stream_begin(stream, (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0);
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0)
        finish_body(stream);
    return 0;
}

static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int error, void *arg)
{
    struct h2 *h2 = arg;

    if (frame->hd.type == NGHTTP2_HEADERS)
        h2->head_began_ns = 0;
    h2_stream_charge(h2, error == NGHTTP2_ERR_REFUSED_STREAM ? H2_COST_RESET : H2_COST_BAD, "invalid frames");
    return 0;
}

/* The answer is sent before the whole request has arrived: stops the rest of the request. */
static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct h2_stream *stream;

    if ((frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) ||
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0)
        return 0;
    stream = h2_stream_of(session, frame->hd.stream_id);
    if (stream == NULL || stream->exchange.is_body_whole)
        return 0;
    if (stream->exchange.head.framing == HTTP_BODY_LENGTH &&
        stream->exchange.body_left_bytes <= HTTP_MAX_DISCARD_BYTES)
        return 0; /* little is left of the body */
    nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, stream->id, NGHTTP2_NO_ERROR);
    return 0;
}

void h2_set_input_callbacks(nghttp2_session_callbacks *callbacks)
{
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(callbacks, on_invalid_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
}
