/* SPDX-License-Identifier: Apache-2.0 */
/* Calls written as JSON: Hermes, Mistral, DeepSeek, Llama, Cohere, Hunyuan, Kimi K2, Apertus, MiniMax M1, Solar Open.
 *
 * A header ends before the brace of the arguments, which the splitter then walks.  The usual forms are
 *
 *     {"name": "N", "arguments": {            Hermes, Llama ("parameters"), an item of a list
 *     {"tool_call_id": "0", "tool_name": "N", "parameters": {      an item of Cohere's list
 *     N[ARGS]{    N[CALL_ID]I[ARGS]{          Mistral since Large 2411
 *     function<sep>N\n```json\n{    N<sep>{   DeepSeek up to R1, and since V3.1
 *     N\n```json\n{                           Hunyuan
 *     functions.N:INDEX<argument-begin>{      Kimi
 *     I<name>N<args>{                         Solar Open
 *     N>{                                     Functionary 3.1
 *     {"N": {                                 an item of Apertus' list
 *
 * "type" and ids may come before or between the two members.  "arguments" and "parameters" are accepted for
 * each other, and so are "name" and "tool_name". */
#include <string.h>

#include "text/toolcall/calls_priv.h"
#include "text/json/json.h"
#include "base/check.h"
#include "base/err.h"

/* ---- a call as an object ---- */

/* What formats call the two members.  A call may have any of them. */
static const char *const name_keys[] = {"name", "tool_name"};
static const char *const arguments_keys[] = {"arguments", "parameters"};

static bool calls_json_has_key(const char *const keys[], size_t n, struct bytes key)
{
    for (size_t i = 0; i < n; i++)
        if (bytes_is(key, keys[i]))
            return true;
    return false;
}

static bool is_name_key(struct bytes key)
{
    return calls_json_has_key(name_keys, ARRAY_LEN(name_keys), key);
}

static bool is_arguments_key(struct bytes key)
{
    return calls_json_has_key(arguments_keys, ARRAY_LEN(arguments_keys), key);
}

static const char *calls_json_first_key(const char *const keys[], size_t n, const json_t *call)
{
    size_t i = 0;

    while (i + 1 < n && json_object_get(call, keys[i]) == NULL)
        i++;
    return keys[i];
}

struct bytes calls_name_of(const json_t *call)
{
    return api_json_str(json_object_get(call, calls_json_first_key(name_keys, ARRAY_LEN(name_keys), call)));
}

const char *calls_arguments_key_of(const json_t *call)
{
    return calls_json_first_key(arguments_keys, ARRAY_LEN(arguments_keys), call);
}

struct header {
    struct bytes text;
    size_t at;
};

/* 1: c is the next character after blanks and was skipped; 0: the text ends too early; -1: another one. */
static int calls_json_take_char(struct header *header, uint8_t c)
{
    header->at = calls_skip_blanks(header->text, header->at);
    if (header->at == header->text.len_bytes)
        return 0;
    if (header->text.data[header->at] != c)
        return -1;
    header->at++;
    return 1;
}

/* Takes a string without escapes. */
static int take_string(struct header *header, struct bytes *out)
{
    int rc = calls_json_take_char(header, '"');
    size_t from = header->at;

    for (; rc == 1 && header->at < header->text.len_bytes; header->at++) {
        uint8_t c = header->text.data[header->at];

        if (c == '\\' || c < ' ')
            return -1;
        if (c == '"') {
            *out = bytes_of(header->text.data + from, header->at - from);
            header->at++;
            return 1;
        }
    }
    return rc == 1 ? 0 : rc;
}

/* Takes one member up to its comma, or up to the brace of the arguments (2). */
static int calls_json_take_member(struct header *header, struct bytes *name)
{
    struct bytes key = {0};
    struct bytes value = {0};
    bool is_name;
    int rc = take_string(header, &key);

    if (rc == 1)
        rc = calls_json_take_char(header, ':');
    if (rc != 1)
        return rc;
    if (is_arguments_key(key)) {
        rc = name->len_bytes == 0 ? -1 : calls_json_take_char(header, '{');
        return rc == 1 ? 2 : rc;
    }
    is_name = is_name_key(key);
    if (!is_name && !bytes_is(key, "type") && !bytes_is(key, "id") && !bytes_is(key, "tool_call_id"))
        return -1;
    rc = take_string(header, &value);
    if (rc == 1 && is_name) {
        *name = value;
        rc = calls_is_name(value) ? 1 : -1;
    }
    return rc == 1 ? calls_json_take_char(header, ',') : rc;
}

/* Begins a call in an object; its arguments begin at the held byte `at`. */
static int begin_in_object(struct calls *calls, struct bytes name, size_t at)
{
    int rc = calls_begin_call(calls, name, CALLS_ARGUMENTS);

    calls->is_braced = true;
    if (rc == 0)
        rc = calls_take(calls, at);
    return rc < 0 ? rc : 1;
}

int calls_object_header(struct calls *calls)
{
    struct header header = {.text = buf_view(&calls->held)};
    struct bytes name = {0};
    int rc = calls_json_take_char(&header, '{');

    while (rc == 1)
        rc = calls_json_take_member(&header, &name);
    return rc == 2 ? begin_in_object(calls, name, header.at - 1) : rc;
}

/* The key of the object is the name of the call. */
static int keyed_header(struct calls *calls)
{
    struct header header = {.text = buf_view(&calls->held)};
    struct bytes name = {0};
    int rc = calls_json_take_char(&header, '{');

    if (rc == 1)
        rc = take_string(&header, &name);
    if (rc == 1)
        rc = calls_json_take_char(&header, ':');
    if (rc == 1)
        rc = calls_json_take_char(&header, '{');
    if (rc == 1 && !calls_is_name(name))
        rc = -1;
    return rc == 1 ? begin_in_object(calls, name, header.at - 1) : rc;
}

enum calls_late calls_find_late(struct bytes text, struct bytes *name_out, size_t *at_out)
{
    struct header header = {.text = text};
    struct bytes key, value;
    int rc = calls_json_take_char(&header, '{');

    *name_out = bytes_of(NULL, 0);
    while (rc == 1) {
        if (take_string(&header, &key) != 1 || calls_json_take_char(&header, ':') != 1)
            break;
        if (is_arguments_key(key)) {
            bool is_first = name_out->len_bytes == 0;

            rc = calls_json_take_char(&header, is_first ? '{' : '"');
            *at_out = is_first ? header.at - 1 : header.at;
            if (rc == 1 && !is_first && header.at < text.len_bytes && text.data[header.at] == '{')
                return CALLS_LATE_QUOTED;
            return rc == 1 && is_first ? CALLS_LATE_NAME : CALLS_LATE_NONE;
        }
        if (take_string(&header, &value) != 1)
            break;
        if (is_name_key(key))
            *name_out = value;
        rc = calls_json_take_char(&header, ',');
    }
    return CALLS_LATE_NONE;
}

/* ---- Hermes: a closing mark ---- */

/* Takes the text up to the closing mark.  Other text means that the model forgot the mark. */
int calls_mark_tail(struct calls *calls)
{
    struct bytes text = buf_view(&calls->held);
    const char *close = calls->parser->close;
    size_t i = 0;

    while (i < text.len_bytes && (calls_is_blank(text.data[i]) || text.data[i] == '}' || text.data[i] == '`'))
        i++;
    if (text.len_bytes - i >= strlen(close) && memcmp(text.data + i, close, strlen(close)) == 0) {
        i += strlen(close);
    } else if (calls_partial(text, close) >= text.len_bytes - i) {
        buf_consume(&calls->held, i > CALLS_MAX_HEADER_BYTES ? i : 0); /* hold no endless run */
        return 0;
    }
    buf_consume(&calls->held, i);
    calls_begin_text(calls);
    return 1;
}

/* ---- MiniMax M1: objects on lines ---- */

int calls_objects_tail(struct calls *calls)
{
    struct bytes text = buf_view(&calls->held);
    size_t at = calls_skip_blanks(text, 0);

    if (at == text.len_bytes || text.data[at] != '{')
        return at == text.len_bytes ? 0 : calls_mark_tail(calls);
    buf_consume(&calls->held, at);
    calls->opened = "";
    calls->state = CALLS_HEADER;
    return 1;
}

/* ---- Llama ---- */

/* Another call may follow a semicolon. */
int calls_llama_tail(struct calls *calls)
{
    struct bytes text = buf_view(&calls->held);
    size_t i = 0;

    while (i < text.len_bytes && (calls_is_blank(text.data[i]) || text.data[i] == ';' || text.data[i] == ','))
        i++;
    buf_consume(&calls->held, i);
    if (i == text.len_bytes)
        return 0;
    calls_begin_text(calls);
    return 1;
}

int calls_llama4_tail(struct calls *calls)
{
    return calls->is_list ? calls_list_tail(calls) : calls_llama_tail(calls);
}

/* ---- a name before an object ---- */

int calls_begin_at_brace(struct calls *calls, struct bytes name, size_t body)
{
    struct bytes text = buf_view(&calls->held);
    size_t at = calls_skip_blanks(text, body);
    int rc;

    if (at == text.len_bytes)
        return 0;
    if (text.data[at] != '{' || !calls_is_name(name))
        return -1;
    rc = calls_begin_call(calls, name, CALLS_ARGUMENTS);
    calls->is_braced = false;
    if (rc == 0)
        rc = calls_take(calls, at);
    return rc < 0 ? rc : 1;
}

/* ---- Mistral ---- */

/* N[ARGS]{, N[CALL_ID]I[ARGS]{ or N{ */
static int named_header(struct calls *calls, struct bytes text, size_t from)
{
    static const char args[] = "[ARGS]";
    size_t end = from;
    size_t brace;

    while (end < text.len_bytes && calls_is_name(bytes_of(text.data + end, 1)))
        end++;
    brace = calls_skip_blanks(text, end);
    if (brace < text.len_bytes && text.data[brace] == '[') {
        brace = bytes_find(text, bytes_str(args), brace);
        if (brace == SIZE_MAX)
            return 0;
        brace = calls_skip_blanks(text, brace + sizeof(args) - 1);
    }
    return calls_begin_at_brace(calls, bytes_of(text.data + from, end - from), brace);
}

int calls_mistral_header(struct calls *calls)
{
    struct bytes text = buf_view(&calls->held);
    size_t at = calls_skip_blanks(text, 0);

    if (at == text.len_bytes)
        return 0;
    return text.data[at] == '{' || text.data[at] == '[' || calls->is_list ? calls_list_header(calls)
                                                                          : named_header(calls, text, at);
}

/* ---- lists ---- */

/* Takes the opening bracket of a list.  1: an item follows, or an object without a list; else as a header. */
static int take_list_open(struct calls *calls)
{
    struct bytes text = buf_view(&calls->held);
    size_t at = calls_skip_blanks(text, 0);

    if (at == text.len_bytes)
        return 0;
    if (!calls->is_list && text.data[at] == '[') {
        /* The first item tells whether this is a list of calls. */
        size_t item = calls_skip_blanks(text, at + 1);

        if (item == text.len_bytes)
            return 0;
        if (text.data[item] != '{')
            return -1;
        if (calls_take(calls, at + 1) < 0)
            return E_NOMEM;
        calls->is_list = true;
    }
    return 1;
}

int calls_list_header(struct calls *calls)
{
    int rc = take_list_open(calls);

    return rc == 1 ? calls_object_header(calls) : rc;
}

int calls_keyed_list_header(struct calls *calls)
{
    int rc = take_list_open(calls);

    if (rc == 1)
        rc = keyed_header(calls);
    else
        return rc;
    return rc == -1 ? calls_object_header(calls) : rc;
}

enum calls_next calls_list_next(struct calls *calls)
{
    struct bytes text = buf_view(&calls->held);
    size_t at = calls_skip_blanks(text, 0);

    if (at == text.len_bytes)
        return CALLS_NEXT_MORE;
    if (calls->is_list && text.data[at] == ',') {
        buf_consume(&calls->held, at + 1);
        calls->opened = "";
        calls->state = CALLS_HEADER;
        return CALLS_NEXT_ITEM;
    }
    if (calls->is_list && text.data[at] == ']') {
        buf_consume(&calls->held, at + 1);
        calls->is_list = false;
        return CALLS_NEXT_END;
    }
    return CALLS_NEXT_NONE;
}

int calls_list_tail(struct calls *calls)
{
    enum calls_next next = calls_list_next(calls);

    if (next == CALLS_NEXT_MORE)
        return 0;
    if (next == CALLS_NEXT_NONE)
        buf_consume(&calls->held, calls_skip_blanks(buf_view(&calls->held), 0));
    if (next != CALLS_NEXT_ITEM)
        calls_begin_text(calls);
    return 1;
}

int calls_marked_list_tail(struct calls *calls)
{
    enum calls_next next = calls_list_next(calls);

    if (next == CALLS_NEXT_MORE)
        return 0;
    return next == CALLS_NEXT_ITEM ? 1 : calls_mark_tail(calls);
}

/* ---- DeepSeek ---- */

static bool is_fence(uint8_t c)
{
    return c == '`' || c == 'j' || c == 's' || c == 'o' || c == 'n' || calls_is_blank(c);
}

int calls_deepseek_header(struct calls *calls)
{
    struct bytes text = buf_view(&calls->held);
    size_t sep = bytes_find(text, bytes_str(CALLS_DEEPSEEK_SEP), 0);
    size_t from = calls_skip_blanks(text, 0);
    size_t at, end;

    if (sep == SIZE_MAX)
        return 0;
    at = sep + sizeof(CALLS_DEEPSEEK_SEP) - 1;
    end = sep;
    if (sep - from == 8 && memcmp(text.data + from, "function", 8) == 0) {
        from = at;
        while (at < text.len_bytes && text.data[at] != '\n')
            at++;
        end = at;
    }
    while (end > from && calls_is_blank(text.data[end - 1]))
        end--;
    while (at < text.len_bytes && is_fence(text.data[at]))
        at++;
    return calls_begin_at_brace(calls, bytes_of(text.data + from, end - from), at);
}

/* ---- Hunyuan ---- */

int calls_fenced_header(struct calls *calls)
{
    struct bytes text = buf_view(&calls->held);
    size_t from = calls_skip_blanks(text, 0), end = from, at;

    if (from < text.len_bytes && text.data[from] == '{')
        return calls_object_header(calls);
    while (end < text.len_bytes && calls_is_name(bytes_of(text.data + end, 1)))
        end++;
    at = end;
    while (at < text.len_bytes && is_fence(text.data[at]))
        at++;
    return calls_begin_at_brace(calls, bytes_of(text.data + from, end - from), at);
}

/* ---- Kimi ---- */

/* The name in an id functions.N:INDEX; "functions." and ":INDEX" may be missing.  Empty: the id has another form. */
static struct bytes name_of_kimi_id(struct bytes id)
{
    static const char prefix[] = "functions.";
    size_t from = calls_skip_blanks(id, 0), end = id.len_bytes;

    while (end > from && calls_is_blank(id.data[end - 1]))
        end--;
    if (bytes_starts_with(bytes_of(id.data + from, end - from), prefix))
        from += sizeof(prefix) - 1;
    for (size_t i = end; i > from && id.data[i - 1] >= '0' && id.data[i - 1] <= '9'; i--)
        if (i - 1 > from && id.data[i - 2] == ':')
            end = i - 2;
    return bytes_of(id.data + from, end - from);
}

int calls_kimi_header(struct calls *calls)
{
    struct bytes text = buf_view(&calls->held);
    size_t mark = bytes_find(text, bytes_str(CALLS_KIMI_ARGUMENTS), 0);

    if (mark == SIZE_MAX)
        return 0;
    return calls_begin_at_brace(calls, name_of_kimi_id(bytes_of(text.data, mark)),
                                mark + sizeof(CALLS_KIMI_ARGUMENTS) - 1);
}

/* ---- Solar Open ---- */

int calls_solar_header(struct calls *calls)
{
    struct bytes text = buf_view(&calls->held);
    size_t from = bytes_find(text, bytes_str(CALLS_SOLAR_NAME), 0), end;

    if (from == SIZE_MAX)
        return 0;
    from += sizeof(CALLS_SOLAR_NAME) - 1;
    end = bytes_find(text, bytes_str(CALLS_SOLAR_ARGUMENTS), from);
    if (end == SIZE_MAX)
        return 0;
    if (end > CALLS_MAX_HEADER_BYTES)
        return -1;
    return calls_begin_at_brace(calls, bytes_of(text.data + from, end - from),
                                end + sizeof(CALLS_SOLAR_ARGUMENTS) - 1);
}

/* ---- Functionary ---- */

int calls_name_header(struct calls *calls)
{
    struct bytes text = buf_view(&calls->held), after = bytes_str(calls->row->grammar.name_after);
    size_t end = bytes_find(text, after, 0);

    if (end == SIZE_MAX)
        return 0;
    return calls_begin_at_brace(calls, bytes_of(text.data, end), end + after.len_bytes);
}
