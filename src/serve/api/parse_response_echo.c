/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a request that its response repeats, written once as JSON.
 *
 * Each of a stream's first and last events carries the whole response, so long tools and instructions are
 * not repeated: the client has them. */
#include "serve/api/parse_priv.h"
#include "base/check.h"
#include "base/err.h"
#include "base/str.h"

#define MAX_ECHO_BYTES    ((size_t)64 << 10) /* of instructions, of tools, and of a format */
#define MAX_WARNING_BYTES ((size_t)16 << 10) /* of all warnings together */

int parse_response_warn(struct parse *parse, const char *code, const char *message)
{
    struct buf *out = &parse->warnings;

    if (out->len_bytes > MAX_WARNING_BYTES)
        return 0;
    buf_printf(out, "%s{\"code\":\"%s\",\"param\":", out->len_bytes > 0 ? "," : "", code);
    api_put_openai_path(out, parse->path, parse->path_len);
    buf_append_str(out, ",\"message\":");
    json_put_str(out, bytes_str(message));
    return buf_append_byte(out, '}') < 0 ? parse_no_memory(parse) : 0;
}

/* Appends ,"name":value with the client's value, or with the default. */
static void response_echo_put_member(struct buf *out, const json_t *root, const char *name,
                                     const char *otherwise)
{
    const json_t *value = parse_member(root, name);
    struct buf text = {0};

    if (value != NULL)
        api_json_put(&text, value);
    buf_printf(out, ",\"%s\":", name);
    if (value != NULL && text.len_bytes <= MAX_ECHO_BYTES)
        buf_append(out, text.data, text.len_bytes);
    else
        buf_append_str(out, otherwise);
    out->is_bad |= text.is_bad;
    buf_fini(&text);
}

/* The functions, without the tools that were left out. */
static void response_echo_put_tools(struct buf *out, const json_t *root)
{
    const json_t *list = parse_member(root, "tools");
    struct buf text = {0};

    for (size_t i = 0; i < json_array_size(list) && text.len_bytes <= MAX_ECHO_BYTES; i++) {
        const json_t *tool = json_array_get(list, i);

        if (!bytes_is(api_json_str(parse_member(tool, "type")), "function"))
            continue;
        if (text.len_bytes > 0)
            buf_append_byte(&text, ',');
        api_json_put(&text, tool);
    }
    buf_append_str(out, ",\"tools\":[");
    if (text.len_bytes <= MAX_ECHO_BYTES)
        buf_append(out, text.data, text.len_bytes);
    buf_append_byte(out, ']');
    out->is_bad |= text.is_bad;
    buf_fini(&text);
}

/* Writes an object whose members each begin with a comma. */
static void response_echo_put_object(struct buf *out, const char *name, struct buf *members)
{
    buf_printf(out, ",\"%s\":{", name);
    if (members->len_bytes > 0)
        buf_append(out, members->data + 1, members->len_bytes - 1);
    buf_append_byte(out, '}');
    out->is_bad |= members->is_bad;
    buf_fini(members);
}

static void response_echo_put_reasoning(struct buf *out, const json_t *root)
{
    const json_t *reasoning = parse_member(root, "reasoning");
    struct buf members = {0};

    response_echo_put_member(&members, reasoning, "effort", "null");
    response_echo_put_member(&members, reasoning, "summary", "null");
    response_echo_put_object(out, "reasoning", &members);
}

static void response_echo_put_text(struct buf *out, const json_t *root)
{
    const json_t *text = parse_member(root, "text");
    struct buf members = {0};

    response_echo_put_member(&members, text, "format", "{\"type\":\"text\"}");
    response_echo_put_member(&members, text, "verbosity", "\"medium\"");
    response_echo_put_object(out, "text", &members);
}

int parse_response_echo(struct parse *parse, const json_t *root)
{
    static const struct {
        const char *name, *otherwise;
    } members[] = {{"instructions", "null"},        {"max_output_tokens", "null"},
                   {"max_tool_calls", "null"},      {"metadata", "{}"},
                   {"parallel_tool_calls", "true"}, {"previous_response_id", "null"},
                   {"prompt_cache_key", "null"},    {"safety_identifier", "null"},
                   {"temperature", "null"},         {"tool_choice", "\"auto\""},
                   {"top_logprobs", "0"},           {"top_p", "1"},
                   {"truncation", "\"disabled\""},  {"user", "null"}};
    struct gen_response *response = parse->out->response;
    struct buf out = {0}, list = {0};
    int rc;

    buf_printf(&out, ",\"background\":false,\"service_tier\":\"default\",\"store\":%s",
               response->is_stored ? "true" : "false");
    for (size_t i = 0; i < ARRAY_LEN(members); i++)
        response_echo_put_member(&out, root, members[i].name, members[i].otherwise);
    response_echo_put_reasoning(&out, root);
    response_echo_put_text(&out, root);
    response_echo_put_tools(&out, root);
    if (parse->warnings.len_bytes > 0) {
        buf_append_byte(&list, '[');
        buf_append(&list, parse->warnings.data, parse->warnings.len_bytes);
        buf_append_byte(&list, ']');
    }
    rc = out.is_bad || list.is_bad || parse->warnings.is_bad
             ? parse_no_memory(parse)
             : parse_copy(parse, buf_view(&out), &response->echo);
    if (rc == 0)
        rc = parse_copy(parse, buf_view(&list), &response->warnings);
    buf_fini(&out);
    buf_fini(&list);
    return rc;
}
