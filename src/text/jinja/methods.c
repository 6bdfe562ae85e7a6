/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of values: the tables, and the methods that change the letters or the ends of a text.
 *
 * Searching and splitting are in search.c. Most methods that change a list or a dict in place are only names,
 * so that the message can say why they are refused: the reference runs templates in a sandbox that forbids
 * changes. Only lists that the template itself wrote may change. */
#include "text/jinja/jinja_priv.h"

#include "base/err.h"

#include <string.h>
#include <utf8proc.h>

/* ---- letters ---- */

enum { UPPER, LOWER, TITLE, CAPITALIZE, SWAP };

static bool methods_is_letter(uint32_t code)
{
    if (code < 0x80)
        return (code | 0x20) >= 'a' && (code | 0x20) <= 'z';
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

/* True if the character has an upper and a lower case. */
static bool is_cased(uint32_t code)
{
    return utf8proc_toupper((utf8proc_int32_t)code) != (utf8proc_int32_t)code ||
           utf8proc_tolower((utf8proc_int32_t)code) != (utf8proc_int32_t)code || code == 0xdf;
}

static bool is_upper(uint32_t code)
{
    return is_cased(code) && utf8proc_tolower((utf8proc_int32_t)code) != (utf8proc_int32_t)code;
}

static void put_cased(struct build *build, uint32_t code, bool is_up, bool is_first_of_word, uint32_t mark)
{
    if (code == 0xdf && is_up) /* the one common letter that becomes two */
        build_raw(build, is_first_of_word ? "Ss" : "SS", 2, mark);
    else
        build_char(build,
                   (uint32_t)(is_up ? utf8proc_toupper((utf8proc_int32_t)code)
                                    : utf8proc_tolower((utf8proc_int32_t)code)),
                   mark);
}

static struct value change_case(struct jinja *jinja, struct text text, int how)
{
    struct build build = build_begin(jinja);
    bool is_after_letter = false;
    size_t len;

    jinja_charge(jinja, text.len_bytes / 8);
    for (size_t at = 0; at < text.len_bytes && jinja->rc == 0; at += len) {
        uint32_t code = text_code(text, at, &len);
        bool is_first = how == CAPITALIZE ? at == 0 : !is_after_letter;
        bool is_up = how == UPPER || (how == SWAP ? !is_upper(code) : how != LOWER && is_first);

        is_after_letter = is_cased(code);
        if (code == 0xfffd && len == 1)
            build_text(&build, text_part(text, at, at + 1));
        else
            put_cased(&build, code, is_up, how != UPPER && how != SWAP, text_mark_at(text, at));
    }
    return build_end(&build);
}

static struct value method_case(struct jinja *jinja, struct value self, struct call *call)
{
    (void)call;
    return change_case(jinja, text_in(self), UPPER);
}

static struct value method_lower(struct jinja *jinja, struct value self, struct call *call)
{
    (void)call;
    return change_case(jinja, text_in(self), LOWER);
}

static struct value method_title(struct jinja *jinja, struct value self, struct call *call)
{
    (void)call;
    return change_case(jinja, text_in(self), TITLE);
}

static struct value method_capitalize(struct jinja *jinja, struct value self, struct call *call)
{
    (void)call;
    return change_case(jinja, text_in(self), CAPITALIZE);
}

static struct value method_swapcase(struct jinja *jinja, struct value self, struct call *call)
{
    (void)call;
    return change_case(jinja, text_in(self), SWAP);
}

/* ---- questions about all characters ---- */

static bool is_of_class(uint32_t code, char class)
{
    if (class == 's')
        return char_is_space(code);
    if (class == 'd' || class == 'n')
        return (code >= '0' && code <= '9') ||
               (code >= 0x80 && utf8proc_category((utf8proc_int32_t)code) == UTF8PROC_CATEGORY_ND) ||
               (class == 'n' && methods_is_letter(code));
    return methods_is_letter(code);
}

static struct value all_are(struct text text, char class)
{
    bool is_true = text.len_bytes > 0;
    size_t len;

    for (size_t at = 0; at < text.len_bytes && is_true; at += len)
        is_true = is_of_class(text_code(text, at, &len), class);
    return value_bool(is_true);
}

static struct value method_isdigit(struct jinja *jinja, struct value self, struct call *call)
{
    (void)call;
    jinja_charge(jinja, self.text->len_bytes / 16);
    return all_are(*self.text, 'd');
}

static struct value method_isalpha(struct jinja *jinja, struct value self, struct call *call)
{
    (void)call;
    jinja_charge(jinja, self.text->len_bytes / 16);
    return all_are(*self.text, 'a');
}

static struct value method_isalnum(struct jinja *jinja, struct value self, struct call *call)
{
    (void)call;
    jinja_charge(jinja, self.text->len_bytes / 16);
    return all_are(*self.text, 'n');
}

static struct value method_isspace(struct jinja *jinja, struct value self, struct call *call)
{
    (void)call;
    jinja_charge(jinja, self.text->len_bytes / 16);
    return all_are(*self.text, 's');
}

/* True if there is a cased letter, and all cased letters have the wanted case. */
static struct value all_cased(struct jinja *jinja, struct text text, bool wants_upper)
{
    bool has_any = false;
    size_t len;

    jinja_charge(jinja, text.len_bytes / 16);
    for (size_t at = 0; at < text.len_bytes; at += len) {
        uint32_t code = text_code(text, at, &len);

        if (!is_cased(code))
            continue;
        if (is_upper(code) != wants_upper)
            return value_bool(false);
        has_any = true;
    }
    return value_bool(has_any);
}

static struct value method_isupper(struct jinja *jinja, struct value self, struct call *call)
{
    (void)call;
    return all_cased(jinja, *self.text, true);
}

static struct value method_islower(struct jinja *jinja, struct value self, struct call *call)
{
    (void)call;
    return all_cased(jinja, *self.text, false);
}

/* ---- ends of texts ---- */

static struct value methods_strip(struct jinja *jinja, struct value self, struct call *call, bool left,
                                  bool right)
{
    struct text chars = text_in(call->bound[0]);

    jinja_charge(jinja, self.text->len_bytes * (chars.len_bytes + 1) / 64);
    return value_text(jinja,
                      text_strip(*self.text, call->bound[0].kind == VALUE_TEXT ? &chars : NULL, left, right));
}

static struct value method_strip(struct jinja *jinja, struct value self, struct call *call)
{
    return methods_strip(jinja, self, call, true, true);
}

static struct value method_lstrip(struct jinja *jinja, struct value self, struct call *call)
{
    return methods_strip(jinja, self, call, true, false);
}

static struct value method_rstrip(struct jinja *jinja, struct value self, struct call *call)
{
    return methods_strip(jinja, self, call, false, true);
}

static struct value methods_pad(struct jinja *jinja, struct value self, struct call *call, char side)
{
    struct text fill = call->bound[1].kind == VALUE_TEXT ? *call->bound[1].text : text_str(" ");
    struct build build = build_begin(jinja);
    int64_t width = 0, length = (int64_t)text_length(*self.text);

    if (!value_index(call->bound[0], &width))
        jinja_fail(jinja, E_FORMAT, "a width is an integer");
    int64_t more = width > length ? width - length : 0;
    int64_t left = side == 'l' ? 0 : side == 'r' ? more : more / 2 + (more & width & 1);
    for (int64_t i = 0; i < left && jinja_charge(jinja, 1); i++)
        build_text(&build, fill);
    build_text(&build, *self.text);
    for (int64_t i = left; i < more && jinja_charge(jinja, 1); i++)
        build_text(&build, fill);
    return build_end(&build);
}

static struct value method_ljust(struct jinja *jinja, struct value self, struct call *call)
{
    return methods_pad(jinja, self, call, 'l');
}

static struct value method_rjust(struct jinja *jinja, struct value self, struct call *call)
{
    return methods_pad(jinja, self, call, 'r');
}

static struct value method_center(struct jinja *jinja, struct value self, struct call *call)
{
    return methods_pad(jinja, self, call, 'c');
}

static struct value method_zfill(struct jinja *jinja, struct value self, struct call *call)
{
    struct text text = *self.text;
    bool is_signed = text.len_bytes > 0 && (text.data[0] == '-' || text.data[0] == '+');
    struct build build = build_begin(jinja);
    int64_t width = 0, length = (int64_t)text_length(text);

    if (!value_index(call->bound[0], &width))
        jinja_fail(jinja, E_FORMAT, "a width is an integer");
    build_text(&build, text_part(text, 0, is_signed));
    for (; length < width && jinja_charge(jinja, 1); length++)
        build_str(&build, "0");
    build_text(&build, text_part(text, is_signed, text.len_bytes));
    return build_end(&build);
}

static struct value method_format(struct jinja *jinja, struct value self, struct call *call)
{
    return text_format_braces(jinja, *self.text, call);
}

const struct callable text_methods[] = {
    {"upper", "", method_case, 0, false},
    {"lower", "", method_lower, 0, false},
    {"title", "", method_title, 0, false},
    {"capitalize", "", method_capitalize, 0, false},
    {"swapcase", "", method_swapcase, 0, false},
    {"isdigit", "", method_isdigit, 0, false},
    {"isdecimal", "", method_isdigit, 0, false},
    {"isnumeric", "", method_isdigit, 0, false},
    {"isalpha", "", method_isalpha, 0, false},
    {"isalnum", "", method_isalnum, 0, false},
    {"isspace", "", method_isspace, 0, false},
    {"isupper", "", method_isupper, 0, false},
    {"islower", "", method_islower, 0, false},
    {"strip", "chars", method_strip, 0, false},
    {"lstrip", "chars", method_lstrip, 0, false},
    {"rstrip", "chars", method_rstrip, 0, false},
    {"ljust", "width fillchar", method_ljust, 1, false},
    {"rjust", "width fillchar", method_rjust, 1, false},
    {"center", "width fillchar", method_center, 1, false},
    {"zfill", "width", method_zfill, 1, false},
    {"format", NULL, method_format, 0, false},
    {NULL, NULL, NULL, 0, false},
};

/* ---- methods of lists and dicts ---- */

static struct value method_refused(struct jinja *jinja, struct value self, struct call *call)
{
    (void)call;
    jinja_fail(jinja, E_FORMAT, "a method that changes a %s in place; templates may not", value_type(self));
    return value_undefined(NULL);
}

/* ---- lists that the template wrote, which may change ---- */

static bool is_open(struct jinja *jinja, struct value self)
{
    if (self.kind != VALUE_LIST || !self.list->is_open)
        method_refused(jinja, self, NULL);
    return jinja->rc == 0;
}

static struct value list_append(struct jinja *jinja, struct value self, struct call *call)
{
    if (is_open(jinja, self))
        list_push(jinja, self, call->bound[0]);
    return value_none();
}

static struct value list_extend(struct jinja *jinja, struct value self, struct call *call)
{
    struct value more = value_elements(jinja, call->bound[0]);
    size_t n = jinja->rc == 0 ? more.list->n : 0; /* fixed: a list may be extended by itself */

    for (size_t i = 0; i < n && is_open(jinja, self); i++)
        list_push(jinja, self, more.list->items[i]);
    return value_none();
}

/* The position of a Python index, counted from the end when negative. */
static int64_t methods_place_of(struct jinja *jinja, struct value self, struct value index)
{
    int64_t at = -1;

    if (index.kind != VALUE_ABSENT && !value_index(index, &at))
        jinja_fail(jinja, E_FORMAT, "a %s is no index", value_type(index));
    return at < 0 ? at + (int64_t)self.list->n : at;
}

static struct value list_insert(struct jinja *jinja, struct value self, struct call *call)
{
    int64_t at = is_open(jinja, self) ? methods_place_of(jinja, self, call->bound[0]) : 0;

    if (jinja->rc != 0)
        return value_none();
    list_push(jinja, self, call->bound[1]);
    at = at < 0 ? 0 : at;
    for (int64_t i = (int64_t)self.list->n - 1; i > at && jinja_charge(jinja, 1); i--) {
        self.list->items[i] = self.list->items[i - 1];
        self.list->items[i - 1] = call->bound[1];
    }
    return value_none();
}

static struct value list_pop(struct jinja *jinja, struct value self, struct call *call)
{
    int64_t at = is_open(jinja, self) ? methods_place_of(jinja, self, call->bound[0]) : 0;

    if (jinja->rc == 0 && (at < 0 || (uint64_t)at >= self.list->n))
        jinja_fail(jinja, E_FORMAT, "there is no such element to pop");
    if (jinja->rc != 0)
        return value_undefined(NULL);
    struct value item = self.list->items[at];

    for (self.list->n--; (size_t)at < self.list->n && jinja_charge(jinja, 1); at++)
        self.list->items[at] = self.list->items[at + 1];
    return item;
}

static struct value list_copy(struct jinja *jinja, struct value self, struct call *call)
{
    struct value copy = value_list(jinja, self.list->n);

    (void)call;
    for (size_t i = 0; i < self.list->n && jinja->rc == 0; i++)
        list_push(jinja, copy, self.list->items[i]);
    if (jinja->rc == 0)
        copy.list->is_open = self.list->is_open;
    return copy;
}

static struct value list_index(struct jinja *jinja, struct value self, struct call *call)
{
    for (size_t i = 0; i < self.list->n && jinja_charge(jinja, 1); i++) {
        if (value_equal(jinja, self.list->items[i], call->bound[0]))
            return value_int((int64_t)i);
    }
    jinja_fail(jinja, E_FORMAT, "the list does not have it");
    return value_undefined(NULL);
}

static struct value list_count(struct jinja *jinja, struct value self, struct call *call)
{
    int64_t n = 0;

    for (size_t i = 0; i < self.list->n && jinja_charge(jinja, 1); i++)
        n += value_equal(jinja, self.list->items[i], call->bound[0]);
    return value_int(n);
}

static struct value methods_pair(struct jinja *jinja, struct value a, struct value b)
{
    struct value both = value_tuple(jinja, 2);

    list_push(jinja, both, a);
    list_push(jinja, both, b);
    return both;
}

static struct value dict_items(struct jinja *jinja, struct value self, struct call *call)
{
    struct value list = value_list(jinja, self.dict->n);

    (void)call;
    for (size_t i = 0; i < self.dict->n && jinja->rc == 0; i++)
        list_push(jinja, list, methods_pair(jinja, self.dict->entries[i].key, self.dict->entries[i].value));
    return list;
}

static struct value dict_keys(struct jinja *jinja, struct value self, struct call *call)
{
    (void)call;
    return value_elements(jinja, self);
}

static struct value dict_values(struct jinja *jinja, struct value self, struct call *call)
{
    struct value list = value_list(jinja, self.dict->n);

    (void)call;
    for (size_t i = 0; i < self.dict->n && jinja->rc == 0; i++)
        list_push(jinja, list, self.dict->entries[i].value);
    return list;
}

static struct value dict_get_method(struct jinja *jinja, struct value self, struct call *call)
{
    const struct value *item = dict_get(jinja, self, call->bound[0]);

    if (item != NULL)
        return *item;
    return call->bound[1].kind == VALUE_ABSENT ? value_none() : call->bound[1];
}

static struct value method_copy(struct jinja *jinja, struct value self, struct call *call)
{
    (void)jinja;
    (void)call;
    return self; /* a dict never changes, so no copy is needed */
}

static const struct callable list_methods[] = {
    {"index", "value", list_index, 1, false},
    {"count", "value", list_count, 1, false},
    {"copy", "", list_copy, 0, false},
    {"append", "object", list_append, 1, false},
    {"extend", "iterable", list_extend, 1, false},
    {"insert", "index object", list_insert, 2, false},
    {"pop", "index", list_pop, 0, false},
    {"remove", NULL, method_refused, 0, false},
    {"reverse", NULL, method_refused, 0, false},
    {"sort", NULL, method_refused, 0, false},
    {"clear", NULL, method_refused, 0, false},
    {NULL, NULL, NULL, 0, false},
};

static const struct callable dict_methods[] = {
    {"items", "", dict_items, 0, false},   {"keys", "", dict_keys, 0, false},
    {"values", "", dict_values, 0, false}, {"get", "key default", dict_get_method, 1, false},
    {"copy", "", method_copy, 0, false},   {NULL, NULL, NULL, 0, false},
};

static const struct callable dict_changers[] = {
    {"update", NULL, method_refused, 0, false},     {"pop", NULL, method_refused, 0, false},
    {"setdefault", NULL, method_refused, 0, false}, {"popitem", NULL, method_refused, 0, false},
    {"clear", NULL, method_refused, 0, false},      {NULL, NULL, NULL, 0, false},
};

const struct callable *method_find(struct jinja *jinja, struct value self, struct bytes name)
{
    const struct callable *found;

    switch (self.kind) {
    case VALUE_TEXT:
        found = callable_find(text_methods, name);
        return found != NULL ? found : callable_find(search_methods, name);
    case VALUE_LIST:
    case VALUE_TUPLE:
        return callable_find(list_methods, name);
    case VALUE_DICT:
        found = callable_find(dict_methods, name);
        /* If the dict has a key with this name, the key is more useful than a refusal. */
        if (found == NULL) {
            struct text key = {.data = name.data, .len_bytes = name.len_bytes};

            if (dict_get(jinja, self, (struct value){.kind = VALUE_TEXT, .text = &key}) == NULL)
                found = callable_find(dict_changers, name);
        }
        return found;
    default:
        return NULL;
    }
}
