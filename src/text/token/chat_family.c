/* SPDX-License-Identifier: Apache-2.0 */
/* Detects from a template how its model writes tool calls.
 *
 *     hermes     <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>   Qwen, Hermes, many more
 *     xml        <tool_call>\n<function=f>\n<parameter=x>...                    Qwen 3 Coder
 *     glm        <tool_call>f\n<arg_key>x</arg_key><arg_value>1</arg_value></tool_call>
 *     mistral    [TOOL_CALLS][{"name": "f", "arguments": {...}, "id": "9 letters"}]
 *     deepseek   <tool-calls-begin> with bars and blocks around it
 *     harmony    <|channel|>commentary to=functions.f ...                       gpt-oss
 *     llama      {"name": "f", "parameters": {...}} as the whole answer, after <|python_tag|> or not
 *
 * The first family whose marks all occur in the template is used. For a template without tools,
 * chat_reshape.c writes the calls itself, in the hermes format.
 *
 * Marks surround the model's thinking. They are tokens of the vocabulary or words of the template. Harmony is
 * the exception: it has a channel for thinking. */
#include "text/token/chat_priv.h"

#include <string.h>

#define DEEPSEEK                                                                                             \
    "<\xef\xbd\x9ctool\xe2\x96\x81"                                                                          \
    "calls\xe2\x96\x81"                                                                                      \
    "begin\xef\xbd\x9c>"

static const struct chat_family families[] = {
    {"xml", {"<tool_call>", "<function="}, CHAT_CALLS_XML, 0},
    {"glm", {"<tool_call>", "<arg_key>"}, CHAT_CALLS_GLM, 0},
    {"hermes", {"<tool_call>"}, CHAT_CALLS_HERMES, 0},
    {"mistral", {"[TOOL_CALLS]", "[ARGS]"}, CHAT_CALLS_MISTRAL_NAMED, 9},
    {"mistral", {"[TOOL_CALLS]"}, CHAT_CALLS_MISTRAL, 9},
    {"deepseek", {DEEPSEEK, "```json"}, CHAT_CALLS_DEEPSEEK, 0},
    {"deepseek", {DEEPSEEK}, CHAT_CALLS_DEEPSEEK_V31, 0},
    {"harmony", {"<|channel|>"}, CHAT_CALLS_HARMONY, 0},
    {"llama", {"<|eot_id|>", "\"parameters\": "}, CHAT_CALLS_LLAMA, 0},
    {"llama", {"<|python_tag|>"}, CHAT_CALLS_LLAMA, 0},
    {"plain", {NULL}, CHAT_CALLS_HERMES, 0},
};

static bool has_all(struct bytes text, const char *const *marks, size_t n)
{
    for (size_t i = 0; i < n && marks[i] != NULL; i++) {
        if (bytes_find(text, bytes_str(marks[i]), 0) == SIZE_MAX)
            return false;
    }
    return true;
}

const struct chat_family *chat_family_of(struct bytes chat_template)
{
    const struct chat_family *family = families;

    while (!has_all(chat_template, family->marks, 3))
        family++;
    return family; /* the last family has no marks */
}

static bool is_alphanumeric(struct bytes id)
{
    for (size_t i = 0; i < id.len_bytes; i++) {
        uint8_t c = id.data[i], lower = c | 0x20;

        if ((c < '0' || c > '9') && (lower < 'a' || lower > 'z'))
            return false;
    }
    return true;
}

/* Converts an id of another form into this family's form. The same id always gives the same result. */
struct bytes chat_family_id(const struct chat_family *family, struct bytes id, char room[16])
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    if (family->id_chars == 0 || (id.len_bytes == family->id_chars && is_alphanumeric(id)))
        return id;
    for (size_t i = 0; i < id.len_bytes; i++)
        hash = (hash ^ id.data[i]) * UINT64_C(0x100000001b3);
    hash ^= hash >> 31;
    for (unsigned i = 0; i < family->id_chars; i++, hash /= sizeof(letters) - 1)
        room[i] = letters[hash % (sizeof(letters) - 1)];
    return bytes_of(room, family->id_chars);
}

void chat_family_thinking(const struct tokenizer *tokenizer, struct chat_format_info *info)
{
    static const char *const marks[][2] = {
        {"<think>", "</think>"}, {"[THINK]", "[/THINK]"}, {"<seed:think>", "</seed:think>"}};
    struct bytes source = tokenizer_chat_template(tokenizer);

    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]) && info->think_open == NULL; i++) {
        struct bytes open = bytes_str(marks[i][0]), close = bytes_str(marks[i][1]);

        if (tokenizer_find(tokenizer, close) == TOKEN_NONE && bytes_find(source, close, 0) == SIZE_MAX &&
            bytes_find(source, open, 0) == SIZE_MAX)
            continue;
        info->think_open = marks[i][0];
        info->think_close = marks[i][1];
    }
}
