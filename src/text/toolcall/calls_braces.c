/* SPDX-License-Identifier: Apache-2.0 */
/* Calls as Gemma 4 writes them: call:N{K:V,...} between marks.
 *
 *     call:find{city:<|"|>Oslo<|"|>,days:3,deep:{list:[true,<|"|>x<|"|>]}}
 *
 * Keys have no quotes.  A mark of the row stands at both sides of a string, which has no escapes.  Other values are
 * JSON; None, True and False are read too, because the template shows null as None.  JSON strings are read as keys
 * and values.  The arguments become JSON as they arrive; json_walk checks it, so the nesting is bounded.  A key or a
 * number has at most CALLS_MAX_HEADER_BYTES. */
#include <string.h>

#include "text/toolcall/calls_priv.h"
#include "text/toolcall/calls_types.h"
#include "base/err.h"
#include "base/str.h"

/* ---- strings ---- */

/* Takes a part of a string between the row's marks. */
static size_t braces_string(struct calls *calls, struct bytes text)
{
    const char *mark = calls->parser->string_mark;
    size_t at = bytes_find(text, bytes_str(mark), 0);
    size_t n = at != SIZE_MAX ? at : text.len_bytes - calls_partial(text, mark);
    struct buf quoted = {0};

    if (n > 0 && json_put_str(&quoted, bytes_of(text.data, n)) == 0)
        buf_append(&calls->good, quoted.data + 1, quoted.len_bytes - 2);
    calls->good.is_bad |= quoted.is_bad;
    buf_fini(&quoted);
    if (at == SIZE_MAX)
        return n;
    calls->quote = 0;
    buf_append_byte(&calls->good, '"');
    return at + strlen(mark);
}

/* Opens a string at the row's mark or at a quote. */
static size_t braces_open(struct calls *calls, struct bytes text)
{
    const char *mark = calls->parser->string_mark;
    size_t n = text.data[0] == '"' ? 1 : strlen(mark);

    if (text.data[0] != '"') {
        size_t left = text.len_bytes < n ? text.len_bytes : n;

        if (memcmp(text.data, mark, left) != 0)
            return CALLS_PART_BAD;
        if (left < n)
            return 0;
    }
    calls->quote = text.data[0];
    buf_append_byte(&calls->good, '"');
    return n;
}

/* ---- keys and words ---- */

static bool braces_ends_word(uint8_t c)
{
    return c < ' ' || strchr(":,{}[]<\"", c) != NULL;
}

bool calls_is_bare_key(struct bytes key)
{
    size_t n = 0;

    while (n < key.len_bytes && !braces_ends_word(key.data[n]))
        n++;
    return n > 0 && n == key.len_bytes && n < CALLS_MAX_HEADER_BYTES && key.data[0] != ' ' &&
           key.data[n - 1] != ' ';
}

static size_t braces_literal(struct calls *calls, struct bytes word)
{
    bool is_number =
        word.len_bytes > 0 && (word.data[0] == '-' || (word.data[0] >= '0' && word.data[0] <= '9'));
    const char *json = calls_python_word(word);

    if (json != NULL)
        buf_append_str(&calls->good, json);
    else if (is_number)
        buf_append(&calls->good, word.data, word.len_bytes);
    return json != NULL || is_number ? word.len_bytes : CALLS_PART_BAD;
}

/* Takes a key with its colon, or a value that is one word. */
static size_t braces_word(struct calls *calls, struct bytes text)
{
    size_t n = 0, end;

    while (n < text.len_bytes && n < CALLS_MAX_HEADER_BYTES && !braces_ends_word(text.data[n]))
        n++;
    if (n == CALLS_MAX_HEADER_BYTES)
        return CALLS_PART_BAD;
    if (n == text.len_bytes)
        return 0;
    for (end = n; end > 0 && text.data[end - 1] == ' ';)
        end--;
    if (text.data[n] != ':')
        return braces_literal(calls, bytes_of(text.data, end));
    json_put_str(&calls->good, bytes_of(text.data, end));
    buf_append_str(&calls->good, ": ");
    return n + 1;
}

static size_t braces_token(struct calls *calls, struct bytes text)
{
    uint8_t c = text.data[0];

    if (c == '"' || c == (uint8_t)calls->parser->string_mark[0])
        return braces_open(calls, text);
    if (c != '{' && c != '}' && c != '[' && c != ']' && c != ':')
        return braces_word(calls, text);
    if (c == ':')
        buf_append_str(&calls->good, ": ");
    else
        buf_append_byte(&calls->good, c);
    return 1;
}

/* Takes the next part.  A comma is held back, because a constraint may put one after the last argument. */
static size_t braces_part(struct calls *calls, struct bytes text)
{
    size_t from = calls->good.len_bytes, n;

    if (text.len_bytes == 0)
        return 0;
    if (calls->quote == '"')
        return calls_keywords_string(calls, text);
    if (calls->quote != 0)
        return braces_string(calls, text);
    if (calls_is_blank(text.data[0]))
        return 1;
    if (text.data[0] == ',') {
        n = calls->has_comma ? CALLS_PART_BAD : 1;
        calls->has_comma = true;
        return n;
    }
    if (calls->has_comma && text.data[0] != '}' && text.data[0] != ']')
        buf_append_str(&calls->good, ", ");
    n = braces_token(calls, text);
    if (n == 0)
        calls->good.len_bytes = from; /* until the token is complete */
    else
        calls->has_comma = false;
    return n;
}

int calls_braces_arguments(struct calls *calls)
{
    return calls_rewrite_arguments(calls, braces_part);
}

/* ---- around the arguments ---- */

int calls_braces_header(struct calls *calls)
{
    static const char prefix[] = "call:";
    struct bytes text = buf_view(&calls->held), name;
    size_t from = calls_skip_blanks(text, 0), left = text.len_bytes - from, brace;
    int rc;

    if (memcmp(text.data + from, prefix, left < sizeof(prefix) - 1 ? left : sizeof(prefix) - 1) != 0)
        return -1;
    brace = bytes_find(text, bytes_str("{"), from);
    if (brace == SIZE_MAX)
        return 0;
    from += sizeof(prefix) - 1;
    if (brace < from)
        return -1;
    name = bytes_of(text.data + from, brace - from);
    while (name.len_bytes > 0 && calls_is_blank(name.data[name.len_bytes - 1]))
        name.len_bytes--;
    if (!calls_is_name(name))
        return -1;
    rc = calls_begin_call(calls, name, CALLS_ARGUMENTS);
    calls->is_braced = calls->has_comma = false;
    calls->quote = 0;
    json_walk_byte(&calls->walk, '{');
    if (rc == 0)
        rc = calls->events->on_arguments(calls->arg, bytes_str("{"));
    if (rc == 0)
        rc = calls_take(calls, brace + 1);
    return rc < 0 ? rc : 1;
}
