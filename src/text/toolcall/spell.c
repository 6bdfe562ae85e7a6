/* SPDX-License-Identifier: Apache-2.0 */
/* Calls as text. Arguments have one of five forms:
 *
 *     a JSON object                {"city": "Oslo", "days": 3}
 *     tags                         key tag, value, tag; a string stands without quotes
 *     braces                       city:<|"|>Oslo<|"|>,days:3, with a mark of the row around strings
 *     elements                     <city>Oslo</city><days>3</days>, with a mark of the row before each tag
 *     keywords, as in Python       city="Oslo", days=3; a name that is no identifier: **{"my city": "Oslo"}
 *
 * Text of the row is recorded in `own`, so that its marks become control tokens. Text of the client is not. */
#include "text/toolcall/spell.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "text/json/json_text.h"
#include "text/toolcall/calls_types.h"

/* ---- text ---- */

static void spell_own(struct calls_spelling *out, const char *text)
{
    struct calls_span span = {.from = out->text.len_bytes, .to = out->text.len_bytes + strlen(text)};
    size_t n = out->own.len_bytes / sizeof(span);
    struct calls_span *last = n > 0 ? (struct calls_span *)(void *)out->own.data + n - 1 : NULL;

    buf_append_str(&out->text, text);
    if (last != NULL && last->to == span.from)
        last->to = span.to;
    else if (span.to > span.from)
        buf_append(&out->own, &span, sizeof(span));
}

static void spell_given(struct calls_spelling *out, struct bytes text)
{
    buf_append(&out->text, text.data, text.len_bytes);
}

static void spell_pieces(struct calls_spelling *out, const struct calls_piece *pieces)
{
    for (unsigned i = 0; i < CALLS_MAX_PIECES && pieces[i].kind != CALLS_PIECE_END; i++) {
        char number[24];

        if (pieces[i].text != NULL) {
            spell_own(out, pieces[i].text);
        } else if (pieces[i].kind == CALLS_PIECE_INDEX || pieces[i].kind == CALLS_PIECE_NUMBER) {
            snprintf(number, sizeof(number), "%zu",
                     out->n_calls - (pieces[i].kind == CALLS_PIECE_INDEX ? 1 : 0));
            spell_own(out, number);
        } else if (pieces[i].kind == CALLS_PIECE_SOLAR_ID) {
            snprintf(number, sizeof(number), "call%06zu", out->n_calls);
            spell_own(out, number);
        }
    }
}

/* ---- arguments ---- */

/* A string with characters of markup, or of several lines, stands between quotes. */
static void spell_quoted(struct calls_spelling *out, const struct calls_tags *tags, struct bytes value)
{
    size_t n_end = strlen(tags->quoted_close) - strlen(tags->value_close);
    struct buf plain = {0}, end = {0};

    out->text.is_bad |= json_unquote(value, &plain) < 0 || buf_append(&plain, "", 1) < 0 ||
                        buf_append(&end, tags->quoted_close, n_end) < 0 || buf_append(&end, "", 1) < 0;
    if (!out->text.is_bad) {
        bool has_markup = strpbrk((const char *)plain.data, "<&\n") != NULL;

        spell_own(out, has_markup ? tags->quoted_open : "");
        spell_given(out, bytes_of(plain.data, plain.len_bytes - 1));
        spell_own(out, has_markup ? (const char *)end.data : "");
    }
    buf_fini(&plain);
    buf_fini(&end);
}

/* The type of a value by its first byte, as tags name it. */
static const char *spell_type_word(uint8_t first)
{
    switch (first) {
    case '"':
        return "string";
    case '{':
        return "object";
    case '[':
        return "array";
    case 't':
    case 'f':
        return "boolean";
    case 'n':
        return "null";
    default:
        return "number";
    }
}

/* A key may have entities for the characters that end it. */
static void spell_key(struct calls_spelling *out, const struct calls_tags *tags, struct bytes key)
{
    struct buf plain = {0};

    (void)json_unquote(key, &plain); /* json_next() found strings */
    out->text.is_bad |= plain.is_bad;
    if (tags->has_entities)
        calls_put_entities(buf_view(&plain), &out->text);
    else
        spell_given(out, buf_view(&plain));
    buf_fini(&plain);
}

static void spell_tag(struct calls_spelling *out, const struct calls_tags *tags, struct bytes key,
                      struct bytes value)
{
    spell_own(out, tags->key_open);
    spell_key(out, tags, key);
    spell_own(out, tags->key_written);
    if (tags->json_open != NULL)
        spell_own(out, value.data[0] == '"' ? tags->string_open : tags->json_open);
    if (tags->type_close != NULL && value.data[0] != '"') {
        spell_own(out, spell_type_word(value.data[0]));
        spell_own(out, tags->type_close);
    }
    if (value.data[0] == '"' && tags->quoted_open != NULL)
        spell_quoted(out, tags, value);
    else if (value.data[0] == '"')
        (void)json_unquote(value, &out->text);
    else
        spell_given(out, value);
    spell_own(out, tags->value_written);
}

/* A string that holds the row's mark stands as JSON. */
static void spell_marked_string(struct calls_spelling *out, const struct calls_tags *tags, struct bytes value)
{
    struct buf plain = {0};

    out->text.is_bad |= json_unquote(value, &plain) < 0;
    if (bytes_find(buf_view(&plain), bytes_str(tags->string_close), 0) != SIZE_MAX) {
        spell_given(out, value);
    } else {
        spell_own(out, tags->string_open);
        spell_given(out, buf_view(&plain));
        spell_own(out, tags->string_close);
    }
    buf_fini(&plain);
}

static void spell_braces(struct calls_spelling *out, const struct calls_tags *tags, struct bytes value);

static void spell_items(struct calls_spelling *out, const struct calls_tags *tags, struct bytes value)
{
    struct bytes key, item;
    size_t at = 0;

    for (bool is_first = true; json_next(value, &at, &key, &item); is_first = false) {
        struct bytes name = key.len_bytes > 2 ? bytes_of(key.data + 1, key.len_bytes - 2) : key;

        spell_own(out, is_first ? "" : ",");
        spell_given(out,
                    calls_is_bare_key(name) && bytes_find(name, bytes_str("\\"), 0) == SIZE_MAX ? name : key);
        spell_own(out, value.data[0] == '{' ? ":" : "");
        spell_braces(out, tags, item);
    }
}

/* The recursion is bounded, because json_respace() bounds the nesting. */
static void spell_braces(struct calls_spelling *out, const struct calls_tags *tags, struct bytes value)
{
    bool is_object = value.data[0] == '{';

    if (value.data[0] == '"') {
        spell_marked_string(out, tags, value);
    } else if (is_object || value.data[0] == '[') {
        spell_own(out, is_object ? "{" : "[");
        spell_items(out, tags, value);
        spell_own(out, is_object ? "}" : "]");
    } else {
        spell_given(out, value);
    }
}

static void spell_element(struct calls_spelling *out, const struct calls_tags *tags, struct bytes name,
                          struct bytes value);

/* Members of an object, or items of a list.  The recursion is bounded, because json_respace() bounds the nesting. */
static void spell_elements(struct calls_spelling *out, const struct calls_tags *tags, struct bytes value)
{
    struct buf name = {0};
    struct bytes key, item;
    size_t at = 0;

    while (json_next(value, &at, &key, &item)) {
        buf_clear(&name);
        if (value.data[0] == '{')
            (void)json_unquote(key, &name);
        else
            buf_append_str(&name, "item");
        out->text.is_bad |= name.is_bad;
        spell_element(out, tags, buf_view(&name), item);
    }
    buf_fini(&name);
}

static void spell_element(struct calls_spelling *out, const struct calls_tags *tags, struct bytes name,
                          struct bytes value)
{
    spell_own(out, tags->key_open);
    spell_given(out, name);
    spell_own(out, tags->key_close);
    if (value.data[0] == '{' || value.data[0] == '[')
        spell_elements(out, tags, value);
    else if (value.data[0] == '"')
        (void)json_unquote(value, &out->text);
    else
        spell_given(out, value);
    spell_own(out, tags->value_close);
    spell_given(out, name);
    spell_own(out, tags->key_close);
}

static void spell_keyword(struct calls_spelling *out, struct bytes key, struct bytes value)
{
    struct bytes name = bytes_of(key.data + 1, key.len_bytes - 2);
    bool is_keyword = calls_is_keyword(name);

    if (!is_keyword)
        spell_own(out, "**{");
    spell_given(out, is_keyword ? name : key);
    spell_own(out, is_keyword ? "=" : ": ");
    spell_given(out, value);
    if (!is_keyword)
        spell_own(out, "}");
}

/* Arguments that are not a JSON object are copied unchanged. */
static void spell_arguments(struct calls_spelling *out, const struct calls_grammar *grammar,
                            struct bytes arguments)
{
    struct buf spaced = {0};
    bool is_object = json_respace(arguments, &spaced) == 0 && spaced.data[0] == '{';
    struct bytes key, value;
    size_t at = 0;

    if (!is_object || (grammar->tags == NULL && !grammar->has_keywords)) {
        spell_given(out, is_object ? buf_view(&spaced) : arguments);
        buf_fini(&spaced);
        return;
    }
    if (grammar->tags != NULL && (grammar->tags->has_braces || grammar->tags->has_elements)) {
        (grammar->tags->has_braces ? spell_items : spell_elements)(out, grammar->tags, buf_view(&spaced));
        buf_fini(&spaced);
        return;
    }
    for (bool is_first = true; json_next(buf_view(&spaced), &at, &key, &value); is_first = false) {
        if (grammar->has_keywords && !is_first)
            spell_own(out, ", ");
        if (grammar->has_keywords)
            spell_keyword(out, key, value);
        else
            spell_tag(out, grammar->tags, key, value);
    }
    buf_fini(&spaced);
}

/* ---- calls ---- */

/* A name that stands in a JSON string is escaped. */
static void spell_name(struct calls_spelling *out, const char *before, struct bytes name)
{
    size_t n = strlen(before);
    struct buf quoted = {0};

    if (n == 0 || before[n - 1] != '"') {
        spell_given(out, name);
        return;
    }
    json_put_str(&quoted, name);
    out->text.is_bad |= quoted.is_bad;
    if (!quoted.is_bad)
        spell_given(out, bytes_of(quoted.data + 1, quoted.len_bytes - 2));
    buf_fini(&quoted);
}

void calls_spell(enum calls_format format, struct bytes name, struct bytes arguments,
                 struct calls_spelling *out)
{
    const struct calls_grammar *grammar = &calls_row_of(format)->grammar;

    if (out->n_calls++ == 0)
        spell_pieces(out, grammar->open);
    else
        spell_own(out, grammar->between);
    spell_pieces(out, grammar->call_open);
    spell_own(out, grammar->name_before);
    spell_name(out, grammar->name_before, name);
    spell_own(out, grammar->name_after);
    spell_pieces(out, grammar->name_end);
    spell_arguments(out, grammar, arguments);
    spell_pieces(out, grammar->call_close);
}

void calls_spell_end(enum calls_format format, struct calls_spelling *out)
{
    if (out->n_calls > 0)
        spell_pieces(out, calls_row_of(format)->grammar.close);
}
