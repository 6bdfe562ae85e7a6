/* SPDX-License-Identifier: Apache-2.0 */
/* Calls written as in Python: [f(a=1, b="x"), g()], as LFM2 and Llama 4 do; or one call a line, as
 * OLMo 3 does.
 *
 * The arguments become JSON as they arrive.  Each value is a literal: a string in either quotes, a number,
 * True, False, None or their JSON words, a list, a dict with string keys.  Anything else (a positional
 * argument, a tuple, an expression) breaks the call, which then is text.  json_walk checks the JSON, so the
 * nesting is bounded; a name or a number has at most CALLS_MAX_HEADER_BYTES. */
#include <string.h>

#include "text/toolcall/calls_priv.h"
#include "text/toolcall/calls_types.h"
#include "base/err.h"
#include "base/str.h"

/* ---- a string ---- */

/* Takes a backslash and the escaped character; 0: more text is needed. */
static size_t keywords_escape(struct calls *calls, struct bytes text)
{
    uint8_t c = text.len_bytes > 1 ? text.data[1] : 0;
    size_t n = c == 'u' ? 6 : c == 'x' ? 4 : 2;

    if (text.len_bytes < n)
        return 0;
    if (c == 'u') {
        buf_append(&calls->good, text.data, n);
    } else if (c == 'x') {
        buf_append_str(&calls->good, "\\u00");
        buf_append(&calls->good, text.data + 2, 2);
    } else if (c == '\'' || c == '/') {
        buf_append_byte(&calls->good, c);
    } else if (c != 0 && strchr("\"\\ntrbf", c) != NULL) {
        buf_append(&calls->good, text.data, n);
    } else if (c != '\n') { /* Python keeps the backslash of an unknown escape */
        buf_append_str(&calls->good, "\\\\");
        return 1;
    }
    return n;
}

size_t calls_keywords_string(struct calls *calls, struct bytes text)
{
    uint8_t c = text.data[0];
    size_t n = 0;

    if (c == calls->quote) {
        calls->quote = 0;
        buf_append_byte(&calls->good, '"');
        return 1;
    }
    if (c == '\\')
        return keywords_escape(calls, text);
    if (c < ' ' || c == '"') {
        buf_printf(&calls->good, c == '"' ? "\\\"" : "\\u%04x", c);
        return 1;
    }
    while (n < text.len_bytes && text.data[n] >= ' ' && text.data[n] != '\\' && text.data[n] != '"' &&
           text.data[n] != calls->quote)
        n++;
    buf_append(&calls->good, text.data, n);
    return n;
}

/* ---- names and words ---- */

static bool keywords_is_word(uint8_t c)
{
    return c > ' ' && c != 0x7f && strchr("'\"()[]{},=:\\", c) == NULL;
}

bool calls_is_keyword(struct bytes name)
{
    size_t n = 0;

    while (n < name.len_bytes && keywords_is_word(name.data[n]))
        n++;
    return n > 0 && n == name.len_bytes && n < CALLS_MAX_HEADER_BYTES;
}

/* The length of the word at the start of text. 0: the word is not complete yet.  CALLS_PART_BAD: there is no word, or
 * it is too long. */
static size_t keywords_word(struct bytes text)
{
    size_t n = 0;

    while (n < text.len_bytes && n < CALLS_MAX_HEADER_BYTES && keywords_is_word(text.data[n]))
        n++;
    if (n == CALLS_MAX_HEADER_BYTES)
        return CALLS_PART_BAD;
    if (n == text.len_bytes)
        return 0;
    return n > 0 ? n : CALLS_PART_BAD;
}

/* Takes the name of an argument up to its "=", or the bracket that ends the arguments. */
static size_t keywords_key(struct calls *calls, struct bytes text)
{
    size_t n = keywords_word(text), at;

    if (text.data[0] == ')') {
        buf_append_byte(&calls->good, '}');
        return 1;
    }
    if (n == 0 || n == CALLS_PART_BAD)
        return n;
    at = calls_skip_blanks(text, n);
    if (at >= CALLS_MAX_HEADER_BYTES || (at < text.len_bytes && text.data[at] != '='))
        return CALLS_PART_BAD;
    if (at == text.len_bytes)
        return 0;
    buf_append_str(&calls->good, calls->n_values++ > 0 ? ", " : "");
    json_put_str(&calls->good, bytes_of(text.data, n));
    buf_append_str(&calls->good, ": ");
    calls->has_key = true;
    return at + 1;
}

const char *calls_python_word(struct bytes word)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (bytes_is(word, words[i][0]))
            return words[i][1];
    return NULL;
}

static size_t keywords_literal(struct calls *calls, struct bytes text)
{
    size_t n = keywords_word(text);
    struct bytes word = bytes_of(text.data, n == CALLS_PART_BAD ? 0 : n);
    bool is_number = text.data[0] == '-' || (text.data[0] >= '0' && text.data[0] <= '9');

    if (n == 0 || n == CALLS_PART_BAD)
        return n;
    if (calls_python_word(word) != NULL) {
        buf_append_str(&calls->good, calls_python_word(word));
        return n;
    }
    if (!is_number)
        return CALLS_PART_BAD;
    buf_append(&calls->good, text.data, n);
    if (calls_is_blank(text.data[n])) /* keep the blank, so that the JSON walk refuses two numbers in a row */
        buf_append_byte(&calls->good, ' ');
    return n;
}

/* ---- values ---- */

static size_t keywords_comma(struct calls *calls)
{
    if (calls->walk.depth == 1)
        calls->has_key = false;
    else if (calls->has_comma)
        return CALLS_PART_BAD;
    else
        calls->has_comma = true;
    return 1;
}

/* Takes the next part of a value.  A comma is held back, because Python allows one before a closing bracket. */
static size_t keywords_value(struct calls *calls, struct bytes text)
{
    uint8_t c = text.data[0];
    bool is_outer = calls->walk.depth == 1;

    if (c == ',')
        return keywords_comma(calls);
    if (c == ')' && is_outer)
        return keywords_key(calls, text);
    if (c == '}' && is_outer)
        return CALLS_PART_BAD;
    if (c != '[' && c != ']' && c != '{' && c != '}' && c != ':' && c != '"' && c != '\'' &&
        keywords_word(text) == 0)
        return 0;
    if (calls->has_comma && c != ']' && c != '}')
        buf_append_str(&calls->good, ", ");
    calls->has_comma = false;
    if (c == '"' || c == '\'') {
        calls->quote = c;
        buf_append_byte(&calls->good, '"');
    } else if (c == ':') {
        buf_append_str(&calls->good, ": ");
    } else if (c == '[' || c == ']' || c == '{' || c == '}') {
        buf_append_byte(&calls->good, c);
    } else {
        return keywords_literal(calls, text);
    }
    return 1;
}

static size_t keywords_part(struct calls *calls, struct bytes text)
{
    if (text.len_bytes == 0)
        return 0;
    if (calls->quote != 0)
        return calls_keywords_string(calls, text);
    if (calls_is_blank(text.data[0]))
        return 1;
    return calls->walk.depth == 1 && !calls->has_key ? keywords_key(calls, text)
                                                     : keywords_value(calls, text);
}

/* Checks calls->good from this byte on, and drops bytes that are not JSON. */
static enum json_walk_result keywords_walk(struct calls *calls, size_t from)
{
    enum json_walk_result result = JSON_WALK_MORE;

    for (; from < calls->good.len_bytes && result == JSON_WALK_MORE; from++)
        result = json_walk_byte(&calls->walk, calls->good.data[from]);
    if (result == JSON_WALK_BAD || result == JSON_WALK_DEEP)
        calls->good.len_bytes = from - 1;
    return result;
}

int calls_rewrite_arguments(struct calls *calls, calls_part_fn *part)
{
    enum json_walk_result result;
    size_t at = 0, n;
    int rc = 0;

    buf_clear(&calls->good);
    do {
        size_t from = calls->good.len_bytes;

        n = part(calls, bytes_of(calls->held.data + at, calls->held.len_bytes - at));
        at += n == CALLS_PART_BAD ? 0 : n;
        result = keywords_walk(calls, from);
    } while (n > 0 && n != CALLS_PART_BAD && result == JSON_WALK_MORE);
    if (calls->good.is_bad || calls_take(calls, at) < 0)
        return E_NOMEM;
    if (calls->good.len_bytes > 0)
        rc = calls->events->on_arguments(calls->arg, buf_view(&calls->good));
    if (rc != 0)
        return rc;
    if (result == JSON_WALK_DONE)
        return calls_end_whole(calls);
    return n == CALLS_PART_BAD || result != JSON_WALK_MORE ? calls_end_broken(calls) : 0;
}

int calls_keywords_arguments(struct calls *calls)
{
    return calls_rewrite_arguments(calls, keywords_part);
}

/* A literal is read as the value of one argument, whose call ends after it. */
void calls_python_begin(struct calls *calls)
{
    static const char before[] = "{\"\":";

    memset(&calls->walk, 0, sizeof(calls->walk));
    for (size_t i = 0; before[i] != '\0'; i++)
        json_walk_byte(&calls->walk, (uint8_t)before[i]);
    calls->quote = 0;
    calls->has_key = true;
    calls->has_comma = false;
}

size_t calls_python_read(struct calls *calls, struct bytes text)
{
    enum json_walk_result result = JSON_WALK_MORE;
    size_t at = 0, n = 1;

    buf_clear(&calls->good);
    while (n > 0 && result == JSON_WALK_MORE) {
        size_t from = calls->good.len_bytes;

        n = keywords_part(calls, bytes_of(text.data + at, text.len_bytes - at));
        if (n == CALLS_PART_BAD || !calls->has_key) /* a comma asks for the next argument */
            return CALLS_PART_BAD;
        at += n;
        result = keywords_walk(calls, from);
    }
    return result <= JSON_WALK_DONE ? at : CALLS_PART_BAD;
}

bool calls_python_end(struct calls *calls, struct bytes rest)
{
    struct buf end = {0};
    size_t n;

    buf_append(&end, rest.data, rest.len_bytes);
    buf_append_byte(&end, ')');
    n = calls_python_read(calls, buf_view(&end));
    bool is_whole = n == end.len_bytes && calls->walk.depth == 0 && !calls->good.is_bad && !end.is_bad;
    if (is_whole)
        calls->good.len_bytes--; /* the brace that ends the arguments */
    buf_fini(&end);
    return is_whole;
}

/* ---- the list around calls ---- */

/* Without a mark, only the name of a tool tells a call from other text. */
static bool is_callable(const struct calls *calls, struct bytes name)
{
    bool is_known = !calls->is_bare || calls->opts.n_tools == 0;

    for (size_t i = 0; i < calls->opts.n_tools && !is_known; i++)
        is_known = bytes_equal(calls->opts.tools[i].name, name);
    return is_known;
}

/* Begins a call whose name is at `from`. */
static int begin_keywords(struct calls *calls, size_t from)
{
    struct bytes text = buf_view(&calls->held);
    size_t at = from;
    int rc;

    while (at < text.len_bytes && calls_is_name(bytes_of(text.data + at, 1)))
        at++;
    if (at == text.len_bytes)
        return 0;
    if (at == from || text.data[at] != '(' || !is_callable(calls, bytes_of(text.data + from, at - from)))
        return -1;
    rc = calls_begin_call(calls, bytes_of(text.data + from, at - from), CALLS_ARGUMENTS);
    calls->is_braced = calls->has_key = calls->has_comma = false;
    calls->quote = 0;
    calls->n_values = 0;
    json_walk_byte(&calls->walk, '{');
    if (rc == 0)
        rc = calls->events->on_arguments(calls->arg, bytes_str("{"));
    if (rc == 0)
        rc = calls_take(calls, at + 1);
    return rc < 0 ? rc : 1;
}

int calls_keywords_header(struct calls *calls)
{
    struct bytes text = buf_view(&calls->held);
    size_t from = calls_skip_blanks(text, 0);
    int rc;

    if (from < text.len_bytes && calls->is_list && text.data[from] == ']') {
        calls->state = CALLS_TAIL;
        return 1;
    }
    if (from < text.len_bytes && !calls->is_list) {
        if (text.data[from] != '[')
            return -1;
        from = calls_skip_blanks(text, from + 1);
    }
    rc = begin_keywords(calls, from);
    calls->is_list = calls->is_list || rc == 1;
    return rc;
}

int calls_lines_header(struct calls *calls)
{
    return begin_keywords(calls, calls_skip_blanks(buf_view(&calls->held), 0));
}

int calls_lines_tail(struct calls *calls)
{
    struct bytes text = buf_view(&calls->held);
    size_t at = calls_skip_blanks(text, 0);

    if (at == text.len_bytes || !calls_is_name(bytes_of(text.data + at, 1)))
        return at == text.len_bytes ? 0 : calls_mark_tail(calls);
    buf_consume(&calls->held, at);
    calls->opened = "";
    calls->state = CALLS_HEADER;
    return 1;
}

int calls_llama4_header(struct calls *calls)
{
    struct bytes text = buf_view(&calls->held);
    size_t at = calls_skip_blanks(text, 0), item;

    if (at == text.len_bytes)
        return 0;
    if (text.data[at] == '{')
        return calls_object_header(calls);
    if (text.data[at] != '[' || calls->is_list)
        return calls_keywords_header(calls);
    item = calls_skip_blanks(text, at + 1);
    if (item == text.len_bytes)
        return 0;
    if (text.data[item] != '{')
        return calls_keywords_header(calls);
    return calls->is_bare ? -1 : calls_list_header(calls); /* a bare list of objects is an answer in JSON */
}
