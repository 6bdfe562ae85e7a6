/* SPDX-License-Identifier: Apache-2.0 */
/* Rendering /v1/responses.
 *
 * Each block of an answer is one output item: a message with one part for text, a reasoning item for
 * thinking, a function_call for a call.  An item's id consists of the response's id and the item's place.  So
 * a reference to the item names the response too.  Thinking is an item's `content`, or its `summary` if the
 * client asked for summaries.  That summary is the whole thinking, because no second model shortens it.
 *
 * Clients' schemas need every member of an event, also the empty ones. */
#include "serve/api/render_responses.h"

#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "serve/api/ids.h"

static int render_response_result(const struct buf *out)
{
    return out->is_bad ? E_NOMEM : 0;
}

const char *api_response_status(enum api_response_status status)
{
    switch (status) {
    case API_RESPONSE_IN_PROGRESS:
        return "in_progress";
    case API_RESPONSE_COMPLETED:
        return "completed";
    case API_RESPONSE_INCOMPLETE:
        return "incomplete";
    case API_RESPONSE_CANCELLED:
        return "cancelled";
    case API_RESPONSE_FAILED:
        return "failed";
    }
    return "failed";
}

/* ---- items ---- */

static const char *render_response_id_prefix(enum gen_block_kind kind)
{
    return kind == GEN_TOOL_USE ? "fc" : kind == GEN_THINKING ? "rs" : "msg";
}

static void render_response_put_item_id(struct buf *out, const char *response_id, unsigned index,
                                        enum gen_block_kind kind)
{
    char id[IDS_BYTES];

    ids_make_item(render_response_id_prefix(kind), response_id, index, id);
    buf_append_byte(out, '"');
    buf_append_str(out, id);
    buf_append_byte(out, '"');
}

static void render_response_put_str_member(struct buf *out, const char *name, struct bytes text)
{
    buf_append_str(out, ",\"");
    buf_append_str(out, name);
    buf_append_str(out, "\":");
    json_put_str(out, text);
}

static void render_response_put_text(struct buf *out, const char *name, const struct api_item *item)
{
    if (!item->is_escaped) {
        render_response_put_str_member(out, name, item->text);
        return;
    }
    buf_append_str(out, ",\"");
    buf_append_str(out, name);
    buf_append_str(out, "\":\"");
    buf_append(out, item->text.data, item->text.len_bytes);
    buf_append_byte(out, '"');
}

/* The one part of a message or of reasoning. */
static void render_response_put_part(struct buf *out, const struct api_item *item, bool is_summary)
{
    if (item->kind == GEN_THINKING) {
        buf_append_str(out, is_summary ? "{\"type\":\"summary_text\"" : "{\"type\":\"reasoning_text\"");
        render_response_put_text(out, "text", item);
        buf_append_byte(out, '}');
        return;
    }
    buf_append_str(out, "{\"type\":\"output_text\"");
    render_response_put_text(out, "text", item);
    buf_append_str(out, ",\"annotations\":[],\"logprobs\":[");
    buf_append(out, item->logprobs.data, item->logprobs.len_bytes);
    buf_append_str(out, "]}");
}

static void render_response_put_reasoning(struct buf *out, const struct api_item *item,
                                          const struct gen_response *asked)
{
    bool has_text = item->state != API_ITEM_OPEN && item->text.len_bytes > 0;

    buf_append_str(out, ",\"summary\":[");
    if (has_text && asked->wants_summary)
        render_response_put_part(out, item, true);
    buf_append_byte(out, ']');
    if (!asked->wants_summary) {
        buf_append_str(out, ",\"content\":[");
        if (has_text)
            render_response_put_part(out, item, false);
        buf_append_byte(out, ']');
    }
    if (asked->wants_signature && item->signature.len_bytes > 0)
        render_response_put_str_member(out, "encrypted_content", item->signature);
    else
        buf_append_str(out, ",\"encrypted_content\":null");
}

static void render_response_put_item(struct buf *out, const struct api_response *response, unsigned index,
                                     const struct api_item *item)
{
    static const char *const states[] = {"in_progress", "completed", "incomplete"};

    buf_append_str(out, "{\"id\":");
    render_response_put_item_id(out, response->id, index, item->kind);
    if (item->kind == GEN_TOOL_USE) {
        buf_append_str(out, ",\"type\":\"function_call\"");
        render_response_put_str_member(out, "call_id", item->call_id);
        render_response_put_str_member(out, "name", item->name);
        render_response_put_text(out, "arguments", item);
    } else if (item->kind == GEN_THINKING) {
        buf_append_str(out, ",\"type\":\"reasoning\"");
        render_response_put_reasoning(out, item, response->asked);
    } else {
        buf_append_str(out, ",\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
        if (item->state != API_ITEM_OPEN)
            render_response_put_part(out, item, false);
        buf_append_byte(out, ']');
    }
    buf_printf(out, ",\"status\":\"%s\"}", states[item->state]);
}

/* ---- the response ---- */

static void render_response_put_usage(struct buf *out, const struct api_usage *usage)
{
    uint32_t input = usage->input_tokens + usage->cache_read_tokens + api_usage_created(usage);

    buf_printf(out,
               ",\"usage\":{\"input_tokens\":%u,\"input_tokens_details\":{\"cached_tokens\":%u},"
               "\"output_tokens\":%u,\"output_tokens_details\":{\"reasoning_tokens\":%u},"
               "\"total_tokens\":%llu}",
               input, usage->cache_read_tokens, usage->output_tokens, usage->thinking_tokens,
               (unsigned long long)input + usage->output_tokens);
}

static void render_response_put_error(struct buf *out, const struct api_error *error)
{
    bool is_limit = error->status == 429;

    buf_printf(out, ",\"error\":{\"code\":\"%s\",\"message\":",
               error->code != NULL   ? error->code
               : is_limit            ? "rate_limit_exceeded"
               : error->status < 500 ? "invalid_prompt"
                                     : "server_error");
    json_put_str(out, bytes_str(error->message));
    buf_append_byte(out, '}');
}

static void render_response_put_end(struct buf *out, const struct api_response *response)
{
    if (response->error != NULL)
        render_response_put_error(out, response->error);
    else
        buf_append_str(out, ",\"error\":null");
    buf_append_str(out, response->status == API_RESPONSE_INCOMPLETE
                            ? ",\"incomplete_details\":{\"reason\":\"max_output_tokens\"}"
                            : ",\"incomplete_details\":null");
    if (response->usage != NULL)
        render_response_put_usage(out, response->usage);
    else
        buf_append_str(out, ",\"usage\":null");
    if (response->asked->warnings.len_bytes > 0) {
        buf_append_str(out, ",\"warnings\":");
        buf_append(out, response->asked->warnings.data, response->asked->warnings.len_bytes);
    }
    if (response->serving != NULL)
        api_put_serving(out, response->serving);
    buf_append_byte(out, '}');
}

int api_put_response(struct buf *out, const struct api_response *response, struct api_range *output_out)
{
    size_t at;

    buf_append_str(out, "{\"id\":");
    json_put_str(out, bytes_str(response->id));
    buf_printf(out, ",\"object\":\"response\",\"created_at\":%llu,\"status\":\"%s\",\"completed_at\":",
               (unsigned long long)response->created_unix_s, api_response_status(response->status));
    if (response->completed_unix_s > 0)
        buf_append_u64(out, response->completed_unix_s);
    else
        buf_append_str(out, "null");
    render_response_put_str_member(out, "model", response->model);
    buf_append(out, response->asked->echo.data, response->asked->echo.len_bytes);
    buf_append_str(out, ",\"output\":[");
    at = out->len_bytes;
    for (size_t i = 0; i < response->n_items; i++) {
        if (i > 0)
            buf_append_byte(out, ',');
        render_response_put_item(out, response, (unsigned)i, &response->items[i]);
    }
    if (output_out != NULL)
        *output_out = (struct api_range){at, out->len_bytes - at};
    buf_append_byte(out, ']');
    render_response_put_end(out, response);
    return render_response_result(out);
}

/* ---- events ---- */

static void render_response_open_event(struct buf *out, const char *type, uint64_t sequence)
{
    buf_append_str(out, "{\"type\":\"");
    buf_append_str(out, type);
    buf_append_str(out, "\",\"sequence_number\":");
    buf_append_u64(out, sequence);
}

int api_put_response_event(struct buf *out, const char *type, uint64_t sequence,
                           const struct api_response *response, struct api_range *output_out)
{
    render_response_open_event(out, type, sequence);
    buf_append_str(out, ",\"response\":");
    api_put_response(out, response, output_out);
    return buf_append_byte(out, '}');
}

const char *api_item_event_name(const struct api_place *place, enum api_item_event event,
                                enum gen_block_kind kind)
{
    static const char *const names[][4] = {
        /* a message, reasoning, reasoning as a summary, a call */
        [API_ITEM_ADDED] = {"response.output_item.added", "response.output_item.added",
                            "response.output_item.added", "response.output_item.added"},
        [API_ITEM_PART_ADDED] = {"response.content_part.added", "response.content_part.added",
                                 "response.reasoning_summary_part.added", NULL},
        [API_ITEM_DELTA] = {"response.output_text.delta", "response.reasoning_text.delta",
                            "response.reasoning_summary_text.delta",
                            "response.function_call_arguments.delta"},
        [API_ITEM_TEXT_DONE] = {"response.output_text.done", "response.reasoning_text.done",
                                "response.reasoning_summary_text.done",
                                "response.function_call_arguments.done"},
        [API_ITEM_PART_DONE] = {"response.content_part.done", "response.content_part.done",
                                "response.reasoning_summary_part.done", NULL},
        [API_ITEM_DONE] = {"response.output_item.done", "response.output_item.done",
                           "response.output_item.done", "response.output_item.done"}};

    if (kind == GEN_TOOL_USE)
        return names[event][3];
    return names[event][kind == GEN_THINKING ? 1 + place->response->asked->wants_summary : 0];
}

/* Writes the numbers of the item and of its part. */
static void render_response_put_place(struct buf *out, const struct api_place *place,
                                      enum gen_block_kind kind)
{
    buf_append_str(out, ",\"item_id\":");
    render_response_put_item_id(out, place->response->id, place->index, kind);
    if (kind == GEN_THINKING && place->response->asked->wants_summary)
        buf_append_str(out, ",\"summary_index\":0");
    else if (kind != GEN_TOOL_USE)
        buf_append_str(out, ",\"content_index\":0");
}

static void render_response_put_logprobs(struct buf *out, const struct api_item *item)
{
    if (item->kind != GEN_TEXT)
        return;
    buf_append_str(out, ",\"logprobs\":[");
    buf_append(out, item->logprobs.data, item->logprobs.len_bytes);
    buf_append_byte(out, ']');
}

int api_put_item_event(struct buf *out, const struct api_place *place, enum api_item_event event,
                       const struct api_item *item)
{
    const char *name = api_item_event_name(place, event, item->kind);

    render_response_open_event(out, name == NULL ? "" : name, place->sequence);
    buf_append_str(out, ",\"output_index\":");
    buf_append_u64(out, place->index);
    if (event != API_ITEM_ADDED && event != API_ITEM_DONE)
        render_response_put_place(out, place, item->kind);
    switch (event) {
    case API_ITEM_ADDED:
    case API_ITEM_DONE:
        buf_append_str(out, ",\"item\":");
        render_response_put_item(out, place->response, place->index, item);
        break;
    case API_ITEM_PART_ADDED:
    case API_ITEM_PART_DONE:
        buf_append_str(out, ",\"part\":");
        render_response_put_part(out, item, place->response->asked->wants_summary);
        break;
    case API_ITEM_DELTA:
        render_response_put_text(out, "delta", item);
        render_response_put_logprobs(out, item);
        break;
    case API_ITEM_TEXT_DONE:
        if (item->kind == GEN_TOOL_USE)
            render_response_put_str_member(out, "name", item->name);
        render_response_put_text(out, item->kind == GEN_TOOL_USE ? "arguments" : "text", item);
        render_response_put_logprobs(out, item);
        break;
    }
    return buf_append_byte(out, '}');
}
