/* SPDX-License-Identifier: Apache-2.0 */
/* Values between tags.
 *
 *     types of the schema ──only string──> STRING <──cannot be JSON──┐
 *                         └──others──────> OPEN ─────────────────────┴──long, JSON so far──> JSON
 *
 * A value whose schema allows only strings is a string.  Any other value is JSON if it parses as a type that the
 * schema allows, otherwise a string.  If the schema allows no string, it may also be a Python literal, because Seed's
 * template shows values as Python does.  The tag of a key may decide instead (DeepSeek V3.2).  A line end at either
 * side of a value belongs to the tags, unless the row says otherwise.
 *
 * An OPEN value is collected.  It becomes a string, and streams, at the byte that JSON cannot have.  The splitter works
 * on the loop, so no piece of text may cost more because the value is long: the value becomes JSON as it arrives
 * (`form`), and only a short one is parsed by the JSON library at its end.  The results differ in equal keys and in
 * integers beyond 64 bits (json_rewrite.h). */
#include <string.h>

#include "text/toolcall/calls_priv.h"
#include "text/toolcall/calls_types.h"
#include "text/json/json.h"
#include "base/err.h"
#include "base/str.h"

#define TREE_BYTES ((size_t)16 << 10) /* the JSON library parses these in about a millisecond */

void calls_begin_value(struct calls *calls, unsigned types, bool is_string)
{
    calls->value_kind = is_string ? CALLS_VALUE_STRING : CALLS_VALUE_OPEN;
    calls->value_types = types;
    calls->has_value = calls->is_formless = false;
    calls->is_quote_known = calls->is_quoted = false;
    calls->value_first = 0;
    calls->n_literal = 0;
    buf_clear(&calls->value);
    buf_clear(&calls->form);
    json_rewrite_fini(&calls->rewrite);
    calls_python_begin(calls);
}

void calls_value_fini(struct calls *calls)
{
    buf_fini(&calls->value);
    buf_fini(&calls->form);
    json_rewrite_fini(&calls->rewrite);
}

/* ---- the kind of a value ---- */

static const char *const python_words[] = {"True", "False", "None"};

static bool may_be_literal(const struct calls *calls)
{
    return (calls->value_types & CALLS_AS_STRING) == 0;
}

/* True if a value that is not a string may begin with this byte. */
static bool value_may_begin(const struct calls *calls, uint8_t c)
{
    unsigned types = calls->value_types;

    if ((c >= '0' && c <= '9') || c == '-')
        return (types & (CALLS_AS_INTEGER | CALLS_AS_NUMBER)) != 0;
    switch (c) {
    case '{':
        return (types & CALLS_AS_OBJECT) != 0;
    case '[':
        return (types & CALLS_AS_ARRAY) != 0;
    case 't':
    case 'f':
    case 'T':
    case 'F':
        return (types & CALLS_AS_BOOLEAN) != 0;
    case 'n':
    case 'N':
        return (types & CALLS_AS_NULL) != 0;
    case '"':
        return (types & CALLS_AS_STRING) != 0 && calls->parser->tags->json_open != NULL;
    default:
        return false;
    }
}

/* True if text begins one of Python's words, which JSON does not have. */
static bool may_be_word(struct bytes text)
{
    for (size_t i = 0; i < 3; i++)
        if (text.len_bytes <= strlen(python_words[i]) &&
            memcmp(text.data, python_words[i], text.len_bytes) == 0)
            return true;
    return false;
}

static bool is_surely_string(const struct calls *calls)
{
    struct bytes text = buf_view(&calls->value);
    uint8_t first = calls->value_first;

    if (first != 0 && !value_may_begin(calls, first))
        return true;
    if (text.len_bytes > CALLS_MAX_OPEN_BYTES && first != '{' && first != '[' && first != '"')
        return true;
    if (text.len_bytes > TREE_BYTES)
        return first != 0 && (calls->is_formless || calls->rewrite.is_odd);
    return calls->is_formless && !may_be_literal(calls) && !may_be_word(text);
}

/* ---- the form as JSON ---- */

/* Adds to the form what json_rewrite makes of the text. */
static void value_rewrite(struct calls *calls, struct bytes text)
{
    enum json_walk_result result = json_rewrite_feed(&calls->rewrite, text, &calls->form);

    calls->is_formless |= result == JSON_WALK_BAD || result == JSON_WALK_DEEP;
}

/* Reads the collected bytes that are new as a Python literal. */
static void value_read_literal(struct calls *calls)
{
    size_t n = calls_python_read(
        calls, bytes_of(calls->value.data + calls->n_literal, calls->value.len_bytes - calls->n_literal));

    if (n == CALLS_PART_BAD || calls->walk.depth == 0) {
        calls->is_formless = true;
        return;
    }
    calls->n_literal += n;
    calls->form.is_bad |= calls->good.is_bad;
    value_rewrite(calls, buf_view(&calls->good));
}

/* Adds text to a value that is not known to be a string, and to its form. */
static int value_collect(struct calls *calls, struct bytes text)
{
    bool is_json = calls->value_kind == CALLS_VALUE_JSON;
    size_t at = calls->value_first == 0 ? calls_skip_blanks(text, 0) : text.len_bytes;

    if (at < text.len_bytes)
        calls->value_first = text.data[at];
    if ((!is_json || may_be_literal(calls)) && buf_append(&calls->value, text.data, text.len_bytes) < 0)
        return E_NOMEM;
    if (!calls->is_formless && may_be_literal(calls))
        value_read_literal(calls);
    else if (!calls->is_formless)
        value_rewrite(calls, text);
    if (is_json) {
        buf_consume(&calls->value, calls->n_literal);
        calls->n_literal = 0;
    }
    return calls->form.is_bad ? E_NOMEM : 0;
}

/* Completes the form at the value's end. */
static bool value_complete(struct calls *calls)
{
    if (!calls->is_formless && may_be_literal(calls)) {
        calls->is_formless = !calls_python_end(
            calls, bytes_of(calls->value.data + calls->n_literal, calls->value.len_bytes - calls->n_literal));
        if (!calls->is_formless)
            value_rewrite(calls, buf_view(&calls->good));
    }
    return !calls->is_formless && json_rewrite_end(&calls->rewrite, &calls->form);
}

/* ---- passing it on ---- */

static int value_put_chars(struct calls *calls, struct bytes text, const char *before)
{
    buf_clear(&calls->good);
    buf_append_str(&calls->good, before);
    if (json_put_chars(&calls->good, text) < 0)
        return E_NOMEM;
    return calls->good.len_bytes == 0 ? 0 : calls->events->on_arguments(calls->arg, buf_view(&calls->good));
}

static int value_put_form(struct calls *calls)
{
    int rc = calls->form.len_bytes == 0 ? 0 : calls->events->on_arguments(calls->arg, buf_view(&calls->form));

    buf_clear(&calls->form);
    return rc;
}

/* Chooses the kind of an open value once it is known. */
static int value_decide(struct calls *calls)
{
    int rc = 0;

    if (is_surely_string(calls)) {
        calls->value_kind = CALLS_VALUE_STRING;
        rc = value_put_chars(calls, buf_view(&calls->value), "\"");
        buf_clear(&calls->value);
    } else if (calls->value.len_bytes > CALLS_MAX_OPEN_BYTES) {
        calls->value_kind = CALLS_VALUE_JSON;
        buf_consume(&calls->value, may_be_literal(calls) ? calls->n_literal : calls->value.len_bytes);
        calls->n_literal = 0;
        rc = value_put_form(calls);
    }
    return rc;
}

/* Puts out a short value, which the JSON library parses. */
static int value_put_short(struct calls *calls, struct bytes text)
{
    const char *word = calls_python_word(buf_view(&calls->value));
    unsigned types = calls->value_types;
    json_t *value = NULL;
    int rc;

    if (word != NULL)
        text = bytes_str(word);
    if (api_json_load(text, NULL, &value) < 0)
        value = NULL;
    calls_python_begin(calls);
    if (value == NULL && may_be_literal(calls) && calls_python_end(calls, text) &&
        api_json_load(buf_view(&calls->good), NULL, &value) < 0)
        value = NULL;
    buf_clear(&calls->good);
    if (value != NULL && (!json_is_string(value) || calls->parser->tags->json_open != NULL) &&
        (calls_type_of_value(value) & types) != 0)
        rc = api_json_put(&calls->good, value);
    else
        rc = json_put_str(&calls->good, buf_view(&calls->value));
    json_decref(value);
    return rc < 0 ? rc : calls->events->on_arguments(calls->arg, buf_view(&calls->good));
}

static int value_put_open(struct calls *calls)
{
    struct bytes text = buf_view(&calls->value);
    size_t at = calls_skip_blanks(text, 0);
    int rc;

    text = bytes_of(text.data + at, text.len_bytes - at);
    while (text.len_bytes > 0 && calls_is_blank(text.data[text.len_bytes - 1]))
        text.len_bytes--;
    if (text.len_bytes <= TREE_BYTES)
        return value_put_short(calls, text);
    if (value_complete(calls) && !calls->rewrite.is_odd)
        return calls->form.is_bad ? E_NOMEM : value_put_form(calls);
    rc = value_put_chars(calls, buf_view(&calls->value), "\"");
    return rc < 0 ? rc : calls->events->on_arguments(calls->arg, bytes_str("\""));
}

/* Ends the value.  1: done; 0: the call is broken; or an error. */
static int value_finish(struct calls *calls)
{
    bool is_whole;
    int rc = 0;

    switch (calls->value_kind) {
    case CALLS_VALUE_STRING:
        rc = calls->events->on_arguments(calls->arg, bytes_str("\""));
        break;
    case CALLS_VALUE_OPEN:
        rc = value_put_open(calls);
        break;
    case CALLS_VALUE_JSON:
        is_whole = value_complete(calls);
        rc = calls->form.is_bad ? E_NOMEM : value_put_form(calls);
        if (rc == 0 && !is_whole)
            return 0;
        break;
    }
    return rc < 0 ? rc : 1;
}

/* ---- reading it ---- */

/* Adds the first n held bytes to the value.  1: done; 0: the call is broken; or an error. */
static int add_to_value(struct calls *calls, size_t n)
{
    struct bytes text = bytes_of(calls->held.data, n);
    int rc = 0;

    if (n == 0)
        return 1;
    calls->has_value = true;
    if (calls->value_kind == CALLS_VALUE_STRING)
        rc = value_put_chars(calls, text, "");
    else
        rc = value_collect(calls, text);
    if (rc == 0 && calls->value_kind == CALLS_VALUE_JSON)
        rc = value_put_form(calls);
    if (rc == 0 && calls->value_kind == CALLS_VALUE_OPEN)
        rc = value_decide(calls);
    if (rc == 0)
        rc = calls_take(calls, n);
    if (rc < 0)
        return rc;
    return calls->value_kind != CALLS_VALUE_JSON || !calls->is_formless;
}

/* Skips the line end after the tag; 0: not known yet. */
static int skip_first_line_end(struct calls *calls)
{
    if (calls->parser->tags->is_exact || calls->has_value || calls->held.data[0] != '\n')
        return 1;
    calls->has_value = true;
    return calls_take(calls, 1) < 0 ? E_NOMEM : calls->held.len_bytes > 0;
}

/* Skips quoted_open; 0: not known yet. */
static int skip_quote(struct calls *calls)
{
    const char *quote = calls->parser->tags->quoted_open;
    size_t n = quote != NULL && !calls->is_quote_known ? strlen(quote) : 0;
    size_t held = calls->held.len_bytes;

    if (n == 0)
        return 1;
    if (memcmp(calls->held.data, quote, held < n ? held : n) == 0) {
        if (held < n)
            return 0;
        calls->is_quoted = true;
    }
    calls->is_quote_known = true;
    return calls->is_quoted && calls_take(calls, n) < 0 ? E_NOMEM : 1;
}

int calls_run_value(struct calls *calls)
{
    const struct calls_tags *tags = calls->parser->tags;
    int rc = skip_first_line_end(calls);
    const char *close;
    struct bytes text;
    size_t at, n;

    if (rc == 1)
        rc = skip_quote(calls);
    if (rc != 1)
        return rc;
    close = calls->is_quoted ? tags->quoted_close : tags->value_close;
    text = buf_view(&calls->held);
    at = bytes_find(text, bytes_str(close), 0);
    n = at != SIZE_MAX ? at : text.len_bytes - calls_partial(text, close);
    if (n > 0 && text.data[n - 1] == '\n' && !calls->parser->tags->is_exact)
        n--;
    rc = add_to_value(calls, n);
    if (rc == 1 && at == SIZE_MAX)
        return 0;
    if (rc == 1)
        rc = value_finish(calls);
    if (rc == 0)
        return calls_end_broken(calls);
    if (rc == 1 && calls_take(calls, at - n + strlen(close)) < 0)
        rc = E_NOMEM;
    calls->state = CALLS_VALUES;
    return rc;
}
