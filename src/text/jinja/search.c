/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of texts that search for other texts: finding, splitting, replacing, joining.
 *
 * Parts of a text keep their marks. Only replacing could put a text of the template at a place that a client
 * chose. So text that replaces a client's bytes gets the client's mark. */
#include "text/jinja/jinja_priv.h"

#include "base/err.h"

#include <string.h>

static size_t jinja_search_find(struct text text, struct text what, size_t from)
{
    return bytes_find(text_bytes(text), text_bytes(what), from);
}

/* The last match that ends at or before to. */
static size_t find_last(struct jinja *jinja, struct text text, struct text what, size_t to)
{
    if (what.len_bytes > to)
        return SIZE_MAX;
    for (size_t at = to - what.len_bytes;; at--) {
        const uint8_t *hit = what.len_bytes == 0 ? text.data + at : memrchr(text.data, what.data[0], at + 1);

        if (hit == NULL || !jinja_charge(jinja, 1 + what.len_bytes / 64))
            return SIZE_MAX;
        at = (size_t)(hit - text.data);
        if (bytes_equal(text_bytes(text_part(text, at, at + what.len_bytes)), text_bytes(what)))
            return at;
        if (at == 0)
            return SIZE_MAX;
    }
}

static bool jinja_search_is_text(struct jinja *jinja, struct value value)
{
    if (value.kind != VALUE_TEXT)
        jinja_fail(jinja, E_FORMAT, "expected a string, not a %s", value_type(value));
    return jinja->rc == 0;
}

static int64_t jinja_search_limit_of(struct jinja *jinja, struct value value)
{
    int64_t limit = -1;

    if (value.kind != VALUE_ABSENT && value.kind != VALUE_NONE && !value_index(value, &limit))
        jinja_fail(jinja, E_FORMAT, "expected an integer, not a %s", value_type(value));
    return limit;
}

/* ---- finding ---- */

static bool matches_end(struct jinja *jinja, struct text text, struct value what, bool is_start)
{
    if (what.kind == VALUE_TUPLE) {
        for (size_t i = 0; i < what.list->n && jinja_charge(jinja, 1); i++) {
            if (matches_end(jinja, text, what.list->items[i], is_start))
                return true;
        }
        return false;
    }
    if (!jinja_search_is_text(jinja, what) || what.text->len_bytes > text.len_bytes)
        return false;
    size_t from = is_start ? 0 : text.len_bytes - what.text->len_bytes;
    return bytes_equal(text_bytes(text_part(text, from, from + what.text->len_bytes)),
                       text_bytes(*what.text));
}

static struct value method_startswith(struct jinja *jinja, struct value self, struct call *call)
{
    return value_bool(matches_end(jinja, *self.text, call->bound[0], true));
}

static struct value method_endswith(struct jinja *jinja, struct value self, struct call *call)
{
    return value_bool(matches_end(jinja, *self.text, call->bound[0], false));
}

static struct value method_removeprefix(struct jinja *jinja, struct value self, struct call *call)
{
    bool is_there = call->bound[0].kind == VALUE_TEXT && matches_end(jinja, *self.text, call->bound[0], true);

    return is_there ? value_text(jinja,
                                 text_part(*self.text, call->bound[0].text->len_bytes, self.text->len_bytes))
                    : self;
}

static struct value method_removesuffix(struct jinja *jinja, struct value self, struct call *call)
{
    bool is_there =
        call->bound[0].kind == VALUE_TEXT && matches_end(jinja, *self.text, call->bound[0], false);

    return is_there ? value_text(jinja, text_part(*self.text, 0,
                                                  self.text->len_bytes - call->bound[0].text->len_bytes))
                    : self;
}

/* One end of the search range, as a byte offset. */
static size_t range_end(struct jinja *jinja, struct text text, struct value value, size_t otherwise)
{
    int64_t index = 0;

    if (value.kind == VALUE_ABSENT || value.kind == VALUE_NONE)
        return otherwise;
    if (!value_index(value, &index))
        jinja_fail(jinja, E_FORMAT, "expected an integer, not a %s", value_type(value));
    if (index < 0)
        index += (int64_t)text_length(text);
    return text_offset(text, index < 0 ? 0 : (size_t)index);
}

/* Index in characters, or -1. */
static int64_t jinja_search_place(struct jinja *jinja, struct value self, struct call *call, bool is_last)
{
    struct text text = *self.text;

    if (!jinja_search_is_text(jinja, call->bound[0]) || !jinja_charge(jinja, 1 + text.len_bytes / 32))
        return -1;
    size_t from = range_end(jinja, text, call->bound[1], 0);
    size_t to = range_end(jinja, text, call->bound[2], text.len_bytes), at;
    if (is_last) {
        at = find_last(jinja, text_part(text, 0, to), *call->bound[0].text, to);
        at = at < from ? SIZE_MAX : at;
    } else {
        at = jinja_search_find(text_part(text, 0, to), *call->bound[0].text, from);
    }
    return at == SIZE_MAX ? -1 : (int64_t)text_length(text_part(text, 0, at));
}

static struct value method_find_first(struct jinja *jinja, struct value self, struct call *call)
{
    return value_int(jinja_search_place(jinja, self, call, false));
}

static struct value method_rfind(struct jinja *jinja, struct value self, struct call *call)
{
    return value_int(jinja_search_place(jinja, self, call, true));
}

static struct value jinja_search_found(struct jinja *jinja, int64_t index)
{
    if (index < 0)
        jinja_fail(jinja, E_FORMAT, "the string does not have it");
    return value_int(index);
}

static struct value method_index(struct jinja *jinja, struct value self, struct call *call)
{
    return jinja_search_found(jinja, jinja_search_place(jinja, self, call, false));
}

static struct value method_rindex(struct jinja *jinja, struct value self, struct call *call)
{
    return jinja_search_found(jinja, jinja_search_place(jinja, self, call, true));
}

static struct value method_count(struct jinja *jinja, struct value self, struct call *call)
{
    int64_t n = 0;

    if (!jinja_search_is_text(jinja, call->bound[0]) || !jinja_charge(jinja, 1 + self.text->len_bytes / 32))
        return value_int(0);
    struct text what = *call->bound[0].text;
    if (what.len_bytes == 0)
        return value_int((int64_t)text_length(*self.text) + 1);
    for (size_t at = 0; (at = jinja_search_find(*self.text, what, at)) != SIZE_MAX; at += what.len_bytes)
        n++;
    return value_int(n);
}

/* ---- splitting ---- */

static void push_part(struct jinja *jinja, struct value list, struct text text, size_t from, size_t to)
{
    list_push(jinja, list, value_text(jinja, text_part(text, from, to)));
}

static struct value split_blanks(struct jinja *jinja, struct text text, int64_t limit)
{
    struct value list = value_list(jinja, 0);
    size_t at = 0, len;

    while (jinja_charge(jinja, 1)) {
        while (at < text.len_bytes && char_is_space(text_code(text, at, &len)))
            at += len;
        if (at >= text.len_bytes)
            break;
        if (limit == 0) {
            push_part(jinja, list, text, at, text.len_bytes);
            break;
        }
        size_t from = at;
        while (at < text.len_bytes && !char_is_space(text_code(text, at, &len)))
            at += len;
        push_part(jinja, list, text, from, at);
        limit -= limit > 0;
    }
    return list;
}

static struct value jinja_search_reversed(struct jinja *jinja, struct value list)
{
    struct value out = value_list(jinja, jinja->rc == 0 ? list.list->n : 0);

    for (size_t i = jinja->rc == 0 ? list.list->n : 0; i-- > 0;)
        list_push(jinja, out, list.list->items[i]);
    return out;
}

static struct value rsplit_blanks(struct jinja *jinja, struct text text, int64_t limit)
{
    struct value list = value_list(jinja, 0);

    while (jinja_charge(jinja, 1)) {
        size_t len;

        text = text_strip(text, NULL, false, true);
        if (text.len_bytes == 0)
            break;
        if (limit == 0) {
            push_part(jinja, list, text, 0, text.len_bytes);
            break;
        }
        size_t from = text.len_bytes;
        while (from > 0 && !char_is_space(text_code(text, text_before(text, from), &len)))
            from = text_before(text, from);
        push_part(jinja, list, text, from, text.len_bytes);
        text = text_part(text, 0, from);
        limit -= limit > 0;
    }
    return jinja_search_reversed(jinja, list);
}

static bool is_separator(struct jinja *jinja, struct value value)
{
    if (jinja_search_is_text(jinja, value) && value.text->len_bytes == 0)
        jinja_fail(jinja, E_FORMAT, "an empty separator");
    return jinja->rc == 0;
}

static struct value method_split(struct jinja *jinja, struct value self, struct call *call)
{
    struct text text = *self.text;
    int64_t limit = jinja_search_limit_of(jinja, call->bound[1]);
    size_t from = 0, at;

    jinja_charge(jinja, text.len_bytes / 32);
    if (call->bound[0].kind == VALUE_ABSENT || call->bound[0].kind == VALUE_NONE)
        return split_blanks(jinja, text, limit);
    if (!is_separator(jinja, call->bound[0]))
        return value_undefined(NULL);
    struct value list = value_list(jinja, 0);
    for (; limit != 0 && jinja->rc == 0 &&
           (at = jinja_search_find(text, *call->bound[0].text, from)) != SIZE_MAX;
         limit -= limit > 0) {
        push_part(jinja, list, text, from, at);
        from = at + call->bound[0].text->len_bytes;
    }
    push_part(jinja, list, text, from, text.len_bytes);
    return list;
}

static struct value method_rsplit(struct jinja *jinja, struct value self, struct call *call)
{
    struct text text = *self.text;
    int64_t limit = jinja_search_limit_of(jinja, call->bound[1]);
    size_t to = text.len_bytes, at;

    if (limit < 0)
        return method_split(jinja, self, call);
    if (call->bound[0].kind == VALUE_ABSENT || call->bound[0].kind == VALUE_NONE)
        return rsplit_blanks(jinja, text, limit);
    if (!is_separator(jinja, call->bound[0]))
        return value_undefined(NULL);
    struct value list = value_list(jinja, 0);
    for (; limit > 0 && jinja_charge(jinja, 1 + to / 32); limit--) {
        at = find_last(jinja, text_part(text, 0, to), *call->bound[0].text, to);
        if (at == SIZE_MAX)
            break;
        push_part(jinja, list, text, at + call->bound[0].text->len_bytes, to);
        to = at;
    }
    push_part(jinja, list, text, 0, to);
    return jinja_search_reversed(jinja, list);
}

static bool ends_line(uint32_t code)
{
    return (code >= '\n' && code <= '\r') || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

static struct value method_splitlines(struct jinja *jinja, struct value self, struct call *call)
{
    struct value list = value_list(jinja, 0);
    struct text text = *self.text;
    size_t from = 0, len;

    for (size_t at = 0; at < text.len_bytes && jinja->rc == 0; at += len) {
        uint32_t code = text_code(text, at, &len);

        if (!ends_line(code))
            continue;
        if (code == '\r' && at + 1 < text.len_bytes && text.data[at + 1] == '\n')
            len = 2;
        push_part(jinja, list, text, from, value_is_true(call->bound[0]) ? at + len : at);
        from = at + len;
    }
    if (from < text.len_bytes)
        push_part(jinja, list, text, from, text.len_bytes);
    return list;
}

static struct value cut_in_three(struct jinja *jinja, struct value self, struct call *call, bool is_last)
{
    struct value three = value_tuple(jinja, 3);
    struct text text = *self.text;

    if (!is_separator(jinja, call->bound[0]) || !jinja_charge(jinja, text.len_bytes / 32))
        return three;
    struct text what = *call->bound[0].text;
    size_t at = is_last ? find_last(jinja, text, what, text.len_bytes) : jinja_search_find(text, what, 0);
    size_t end = at == SIZE_MAX ? 0 : at + what.len_bytes;
    if (at == SIZE_MAX)
        at = end = is_last ? 0 : text.len_bytes;
    push_part(jinja, three, text, 0, at);
    push_part(jinja, three, text, at, end);
    push_part(jinja, three, text, end, text.len_bytes);
    return three;
}

static struct value method_partition(struct jinja *jinja, struct value self, struct call *call)
{
    return cut_in_three(jinja, self, call, false);
}

static struct value method_rpartition(struct jinja *jinja, struct value self, struct call *call)
{
    return cut_in_three(jinja, self, call, true);
}

/* ---- replacing and joining ---- */

static struct value insert_everywhere(struct jinja *jinja, struct text text, struct text what, int64_t limit)
{
    struct build build = build_begin(jinja);
    size_t at = 0, len;

    for (; limit != 0 && jinja_charge(jinja, 1); limit -= limit > 0) {
        build_text(&build, what);
        if (at >= text.len_bytes)
            break;
        text_code(text, at, &len);
        build_text(&build, text_part(text, at, at + len));
        at += len;
    }
    if (at < text.len_bytes)
        build_text(&build, text_part(text, at, text.len_bytes));
    return build_end(&build);
}

static struct value method_replace(struct jinja *jinja, struct value self, struct call *call)
{
    struct build build = build_begin(jinja);
    int64_t limit = jinja_search_limit_of(jinja, call->bound[2]);
    size_t from = 0, at;

    if (!jinja_search_is_text(jinja, call->bound[0]) || !jinja_search_is_text(jinja, call->bound[1]))
        return value_undefined(NULL);
    struct text text = *self.text, old = *call->bound[0].text, new = *call->bound[1].text;
    uint32_t added = text_marks(new);

    if (old.len_bytes == 0)
        return insert_everywhere(jinja, text, new, limit);
    jinja_charge(jinja, text.len_bytes / 32);
    for (; limit != 0 && (at = jinja_search_find(text, old, from)) != SIZE_MAX && jinja_charge(jinja, 1);
         limit -= limit > 0) {
        uint32_t taken = text_marks(text_part(text, at, at + old.len_bytes));

        build_text(&build, text_part(text, from, at));
        if (mark_join(added, taken) == added)
            build_text(&build, new);
        else
            build_raw(&build, new.data, new.len_bytes, mark_join(taken, added));
        from = at + old.len_bytes;
    }
    build_text(&build, text_part(text, from, text.len_bytes));
    return build_end(&build);
}

static struct value method_join(struct jinja *jinja, struct value self, struct call *call)
{
    struct value all = value_elements(jinja, call->bound[0]);
    struct build build = build_begin(jinja);

    for (size_t i = 0; jinja->rc == 0 && i < all.list->n; i++) {
        if (i > 0)
            build_text(&build, *self.text);
        if (jinja_search_is_text(jinja, all.list->items[i]))
            build_text(&build, *all.list->items[i].text);
    }
    return build_end(&build);
}

const struct callable search_methods[] = {
    {"startswith", "prefix", method_startswith, 1, false},
    {"endswith", "suffix", method_endswith, 1, false},
    {"removeprefix", "prefix", method_removeprefix, 1, false},
    {"removesuffix", "suffix", method_removesuffix, 1, false},
    {"find", "sub start end", method_find_first, 1, false},
    {"rfind", "sub start end", method_rfind, 1, false},
    {"index", "sub start end", method_index, 1, false},
    {"rindex", "sub start end", method_rindex, 1, false},
    {"count", "sub", method_count, 1, false},
    {"split", "sep maxsplit", method_split, 0, false},
    {"rsplit", "sep maxsplit", method_rsplit, 0, false},
    {"splitlines", "keepends", method_splitlines, 0, false},
    {"partition", "sep", method_partition, 1, false},
    {"rpartition", "sep", method_rpartition, 1, false},
    {"replace", "old new count", method_replace, 2, false},
    {"join", "iterable", method_join, 1, false},
    {NULL, NULL, NULL, 0, false},
};
