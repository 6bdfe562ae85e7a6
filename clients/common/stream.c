/* SPDX-License-Identifier: Apache-2.0 */
/* A call of net/http/client.h with an answer.h on top:
 *
 *   status 200   ──> body ──> events ──> pieces ──┐
 *   other status ──> body, kept (bounded) ────────┴──> on_over
 *
 * An answer is complete once its message_stop has arrived, even if the connection breaks afterwards.  A body that
 * ends properly without a message_stop is incomplete.  The server pings at least every ten seconds, so silence
 * means a dead server or network.
 *
 * With max_resumes a lost connection does not end the answer.  The client repeats the request with the header
 * last-event-id and gets the rest: from another server of the list, or from the same address once a router answers
 * there again.  A refusal then only delays the rest: the client waits as long as its retry-after says. */
#include "clients/common/stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"

#define RESUME_PAUSE_NS (250 * NS_PER_MS) /* multiplied by the resumptions in a row without a new event */

enum { MAX_REFUSAL_BYTES = 64 * 1024, MAX_RETRY_AFTER_S = 60 };

struct stream {
    struct stream_opts opts;
    struct answer answer;
    struct http_call *call; /* NULL: ended */
    struct ev_timer *silence;
    struct ev_timer *pause; /* before a resumption; NULL: none */
    unsigned n_resumes;     /* in a row without a new event */
    size_t n_clients;       /* tried so far */
    char resumed_at[256];   /* id of the last event at the latest resumption */
    struct buf refusal;     /* the body of a status other than 200 */
    int status;
    uint64_t retry_after_ns; /* of a refusal; 0: none */
};

static void stream_free(struct stream *stream)
{
    ev_timer_free(stream->silence);
    ev_timer_free(stream->pause);
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
    if (stream->call != NULL)
        http_call_cancel(stream->call);
    stream_over(stream);
}

static void stream_restart_silence(struct stream *stream)
{
    if (stream->silence != NULL)
        ev_timer_start(stream->silence, stream->opts.silence_ns);
}

static void stream_on_head(void *arg, const struct http_head *head, struct bytes text)
{
    struct stream *stream = arg;
    uint64_t retry_after_s;

    stream->status = head->status;
    if (head->status != 200 &&
        str_to_u64(http_head_get(head, text, "retry-after", NULL), &retry_after_s) == 0)
        stream->retry_after_ns =
            (retry_after_s < MAX_RETRY_AFTER_S ? retry_after_s : MAX_RETRY_AFTER_S) * NS_PER_S;
    stream_restart_silence(stream);
}

static void stream_on_body(void *arg, struct bytes piece)
{
    struct stream *stream = arg;

    stream_restart_silence(stream);
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

static void stream_on_end(void *arg, int result, const struct fault *fault);

static int stream_call(struct stream *stream, struct http_client *client, const struct http_fields *fields)
{
    static const struct http_call_events events = {
        .on_head = stream_on_head, .on_body = stream_on_body, .on_end = stream_on_end};
    struct http_call_opts call = {.method = HTTP_POST,
                                  .path = stream->opts.path,
                                  .fields = fields,
                                  .body = stream->opts.body,
                                  .timeout_ns = stream->opts.timeout_ns,
                                  .may_repeat = true, /* a second call has no effect */
                                  .events = &events,
                                  .arg = stream};

    stream->status = 0;
    stream->retry_after_ns = 0;
    buf_clear(&stream->refusal);
    return http_client_start(client, &call, &stream->call);
}

/* A router that has just started, or whose workers are not connected yet, answers 404 or 503 for a moment.  It answers 429
 * until an answer that it computes again fits the key's limits. */
static bool stream_may_resume(struct stream *stream, int result)
{
    const char *last_id = sse_parser_last_id(stream->answer.sse);
    bool is_lost = result < 0 || stream->status == 200 || stream->status == 404 || stream->status == 429 ||
                   stream->status >= 500;

    if (strcmp(last_id, stream->resumed_at) != 0)
        stream->n_resumes = 0;
    str_copy(stream->resumed_at, sizeof(stream->resumed_at), last_id);
    return !stream->answer.is_whole && !stream->answer.is_failed && last_id[0] != '\0' && is_lost &&
           stream->n_resumes < stream->opts.max_resumes;
}

/* The server owes no sign of life during the pause. */
static void stream_pause(struct stream *stream)
{
    uint64_t pause_ns = RESUME_PAUSE_NS * stream->n_resumes++;

    if (stream->silence != NULL)
        ev_timer_stop(stream->silence);
    ev_timer_start(stream->pause, pause_ns > stream->retry_after_ns ? pause_ns : stream->retry_after_ns);
}

static void stream_on_pause_over(void *arg)
{
    struct stream *stream = arg;
    size_t at = stream->n_clients++ % (stream->opts.n_others + 1);
    struct http_client *client = at < stream->opts.n_others ? stream->opts.others[at] : stream->opts.client;
    struct http_fields fields = {0};
    struct bytes own = buf_view(&stream->opts.fields->text);
    int rc = buf_append(&fields.text, own.data, own.len_bytes);

    if (rc == 0)
        rc = http_fields_add_str(&fields, "last-event-id", sse_parser_last_id(stream->answer.sse));
    sse_parser_restart(stream->answer.sse);
    if (rc == 0)
        rc = stream_call(stream, client, &fields);
    http_fields_fini(&fields);
    if (rc == 0) {
        stream_restart_silence(stream);
        return;
    }
    set_failure(stream, "client_error", err_text(rc));
    stream_over(stream);
}

static void stream_on_end(void *arg, int result, const struct fault *fault)
{
    struct stream *stream = arg;
    struct answer *answer = &stream->answer;
    char text[sizeof(answer->error_text)];

    stream->call = NULL;
    if (stream->opts.max_resumes > 0 && stream_may_resume(stream, result)) {
        stream_pause(stream);
        return;
    }
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
    struct stream *stream = calloc(1, sizeof(*stream));
    int rc;

    if (stream == NULL)
        return E_NOMEM;
    stream->opts = *opts;
    rc = answer_init(&stream->answer, opts->on_piece, opts->arg);
    if (rc == 0 && opts->silence_ns > 0)
        rc = ev_timer_new(opts->loop, on_silence, stream, &stream->silence);
    if (rc == 0 && opts->max_resumes > 0)
        rc = ev_timer_new(opts->loop, stream_on_pause_over, stream, &stream->pause);
    if (rc == 0)
        rc = stream_call(stream, opts->client, opts->fields);
    if (rc < 0) {
        stream_free(stream);
        return rc;
    }
    stream_restart_silence(stream);
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
