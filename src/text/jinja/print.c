/* SPDX-License-Identifier: Apache-2.0 */
/* Values as text, in the form of Python's str() and repr.
 *
 * A float is written with the fewest digits that read back as the same number, with a point or an exponent. A
 * string inside a list or dict is quoted, and its unprintable characters are escaped. The bytes keep their
 * marks. */
#include "text/jinja/jinja_priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Writes digits that have no point; power is the power of ten of the first digit. */
static void place_point(struct build *build, const char *digits, int power)
{
    int n = (int)strlen(digits);
    char text[64];

    if (power < -4 || power >= 16) {
        snprintf(text, sizeof(text), "%c%s%se%c%02d", digits[0], n > 1 ? "." : "", digits + 1,
                 power < 0 ? '-' : '+', abs(power));
        build_str(build, text);
        return;
    }
    if (power < 0) {
        build_str(build, "0.");
        for (int i = -1; i > power; i--)
            build_str(build, "0");
        build_str(build, digits);
        return;
    }
    for (int i = 0; i < n || i <= power; i++) {
        if (i == power + 1)
            build_str(build, ".");
        build_raw(build, i < n ? &digits[i] : "0", 1, MARK_OWN);
    }
    if (n <= power + 1)
        build_str(build, ".0");
}

void print_float(struct build *build, double real)
{
    char text[40], digits[24];
    int n = 0;

    if (isnan(real) || isinf(real)) {
        build_str(build, isnan(real) ? "nan" : real < 0 ? "-inf" : "inf");
        return;
    }
    for (int precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof(text), "%.*e", precision, real);
        if (strtod(text, NULL) == real)
            break;
    }
    const char *at = text;
    if (*at == '-') {
        build_str(build, "-");
        at++;
    }
    for (; *at != 'e'; at++) {
        if (*at != '.')
            digits[n++] = *at;
    }
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = '\0';
    place_point(build, digits, atoi(at + 1));
}

/* ---- strings in quotes ---- */

static bool print_is_printable(uint32_t code)
{
    if (code < 0x7f)
        return code >= 0x20;
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

static void print_put_escaped(struct build *build, uint32_t code, uint32_t mark)
{
    char text[16];

    if (code == '\n' || code == '\t' || code == '\r')
        snprintf(text, sizeof(text), "\\%c", code == '\n' ? 'n' : code == '\t' ? 't' : 'r');
    else
        snprintf(text, sizeof(text), code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
    build_raw(build, text, strlen(text), mark);
}

static void put_quoted(struct build *build, struct text text)
{
    bool has_single = bytes_find(text_bytes(text), bytes_str("'"), 0) != SIZE_MAX;
    bool has_double = bytes_find(text_bytes(text), bytes_str("\""), 0) != SIZE_MAX;
    char quote = has_single && !has_double ? '"' : '\'';
    size_t from = 0, len;

    build_raw(build, &quote, 1, MARK_OWN);
    for (size_t at = 0; at < text.len_bytes; at += len) {
        uint32_t code = text_code(text, at, &len);
        bool is_special = code == (uint32_t)quote || code == '\\';

        if (!is_special && print_is_printable(code))
            continue;
        build_text(build, text_part(text, from, at));
        if (is_special)
            build_raw(build, "\\", 1, text_mark_at(text, at));
        else
            print_put_escaped(build, code, text_mark_at(text, at));
        from = is_special ? at : at + len;
    }
    build_text(build, text_part(text, from, text.len_bytes));
    build_raw(build, &quote, 1, MARK_OWN);
}

/* ---- other values ---- */

static void put_items(struct build *build, struct value value)
{
    const struct value_list *list = value.list;

    build_str(build, value.kind == VALUE_TUPLE ? "(" : "[");
    for (size_t i = 0; i < list->n && build->jinja->rc == 0; i++) {
        build_str(build, i > 0 ? ", " : "");
        print_repr(build, list->items[i]);
    }
    if (value.kind == VALUE_TUPLE)
        build_str(build, list->n == 1 ? ",)" : ")");
    else
        build_str(build, "]");
}

static void put_entries(struct build *build, const struct value_dict *dict)
{
    build_str(build, "{");
    for (size_t i = 0; i < dict->n && build->jinja->rc == 0; i++) {
        build_str(build, i > 0 ? ", " : "");
        print_repr(build, dict->entries[i].key);
        build_str(build, ": ");
        print_repr(build, dict->entries[i].value);
    }
    build_str(build, "}");
}

static void print_put_value(struct build *build, struct value value)
{
    char text[32];

    switch (value.kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED:
        build_str(build, "Undefined");
        break;
    case VALUE_NONE:
        build_str(build, "None");
        break;
    case VALUE_BOOL:
        build_str(build, value.is_true ? "True" : "False");
        break;
    case VALUE_INT:
        snprintf(text, sizeof(text), "%lld", (long long)value.integer);
        build_str(build, text);
        break;
    case VALUE_FLOAT:
        print_float(build, value.real);
        break;
    case VALUE_BIG:
        build_text(build, *value.text);
        break;
    case VALUE_TEXT:
        put_quoted(build, *value.text);
        break;
    case VALUE_LIST:
    case VALUE_TUPLE:
        put_items(build, value);
        break;
    case VALUE_DICT:
        put_entries(build, value.dict);
        break;
    case VALUE_NAMESPACE:
        build_str(build, "<Namespace ");
        put_entries(build, value.dict);
        build_str(build, ">");
        break;
    case VALUE_MACRO:
    case VALUE_FUNCTION:
    case VALUE_METHOD:
    case VALUE_LOOP:
        build_str(build, "<");
        build_str(build, value_type(value));
        build_str(build, ">");
        break;
    }
}

void print_repr(struct build *build, struct value value)
{
    if (!jinja_enter(build->jinja))
        return;
    print_put_value(build, value);
    jinja_leave(build->jinja);
}

void print_str(struct build *build, struct value value)
{
    if (value.kind == VALUE_TEXT)
        build_text(build, *value.text);
    else if (value.kind != VALUE_UNDEFINED && value.kind != VALUE_ABSENT)
        print_repr(build, value);
}

struct value value_to_text(struct jinja *jinja, struct value value)
{
    struct build build = build_begin(jinja);

    if (value.kind == VALUE_TEXT)
        return value;
    print_str(&build, value);
    return build_end(&build);
}

void print_html(struct build *build, struct text text)
{
    size_t from = 0;

    for (size_t at = 0; at < text.len_bytes && build->jinja->rc == 0; at++) {
        uint8_t c = text.data[at];
        const char *name = c == '&'    ? "&amp;"
                           : c == '<'  ? "&lt;"
                           : c == '>'  ? "&gt;"
                           : c == '"'  ? "&#34;"
                           : c == '\'' ? "&#39;"
                                       : NULL;
        if (name == NULL)
            continue;
        build_text(build, text_part(text, from, at));
        build_raw(build, name, strlen(name), text_mark_at(text, at));
        from = at + 1;
    }
    build_text(build, text_part(text, from, text.len_bytes));
}

static void print_put_part(struct build *build, struct text text, bool is_markup)
{
    if (is_markup && !text.is_markup)
        print_html(build, text);
    else
        build_text(build, text);
}

/* If one text is markup, the other is escaped, and the result is markup. */
struct value text_add(struct jinja *jinja, struct value a, struct value b)
{
    bool is_markup = text_in(a).is_markup || text_in(b).is_markup;
    struct build build = build_begin(jinja);

    print_put_part(&build, text_in(a), is_markup);
    print_put_part(&build, text_in(b), is_markup);
    struct value whole = build_end(&build);
    if (!is_markup || jinja->rc != 0)
        return whole;
    struct text text = text_in(whole);
    text.is_markup = true;
    return value_text(jinja, text);
}
