/* SPDX-License-Identifier: Apache-2.0 */
/* Calls as MiniMax M3 writes them: each argument is an element, and so are the members of an object and the items of a
 * list.  A mark (M below) stands before every tag.
 *
 *     M<invoke name="find">M<city>OsloM</city>M<days>M<item>3M</item>M</days>M</invoke>
 *
 *     OPEN ──another element──> OBJECT or ARRAY ──its closing tag──> the outer element
 *      └──────────text───────> STRING or WORD ────its closing tag───────────┘
 *
 * The arguments become JSON as they arrive; json_walk checks it.  The tool's schema says what a text is: a string if the
 * schema allows only strings, which streams; otherwise JSON if it parses as a type that the schema allows.  Such a text is
 * collected up to MAX_WORD_BYTES, beyond which it is a string.  Elements nest CALLS_MAX_ELEMENTS deep. */
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "text/json/json.h"
#include "text/toolcall/calls_priv.h"
#include "text/toolcall/calls_types.h"

#define MAX_WORD_BYTES ((size_t)16 << 10) /* the JSON library parses these in about a millisecond */

struct tag {
    struct bytes name;
    size_t n_bytes; /* with its mark */
    bool is_close;
};

static struct calls_element *elements_top(struct calls *calls)
{
    return &calls->elements[calls->n_elements - 1];
}

/* ---- the schema ---- */

/* The schema of an element within this one; NULL: unknown. */
static const json_t *elements_inner(const struct calls_element *outer, struct bytes name)
{
    return outer->kind == CALLS_ELEMENT_ARRAY ? json_object_get(outer->schema, "items")
                                              : json_object_getn(json_object_get(outer->schema, "properties"),
                                                                 (const char *)name.data, name.len_bytes);
}

/* ---- tags ---- */

/* Reads the tag at the beginning of text.  1: read; 0: more text is needed; -1: there is none. */
static int elements_read_tag(const struct calls *calls, struct bytes text, struct tag *tag)
{
    const char *mark = calls->parser->string_mark;
    size_t n = strlen(mark), left = text.len_bytes < n ? text.len_bytes : n, end;

    if (memcmp(text.data, mark, left) != 0)
        return -1;
    n = left < n ? text.len_bytes : calls_skip_blanks(text, n);
    if (n > CALLS_MAX_HEADER_BYTES || (n < text.len_bytes && text.data[n] != '<'))
        return -1;
    end = n == text.len_bytes ? SIZE_MAX : bytes_find(text, bytes_str(">"), n);
    if ((end == SIZE_MAX ? text.len_bytes : end) > CALLS_MAX_HEADER_BYTES)
        return -1;
    if (end == SIZE_MAX)
        return 0;
    tag->is_close = text.data[n + 1] == '/';
    n += tag->is_close ? 2 : 1;
    tag->name = bytes_of(text.data + n, end - n);
    tag->n_bytes = end + 1;
    return tag->name.len_bytes > 0 ? 1 : -1;
}

static bool elements_is_outer(struct bytes name)
{
    return bytes_is(name, "invoke") || bytes_is(name, "tool_call");
}

/* ---- containers ---- */

static size_t elements_push(struct calls *calls, const struct tag *tag)
{
    struct calls_element *outer = elements_top(calls);
    const json_t *inner = elements_inner(outer, tag->name);
    unsigned types = inner == NULL ? CALLS_AS_ANY : calls_types_of(calls->schema, inner);

    if (calls->n_elements == 1)
        types = calls_types_of_key(calls->schema, tag->name);
    if (calls->n_elements == CALLS_MAX_ELEMENTS || bytes_starts_with(tag->name, "invoke "))
        return CALLS_PART_BAD;
    if (outer->has_inner)
        buf_append_str(&calls->good, ", ");
    outer->has_inner = true;
    if (outer->kind == CALLS_ELEMENT_OBJECT) {
        json_put_str(&calls->good, tag->name);
        buf_append_str(&calls->good, ": ");
    }
    calls->elements[calls->n_elements++] = (struct calls_element){
        .kind = CALLS_ELEMENT_OPEN, .types = (uint8_t)types, .schema = calls_resolve(calls->schema, inner)};
    return tag->n_bytes;
}

/* Takes the next tag within an object or a list, or blanks. */
static size_t elements_container(struct calls *calls, struct bytes text)
{
    bool is_root = calls->n_elements == 1;
    size_t n = calls_skip_blanks(text, 0);
    struct tag tag;
    int rc;

    if (n > 0)
        return n;
    rc = elements_read_tag(calls, text, &tag);
    if (rc != 1)
        return rc == 0 ? 0 : CALLS_PART_BAD;
    if (!tag.is_close)
        return elements_push(calls, &tag);
    if (is_root != bytes_is(tag.name, "invoke") || (!is_root && elements_is_outer(tag.name)))
        return CALLS_PART_BAD;
    buf_append_byte(&calls->good, elements_top(calls)->kind == CALLS_ELEMENT_ARRAY ? ']' : '}');
    calls->n_elements -= is_root ? 0 : 1;
    return tag.n_bytes;
}

/* An element that holds others is a list if the schema says so, or if it allows both and the first one is an item. */
static size_t elements_nest(struct calls *calls, const struct tag *tag)
{
    struct calls_element *top = elements_top(calls);
    unsigned types = top->types;
    bool may_be_array = (types & CALLS_AS_ARRAY) != 0, may_be_object = (types & CALLS_AS_OBJECT) != 0;
    bool is_array =
        may_be_array && may_be_object ? bytes_is(tag->name, "item") : may_be_array || !may_be_object;

    if (!may_be_array && !may_be_object)
        is_array = bytes_is(tag->name, "item");
    top->kind = is_array ? CALLS_ELEMENT_ARRAY : CALLS_ELEMENT_OBJECT;
    top->schema =
        calls_schema_of_type(calls->schema, top->schema, is_array ? CALLS_AS_ARRAY : CALLS_AS_OBJECT);
    buf_append_byte(&calls->good, is_array ? '[' : '{');
    return elements_push(calls, tag);
}

/* ---- texts ---- */

/* Writes the collected text as JSON. */
static void elements_put_word(struct calls *calls)
{
    unsigned types = elements_top(calls)->types;
    struct bytes text = buf_view(&calls->value);
    const char *word = calls_python_word(text);
    json_t *value = NULL;

    if (api_json_load(word != NULL ? bytes_str(word) : text, NULL, &value) < 0)
        value = NULL;
    if (value != NULL && !json_is_string(value) && (calls_type_of_value(value) & types) != 0)
        calls->good.is_bad |= api_json_put(&calls->good, value) < 0;
    else
        json_put_str(&calls->good, text);
    json_decref(value);
    buf_clear(&calls->value);
}

static void elements_put_nothing(struct calls *calls)
{
    unsigned types = elements_top(calls)->types;

    buf_append_str(&calls->good, (types & CALLS_AS_STRING) != 0   ? "\"\""
                                 : (types & CALLS_AS_ARRAY) != 0  ? "[]"
                                 : (types & CALLS_AS_OBJECT) != 0 ? "{}"
                                 : (types & CALLS_AS_NULL) != 0   ? "null"
                                                                  : "\"\"");
}

/* Ends an element without others at its closing tag. */
static size_t elements_end_text(struct calls *calls, const struct tag *tag)
{
    enum calls_element_kind kind = elements_top(calls)->kind;

    if (!tag->is_close || elements_is_outer(tag->name))
        return CALLS_PART_BAD;
    if (kind == CALLS_ELEMENT_OPEN)
        elements_put_nothing(calls);
    else if (kind == CALLS_ELEMENT_WORD)
        elements_put_word(calls);
    else
        buf_append_byte(&calls->good, '"');
    calls->n_elements--;
    return tag->n_bytes;
}

static void elements_put_chars(struct calls *calls, struct bytes text)
{
    calls->good.is_bad |= json_put_chars(&calls->good, text) < 0;
}

/* Takes a part of a text, or the tag that ends it. */
static size_t elements_text(struct calls *calls, struct bytes text)
{
    const char *mark = calls->parser->string_mark;
    struct calls_element *top = elements_top(calls);
    size_t at = bytes_find(text, bytes_str(mark), 0);
    size_t n = at != SIZE_MAX ? at : text.len_bytes - calls_partial(text, mark);
    struct tag tag;
    int rc;

    if (at == 0) {
        rc = elements_read_tag(calls, text, &tag);
        return rc == 1 ? elements_end_text(calls, &tag) : rc == 0 ? 0 : CALLS_PART_BAD;
    }
    if (top->kind == CALLS_ELEMENT_STRING) {
        elements_put_chars(calls, bytes_of(text.data, n));
    } else {
        calls->good.is_bad |= buf_append(&calls->value, text.data, n) < 0;
        if (calls->value.len_bytes > MAX_WORD_BYTES) {
            top->kind = CALLS_ELEMENT_STRING;
            buf_append_byte(&calls->good, '"');
            elements_put_chars(calls, buf_view(&calls->value));
            buf_clear(&calls->value);
        }
    }
    return n;
}

/* Finds out what an element holds. */
static size_t elements_open(struct calls *calls, struct bytes text)
{
    size_t at = calls_skip_blanks(text, 0), n;
    struct tag tag;
    int rc = at == text.len_bytes ? 0 : -1;

    if (at > CALLS_MAX_HEADER_BYTES)
        rc = -1; /* a text */
    else if (at < text.len_bytes)
        rc = elements_read_tag(calls, bytes_of(text.data + at, text.len_bytes - at), &tag);
    if (rc == 0)
        return 0;
    if (rc == 1 && !tag.is_close) {
        n = elements_nest(calls, &tag);
        return n == CALLS_PART_BAD ? n : at + n;
    }
    if (rc == 1 && at == 0)
        return elements_end_text(calls, &tag);
    elements_top(calls)->kind = CALLS_ELEMENT_WORD;
    if (elements_top(calls)->types == CALLS_AS_STRING) {
        elements_top(calls)->kind = CALLS_ELEMENT_STRING;
        buf_append_byte(&calls->good, '"');
    }
    buf_clear(&calls->value);
    return elements_text(calls, text);
}

static size_t elements_part(struct calls *calls, struct bytes text)
{
    if (text.len_bytes == 0)
        return 0;
    switch ((enum calls_element_kind)elements_top(calls)->kind) {
    case CALLS_ELEMENT_OPEN:
        return elements_open(calls, text);
    case CALLS_ELEMENT_OBJECT:
    case CALLS_ELEMENT_ARRAY:
        return elements_container(calls, text);
    case CALLS_ELEMENT_STRING:
    case CALLS_ELEMENT_WORD:
        return elements_text(calls, text);
    }
    return CALLS_PART_BAD;
}

/* ---- the call ---- */

int calls_elements_arguments(struct calls *calls)
{
    return calls_rewrite_arguments(calls, elements_part);
}

int calls_elements_header(struct calls *calls)
{
    int rc = calls_tags_header(calls);

    if (rc != 1)
        return rc;
    json_walk_byte(&calls->walk, '{'); /* calls_tags_header() passed it on */
    calls->state = CALLS_ARGUMENTS;
    calls->is_braced = false;
    calls->elements[0] = (struct calls_element){.kind = CALLS_ELEMENT_OBJECT,
                                                .schema = calls_resolve(calls->schema, calls->schema)};
    calls->n_elements = 1;
    return 1;
}
