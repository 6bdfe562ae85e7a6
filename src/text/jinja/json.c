/* SPDX-License-Identifier: Apache-2.0 */
/* JSON text -> values, and back as Python's json.dumps(..., ensure_ascii=False) writes it.
 *
 * The reader recurses to a bounded depth. Texts carry the mark of the author of the JSON. An integer beyond
 * 64 bits keeps its spelling, so a schema with "maximum": 18446744073709551615 renders. The grammar is RFC
 * 8259's; a lone surrogate becomes U+FFFD. */
#include "text/jinja/jinja_priv.h"

#include "base/err.h"
#include "base/str.h"
#include "text/json/json_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values -> JSON ---- */

struct json_style {
    struct text item_separator, key_separator;
    struct text indent; /* one level */
    bool is_indented, is_ascii, is_sorted;
};

static void jinja_json_put_json(struct build *build, const struct json_style *style, struct value value,
                                unsigned depth);

static void put_escape(struct build *build, uint32_t code, uint32_t mark)
{
    static const char names[] = "btn\0fr"; /* names of 8..13 */
    char text[16];

    if (code == '"' || code == '\\')
        snprintf(text, sizeof(text), "\\%c", (int)code);
    else if (code >= 8 && code <= 13 && code != 11)
        snprintf(text, sizeof(text), "\\%c", names[code - 8]);
    else if (code < 0x10000)
        snprintf(text, sizeof(text), "\\u%04x", code);
    else
        snprintf(text, sizeof(text), "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                 0xdc00 + ((code - 0x10000) & 0x3ff));
    build_raw(build, text, strlen(text), mark);
}

static void put_json_text(struct build *build, const struct json_style *style, struct text text)
{
    size_t from = 0, len;

    build_str(build, "\"");
    for (size_t at = 0; at < text.len_bytes; at += len) {
        uint32_t code = text.data[at];

        len = 1;
        if (code >= 0x80)
            code = text_code(text, at, &len);
        if (code >= 0x20 && code != '"' && code != '\\' && (code < 0x80 || !style->is_ascii))
            continue;
        build_text(build, text_part(text, from, at));
        put_escape(build, code, text_mark_at(text, at));
        from = at + len;
    }
    build_text(build, text_part(text, from, text.len_bytes));
    build_str(build, "\"");
}

static void put_line(struct build *build, const struct json_style *style, unsigned depth)
{
    if (!style->is_indented)
        return;
    build_str(build, "\n");
    for (unsigned i = 0; i < depth; i++)
        build_text(build, style->indent);
}

static void jinja_json_put_key(struct build *build, const struct json_style *style, struct value key)
{
    struct build name = build_begin(build->jinja);

    if (key.kind == VALUE_TEXT) {
        put_json_text(build, style, *key.text);
        return;
    }
    if (key.kind == VALUE_TUPLE)
        jinja_fail(build->jinja, E_FORMAT, "a tuple cannot be a key of JSON");
    else
        jinja_json_put_json(&name, style, key, 0);
    put_json_text(build, style, text_in(build_end(&name)));
}

static void jinja_json_put_object(struct build *build, const struct json_style *style, struct value value,
                                  unsigned depth)
{
    struct jinja *jinja = build->jinja;
    struct value keys = value_elements(jinja, value);

    if (style->is_sorted && jinja->rc == 0) {
        struct value sorted = value_list(jinja, 0);

        for (size_t i = 0; i < keys.list->n && jinja->rc == 0; i++)
            list_push(jinja, sorted, keys.list->items[i]);
        if (jinja->rc == 0)
            list_sort(jinja, sorted, sorted.list->items, false);
        keys = sorted;
    }
    build_str(build, "{");
    for (size_t i = 0; jinja->rc == 0 && i < keys.list->n; i++) {
        const struct value *one = dict_get(jinja, value, keys.list->items[i]);

        if (i > 0)
            build_text(build, style->item_separator);
        put_line(build, style, depth + 1);
        jinja_json_put_key(build, style, keys.list->items[i]);
        build_text(build, style->key_separator);
        if (one != NULL)
            jinja_json_put_json(build, style, *one, depth + 1);
    }
    if (jinja->rc == 0 && keys.list->n > 0)
        put_line(build, style, depth);
    build_str(build, "}");
}

static void put_array(struct build *build, const struct json_style *style, const struct value_list *list,
                      unsigned depth)
{
    build_str(build, "[");
    for (size_t i = 0; i < list->n && build->jinja->rc == 0; i++) {
        if (i > 0)
            build_text(build, style->item_separator);
        put_line(build, style, depth + 1);
        jinja_json_put_json(build, style, list->items[i], depth + 1);
    }
    if (list->n > 0)
        put_line(build, style, depth);
    build_str(build, "]");
}

static void put_json_value(struct build *build, const struct json_style *style, struct value value,
                           unsigned depth)
{
    switch (value.kind) {
    case VALUE_NONE:
        build_str(build, "null");
        break;
    case VALUE_BOOL:
        build_str(build, value.is_true ? "true" : "false");
        break;
    case VALUE_TEXT:
        put_json_text(build, style, *value.text);
        break;
    case VALUE_FLOAT:
        if (isfinite(value.real))
            print_float(build, value.real);
        else
            build_str(build, isnan(value.real) ? "NaN" : value.real < 0 ? "-Infinity" : "Infinity");
        break;
    case VALUE_INT:
    case VALUE_BIG:
        print_repr(build, value);
        break;
    case VALUE_LIST:
    case VALUE_TUPLE:
        put_array(build, style, value.list, depth);
        break;
    case VALUE_DICT:
        jinja_json_put_object(build, style, value, depth);
        break;
    default:
        jinja_fail(build->jinja, E_FORMAT, "tojson of a %s", value_type(value));
    }
}

static void jinja_json_put_json(struct build *build, const struct json_style *style, struct value value,
                                unsigned depth)
{
    if (!jinja_enter(build->jinja))
        return;
    put_json_value(build, style, value, depth);
    jinja_leave(build->jinja);
}

/* options: ensure_ascii indent separators sort_keys, as bound by the filter. */
struct value value_to_json(struct jinja *jinja, struct value value, const struct value *options)
{
    struct build build = build_begin(jinja);
    struct json_style style = {.item_separator = text_str(", "), .key_separator = text_str(": ")};
    int64_t width = 0;

    style.is_ascii = value_is_true(options[0]);
    style.is_indented = options[1].kind != VALUE_ABSENT && options[1].kind != VALUE_NONE;
    style.is_sorted = value_is_true(options[3]);
    if (style.is_indented)
        style.item_separator = text_str(",");
    if (options[1].kind == VALUE_TEXT)
        style.indent = *options[1].text;
    else if (value_index(options[1], &width))
        style.indent = text_in(op_binary(jinja, OP_MUL, value_str(jinja, " "), value_int(width)));
    if (value_is_sequence(options[2]) && options[2].list->n == 2) {
        style.item_separator = text_in(options[2].list->items[0]);
        style.key_separator = text_in(options[2].list->items[1]);
    }
    jinja_json_put_json(&build, &style, value, 0);
    return build_end(&build);
}

/* ---- JSON -> values: reads text that json_respace() has checked ---- */

struct json_reader {
    struct jinja *jinja;
    uint32_t mark;
};

static struct value jinja_json_read_value(const struct json_reader *reader, struct bytes json);

static struct value jinja_json_read_text(const struct json_reader *reader, struct bytes quoted)
{
    struct buf text = {0};
    struct build build = build_begin(reader->jinja);
    bool is_plain = memchr(quoted.data, '\\', quoted.len_bytes) == NULL;

    if (is_plain)
        return value_bytes(reader->jinja, bytes_of(quoted.data + 1, quoted.len_bytes - 2), reader->mark);
    int rc = json_unquote(quoted, &text);
    if (rc != 0)
        jinja_fail(reader->jinja, rc, "%s", err_text(rc));
    build_raw(&build, text.data, text.len_bytes, reader->mark);
    buf_fini(&text);
    return build_end(&build);
}

static struct value jinja_json_read_items(const struct json_reader *reader, struct bytes json)
{
    struct jinja *jinja = reader->jinja;
    bool is_object = json_is_object(json);
    struct value all = is_object ? value_dict(jinja) : value_list(jinja, 0);
    struct bytes key, one;
    size_t at = 0;

    while (jinja->rc == 0 && json_next(json, &at, &key, &one)) {
        if (!jinja_charge(jinja, 1 + one.len_bytes / 64))
            break;
        struct value value = jinja_json_read_value(reader, one);
        if (is_object)
            dict_set(jinja, all, jinja_json_read_text(reader, key), value);
        else
            list_push(jinja, all, value);
    }
    return all;
}

static struct value jinja_json_read_number(const struct json_reader *reader, struct bytes json)
{
    bool is_real = false;
    int64_t integer;
    double real;

    for (size_t i = 0; i < json.len_bytes; i++)
        is_real |= json.data[i] == '.' || json.data[i] == 'e' || json.data[i] == 'E';
    if (is_real) {
        char room[128];

        if (json.len_bytes < sizeof(room)) {
            memcpy(room, json.data, json.len_bytes);
            room[json.len_bytes] = '\0';
            real = strtod(room, NULL); /* infinity for a number that is too large, as in Python */
            return value_float(real);
        }
        return str_to_f64(json, &real) == 0 ? value_float(real) : value_float(0);
    }
    if (str_to_i64(json, &integer) == 0)
        return value_int(integer);
    struct value value = value_bytes(reader->jinja, json, MARK_OWN);
    if (value.kind == VALUE_TEXT)
        value.kind = VALUE_BIG;
    return value;
}

static struct value jinja_json_read_value(const struct json_reader *reader, struct bytes json)
{
    if (json.len_bytes == 0)
        return value_none();
    switch (json.data[0]) {
    case '{':
    case '[':
        return jinja_json_read_items(reader, json);
    case '"':
        return jinja_json_read_text(reader, json);
    case 't':
    case 'f':
        return value_bool(json.data[0] == 't');
    case 'n':
        return value_none();
    default:
        return jinja_json_read_number(reader, json);
    }
}

struct value value_of_json(struct jinja *jinja, struct bytes json, uint32_t mark, const char *what)
{
    struct buf spaced = {0};
    struct value value = value_undefined(NULL);

    if (!jinja_charge(jinja, 1 + json.len_bytes / 16))
        return value;
    int rc = json_respace(json, &spaced);
    if (rc != 0) {
        jinja_fail(jinja, rc, "%s: %s", what,
                   rc == E_FORMAT  ? "not JSON"
                   : rc == E_LIMIT ? "JSON nests too deep"
                                   : err_text(rc));
    } else {
        uint8_t *copy = jinja_take(jinja, spaced.len_bytes + 1);

        if (copy != NULL) {
            memcpy(copy, spaced.data, spaced.len_bytes);
            struct json_reader reader = {.jinja = jinja, .mark = mark};
            value = jinja_json_read_value(&reader, bytes_of(copy, spaced.len_bytes));
        }
    }
    buf_fini(&spaced);
    return value;
}
