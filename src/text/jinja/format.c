/* SPDX-License-Identifier: Apache-2.0 */
/* "%s has %d" % (a, b), and "{} has {n}".format(a, n=b).
 *
 *     %[(name)][flags][width][.precision]type
 *     {[index or name][!r][:[[fill]align][sign][0][width][.precision][type]]}
 *
 * The C library writes numbers, with a format that this file builds. Widths and precisions have an upper
 * limit, so no template can make a long text from a short format. */
#include "text/jinja/jinja_priv.h"

#include "base/err.h"

#include <stdio.h>
#include <string.h>

#define MAX_WIDTH 1000

struct spec {
    char fill[4];
    size_t fill_len;
    char align; /* '<' '>' '^' '='; 0: depends on the value's kind */
    char sign;  /* '+' ' ' '-' */
    bool is_alternate;
    int width, precision; /* -1: none */
    char type;            /* 0: depends on the value's kind */
};

static int read_int(struct text text, size_t *at)
{
    int number = -1;

    for (; *at < text.len_bytes && text.data[*at] >= '0' && text.data[*at] <= '9'; ++*at)
        number = number > MAX_WIDTH ? number : (number < 0 ? 0 : number * 10) + text.data[*at] - '0';
    return number;
}

static void put_padded(struct build *build, const struct spec *spec, struct text text, char align)
{
    size_t length = text_length(text), width = spec->width < 0 ? 0 : (size_t)spec->width;
    size_t more = width > length ? width - length : 0;
    size_t left = align == '<' ? 0 : align == '^' ? more / 2 : more;

    for (size_t i = 0; i < left; i++)
        build_raw(build, spec->fill, spec->fill_len, MARK_OWN);
    build_text(build, text);
    for (size_t i = left; i < more; i++)
        build_raw(build, spec->fill, spec->fill_len, MARK_OWN);
}

/* Writes the digits of a number of this type, without sign. False: the value is no such number. */
static bool jinja_format_digits_of(struct jinja *jinja, const struct spec *spec, struct value value,
                                   struct build *out)
{
    int precision = spec->precision < 0 ? 6 : spec->precision;
    uint64_t whole = 0;
    int64_t integer;
    char text[700];

    if (value_index(value, &integer))
        whole = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer;
    double real = value_real(value);
    real = real < 0 ? -real : real;
    if (!value_is_number(value))
        return false;
    if (value.kind == VALUE_FLOAT && strchr("diu", spec->type) != NULL && real < 1.8e19)
        whole = (uint64_t)real;
    else if (value.kind == VALUE_FLOAT && strchr("diuxXobc", spec->type) != NULL)
        return false;
    switch (spec->type) {
    case 'f':
    case 'F':
        snprintf(text, sizeof(text), "%.*f", precision, real);
        break;
    case 'e':
        snprintf(text, sizeof(text), "%.*e", precision, real);
        break;
    case 'E':
        snprintf(text, sizeof(text), "%.*E", precision, real);
        break;
    case 'g':
        snprintf(text, sizeof(text), "%.*g", precision, real);
        break;
    case 'G':
        snprintf(text, sizeof(text), "%.*G", precision, real);
        break;
    case '%':
        snprintf(text, sizeof(text), "%.*f%%", precision, real * 100);
        break;
    case 'x':
        snprintf(text, sizeof(text), "%s%llx", spec->is_alternate ? "0x" : "", (unsigned long long)whole);
        break;
    case 'X':
        snprintf(text, sizeof(text), "%s%llX", spec->is_alternate ? "0X" : "", (unsigned long long)whole);
        break;
    case 'o':
        snprintf(text, sizeof(text), "%s%llo", spec->is_alternate ? "0o" : "", (unsigned long long)whole);
        break;
    case 'd':
    case 'i':
    case 'u':
        snprintf(text, sizeof(text), "%llu", (unsigned long long)whole);
        break;
    default:
        jinja_fail(jinja, E_UNSUPPORTED, "a format of type '%c'", spec->type);
        return false;
    }
    build_raw(out, text, strlen(text), MARK_OWN);
    return true;
}

static void jinja_format_put_number(struct build *build, const struct spec *spec, struct value value)
{
    struct jinja *jinja = build->jinja;
    struct build whole = build_begin(jinja);
    bool is_negative = value_is_number(value) && value_real(value) < 0;
    char sign = is_negative ? '-' : spec->sign == '+' || spec->sign == ' ' ? spec->sign : 0;
    struct spec inner = *spec;

    if (spec->align != '=' && sign != 0)
        build_raw(&whole, &sign, 1, MARK_OWN);
    if (!jinja_format_digits_of(jinja, spec, value, &whole))
        jinja_fail(jinja, E_FORMAT, "a %s where a number is to be written", value_type(value));
    struct text text = text_in(build_end(&whole));
    if (spec->align == '=' && sign != 0) { /* padding goes between sign and digits */
        build_raw(build, &sign, 1, MARK_OWN);
        inner.width = spec->width > 0 ? spec->width - 1 : spec->width;
    }
    put_padded(build, &inner, text, spec->align == 0 || spec->align == '=' ? '>' : spec->align);
}

static void jinja_format_put_text(struct build *build, const struct spec *spec, struct value value,
                                  bool is_repr, char align)
{
    struct build whole = build_begin(build->jinja);

    if (is_repr)
        print_repr(&whole, value);
    else
        print_str(&whole, value);
    struct text text = text_in(build_end(&whole));
    if (spec->precision >= 0)
        text = text_part(text, 0, text_offset(text, (size_t)spec->precision));
    put_padded(build, spec, text, align);
}

static bool is_too_wide(struct jinja *jinja, const struct spec *spec)
{
    if (spec->width > MAX_WIDTH || spec->precision > 300)
        jinja_fail(jinja, E_LIMIT, "a format wider than %d or finer than 300", MAX_WIDTH);
    return jinja->rc != 0;
}

/* ---- % ---- */

struct arguments {
    struct value all; /* a tuple, a dict, or one value */
    size_t n_used;
};

static struct value next_argument(struct jinja *jinja, struct arguments *arguments)
{
    size_t n = arguments->all.kind == VALUE_TUPLE ? arguments->all.list->n : 1;

    if (arguments->n_used >= n) {
        jinja_fail(jinja, E_FORMAT, "not enough arguments for the format");
        return value_undefined(NULL);
    }
    arguments->n_used++;
    return arguments->all.kind == VALUE_TUPLE ? arguments->all.list->items[arguments->n_used - 1]
                                              : arguments->all;
}

static struct value named_argument(struct jinja *jinja, struct arguments *arguments, struct text format,
                                   size_t *at)
{
    size_t end = bytes_find(text_bytes(format), bytes_str(")"), *at);
    const struct value *found = NULL;

    if (end != SIZE_MAX && arguments->all.kind == VALUE_DICT)
        found = dict_get(jinja, arguments->all, value_text(jinja, text_part(format, *at, end)));
    if (found == NULL)
        jinja_fail(jinja, E_FORMAT, "the format names an argument that is not there");
    *at = end == SIZE_MAX ? format.len_bytes : end + 1;
    return found == NULL ? value_undefined(NULL) : *found;
}

static void read_flags(struct text format, size_t *at, struct spec *spec)
{
    for (; *at < format.len_bytes; ++*at) {
        char c = (char)format.data[*at];

        if (c == '-')
            spec->align = '<';
        else if (c == '0' && spec->align == 0) {
            spec->align = '=';
            spec->fill[0] = '0';
        } else if (c == '+' || (c == ' ' && spec->sign != '+'))
            spec->sign = c;
        else if (c == '#')
            spec->is_alternate = true;
        else if (c != '0' && c != ' ')
            break;
    }
    if (spec->align == '<')
        spec->fill[0] = ' ';
}

/* Reads and writes one conversion; *at is after the "%". */
static void put_conversion(struct build *build, struct text format, size_t *at, struct arguments *arguments)
{
    struct spec spec = {.fill = " ", .fill_len = 1, .width = -1, .precision = -1};
    struct value value = {.kind = VALUE_ABSENT};
    struct jinja *jinja = build->jinja;

    if (*at < format.len_bytes && format.data[*at] == '(') {
        ++*at;
        value = named_argument(jinja, arguments, format, at);
    }
    read_flags(format, at, &spec);
    spec.width = read_int(format, at);
    if (*at < format.len_bytes && format.data[*at] == '.') {
        ++*at;
        spec.precision = read_int(format, at);
        spec.precision = spec.precision < 0 ? 0 : spec.precision;
    }
    spec.type = *at < format.len_bytes ? (char)format.data[(*at)++] : 0;
    if (spec.type == '%') {
        build_str(build, "%");
        return;
    }
    if (value.kind == VALUE_ABSENT)
        value = next_argument(jinja, arguments);
    if (jinja->rc != 0 || is_too_wide(jinja, &spec))
        return;
    if (spec.type == 's' || spec.type == 'r') {
        spec.fill[0] = ' ';
        jinja_format_put_text(build, &spec, value, spec.type == 'r', spec.align == '<' ? '<' : '>');
    } else if (spec.type == 'c' && value.kind == VALUE_TEXT) {
        jinja_format_put_text(build, &spec, value, false, '>');
    } else {
        jinja_format_put_number(build, &spec, value);
    }
}

struct value text_format(struct jinja *jinja, struct text format, struct value all)
{
    struct arguments arguments = {.all = all};
    struct build build = build_begin(jinja);
    size_t from = 0, at;

    while (jinja_charge(jinja, 1) &&
           (at = bytes_find(text_bytes(format), bytes_str("%"), from)) != SIZE_MAX) {
        build_text(&build, text_part(format, from, at));
        at++;
        put_conversion(&build, format, &at, &arguments);
        from = at;
    }
    build_text(&build, text_part(format, from, format.len_bytes));
    size_t n = all.kind == VALUE_TUPLE                            ? all.list->n
               : all.kind == VALUE_DICT || all.kind == VALUE_LIST ? 0
                                                                  : 1;
    if (arguments.n_used < n)
        jinja_fail(jinja, E_FORMAT, "more arguments than the format takes");
    return build_end(&build);
}

/* ---- {} ---- */

static struct value braces_argument(struct jinja *jinja, struct text name, struct call *call, size_t *n_auto)
{
    size_t at = 0, index;
    int number = read_int(name, &at);

    if (name.len_bytes == 0 || (number >= 0 && at == name.len_bytes)) {
        index = name.len_bytes == 0 ? (*n_auto)++ : (size_t)number;
        if (index < call->n_args)
            return call->args[index];
    }
    for (size_t i = 0; i < call->n_keywords; i++) {
        if (bytes_equal(text_bytes(call->keywords[i].name), text_bytes(name)))
            return call->keywords[i].value;
    }
    jinja_fail(jinja, E_FORMAT, "format() has no argument \"%.*s\"",
               name.len_bytes > 64 ? 64 : (int)name.len_bytes,
               name.len_bytes == 0 ? "" : (const char *)name.data);
    return value_undefined(NULL);
}

static struct spec read_spec(struct jinja *jinja, struct text text)
{
    struct spec spec = {.fill = " ", .fill_len = 1, .width = -1, .precision = -1};
    size_t at = 0, len = 0;

    if (text.len_bytes > 0)
        text_code(text, 0, &len);
    if (len > 0 && len < text.len_bytes && strchr("<>^=", text.data[len]) != NULL && text.data[len] != 0) {
        memcpy(spec.fill, text.data, len);
        spec.fill_len = len;
        spec.align = (char)text.data[len];
        at = len + 1;
    } else if (len > 0 && strchr("<>^=", text.data[0]) != NULL && text.data[0] != 0) {
        spec.align = (char)text.data[0];
        at = 1;
    }
    if (at < text.len_bytes && (text.data[at] == '+' || text.data[at] == '-' || text.data[at] == ' '))
        spec.sign = (char)text.data[at++];
    if (at < text.len_bytes && text.data[at] == '#') {
        spec.is_alternate = true;
        at++;
    }
    if (at < text.len_bytes && text.data[at] == '0' && spec.align == 0) {
        spec.fill[0] = '0';
        spec.align = '=';
    }
    spec.width = read_int(text, &at);
    if (at < text.len_bytes && text.data[at] == '.') {
        at++;
        spec.precision = read_int(text, &at);
    }
    if (at < text.len_bytes)
        spec.type = (char)text.data[at++];
    if (at != text.len_bytes)
        jinja_fail(jinja, E_UNSUPPORTED, "a format that is not known");
    return spec;
}

static void jinja_format_put_field(struct build *build, struct text field, struct call *call, size_t *n_auto)
{
    struct jinja *jinja = build->jinja;
    size_t colon = bytes_find(text_bytes(field), bytes_str(":"), 0);
    struct text name = text_part(field, 0, colon == SIZE_MAX ? field.len_bytes : colon);
    struct spec spec =
        read_spec(jinja, colon == SIZE_MAX ? text_str("") : text_part(field, colon + 1, field.len_bytes));
    size_t bang = bytes_find(text_bytes(name), bytes_str("!"), 0);
    bool is_repr = bang != SIZE_MAX && bang + 2 == name.len_bytes && name.data[bang + 1] == 'r';

    struct value value =
        braces_argument(jinja, bang == SIZE_MAX ? name : text_part(name, 0, bang), call, n_auto);
    if (jinja->rc != 0 || is_too_wide(jinja, &spec))
        return;
    if (bang == SIZE_MAX && (value.kind == VALUE_INT || value.kind == VALUE_FLOAT) && spec.type == 0 &&
        spec.precision >= 0)
        spec.type = 'g';
    if (bang == SIZE_MAX && value.kind == VALUE_INT && spec.type == 0)
        spec.type = 'd';
    if (spec.type != 0 && spec.type != 's')
        jinja_format_put_number(build, &spec, value);
    else
        jinja_format_put_text(build, &spec, value, is_repr,
                              spec.align != 0             ? spec.align == '=' ? '>' : spec.align
                              : value.kind == VALUE_FLOAT ? '>'
                                                          : '<');
}

struct value text_format_braces(struct jinja *jinja, struct text format, struct call *call)
{
    struct build build = build_begin(jinja);
    size_t n_auto = 0, from = 0;

    for (size_t at = 0; at < format.len_bytes && jinja_charge(jinja, 1); at++) {
        uint8_t c = format.data[at];
        bool is_double = at + 1 < format.len_bytes && format.data[at + 1] == c;

        if (c != '{' && c != '}')
            continue;
        build_text(&build, text_part(format, from, is_double ? at + 1 : at));
        if (is_double) {
            at++;
        } else {
            size_t end = c == '}' ? SIZE_MAX : bytes_find(text_bytes(format), bytes_str("}"), at);

            if (end == SIZE_MAX) {
                jinja_fail(jinja, E_FORMAT, "a single brace in a format");
                break;
            }
            jinja_format_put_field(&build, text_part(format, at + 1, end), call, &n_auto);
            at = end;
        }
        from = at + 1;
    }
    build_text(&build, text_part(format, from, format.len_bytes));
    return build_end(&build);
}
