/* SPDX-License-Identifier: Apache-2.0 */
/* Hermes 3's tool format.
 *
 *     <s><|im_start|>system\n ... <tools> TOOL\nTOOL </tools> ... <|im_end|>\n       always, also without
 * tools
 *     <|im_start|>system\n TEXT <|im_end|>\n                                         the conversation's own
 *     <|im_start|>assistant\n<tool_call>\n{"name": "N", "arguments": {...}}\n</tool_call><|im_end|>\n
 *     <|im_start|>tool\n<tool_response>\n TEXT \n</tool_response>\n ... <|im_end|>   without a newline after
 * it
 *
 * A tool is described twice: as its JSON schema, and inside its "description" as a Python signature with an
 * argument list, types translated:
 *
 *     get_weather(city: str, days: int) - Get weather\n\n    Args:\n        city(str): name of the city ...
 *
 * The template's peculiarities are kept, because the model learnt them: the arguments stand in one line, the
 * text inside "description" is not escaped, an array's items become "Union[]", a type that is missing is
 * "Union[]", too.  Types on which the template itself fails ("null") are "Any".
 */
#include "token/chat_priv.h"

#include "base/check.h"
#include "base/err.h"

static void put_type(struct bytes spec, struct chat_text *out);

static void put_named_type(struct bytes spec, struct bytes name, struct chat_text *out)
{
    static const struct {
        const char *json, *python;
    } types[] = {
        {"\"string\"", "str"}, {"\"number\"", "float"}, {"\"integer\"", "int"}, {"\"boolean\"", "bool"}};
    struct bytes values;

    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (bytes_is(name, types[i].json)) {
            chat_put(out, types[i].python);
            return;
        }
    }
    if (bytes_is(name, "\"array\"")) {
        chat_put(out, "list[Union[]]");
    } else if (bytes_is(name, "\"object\"") && json_member(spec, "additionalProperties", &values)) {
        chat_put(out, "dict[str, ");
        put_type(values, out);
        chat_put(out, "]");
    } else {
        chat_put(out, bytes_is(name, "\"object\"") ? "dict" : "Any");
    }
}

/* spec: a JSON schema, spaced anew.  It nests at most as deep as json_respace() lets it. */
static void put_type(struct bytes spec, struct chat_text *out)
{
    struct bytes type, key, one;
    size_t at = 0;

    if (!json_member(spec, "type", &type)) {
        chat_put(out, "Union[]");
    } else if (json_is_array(type)) {
        chat_put(out, "Union[");
        while (json_next(type, &at, &key, &one)) {
            put_named_type((struct bytes){0}, one, out);
            chat_put(out, at + 1 < type.len_bytes ? "," : "");
        }
        chat_put(out, "]");
    } else {
        put_named_type(spec, type, out);
    }
}

/* What Python's strip() takes away, as far as it is ASCII. */
static bool is_blank(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
}

/* A JSON string's text, as the client's. */
static void put_unquoted(struct bytes quoted, bool is_trimmed, struct chat_text *out)
{
    struct buf text = {0};

    int rc = json_unquote(quoted, &text);
    if (rc != 0) {
        chat_fail(out, rc);
    } else {
        struct bytes view = buf_view(&text);

        while (is_trimmed && view.len_bytes > 0 && is_blank(view.data[view.len_bytes - 1]))
            view.len_bytes--;
        while (is_trimmed && view.len_bytes > 0 && is_blank(view.data[0]))
            view = bytes_of(view.data + 1, view.len_bytes - 1);
        chat_put_client(out, view);
    }
    buf_fini(&text);
}

static void put_signature(struct bytes properties, struct chat_text *out)
{
    struct bytes name, spec;
    size_t at = 0;

    for (bool is_first = true; json_next(properties, &at, &name, &spec); is_first = false) {
        chat_put(out, is_first ? "" : ", ");
        put_unquoted(name, false, out);
        chat_put(out, ": ");
        put_type(spec, out);
    }
}

static void put_arguments(struct bytes properties, struct chat_text *out)
{
    struct bytes name, spec, description;
    size_t at = 0;

    for (bool is_first = true; json_next(properties, &at, &name, &spec); is_first = false) {
        chat_put(out, is_first ? "    Args:\n        " : "        ");
        put_unquoted(name, false, out);
        chat_put(out, "(");
        put_type(spec, out);
        chat_put(out, "): ");
        if (json_member(spec, "description", &description) && json_is_string(description))
            put_unquoted(description, true, out);
    }
}

static void put_tool(const struct chat_tool *tool, struct chat_text *out)
{
    struct bytes properties = bytes_str("{}");
    struct buf parameters = {0};

    if (tool->parameters.data != NULL)
        chat_fail(out, json_respace(tool->parameters, &parameters));
    if (out->rc == 0 && json_member(buf_view(&parameters), "properties", &properties) &&
        !json_is_object(properties))
        properties = bytes_str("{}");

    chat_put(out, "{\"type\": \"function\", \"function\": {\"name\": \"");
    chat_put_client(out, tool->name);
    chat_put(out, "\", \"description\": \"");
    chat_put_client(out, tool->name);
    chat_put(out, "(");
    put_signature(properties, out);
    chat_put(out, ") - ");
    chat_put_client(out, tool->description);
    chat_put(out, "\n\n");
    put_arguments(properties, out);
    chat_put(out, "\", \"parameters\": ");
    if (bytes_is(properties, "{}"))
        chat_put(out, "{}");
    else
        chat_put_client(out, buf_view(&parameters));
    chat_put(out, "}");
    buf_fini(&parameters);
}

static void put_tools(const struct chat_prompt *prompt, struct chat_text *out)
{
    chat_put(
        out,
        "<|im_start|>system\nYou are a function calling AI model. You are provided with function signatures "
        "within <tools></tools> XML tags. You may call one or more functions to assist with the user query. "
        "Don't make assumptions about what values to plug into functions. Here are the available tools: "
        "<tools> ");
    for (size_t i = 0; i < prompt->n_tools; i++) {
        chat_put(out, i == 0 ? "" : "\n");
        put_tool(&prompt->tools[i], out);
    }
    chat_put(out,
             " </tools>Use the following pydantic model json schema for each tool call you will make: "
             "{\"properties\": {\"name\": {\"title\": \"Name\", \"type\": \"string\"}, \"arguments\": "
             "{\"title\": \"Arguments\", \"type\": \"object\"}}, \"required\": [\"name\", \"arguments\"], "
             "\"title\": \"FunctionCall\", \"type\": \"object\"}}\n"
             "For each function call return a json object with function name and arguments within "
             "<tool_call></tool_call> XML tags as follows:\n<tool_call>\n"
             "{\"name\": <function-name>, \"arguments\": <args-dict>}\n</tool_call><|im_end|>\n");
}

static void put_calls(const struct chat_message *message, struct chat_text *out)
{
    chat_put(out, "<|im_start|>assistant");
    for (size_t i = 0; i < message->n_calls; i++) {
        chat_put(out, "\n<tool_call>\n{\"name\": \"");
        chat_put_client(out, message->calls[i].name);
        chat_put(out, "\", \"arguments\": ");
        chat_put_client_json(out, message->calls[i].arguments);
        chat_put(out, "}\n</tool_call>");
    }
    chat_put(out, "<|im_end|>\n");
}

static void put_result(const struct chat_prompt *prompt, size_t i, struct chat_text *out)
{
    bool is_last = i + 1 == prompt->n_messages;

    if (i > 0 && !chat_is_role(prompt, i - 1, CHAT_TOOL))
        chat_put(out, "<|im_start|>tool\n");
    chat_put(out, "<tool_response>\n");
    chat_put_client(out, prompt->messages[i].text);
    chat_put(out, is_last ? "\n</tool_response>" : "\n</tool_response>\n");
    if (!chat_is_role(prompt, i + 1, CHAT_TOOL))
        chat_put(out, "<|im_end|>");
}

void hermes_render(const struct chat_format *format, const struct chat_prompt *prompt, struct chat_text *out)
{
    token_id bos = tokenizer_bos(format->tokenizer);

    if (bos != TOKEN_NONE)
        chat_put_own(out, tokenizer_piece(format->tokenizer, bos));
    put_tools(prompt, out);
    for (size_t i = 0; i < prompt->n_messages; i++) {
        const struct chat_message *message = &prompt->messages[i];

        if (message->role == CHAT_TOOL) {
            put_result(prompt, i, out);
        } else if (message->n_calls > 0) {
            put_calls(message, out);
        } else {
            chat_put(out, "<|im_start|>");
            chat_put(out, chat_role_name(message->role));
            chat_put(out, "\n");
            chat_put_client(out, message->text);
            chat_put(out, chat_stays_open(prompt, i) ? "" : "<|im_end|>\n");
        }
    }
}
