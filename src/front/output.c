/* SPDX-License-Identifier: Apache-2.0 */
/* What a request's client gets: a stream of events, or one answer at the end.
 *
 * Both are sinks of the same blocks.  A stream gathers the events of one turn and sends them in one write.  A
 * whole answer is collected; a call that was cut is closed as far as it is valid, and a broken one is left
 * out (its text follows it). */
#include <stdlib.h>
#include <string.h>

#include "api/json_walk.h"
#include "base/clock.h"
#include "base/err.h"
#include "front/admit.h"
#include "http/sse.h"

/* ---- events ---- */

/* json is emptied. */
static int put_event(struct request *request, const char *name, struct buf *json)
{
    int rc = json->is_bad ? E_NOMEM : sse_put_event(&request->out, name, buf_view(json));

    buf_fini(json);
    return rc;
}

void output_flush(struct request *request)
{
    if (request->out.len_bytes == 0)
        return;
    request->event_ns = clock_now_ns();
    /* A failure here is a connection that is broken: on_abort says so from the loop. */
    if (request->exchange != NULL && !request->is_mute)
        request->is_mute =
            request->out.is_bad || http_reply_write(request->exchange, buf_view(&request->out)) < 0;
    buf_clear(&request->out);
}

void output_begin_stream(struct request *request)
{
    struct http_fields fields = {0};
    struct api_usage usage = request->usage;
    struct buf json = {0};

    http_fields_add_str(&fields, "content-type", "text/event-stream; charset=utf-8");
    http_fields_add_str(&fields, "cache-control", "no-cache");
    http_fields_add_str(&fields, "x-accel-buffering", "no");
    http_fields_add_str(&fields, "request-id", request->id);
    admit_put_fields(request->exchange, &fields);
    request->is_stream = true;
    request->is_mute = http_reply_begin(request->exchange, 200, &fields) < 0;
    http_fields_fini(&fields);
    usage.output_tokens = 1; /* clients want a number, and the service they know says 1 */
    api_put_message_start(&json, request->message_id, request->gen.model, &usage);
    put_event(request, "message_start", &json);
    output_flush(request);
}

void output_ping(struct request *request)
{
    sse_put_event(&request->out, "ping", bytes_str(API_PING));
    output_flush(request);
}

static int stream_open_text(void *arg)
{
    struct request *request = arg;
    struct buf json = {0};

    api_put_text_start(&json, request->n_blocks++);
    return put_event(request, "content_block_start", &json);
}

static int stream_text(void *arg, struct bytes text)
{
    struct request *request = arg;
    struct buf json = {0};

    api_put_text_delta(&json, request->n_blocks - 1, text);
    return put_event(request, "content_block_delta", &json);
}

static int stream_open_call(void *arg, const char *id, struct bytes name)
{
    struct request *request = arg;
    struct buf json = {0};

    api_put_call_start(&json, request->n_blocks++, id, name);
    return put_event(request, "content_block_start", &json);
}

static int stream_arguments(void *arg, struct bytes piece)
{
    struct request *request = arg;
    struct buf json = {0};

    api_put_call_delta(&json, request->n_blocks - 1, piece);
    return put_event(request, "content_block_delta", &json);
}

static int stream_close(void *arg, enum calls_end how)
{
    struct request *request = arg;
    struct buf json = {0};

    api_put_block_stop(&json, request->n_blocks - 1);
    return put_event(request, "content_block_stop", &json);
}

const struct answer_sink output_stream_sink = {stream_open_text, stream_text, stream_open_call,
                                               stream_arguments, stream_close};

/* ---- collecting ---- */

static struct collected *add_block(struct request *request, enum gen_block_kind kind)
{
    struct collected *grown = realloc(request->blocks, (request->n_blocks + 1) * sizeof(*grown));

    if (grown == NULL)
        return NULL;
    request->blocks = grown;
    memset(&grown[request->n_blocks], 0, sizeof(*grown));
    grown[request->n_blocks].kind = kind;
    return &grown[request->n_blocks++];
}

static int whole_open_text(void *arg)
{
    return add_block(arg, GEN_TEXT) == NULL ? E_NOMEM : 0;
}

static int whole_append(void *arg, struct bytes text)
{
    struct request *request = arg;

    return buf_append(&request->blocks[request->n_blocks - 1].text, text.data, text.len_bytes);
}

static int whole_open_call(void *arg, const char *id, struct bytes name)
{
    struct collected *block = add_block(arg, GEN_TOOL_USE);

    if (block == NULL)
        return E_NOMEM;
    memcpy(block->id, id, strlen(id) + 1);
    return buf_append(&block->name, name.data, name.len_bytes);
}

static void drop_block(struct request *request)
{
    struct collected *block = &request->blocks[--request->n_blocks];

    buf_fini(&block->name);
    buf_fini(&block->text);
}

/* The largest object that the arguments so far begin. */
static int close_cut_call(struct collected *block)
{
    struct json_walk walk = {0};
    struct buf closed = {0};
    int rc;

    for (size_t i = 0; i < block->text.len_bytes; i++)
        json_walk_byte(&walk, block->text.data[i]);
    rc = json_walk_close(&walk, buf_view(&block->text), &closed);
    if (rc == E_FORMAT)
        rc = buf_append_str(&closed, "{}");
    buf_fini(&block->text);
    block->text = closed;
    return rc;
}

static int whole_close(void *arg, enum calls_end how)
{
    struct request *request = arg;

    if (how == CALLS_BROKEN)
        drop_block(request);
    if (how == CALLS_CUT)
        return close_cut_call(&request->blocks[request->n_blocks - 1]);
    return 0;
}

const struct answer_sink output_whole_sink = {whole_open_text, whole_append, whole_open_call, whole_append,
                                              whole_close};

void output_fini(struct request *request)
{
    while (request->blocks != NULL && request->n_blocks > 0)
        drop_block(request);
    free(request->blocks);
    request->blocks = NULL;
    buf_fini(&request->out);
}

/* ---- ends ---- */

static void end_stream(struct request *request, enum gen_stop why, struct bytes stop_sequence)
{
    struct buf json = {0};

    api_put_message_delta(&json, why, stop_sequence, &request->usage,
                          request->wants_proof ? &request->proof : NULL);
    put_event(request, "message_delta", &json);
    sse_put_event(&request->out, "message_stop", bytes_str(API_MESSAGE_STOP));
    output_flush(request);
    http_reply_end(request->exchange);
}

static void end_whole(struct request *request, enum gen_stop why, struct bytes stop_sequence)
{
    struct gen_block *blocks = calloc(request->n_blocks + 1, sizeof(*blocks));
    struct api_answer answer = {.id = request->message_id,
                                .model = request->gen.model,
                                .blocks = blocks,
                                .n_blocks = blocks == NULL ? 0 : request->n_blocks,
                                .stop = why,
                                .stop_sequence = stop_sequence,
                                .usage = request->usage};
    struct http_fields fields = {0};
    struct buf body = {0};

    for (size_t i = 0; i < answer.n_blocks; i++) {
        const struct collected *from = &request->blocks[i];

        blocks[i] = (struct gen_block){.kind = from->kind,
                                       .text = buf_view(&from->text),
                                       .id = bytes_str(from->id),
                                       .name = buf_view(&from->name),
                                       .input = buf_view(&from->text)};
    }
    if (api_put_message(&body, &answer) < 0 || blocks == NULL) {
        api_fail(&request->error, 503, "out of memory");
        reply_error(request->exchange, &request->error, request->id, NULL);
    } else {
        report_proof_fields(request, &fields);
        reply_json(request->exchange, request->id, &fields, buf_view(&body));
    }
    http_fields_fini(&fields);
    buf_fini(&body);
    free(blocks);
}

void output_end(struct request *request, enum gen_stop why, struct bytes stop_sequence)
{
    if (request->is_stream)
        end_stream(request, why, stop_sequence);
    else
        end_whole(request, why, stop_sequence);
    request->exchange = NULL;
}

void output_error(struct request *request, const struct api_error *error)
{
    struct buf json = {0};

    if (request->exchange == NULL)
        return;
    if (!request->is_stream) {
        reply_error(request->exchange, error, request->id, NULL);
    } else {
        api_put_error(&json, error, NULL);
        put_event(request, "error", &json);
        output_flush(request);
        http_reply_end(request->exchange);
    }
    request->exchange = NULL;
}

void output_count(struct request *request)
{
    struct http_fields fields = {0};
    struct buf body = {0};

    api_put_count(&body, (uint32_t)request->prompt.ids.n);
    reply_json(request->exchange, request->id, &fields, buf_view(&body));
    http_fields_fini(&fields);
    buf_fini(&body);
    request->exchange = NULL;
}
