/* SPDX-License-Identifier: Apache-2.0 */
/* The Messages API's output: one choice, named events, one open block at a time. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "serve/endpoint/output_priv.h"

/* ---- blocks as events ---- */

static int stream_open_text(void *arg)
{
    struct choice *choice = arg;
    struct buf *json = output_begin_event(choice->request, "content_block_start");

    api_put_text_start(json, choice->n_blocks++);
    return output_end_event(choice->request);
}

static int output_messages_stream_text(void *arg, struct bytes text)
{
    struct choice *choice = arg;
    struct buf *json = output_begin_event(choice->request, "content_block_delta");

    api_put_text_delta(json, choice->n_blocks - 1, text);
    return output_end_event(choice->request);
}

static int stream_open_thinking(void *arg)
{
    struct choice *choice = arg;
    struct buf *json = output_begin_event(choice->request, "content_block_start");

    api_put_thinking_start(json, choice->n_blocks++);
    return output_end_event(choice->request);
}

static int output_messages_stream_thinking(void *arg, struct bytes text)
{
    struct choice *choice = arg;
    struct buf *json = output_begin_event(choice->request, "content_block_delta");

    api_put_thinking_delta(json, choice->n_blocks - 1, text);
    return output_end_event(choice->request);
}

static int output_messages_stream_signature(void *arg, struct bytes signature)
{
    struct choice *choice = arg;
    struct buf *json = output_begin_event(choice->request, "content_block_delta");

    api_put_signature_delta(json, choice->n_blocks - 1, signature);
    return output_end_event(choice->request);
}

static int output_messages_stream_open_call(void *arg, const char *id, struct bytes name)
{
    struct choice *choice = arg;
    struct buf *json = output_begin_event(choice->request, "content_block_start");

    api_put_call_start(json, choice->n_blocks++, id, name);
    return output_end_event(choice->request);
}

static int output_messages_stream_arguments(void *arg, struct bytes piece)
{
    struct choice *choice = arg;
    struct buf *json = output_begin_event(choice->request, "content_block_delta");

    api_put_call_delta(json, choice->n_blocks - 1, piece);
    return output_end_event(choice->request);
}

static int output_messages_stream_close(void *arg, enum calls_end how)
{
    struct choice *choice = arg;
    struct buf *json = output_begin_event(choice->request, "content_block_stop");

    api_put_block_stop(json, choice->n_blocks - 1);
    return output_end_event(choice->request);
}

static const struct answer_sink stream_sink = {stream_open_text,
                                               output_messages_stream_text,
                                               stream_open_thinking,
                                               output_messages_stream_thinking,
                                               output_messages_stream_signature,
                                               output_messages_stream_open_call,
                                               output_messages_stream_arguments,
                                               output_messages_stream_close};

/* ---- the start and end of a stream ---- */

static void output_messages_begin(struct request *request)
{
    struct api_usage usage = request->usage;
    struct buf *json = output_begin_event(request, "message_start");

    usage.output_tokens = 1; /* clients require a number; Anthropic's service sends 1 */
    api_put_message_start(json, request->message_id, request->gen.model, &usage);
    output_end_event(request);
}

static void output_messages_end(struct request *request)
{
    const struct choice *choice = &request->choices[0];
    struct buf *json = output_begin_event(request, "message_delta");

    api_put_message_delta(json, choice->stop, choice->stop_sequence, &request->usage,
                          request->wants_serving ? &request->serving : NULL);
    output_end_event(request);
    output_put_event(request, "message_stop", bytes_str(API_MESSAGE_STOP));
}

static void output_messages_ping(struct request *request)
{
    sse_put_event(output_text(request), "ping", bytes_str(API_PING));
}

static void output_messages_error_event(struct request *request, const struct api_error *error)
{
    output_put_error(request, "error", error);
}

/* ---- a whole answer ---- */

static int output_messages_whole(struct request *request, struct buf *body)
{
    const struct choice *choice = &request->choices[0];
    struct gen_block *blocks = calloc(choice->n_blocks + 1, sizeof(*blocks));
    struct api_answer answer = {.id = request->message_id,
                                .model = request->gen.model,
                                .blocks = blocks,
                                .n_blocks = choice->n_blocks,
                                .stop = choice->stop,
                                .stop_sequence = choice->stop_sequence,
                                .usage = request->usage};
    int rc;

    if (blocks == NULL)
        return E_NOMEM;
    for (size_t i = 0; i < answer.n_blocks; i++) {
        const struct collected *from = &choice->blocks[i];

        blocks[i] = (struct gen_block){.kind = from->kind,
                                       .text = buf_view(&from->text),
                                       .id = bytes_str(from->id),
                                       .name = buf_view(&from->name),
                                       .signature = buf_view(&from->name),
                                       .input = buf_view(&from->text)};
    }
    rc = api_put_message(body, &answer);
    free(blocks);
    return rc;
}

const struct output_dialect output_messages = {.id_prefix = "msg_",
                                               .stream_sink = &stream_sink,
                                               .begin = output_messages_begin,
                                               .end = output_messages_end,
                                               .ping = output_messages_ping,
                                               .error = output_messages_error_event,
                                               .whole = output_messages_whole};
