/* SPDX-License-Identifier: Apache-2.0 */
/* OpenAI's output: unnamed chunks, each with the number of its choice.
 *
 *     chat:        role ── text, reasoning, calls ... ── finish reason          for each choice, interleaved
 *     completion:  [the prompt, if echo is set] ── text ... ── finish reason
 *     at the end:  [usage, if requested] ── [DONE]
 *
 * While no token comes, the stream sends comment lines, which clients skip.  Each chunk has its text's
 * logprobs. */
#include <stdlib.h>
#include <string.h>

#include "serve/api/render_openai.h"
#include "base/err.h"
#include "serve/endpoint/output_priv.h"

static struct api_chunk output_openai_chunk_of(const struct request *request, uint32_t index)
{
    return (struct api_chunk){.is_chat = request->call == API_CHAT,
                              .id = request->message_id,
                              .created_unix_s = request->created_unix_s,
                              .model = request->gen.model,
                              .fingerprint = request->model->fingerprint,
                              .has_usage = request->gen.wants_usage,
                              .index = index};
}

static int output_openai_put_logprobs(struct choice *choice, struct buf *out)
{
    return choice->request->call == API_CHAT ? logprobs_put_chat(choice->logprobs, out)
                                             : logprobs_put_text(choice->logprobs, out);
}

/* ---- a stream ---- */

static int stream_nothing(void *arg)
{
    return 0;
}

static int output_openai_put_text(struct choice *choice, enum gen_block_kind kind, struct bytes text)
{
    struct api_chunk chunk = output_openai_chunk_of(choice->request, choice->index);
    struct buf logprobs = {0};
    struct buf *json;

    if (kind == GEN_TEXT && choice->has_logprobs) {
        output_openai_put_logprobs(choice, &logprobs);
        chunk.logprobs = buf_view(&logprobs);
    }
    json = output_begin_event(choice->request, NULL);
    api_put_chunk_text(json, &chunk, kind, text);
    json->is_bad |= logprobs.is_bad;
    buf_fini(&logprobs);
    return output_end_event(choice->request);
}

/* Sends prompt logprobs in chunks without text, because one chunk has sent the prompt's whole text. */
static void put_scores(struct choice *choice)
{
    (void)output_openai_put_text(choice, GEN_TEXT, bytes_str(""));
}

static int output_openai_stream_text(void *arg, struct bytes text)
{
    struct choice *choice = arg;

    output_text_logprobs(choice, text);
    return output_openai_put_text(choice, GEN_TEXT, text);
}

static int output_openai_stream_thinking(void *arg, struct bytes text)
{
    struct choice *choice = arg;

    if (choice->has_logprobs)
        logprobs_skip(choice->logprobs);
    return output_openai_put_text(choice, GEN_THINKING, text);
}

static int output_openai_stream_signature(void *arg, struct bytes signature)
{
    return 0;
}

static int output_openai_stream_open_call(void *arg, const char *id, struct bytes name)
{
    struct choice *choice = arg;
    const struct api_chunk chunk = output_openai_chunk_of(choice->request, choice->index);

    if (choice->has_logprobs)
        logprobs_skip(choice->logprobs);
    api_put_chunk_call(output_begin_event(choice->request, NULL), &chunk, choice->n_calls++, id, name);
    return output_end_event(choice->request);
}

static int output_openai_stream_arguments(void *arg, struct bytes piece)
{
    struct choice *choice = arg;
    const struct api_chunk chunk = output_openai_chunk_of(choice->request, choice->index);

    if (choice->has_logprobs)
        logprobs_skip(choice->logprobs);
    api_put_chunk_arguments(output_begin_event(choice->request, NULL), &chunk, choice->n_calls - 1, piece);
    return output_end_event(choice->request);
}

static int output_openai_stream_close(void *arg, enum calls_end how)
{
    struct choice *choice = arg;

    if (choice->has_logprobs)
        logprobs_end_text(choice->logprobs);
    return 0;
}

static const struct answer_sink stream_sink = {stream_nothing,
                                               output_openai_stream_text,
                                               stream_nothing,
                                               output_openai_stream_thinking,
                                               output_openai_stream_signature,
                                               output_openai_stream_open_call,
                                               output_openai_stream_arguments,
                                               output_openai_stream_close};

static void output_openai_begin(struct request *request)
{
}

static void begin_choice(struct choice *choice)
{
    const struct api_chunk chunk = output_openai_chunk_of(choice->request, choice->index);
    struct bytes prompt = buf_view(&choice->prompt->text);
    struct buf *json;

    if (!chunk.is_chat && prompt.len_bytes == 0)
        return;
    json = output_begin_event(choice->request, NULL);
    if (chunk.is_chat)
        api_put_chunk_role(json, &chunk);
    else
        api_put_chunk_text(json, &chunk, GEN_TEXT, prompt);
    output_end_event(choice->request);
}

static void end_choice(struct choice *choice)
{
    struct request *request = choice->request;
    struct api_chunk chunk = output_openai_chunk_of(request, choice->index);
    bool is_last = request->n_over == request->n_choices && !request->gen.wants_usage;
    struct buf logprobs = {0};

    if (choice->has_logprobs && logprobs_is_ready(choice->logprobs)) {
        output_openai_put_logprobs(choice, &logprobs);
        chunk.logprobs = buf_view(&logprobs);
    }
    chunk.serving = is_last && request->wants_serving ? &request->serving : NULL;
    api_put_chunk_end(output_begin_event(request, NULL), &chunk, choice->stop);
    output_end_event(request);
    buf_fini(&logprobs);
}

static void output_openai_end(struct request *request)
{
    struct api_chunk chunk = output_openai_chunk_of(request, 0);

    if (request->gen.wants_usage) {
        chunk.serving = request->wants_serving ? &request->serving : NULL;
        api_put_chunk_usage(output_begin_event(request, NULL), &chunk, &request->usage);
        output_end_event(request);
    }
    output_put_event(request, NULL, bytes_str(API_DONE));
}

static void output_openai_ping(struct request *request)
{
    buf_append_str(output_text(request), ": ping\n\n");
}

static void output_openai_error_event(struct request *request, const struct api_error *error)
{
    output_put_error(request, NULL, error);
}

/* ---- a whole answer ---- */

static int fill_choice(struct choice *from, struct api_choice *to, struct buf *logprobs)
{
    struct gen_block *blocks = calloc(from->n_blocks + 1, sizeof(*blocks));

    if (blocks == NULL)
        return E_NOMEM;
    to->blocks = blocks;
    to->n_blocks = from->n_blocks;
    to->before = buf_view(&from->prompt->text);
    to->stop = from->stop;
    for (size_t i = 0; i < from->n_blocks; i++) {
        const struct collected *block = &from->blocks[i];

        blocks[i] = (struct gen_block){.kind = block->kind,
                                       .text = buf_view(&block->text),
                                       .id = bytes_str(block->id),
                                       .name = buf_view(&block->name),
                                       .input = buf_view(&block->text)};
    }
    if (!from->has_logprobs)
        return 0;
    if (output_openai_put_logprobs(from, logprobs) < 0)
        return E_NOMEM;
    to->logprobs = buf_view(logprobs);
    return 0;
}

static int output_openai_whole(struct request *request, struct buf *body)
{
    const struct api_chunk common = output_openai_chunk_of(request, 0);
    struct api_choice *choices = calloc(request->n_choices, sizeof(*choices));
    struct buf *logprobs = calloc(request->n_choices, sizeof(*logprobs));
    int rc = choices == NULL || logprobs == NULL ? E_NOMEM : 0;

    for (uint32_t i = 0; i < request->n_choices && rc == 0; i++)
        rc = fill_choice(&request->choices[i], &choices[i], &logprobs[i]);
    if (rc == 0)
        rc = api_put_completion(body, &common, choices, request->n_choices, &request->usage);
    for (uint32_t i = 0; i < request->n_choices; i++) {
        if (choices != NULL)
            free((struct gen_block *)(uintptr_t)choices[i].blocks);
        if (logprobs != NULL)
            buf_fini(&logprobs[i]);
    }
    free(choices);
    free(logprobs);
    return rc;
}

const struct output_dialect output_chat = {.id_prefix = "chatcmpl-",
                                           .stream_sink = &stream_sink,
                                           .begin = output_openai_begin,
                                           .begin_choice = begin_choice,
                                           .end_choice = end_choice,
                                           .end = output_openai_end,
                                           .ping = output_openai_ping,
                                           .error = output_openai_error_event,
                                           .whole = output_openai_whole};

const struct output_dialect output_completions = {.id_prefix = "cmpl-",
                                                  .stream_sink = &stream_sink,
                                                  .begin = output_openai_begin,
                                                  .begin_choice = begin_choice,
                                                  .end_choice = end_choice,
                                                  .scores = put_scores,
                                                  .end = output_openai_end,
                                                  .ping = output_openai_ping,
                                                  .error = output_openai_error_event,
                                                  .whole = output_openai_whole};
