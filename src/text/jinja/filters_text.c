/* SPDX-License-Identifier: Apache-2.0 */
/* Filters on texts. Most accept any value and work on its str(). */
#include "text/jinja/jinja_priv.h"

#include "base/err.h"

/* Calls the method with this name on the value's text, with the same arguments. */
static struct value by_method(struct jinja *jinja, struct value self, struct call *call, const char *name)
{
    struct value text = value_to_text(jinja, self);

    if (jinja->rc != 0)
        return text;
    const struct callable *method = method_find(jinja, text, bytes_str(name));
    return method == NULL ? text : method->fn(jinja, text, call);
}

static struct value filter_upper(struct jinja *jinja, struct value self, struct call *call)
{
    return by_method(jinja, self, call, "upper");
}

static struct value filter_lower(struct jinja *jinja, struct value self, struct call *call)
{
    return by_method(jinja, self, call, "lower");
}

static struct value filter_capitalize(struct jinja *jinja, struct value self, struct call *call)
{
    return by_method(jinja, self, call, "capitalize");
}

static struct value filter_trim(struct jinja *jinja, struct value self, struct call *call)
{
    return by_method(jinja, self, call, "strip");
}

static struct value filter_replace(struct jinja *jinja, struct value self, struct call *call)
{
    call->bound[0] = value_to_text(jinja, call->bound[0]);
    call->bound[1] = value_to_text(jinja, call->bound[1]);
    return by_method(jinja, self, call, "replace");
}

static struct value filter_center(struct jinja *jinja, struct value self, struct call *call)
{
    if (call->bound[0].kind == VALUE_ABSENT)
        call->bound[0] = value_int(80);
    return by_method(jinja, self, call, "center");
}

static bool begins_word(uint32_t code)
{
    return char_is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
}

/* Words begin after blanks, dashes and opening brackets. The method "title" has another rule. */
static struct value filter_title(struct jinja *jinja, struct value self, struct call *call)
{
    struct value whole = value_to_text(jinja, self);
    struct build build = build_begin(jinja);
    struct text text = text_in(whole);
    size_t from = 0, len;

    for (size_t at = 0; at <= text.len_bytes && jinja->rc == 0; at += len) {
        bool is_border = at == text.len_bytes || begins_word(text_code(text, at, &len));

        if (at == text.len_bytes)
            len = 1;
        if (!is_border)
            continue;
        struct value word = value_text(jinja, text_part(text, from, at));
        build_text(&build, text_in(by_method(jinja, word, call, "capitalize")));
        from = at + len;
        build_text(&build, text_part(text, at, from));
    }
    return build_end(&build);
}

static struct value filter_string(struct jinja *jinja, struct value self, struct call *call)
{
    (void)call;
    return value_to_text(jinja, self);
}

/* Marks a text as safe: it is not escaped again. */
static struct value filters_text_markup(struct jinja *jinja, struct value value)
{
    struct text text = text_in(value);

    text.is_markup = true;
    return jinja->rc == 0 ? value_text(jinja, text) : value;
}

static struct value filter_safe(struct jinja *jinja, struct value self, struct call *call)
{
    (void)call;
    return filters_text_markup(jinja, value_to_text(jinja, self));
}

static struct value filter_forceescape(struct jinja *jinja, struct value self, struct call *call)
{
    struct value whole = value_to_text(jinja, self);
    struct build build = build_begin(jinja);

    (void)call;
    print_html(&build, text_in(whole));
    return filters_text_markup(jinja, build_end(&build));
}

static struct value filter_escape(struct jinja *jinja, struct value self, struct call *call)
{
    return text_in(self).is_markup ? self : filter_forceescape(jinja, self, call);
}

/* width first blank */
static struct value filter_indent(struct jinja *jinja, struct value self, struct call *call)
{
    struct value whole = value_to_text(jinja, self), width = call->bound[0];
    struct build build = build_begin(jinja);
    bool has_first = value_is_true(call->bound[1]), has_blank = value_is_true(call->bound[2]);

    if (width.kind == VALUE_ABSENT)
        width = value_int(4);
    if (width.kind != VALUE_TEXT)
        width = op_binary(jinja, OP_MUL, value_str(jinja, " "), width);
    struct text indent = text_in(width), text = text_in(whole);
    for (size_t from = 0, line = 0; from <= text.len_bytes && jinja->rc == 0; line++) {
        size_t to = from, len = 1;

        while (to < text.len_bytes && text.data[to] != '\n' && text.data[to] != '\r')
            to++;
        if (to + 1 < text.len_bytes && text.data[to] == '\r' && text.data[to + 1] == '\n')
            len = 2;
        if (line > 0)
            build_str(&build, "\n");
        if (line == 0 ? has_first : has_blank || to > from)
            build_text(&build, indent);
        build_text(&build, text_part(text, from, to));
        from = to + len;
    }
    return build_end(&build);
}

static struct value filter_wordcount(struct jinja *jinja, struct value self, struct call *call)
{
    struct value whole = value_to_text(jinja, self);
    struct text text = text_in(whole);
    const struct callable *isalnum = callable_find(text_methods, bytes_str("isalnum"));
    bool is_inside = false;
    int64_t n = 0;
    size_t len;

    for (size_t at = 0; at < text.len_bytes && jinja_charge(jinja, 1); at += len) {
        text_code(text, at, &len);
        struct text one = text_part(text, at, at + len);
        struct value letter = {.kind = VALUE_TEXT, .text = &one};
        bool is_word = text.data[at] == '_' || value_is_true(isalnum->fn(jinja, letter, call));

        n += is_word && !is_inside;
        is_inside = is_word;
    }
    return value_int(n);
}

static struct value filter_format(struct jinja *jinja, struct value self, struct call *call)
{
    struct value whole = value_to_text(jinja, self), arguments = value_tuple(jinja, call->n_args);

    for (size_t i = 0; i < call->n_args && jinja->rc == 0; i++)
        list_push(jinja, arguments, call->args[i]);
    if (call->n_keywords > 0) {
        arguments = value_dict(jinja);
        for (size_t i = 0; i < call->n_keywords && jinja->rc == 0; i++)
            dict_set(jinja, arguments, value_text(jinja, call->keywords[i].name), call->keywords[i].value);
    }
    return jinja->rc == 0 ? text_format(jinja, text_in(whole), arguments) : whole;
}

static struct value filter_tojson(struct jinja *jinja, struct value self, struct call *call)
{
    return value_to_json(jinja, self, call->bound);
}

/* Step 3.7's template parses arguments with it.  transformers has no such filter, llama.cpp has. */
static struct value filter_fromjson(struct jinja *jinja, struct value self, struct call *call)
{
    struct text text = text_in(self);

    (void)call;
    if (self.kind != VALUE_TEXT) {
        jinja_fail(jinja, E_FORMAT, "fromjson wants a text, not a %s", value_type(self));
        return value_undefined(NULL);
    }
    return value_of_json(jinja, text_bytes(text), text_marks(text), "fromjson");
}

/* length killwords end leeway */
static struct value filter_truncate(struct jinja *jinja, struct value self, struct call *call)
{
    struct value whole = value_to_text(jinja, self);
    struct text text = text_in(whole);
    struct text end = call->bound[2].kind == VALUE_TEXT ? *call->bound[2].text : text_str("...");
    struct build build = build_begin(jinja);
    int64_t length = 255, leeway = 5;

    value_index(call->bound[0], &length);
    value_index(call->bound[3], &leeway);
    int64_t room = length - (int64_t)text_length(end);
    if (room < 0 || leeway < 0) {
        jinja_fail(jinja, E_RANGE, "truncate to less than its ending");
        return value_undefined(NULL);
    }
    if (jinja->rc != 0 || (int64_t)text_length(text) <= length + leeway)
        return whole;
    struct text kept = text_part(text, 0, text_offset(text, (size_t)room));
    if (!value_is_true(call->bound[1])) {
        for (size_t at = kept.len_bytes; at-- > 0;) {
            if (kept.data[at] == ' ') {
                kept = text_part(kept, 0, at);
                break;
            }
        }
    }
    build_text(&build, kept);
    build_text(&build, end);
    return build_end(&build);
}

const struct callable text_filters[] = {
    {"upper", "", filter_upper, 0, false},
    {"lower", "", filter_lower, 0, false},
    {"title", "", filter_title, 0, false},
    {"capitalize", "", filter_capitalize, 0, false},
    {"trim", "chars", filter_trim, 0, false},
    {"replace", "old new count", filter_replace, 2, false},
    {"center", "width fillchar", filter_center, 0, false},
    {"string", "", filter_string, 0, false},
    {"safe", "", filter_safe, 0, true},
    {"escape", "", filter_escape, 0, true},
    {"e", "", filter_escape, 0, true},
    {"forceescape", "", filter_forceescape, 0, true},
    {"indent", "width first blank", filter_indent, 0, false},
    {"wordcount", "", filter_wordcount, 0, false},
    {"format", NULL, filter_format, 0, false},
    {"tojson", "ensure_ascii indent separators sort_keys", filter_tojson, 0, false},
    {"fromjson", "", filter_fromjson, 0, false},
    {"truncate", "length killwords end leeway", filter_truncate, 0, false},
    {NULL, NULL, NULL, 0, false},
};
