/* SPDX-License-Identifier: Apache-2.0 */
/* Answers on a stream.
 *
 * The head is submitted at once. The body waits in the stream's queue until nghttp2 fetches it. Both leave
 * at the next turn of the loop, so a head and a first event written together share a packet. Fields arrive
 * as HTTP/1 text lines from net/http/response.h and are split here. */
#include "net/http/h2_priv.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"

#define MAX_FIELDS       64
#define MIN_HONEST_BYTES 64 /* a DATA frame of at least this length pays for window updates */

size_t h2_stream_unsent(const struct h2_stream *stream)
{
    return stream->out == NULL ? 0 : evbuffer_get_length(stream->out);
}

static void h2_answer_wake(struct h2_stream *stream)
{
    stream->h2->is_stale = true;
    http_conn_kick(stream->h2->conn);
}

static void break_stream(struct h2_stream *stream, enum http_abort why)
{
    stream->is_broken = true;
    stream->break_why = why;
    h2_answer_wake(stream);
}

/* ---- the head ---- */

static bool is_hop_by_hop(struct bytes name)
{
    static const char *const names[] = {"connection", "keep-alive", "transfer-encoding", "upgrade"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (bytes_is(name, names[i]))
            return true;
    return false;
}

/* Splits "name: value\r\n" lines, in place. */
static size_t split_fields(struct buf *text, nghttp2_nv *out, size_t cap)
{
    size_t at = 0;
    size_t n = 0;

    while (at < text->len_bytes && n < cap) {
        uint8_t *line = text->data + at;
        uint8_t *colon = memchr(line, ':', text->len_bytes - at);
        size_t end = bytes_find(buf_view(text), bytes_str("\r\n"), at);

        ASSERT(colon != NULL && end != SIZE_MAX);
        for (uint8_t *c = line; c < colon; c++)
            if (*c >= 'A' && *c <= 'Z')
                *c = (uint8_t)(*c + 32);
        if (!is_hop_by_hop(bytes_of(line, (size_t)(colon - line))))
            out[n++] = (nghttp2_nv){line, colon + 2, (size_t)(colon - line),
                                    (size_t)(text->data + end - (colon + 2)), NGHTTP2_NV_FLAG_NONE};
        at = end + 2;
    }
    return n;
}

static ssize_t read_body(nghttp2_session *session, int32_t id, uint8_t *out, size_t cap, uint32_t *flags,
                         nghttp2_data_source *source, void *arg)
{
    struct h2_stream *stream = source->ptr;
    size_t queued = h2_stream_unsent(stream);
    int n = 0;

    if (queued == 0 && !stream->is_out_ended) {
        stream->is_deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (queued > 0) {
        n = evbuffer_remove(stream->out, out, cap);
        if (n < 0)
            return NGHTTP2_ERR_CALLBACK_FAILURE;
        stream->progress_ns = clock_now_ns();
        if (n >= MIN_HONEST_BYTES)
            h2_budget_sent_data(&stream->h2->budget);
    }
    queued -= (size_t)n;
    if (stream->over_since_ns != 0 && queued <= stream->h2->conn->server->limits.max_queue_bytes / 4) {
        stream->over_since_ns = 0;
        stream->h2->is_stale = true;
    }
    if (queued == 0 && stream->is_out_ended)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return n;
}

/* length_bytes: length of the body, or UINT64_MAX for a streamed answer. */
static int submit_head(struct h2_stream *stream, int status, const struct http_fields *fields,
                       uint64_t length_bytes)
{
    const struct http_exchange *x = &stream->exchange;
    nghttp2_data_provider body = {.source.ptr = stream, .read_callback = read_body};
    bool has_body = length_bytes > 0 && x->head.method != HTTP_HEAD;
    struct http_fields all = {0};
    nghttp2_nv nv[MAX_FIELDS];
    char status_text[12];
    size_t n;
    int rc;

    http_fields_add_str(&all, "date", http_server_date(x->conn->server));
    http_cors_add(x, &all);
    if (length_bytes != UINT64_MAX && status != 204)
        http_fields_addf(&all, "content-length", "%llu", (unsigned long long)length_bytes);
    if (fields != NULL && fields->text.len_bytes > 0)
        buf_append(&all.text, fields->text.data, fields->text.len_bytes);
    snprintf(status_text, sizeof(status_text), "%d", status);
    nv[0] = (nghttp2_nv){(uint8_t *)":status", (uint8_t *)status_text, 7, strlen(status_text),
                         NGHTTP2_NV_FLAG_NONE};
    if (all.text.is_bad) {
        rc = E_NOMEM;
    } else {
        n = 1 + split_fields(&all.text, nv + 1, MAX_FIELDS - 1);
        rc = nghttp2_submit_response(stream->h2->session, stream->id, nv, n, has_body ? &body : NULL);
        rc = rc == 0 ? 0 : E_CLOSED;
    }
    http_fields_fini(&all);
    if (rc < 0)
        break_stream(stream, HTTP_ABORT_SERVER);
    return rc;
}

void h2_reply_continue(struct h2_stream *stream)
{
    const nghttp2_nv nv = {(uint8_t *)":status", (uint8_t *)"100", 7, 3, NGHTTP2_NV_FLAG_NONE};

    (void)nghttp2_submit_headers(stream->h2->session, NGHTTP2_FLAG_NONE, stream->id, NULL, &nv, 1, NULL);
}

/* ---- the body ---- */

static int h2_answer_queue(struct h2_stream *stream, struct bytes piece, const struct http_held *held)
{
    size_t max_bytes = stream->h2->conn->server->limits.max_queue_bytes;

    if (stream->out == NULL)
        stream->out = evbuffer_new();
    if (stream->out == NULL)
        return E_NOMEM;
    if (h2_stream_unsent(stream) == 0)
        stream->progress_ns = clock_now_ns();
    if (held != NULL ? http_add_held(stream->out, held) < 0
                     : evbuffer_add(stream->out, piece.data, piece.len_bytes) < 0)
        return E_NOMEM;
    if (h2_stream_unsent(stream) > max_bytes && stream->over_since_ns == 0) {
        stream->over_since_ns = clock_now_ns();
        stream->is_pause_due = true;
    }
    if (stream->is_deferred) {
        stream->is_deferred = false;
        (void)nghttp2_session_resume_data(stream->h2->session, stream->id);
    }
    return 0;
}

static void h2_answer_finish(struct h2_stream *stream)
{
    stream->exchange.answer = ANSWER_DONE;
    /* The stream may stay until the client has read the whole answer; the request's memory is freed now. */
    http_body_uncount(&stream->exchange);
    buf_fini(&stream->exchange.body);
    stream->is_out_ended = true;
    stream->over_since_ns = 0;
    h2_budget_give(&stream->h2->budget, H2_BUDGET_PER_ANSWER);
    if (stream->is_deferred) {
        stream->is_deferred = false;
        (void)nghttp2_session_resume_data(stream->h2->session, stream->id);
    }
    h2_answer_wake(stream);
}

void h2_reply(struct h2_stream *stream, int status, const struct http_fields *fields, struct bytes body)
{
    if (!stream->is_broken && submit_head(stream, status, fields, body.len_bytes) == 0 &&
        body.len_bytes > 0 && stream->exchange.head.method != HTTP_HEAD &&
        h2_answer_queue(stream, body, NULL) < 0)
        break_stream(stream, HTTP_ABORT_SERVER);
    h2_answer_finish(stream);
}

bool h2_reply_held(struct h2_stream *stream, int status, const struct http_fields *fields,
                   const struct http_held *held)
{
    bool is_taken = false;

    if (!stream->is_broken && submit_head(stream, status, fields, held->body.len_bytes) == 0 &&
        stream->exchange.head.method != HTTP_HEAD) {
        is_taken = h2_answer_queue(stream, held->body, held) == 0;
        if (!is_taken)
            break_stream(stream, HTTP_ABORT_SERVER);
    }
    h2_answer_finish(stream);
    return is_taken;
}

int h2_reply_begin(struct h2_stream *stream, int status, const struct http_fields *fields)
{
    int rc = stream->is_broken ? E_CLOSED : submit_head(stream, status, fields, UINT64_MAX);

    h2_answer_wake(stream);
    return rc;
}

int h2_reply_write(struct h2_stream *stream, struct bytes piece)
{
    size_t max_bytes = stream->h2->conn->server->limits.max_queue_bytes;
    size_t n_before = h2_stream_unsent(stream);

    if (stream->is_broken)
        return E_CLOSED;
    if (piece.len_bytes == 0 || stream->exchange.head.method == HTTP_HEAD)
        return 0;
    if (h2_answer_queue(stream, piece, NULL) < 0) {
        break_stream(stream, HTTP_ABORT_SERVER);
        return E_NOMEM;
    }
    if (stream->is_pause_reported && n_before > max_bytes * HTTP_HARD_QUEUE_FACTOR) {
        break_stream(stream, HTTP_ABORT_SLOW_READER);
        return E_FULL;
    }
    h2_answer_wake(stream);
    return stream->over_since_ns != 0;
}

void h2_reply_end(struct h2_stream *stream)
{
    h2_answer_finish(stream);
}
