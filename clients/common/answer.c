/* SPDX-License-Identifier: Apache-2.0 */
/* The stream's grammar: message_start, then blocks (start, deltas, stop), message_delta, message_stop.  A ping
 * may come anywhere, an error instead of any event.  Unknown events and members are skipped, as the protocol
 * demands, so a newer server can be read.  Known members must have the right type: a benchmark must not guess.
 *
 * The texts of a stream are whole JSON strings, and jansson accepts only valid UTF-8 in them.  So the caller
 * never gets half a character. */
#include "clients/common/answer.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

#define MAX_EVENT_BYTES (1u << 20)

static int answer_broken(struct answer *answer, const char *why)
{
    answer->is_failed = true;
    str_copy(answer->error_type, sizeof(answer->error_type), "protocol_error");
    str_copy(answer->error_text, sizeof(answer->error_text), why);
    return E_PROTO;
}

static uint64_t member_u64(const json_t *object, const char *name, uint64_t if_none)
{
    const json_t *value = json_object_get(object, name);

    return json_is_integer(value) && json_integer_value(value) >= 0 ? (uint64_t)json_integer_value(value)
                                                                    : if_none;
}

static double member_ms(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);

    return json_is_number(value) ? json_number_value(value) : 0;
}

static void member_str(const json_t *object, const char *name, char *out, size_t cap)
{
    const char *value = json_string_value(json_object_get(object, name));

    if (value != NULL)
        str_copy(out, cap, value);
}

static void take_serving(struct answer_serving *serving, const json_t *from)
{
    serving->is_there = true;
    serving->prompt = member_u64(from, "prompt", 0);
    serving->computed = member_u64(from, "computed", 0);
    serving->reused = member_u64(from, "reused", 0);
    serving->transferred = member_u64(from, "transferred", 0);
    serving->drawn = member_u64(from, "drawn", 0);
    serving->redispatched = member_u64(from, "redispatched", 0);
    serving->preempted = member_u64(from, "preempted", 0);
    serving->queue_ms = member_ms(from, "queue_ms");
    serving->prefill_ms = member_ms(from, "prefill_ms");
    serving->transfer_ms = member_ms(from, "transfer_ms");
    serving->decode_ms = member_ms(from, "decode_ms");
    serving->ttft_ms = member_ms(from, "ttft_ms");
    serving->total_ms = member_ms(from, "total_ms");
    member_str(from, "prefill", serving->prefill, sizeof(serving->prefill));
    member_str(from, "decode", serving->decode, sizeof(serving->decode));
    member_str(from, "transport", serving->transport, sizeof(serving->transport));
}

static void take_usage(struct answer *answer, const json_t *usage)
{
    const json_t *serving = json_object_get(usage, "baton");

    answer->input_tokens = member_u64(usage, "input_tokens", answer->input_tokens);
    answer->output_tokens = member_u64(usage, "output_tokens", answer->output_tokens);
    answer->cache_read_tokens = member_u64(usage, "cache_read_input_tokens", answer->cache_read_tokens);
    answer->cache_creation_tokens =
        member_u64(usage, "cache_creation_input_tokens", answer->cache_creation_tokens);
    if (json_is_object(serving))
        take_serving(&answer->serving, serving);
}

static int take_delta(struct answer *answer, const json_t *delta)
{
    static const struct {
        const char *type;
        const char *member;
        enum answer_part part;
    } kinds[] = {{"text_delta", "text", ANSWER_TEXT},
                 {"thinking_delta", "thinking", ANSWER_THINKING},
                 {"input_json_delta", "partial_json", ANSWER_TOOL_INPUT}};
    const char *type = json_string_value(json_object_get(delta, "type"));

    if (type == NULL)
        return answer_broken(answer, "a delta without a type");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const json_t *text = json_object_get(delta, kinds[i].member);

        if (strcmp(type, kinds[i].type) != 0)
            continue;
        if (!json_is_string(text))
            return answer_broken(answer, "a delta without its text");
        if (answer->call != NULL && json_string_length(text) > 0)
            answer->call(answer->arg, kinds[i].part,
                         bytes_of(json_string_value(text), json_string_length(text)));
        return 0;
    }
    return 0;
}

/* A tool's name and id go back to the server with the result, so they are kept whole or the answer fails. */
static int take_block_start(struct answer *answer, const json_t *block)
{
    const json_t *name = json_object_get(block, "name");
    const char *type = json_string_value(json_object_get(block, "type"));
    const char *id = json_string_value(json_object_get(block, "id"));

    if (type == NULL || strcmp(type, "tool_use") != 0)
        return 0;
    if (!json_is_string(name) || id == NULL || strlen(id) >= sizeof(answer->tool_id))
        return answer_broken(answer, "a tool call without its name and id");
    str_copy(answer->tool_id, sizeof(answer->tool_id), id);
    if (answer->call != NULL)
        answer->call(answer->arg, ANSWER_TOOL, bytes_of(json_string_value(name), json_string_length(name)));
    return 0;
}

/* These texts are printed: they must not hold terminal control characters or half a character. */
static void answer_disarm(char *text)
{
    text[utf8_valid_prefix(bytes_str(text))] = '\0';
    for (char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
}

static void take_error(struct answer *answer, const json_t *error)
{
    answer->is_failed = true;
    answer->error_type[0] = '\0';
    answer->error_text[0] = '\0';
    member_str(error, "type", answer->error_type, sizeof(answer->error_type));
    member_str(error, "message", answer->error_text, sizeof(answer->error_text));
    answer_disarm(answer->error_type);
    answer_disarm(answer->error_text);
    if (answer->error_type[0] == '\0')
        str_copy(answer->error_type, sizeof(answer->error_type), "api_error");
    if (answer->error_text[0] == '\0')
        str_copy(answer->error_text, sizeof(answer->error_text), "the server gave no reason");
}

static int take_event(struct answer *answer, struct bytes name, const json_t *event)
{
    if (answer->is_whole)
        return answer_broken(answer, "an event after message_stop");
    if (bytes_is(name, "error")) {
        take_error(answer, json_object_get(event, "error"));
        return E_PROTO;
    }
    if (bytes_is(name, "message_start")) {
        if (answer->is_begun)
            return answer_broken(answer, "a second message_start");
        answer->is_begun = true;
        take_usage(answer, json_object_get(json_object_get(event, "message"), "usage"));
        return 0;
    }
    if (bytes_is(name, "ping"))
        return 0;
    if (!answer->is_begun)
        return answer_broken(answer, "an event before message_start");
    if (bytes_is(name, "content_block_start"))
        return take_block_start(answer, json_object_get(event, "content_block"));
    if (bytes_is(name, "content_block_stop") && answer->call != NULL)
        answer->call(answer->arg, ANSWER_BLOCK_END, bytes_str(""));
    if (bytes_is(name, "content_block_delta"))
        return take_delta(answer, json_object_get(event, "delta"));
    if (bytes_is(name, "message_delta")) {
        member_str(json_object_get(event, "delta"), "stop_reason", answer->stop_reason,
                   sizeof(answer->stop_reason));
        take_usage(answer, json_object_get(event, "usage"));
    }
    answer->is_whole = bytes_is(name, "message_stop");
    return 0;
}

static int answer_on_event(void *arg, struct bytes name, struct bytes data)
{
    struct answer *answer = arg;
    json_t *event = json_loadb((const char *)data.data, data.len_bytes, JSON_ALLOW_NUL, NULL);
    int rc;

    if (!json_is_object(event))
        rc = answer_broken(answer, "an event that is not a JSON object");
    else
        rc = take_event(answer, name, event);
    json_decref(event);
    return rc;
}

int answer_init(struct answer *answer, answer_call call, void *arg)
{
    *answer = (struct answer){.call = call, .arg = arg};
    return sse_parser_new(MAX_EVENT_BYTES, answer_on_event, answer, &answer->sse);
}

void answer_fini(struct answer *answer)
{
    sse_parser_free(answer->sse);
    answer->sse = NULL;
}

int answer_feed(struct answer *answer, struct bytes text)
{
    int rc = sse_parser_feed(answer->sse, text);

    if (rc < 0 && !answer->is_failed) {
        answer_broken(answer, "");
        snprintf(answer->error_text, sizeof(answer->error_text), "the event stream cannot be read: %s",
                 err_text(rc));
    }
    return rc;
}

void answer_refused(struct answer *answer, int status, struct bytes body)
{
    json_t *root = json_loadb((const char *)body.data, body.len_bytes, 0, NULL);
    const json_t *error = json_object_get(root, "error");

    if (json_is_object(error)) {
        take_error(answer, error);
    } else {
        answer->is_failed = true;
        str_copy(answer->error_type, sizeof(answer->error_type), "http_error");
        snprintf(answer->error_text, sizeof(answer->error_text), "the server answered with status %d",
                 status);
    }
    json_decref(root);
}
