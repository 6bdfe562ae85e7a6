/* SPDX-License-Identifier: Apache-2.0 */
/* How models write tool calls, told from their templates.
 *
 *     hermes     <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>   Qwen, Hermes, many more
 *     xml        <tool_call>\n<function=f>\n<parameter=x>...                    Qwen 3 Coder
 *     glm        <tool_call>f\n<arg_key>x</arg_key><arg_value>1</arg_value></tool_call>
 *     mistral    [TOOL_CALLS][{"name": "f", "arguments": {...}, "id": "9 letters"}]
 *     deepseek   <tool-calls-begin> with bars and blocks around it
 *     harmony    <|channel|>commentary to=functions.f ...                       gpt-oss
 *     llama      {"name": "f", "parameters": {...}} as the whole answer, after <|python_tag|> or not
 *
 * The first line whose marks all stand in the template counts.  A family whose calls the front does not read
 * yet is rendered all the same; is_read says so, and the front tells the client.
 */
#include "token/chat_priv.h"

#include <string.h>

static const struct chat_family families[] = {
    {"xml", {"<tool_call>", "<function="}, false, 0},
    {"glm", {"<tool_call>", "<arg_key>"}, false, 0},
    {"hermes", {"<tool_call>"}, true, 0},
    {"mistral", {"[TOOL_CALLS]"}, false, 9},
    {"deepseek",
     {"<\xef\xbd\x9ctool\xe2\x96\x81"
      "calls\xe2\x96\x81"
      "begin\xef\xbd\x9c>"},
     false,
     0},
    {"harmony", {"<|channel|>"}, false, 0},
    {"llama", {"<|eot_id|>", "\"parameters\": "}, false, 0},
    {"llama", {"<|python_tag|>"}, false, 0},
    {"plain", {NULL}, false, 0},
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
    return family; /* the last one has no marks */
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

/* An id of another shape becomes one of this, the same one every time. */
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
