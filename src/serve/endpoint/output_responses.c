/* SPDX-License-Identifier: Apache-2.0 */
/* The output of /v1/responses: one choice, numbered events, one open item at a time.
 *
 *     created ── in_progress ── for each block: item added ── part added ── deltas ── text done ── part done
 *         ── item done ── ... ── completed, incomplete or failed, with the whole response
 *
 * The events that end a block repeat its content, so a stream collects its blocks too, as JSON text: it is escaped
 * once for its delta, and five later events and texts copy it.  If an announced call turns out to be malformed, it
 * stays as an incomplete item.  While no token comes, the stream sends comment lines.  The finished response is
 * kept for later requests; a job thread gathers it if it or its input is long. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "serve/api/render_responses.h"
#include "serve/endpoint/output_priv.h"
#include "serve/endpoint/responses_priv.h"

/* ---- from the choice to the response ---- */

static enum api_response_status output_response_status_of(enum gen_stop stop)
{
    static const enum api_response_status statuses[] = {
#define X(stop, stop_reason, finish_reason, status) API_RESPONSE_##status,
        GEN_STOP_TABLE(X)
#undef X
    };

    return statuses[stop];
}

static struct api_item output_response_item_of(const struct collected *block, enum api_item_state state)
{
    return (struct api_item){.kind = block->kind,
                             .state = state,
                             .text = buf_view(&block->text),
                             .is_escaped = block->is_escaped,
                             .call_id = bytes_str(block->id),
                             .name = buf_view(&block->name),
                             .signature = buf_view(&block->name),
                             .logprobs = buf_view(&block->logprobs)};
}

static struct api_response output_response_response_of(const struct request *request)
{
    return (struct api_response){.id = request->message_id,
                                 .created_unix_s = request->created_unix_s,
                                 .model = request->gen.model,
                                 .asked = request->gen.response};
}

/* True if the answer's end cut this text or thinking.  A cut call has its own flag. */
static bool output_response_is_cut_by(enum gen_block_kind kind, enum api_response_status status)
{
    return kind != GEN_TOOL_USE && status != API_RESPONSE_COMPLETED;
}

/* Lists the choice's blocks.  NULL: no memory. */
static struct api_item *output_response_list_items(const struct choice *choice,
                                                   enum api_response_status status, size_t *n_out)
{
    size_t n = choice->blocks == NULL ? 0 : choice->n_blocks;
    struct api_item *items = calloc(n + 1, sizeof(*items));

    for (size_t i = 0; items != NULL && i < n; i++) {
        const struct collected *block = &choice->blocks[i];
        bool is_cut = block->is_cut || (i + 1 == n && output_response_is_cut_by(block->kind, status));

        items[i] = output_response_item_of(block, is_cut ? API_ITEM_CUT : API_ITEM_WHOLE);
    }
    *n_out = n;
    return items;
}

/* ---- a stream ---- */

/* The log probabilities that a stream's last events repeat.  Each of five events copies them on the loop. */
#define MAX_REPEATED_LOGPROBS ((size_t)1 << 20)

static uint64_t output_response_next_number(struct choice *choice)
{
    return choice->n_events++;
}

static int output_response_put_event(struct choice *choice, enum api_item_event event,
                                     const struct api_item *item)
{
    const struct api_response response = output_response_response_of(choice->request);
    struct api_place place = {.response = &response, .index = choice->n_blocks - 1};
    const char *name = api_item_event_name(&place, event, item->kind);

    if (name == NULL)
        return 0;
    place.sequence = output_response_next_number(choice);
    api_put_item_event(output_begin_event(choice->request, name), &place, event, item);
    return output_end_event(choice->request);
}

static int output_response_stream_open(struct choice *choice)
{
    struct api_item item = output_response_item_of(&choice->blocks[choice->n_blocks - 1], API_ITEM_OPEN);
    int rc = output_response_put_event(choice, API_ITEM_ADDED, &item);

    return rc < 0 ? rc : output_response_put_event(choice, API_ITEM_PART_ADDED, &item);
}

static int output_response_stream_delta(struct choice *choice, struct bytes text, struct bytes logprobs)
{
    const struct api_item item = {.kind = choice->blocks[choice->n_blocks - 1].kind,
                                  .text = text,
                                  .is_escaped = true,
                                  .logprobs = logprobs};

    return output_response_put_event(choice, API_ITEM_DELTA, &item);
}

/* Adds text to the block, escaped.  escaped_out: valid until the next text. */
static int output_response_collect(struct choice *choice, struct bytes text, struct bytes *escaped_out)
{
    struct collected *block = &choice->blocks[choice->n_blocks - 1];
    size_t at = block->text.len_bytes;
    int rc = json_put_chars(&block->text, text);

    block->is_escaped = true;
    *escaped_out =
        bytes_of(at < block->text.len_bytes ? block->text.data + at : NULL, block->text.len_bytes - at);
    return rc;
}

static int output_response_stream_piece(struct choice *choice, struct bytes text)
{
    struct bytes escaped;
    int rc = output_response_collect(choice, text, &escaped);

    return rc < 0 ? rc : output_response_stream_delta(choice, escaped, bytes_of(NULL, 0));
}

static int output_response_stream_open_text(void *arg)
{
    int rc = output_whole_sink.open_text(arg);

    return rc < 0 ? rc : output_response_stream_open(arg);
}

/* Keeps log probabilities for the events that end the block, unless these would become too long. */
static int output_response_repeat_logprobs(struct choice *choice, const struct buf *logprobs)
{
    struct collected *block = &choice->blocks[choice->n_blocks - 1];

    choice->repeated_bytes += logprobs->len_bytes;
    if (!block->lacks_logprobs && choice->repeated_bytes <= MAX_REPEATED_LOGPROBS) {
        if (block->logprobs.len_bytes > 0)
            buf_append_byte(&block->logprobs, ',');
        return buf_append(&block->logprobs, logprobs->data, logprobs->len_bytes);
    }
    block->lacks_logprobs = true;
    choice->repeated_bytes -= logprobs->len_bytes + block->logprobs.len_bytes;
    buf_fini(&block->logprobs);
    return 0;
}

/* Takes the log probabilities of delivered text. */
static int output_response_take_logprobs(struct choice *choice, struct buf *out)
{
    if (!choice->has_logprobs || !logprobs_is_ready(choice->logprobs))
        return 0;
    if (logprobs_put_items(choice->logprobs, out) < 0)
        return E_NOMEM;
    return output_response_repeat_logprobs(choice, out);
}

static int output_response_stream_text(void *arg, struct bytes text)
{
    struct choice *choice = arg;
    struct buf logprobs = {0};
    struct bytes escaped;
    int rc = output_response_collect(choice, text, &escaped);

    output_text_logprobs(choice, text);
    if (rc == 0)
        rc = output_response_take_logprobs(choice, &logprobs);
    if (rc == 0)
        rc = output_response_stream_delta(choice, escaped, buf_view(&logprobs));
    buf_fini(&logprobs);
    return rc;
}

static int output_response_stream_open_thinking(void *arg)
{
    int rc = output_whole_sink.open_thinking(arg);

    return rc < 0 ? rc : output_response_stream_open(arg);
}

static int output_response_stream_thinking(void *arg, struct bytes text)
{
    return output_response_stream_piece(arg, text);
}

static int output_response_stream_open_call(void *arg, const char *id, struct bytes name)
{
    int rc = output_whole_sink.open_call(arg, id, name);

    return rc < 0 ? rc : output_response_stream_open(arg);
}

static int output_response_stream_arguments(void *arg, struct bytes piece)
{
    return output_response_stream_piece(arg, piece);
}

/* Ends the text's log probabilities.  Those of a character that a limit cut go with an empty text. */
static int output_response_end_text(struct choice *choice)
{
    struct buf logprobs = {0};
    int rc;

    logprobs_end_text(choice->logprobs);
    rc = output_response_take_logprobs(choice, &logprobs);
    if (rc == 0 && logprobs.len_bytes > 0)
        rc = output_response_stream_delta(choice, bytes_of(NULL, 0), buf_view(&logprobs));
    buf_fini(&logprobs);
    return rc;
}

static int output_response_stream_close(void *arg, enum calls_end how)
{
    struct choice *choice = arg;
    struct collected *block = &choice->blocks[choice->n_blocks - 1];
    struct api_item item;
    int rc;

    if (choice->has_logprobs && block->kind != GEN_TEXT)
        logprobs_skip(choice->logprobs);
    else if (choice->has_logprobs && (rc = output_response_end_text(choice)) < 0)
        return rc;
    block->is_cut =
        how != CALLS_WHOLE || output_response_is_cut_by(block->kind, output_response_status_of(choice->stop));
    item = output_response_item_of(block, block->is_cut ? API_ITEM_CUT : API_ITEM_WHOLE);
    if ((rc = output_response_put_event(choice, API_ITEM_TEXT_DONE, &item)) < 0 ||
        (rc = output_response_put_event(choice, API_ITEM_PART_DONE, &item)) < 0)
        return rc;
    return output_response_put_event(choice, API_ITEM_DONE, &item);
}

static int output_response_stream_signature(void *arg, struct bytes signature)
{
    return output_whole_sink.signature(arg, signature);
}

static const struct answer_sink stream_sink = {
    output_response_stream_open_text, output_response_stream_text,      output_response_stream_open_thinking,
    output_response_stream_thinking,  output_response_stream_signature, output_response_stream_open_call,
    output_response_stream_arguments, output_response_stream_close};

static void output_response_begin(struct request *request)
{
    static const char *const names[] = {"response.created", "response.in_progress"};
    const struct api_response response = output_response_response_of(request);

    for (int i = 0; i < 2; i++) {
        api_put_response_event(output_begin_event(request, names[i]), names[i],
                               output_response_next_number(&request->choices[0]), &response, NULL);
        output_end_event(request);
    }
}

/* ---- the end ---- */

/* Fills in the end of a response; the caller frees items. */
static int output_response_finish(const struct request *request, struct api_response *response)
{
    const struct choice *choice = &request->choices[0];
    struct api_item *items;

    *response = output_response_response_of(request);
    response->status = output_response_status_of(choice->stop);
    response->completed_unix_s = response->status == API_RESPONSE_COMPLETED ? request->completed_unix_s : 0;
    response->usage = &request->usage;
    items = output_response_list_items(choice, response->status, &response->n_items);
    response->items = items;
    return items == NULL ? E_NOMEM : 0;
}

static void output_response_free_items(struct api_response *response)
{
    free((struct api_item *)(uintptr_t)response->items);
}

static const char *output_response_last_event(enum api_response_status status)
{
    return status == API_RESPONSE_COMPLETED ? "response.completed" : "response.incomplete";
}

/* Gathers what is kept of a stream's response: the response alone, and its input. */
static void output_response_gather(struct request *request)
{
    struct api_response response;
    struct buf text = {0};
    struct api_range output;

    if (!request->gen.response->is_stored || output_response_finish(request, &response) < 0)
        return;
    if (api_put_response(&text, &response, &output) == 0)
        responses_gather(request, buf_view(&text), &output);
    buf_fini(&text);
    output_response_free_items(&response);
}

/* About how many bytes it copies. */
static size_t output_response_gathered_bytes(const struct request *request)
{
    const struct choice *choice = &request->choices[0];
    size_t n = request->gen.response->items.len_bytes;

    for (size_t i = 0; choice->blocks != NULL && i < choice->n_blocks; i++)
        n += choice->blocks[i].text.len_bytes + choice->blocks[i].logprobs.len_bytes;
    return request->gen.response->is_stored ? n : 0;
}

static void output_response_end(struct request *request)
{
    struct api_response response;
    const char *name;

    if (output_response_finish(request, &response) < 0)
        return; /* without its last event the client sees that the stream is incomplete */
    responses_keep(request);
    response.serving = request->wants_serving ? &request->serving : NULL;
    name = output_response_last_event(response.status);
    api_put_response_event(output_begin_event(request, name), name,
                           output_response_next_number(&request->choices[0]), &response, NULL);
    output_end_event(request);
    output_response_free_items(&response);
}

static void output_response_ping(struct request *request)
{
    buf_append_str(output_text(request), ": ping\n\n");
}

static void output_response_error_event(struct request *request, const struct api_error *error)
{
    struct api_response response = output_response_response_of(request);
    struct api_item *items =
        output_response_list_items(&request->choices[0], API_RESPONSE_FAILED, &response.n_items);

    response.status = API_RESPONSE_FAILED;
    response.error = error;
    response.items = items;
    if (items == NULL)
        response.n_items = 0;
    api_put_response_event(output_begin_event(request, "response.failed"), "response.failed",
                           output_response_next_number(&request->choices[0]), &response, NULL);
    output_end_event(request);
    free(items);
}

/* Gives a whole answer's log probabilities to its first message. */
static int output_response_add_logprobs(struct choice *choice)
{
    if (!choice->has_logprobs)
        return 0;
    for (size_t i = 0; i < choice->n_blocks; i++)
        if (choice->blocks[i].kind == GEN_TEXT)
            return logprobs_put_items(choice->logprobs, &choice->blocks[i].logprobs);
    return 0;
}

static int output_response_whole(struct request *request, struct buf *body)
{
    struct api_response response;
    struct api_range output;
    int rc;

    if (output_response_add_logprobs(&request->choices[0]) < 0 ||
        output_response_finish(request, &response) < 0)
        return E_NOMEM;
    rc = api_put_response(body, &response, &output);
    if (rc == 0)
        responses_gather(request, buf_view(body), &output);
    output_response_free_items(&response);
    return rc;
}

const struct output_dialect output_responses = {.id_prefix = "resp_",
                                                .stream_sink = &stream_sink,
                                                .begin = output_response_begin,
                                                .end = output_response_end,
                                                .ping = output_response_ping,
                                                .error = output_response_error_event,
                                                .whole = output_response_whole,
                                                .gather = output_response_gather,
                                                .gathered_bytes = output_response_gathered_bytes,
                                                .rendered = responses_keep};
