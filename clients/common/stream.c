/* SPDX-License-Identifier: Apache-2.0 */
/* A call of net/http/client.h with an answer.h on top:
 *
 *   status 200   ──> body ──> events ──> pieces ──┐
 *   other status ──> body, kept (bounded) ────────┴──> on_over
 *
 * An answer is whole when its message_stop came, even if the connection breaks after it.  It is not whole when
 * the body ended properly without one.  The server pings at least every ten seconds, so silence means a dead
 * server or network. */
#include "clients/common/stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"

enum { MAX_REFUSAL_BYTES = 64 * 1024 };

struct stream {
    struct stream_opts opts;
    struct answer answer;
    struct http_call *call; /* NULL: ended */
    struct ev_timer *silence;
    struct buf refusal; /* the body of a status other than 200 */
    int status;
};

static void stream_free(struct stream *stream)
{
    ev_timer_free(stream->silence);
    answer_fini(&stream->answer);
    buf_fini(&stream->refusal);
    free(stream);
}

static void stream_over(struct stream *stream)
{
    stream->opts.on_over(stream->opts.arg, &stream->answer);
    stream_free(stream);
}

static void set_failure(struct stream *stream, const char *type, const char *text)
{
    struct answer *answer = &stream->answer;

    answer->is_failed = true;
    str_copy(answer->error_type, sizeof(answer->error_type), type);
    str_copy(answer->error_text, sizeof(answer->error_text), text);
}

static void on_silence(void *arg)
{
    struct stream *stream = arg;
    char text[96];

    snprintf(text, sizeof(text), "no sign of life from the server for %" PRIu64 " s",
             stream->opts.silence_ns / NS_PER_S);
    set_failure(stream, "timed_out", text);
    http_call_cancel(stream->call);
    stream_over(stream);
}

static void stream_heard(struct stream *stream)
{
    if (stream->silence != NULL)
        ev_timer_start(stream->silence, stream->opts.silence_ns);
}

static void stream_on_head(void *arg, const struct http_head *head, struct bytes text)
{
    struct stream *stream = arg;

    stream->status = head->status;
    stream_heard(stream);
}

static void stream_on_body(void *arg, struct bytes piece)
{
    struct stream *stream = arg;

    stream_heard(stream);
    if (stream->status != 200) {
        if (stream->refusal.len_bytes < MAX_REFUSAL_BYTES)
            buf_append(&stream->refusal, piece.data, piece.len_bytes);
        return;
    }
    if (answer_feed(&stream->answer, piece) < 0) {
        http_call_cancel(stream->call);
        stream_over(stream);
    }
}

static const char *failure_type(int result)
{
    switch (result) {
    case E_IO:
        return "connect_failed";
    case E_TIMEOUT:
        return "timed_out";
    case E_FORMAT:
        return "malformed_answer";
    case E_CLOSED:
    case E_TRUNCATED:
        return "cut_off";
    default:
        return "client_error";
    }
}

static void stream_on_end(void *arg, int result, const struct fault *fault)
{
    struct stream *stream = arg;
    struct answer *answer = &stream->answer;
    char text[sizeof(answer->error_text)];

    stream->call = NULL;
    if (result == 0 && stream->status != 200) {
        answer_refused(answer, stream->status, buf_view(&stream->refusal));
    } else if (!answer->is_whole && result == E_IO) {
        snprintf(text, sizeof(text), "cannot connect to %.400s; is a daemon running there?", fault->text);
        set_failure(stream, failure_type(result), text);
    } else if (!answer->is_whole && result < 0) {
        set_failure(stream, failure_type(result), fault->text);
    } else if (!answer->is_whole) {
        set_failure(stream, "cut_off", "the server ended the stream before the answer was whole");
    }
    stream_over(stream);
}

int stream_start(const struct stream_opts *opts, struct stream **out)
{
    static const struct http_call_events events = {
        .on_head = stream_on_head, .on_body = stream_on_body, .on_end = stream_on_end};
    struct stream *stream = calloc(1, sizeof(*stream));
    struct http_call_opts call = {.method = HTTP_POST,
                                  .path = opts->path,
                                  .fields = opts->fields,
                                  .body = opts->body,
                                  .timeout_ns = opts->timeout_ns,
                                  .may_repeat = true, /* a second call has no effect */
                                  .events = &events,
                                  .arg = stream};
    int rc;

    if (stream == NULL)
        return E_NOMEM;
    stream->opts = *opts;
    rc = answer_init(&stream->answer, opts->on_piece, opts->arg);
    if (rc == 0 && opts->silence_ns > 0)
        rc = ev_timer_new(opts->loop, on_silence, stream, &stream->silence);
    if (rc == 0)
        rc = http_client_start(opts->client, &call, &stream->call);
    if (rc < 0) {
        stream_free(stream);
        return rc;
    }
    stream_heard(stream);
    *out = stream;
    return 0;
}

void stream_cancel(struct stream *stream)
{
    if (stream->call != NULL)
        http_call_cancel(stream->call);
    stream_free(stream);
}

const struct answer *stream_answer(const struct stream *stream)
{
    return &stream->answer;
}
