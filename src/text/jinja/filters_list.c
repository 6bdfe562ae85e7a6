/* SPDX-License-Identifier: Apache-2.0 */
/* Filters on lists, dicts and numbers. */
#include "text/jinja/jinja_priv.h"

#include "base/err.h"
#include "base/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- elements ---- */

static struct value filter_length(struct jinja *jinja, struct value self, struct call *call)
{
    (void)call;
    return value_int((int64_t)value_len(jinja, self));
}

static struct value filter_list(struct jinja *jinja, struct value self, struct call *call)
{
    struct value all = value_elements(jinja, self), list = value_list(jinja, 0);

    (void)call;
    for (size_t i = 0; jinja->rc == 0 && i < all.list->n; i++)
        list_push(jinja, list, all.list->items[i]);
    return list;
}

static struct value filter_first(struct jinja *jinja, struct value self, struct call *call)
{
    struct value all = value_elements(jinja, self);

    (void)call;
    return jinja->rc == 0 && all.list->n > 0 ? all.list->items[0] : value_undefined("first");
}

static struct value filter_last(struct jinja *jinja, struct value self, struct call *call)
{
    struct value all = value_elements(jinja, self);

    (void)call;
    return jinja->rc == 0 && all.list->n > 0 ? all.list->items[all.list->n - 1] : value_undefined("last");
}

static struct value filter_reverse(struct jinja *jinja, struct value self, struct call *call)
{
    struct value all = value_elements(jinja, self), list = value_list(jinja, 0);
    struct build build = build_begin(jinja);

    (void)call;
    for (size_t i = jinja->rc == 0 ? all.list->n : 0; i-- > 0 && jinja->rc == 0;) {
        if (self.kind == VALUE_TEXT)
            build_text(&build, *all.list->items[i].text);
        else
            list_push(jinja, list, all.list->items[i]);
    }
    return self.kind == VALUE_TEXT ? build_end(&build) : list;
}

/* d attribute */
static struct value filter_join(struct jinja *jinja, struct value self, struct call *call)
{
    struct value all = value_elements(jinja, self);
    struct build build = build_begin(jinja);

    for (size_t i = 0; jinja->rc == 0 && i < all.list->n; i++) {
        struct value one = all.list->items[i];

        if (i > 0)
            print_str(&build, call->bound[0]);
        if (call->bound[1].kind != VALUE_ABSENT && call->bound[1].kind != VALUE_NONE)
            one = value_path(jinja, one, call->bound[1]);
        print_str(&build, one);
    }
    return build_end(&build);
}

static struct value filter_items(struct jinja *jinja, struct value self, struct call *call)
{
    if (self.kind == VALUE_UNDEFINED)
        return value_list(jinja, 0);
    if (self.kind != VALUE_DICT) {
        jinja_fail(jinja, E_FORMAT, "items of a %s; only a dict has them", value_type(self));
        return value_undefined(NULL);
    }
    return method_find(jinja, self, bytes_str("items"))->fn(jinja, self, call);
}

/* linecount fill_with */
static struct value filter_batch(struct jinja *jinja, struct value self, struct call *call)
{
    struct value all = value_elements(jinja, self), rows = value_list(jinja, 0), row = rows;
    int64_t n = 0;

    if (!value_index(call->bound[0], &n) || n <= 0)
        jinja_fail(jinja, E_RANGE, "batch wants a positive number");
    for (size_t i = 0; jinja->rc == 0 && i < all.list->n; i++) {
        if (i % (size_t)n == 0) {
            row = value_list(jinja, 0);
            list_push(jinja, rows, row);
        }
        list_push(jinja, row, all.list->items[i]);
    }
    if (jinja->rc == 0 && all.list->n > 0 && call->bound[1].kind != VALUE_ABSENT &&
        call->bound[1].kind != VALUE_NONE) {
        while (jinja->rc == 0 && row.list->n < (size_t)n)
            list_push(jinja, row, call->bound[1]);
    }
    return rows;
}

/* slices fill_with */
static struct value filter_slice(struct jinja *jinja, struct value self, struct call *call)
{
    struct value all = value_elements(jinja, self), columns = value_list(jinja, 0);
    int64_t n = 0;
    size_t at = 0;

    if (!value_index(call->bound[0], &n) || n <= 0)
        jinja_fail(jinja, E_RANGE, "slice wants a positive number");
    for (int64_t i = 0; jinja->rc == 0 && i < n; i++) {
        size_t each = all.list->n / (size_t)n, extra = all.list->n % (size_t)n;
        struct value column = value_list(jinja, 0);

        for (size_t k = each + ((size_t)i < extra); k > 0 && jinja->rc == 0; k--)
            list_push(jinja, column, all.list->items[at++]);
        if (call->bound[1].kind != VALUE_ABSENT && call->bound[1].kind != VALUE_NONE && extra > 0 &&
            (size_t)i >= extra)
            list_push(jinja, column, call->bound[1]);
        list_push(jinja, columns, column);
    }
    return columns;
}

/* ---- order ---- */

struct sorting {
    struct jinja *jinja;
    struct value *items, *keys, *item_room, *key_room;
    bool is_reverse;
};

/* Merge sort: stable, and fast for any initial order. */
static void sort_range(const struct sorting *sorting, size_t from, size_t to)
{
    size_t middle = from + (to - from) / 2, left = from, right = middle;

    if (to - from < 2 || sorting->jinja->rc != 0)
        return;
    sort_range(sorting, from, middle);
    sort_range(sorting, middle, to);
    for (size_t at = from; at < to && jinja_charge(sorting->jinja, 1); at++) {
        bool takes_right = left == middle;

        if (left < middle && right < to) {
            int order = value_compare(sorting->jinja, sorting->keys[left], sorting->keys[right]);
            takes_right = sorting->is_reverse ? order < 0 : order > 0;
        }
        size_t which = takes_right ? right++ : left++;
        sorting->item_room[at] = sorting->items[which];
        sorting->key_room[at] = sorting->keys[which];
    }
    if (sorting->jinja->rc != 0)
        return;
    memcpy(sorting->items + from, sorting->item_room + from, (to - from) * sizeof(struct value));
    memcpy(sorting->keys + from, sorting->key_room + from, (to - from) * sizeof(struct value));
}

void list_sort(struct jinja *jinja, struct value list, const struct value *keys, bool is_reverse)
{
    size_t n = list.list->n;
    struct value *room = jinja_take(jinja, (3 * n + 1) * sizeof(*room));

    if (room == NULL || n == 0)
        return;
    memcpy(room, keys, n * sizeof(*room));
    struct sorting sorting = {.jinja = jinja,
                              .items = list.list->items,
                              .keys = room,
                              .item_room = room + n,
                              .key_room = room + 2 * n,
                              .is_reverse = is_reverse};
    sort_range(&sorting, 0, n);
}

/* How the key of an element is found. */
struct list_key {
    struct value path;      /* ABSENT, NONE: the element itself */
    struct value otherwise; /* for an undefined attribute; ABSENT, NONE: it stays undefined */
    bool keeps_case;
};

static struct value filters_list_attribute(struct jinja *jinja, struct value value, const struct list_key *by)
{
    struct value found = value_path(jinja, value, by->path);
    bool is_missing = found.kind == VALUE_UNDEFINED && by->otherwise.kind != VALUE_ABSENT &&
                      by->otherwise.kind != VALUE_NONE;

    return is_missing ? by->otherwise : found;
}

/* The sort key of an element: an attribute of it (or several, with commas), in lower case unless case
 * matters. */
static struct value filters_list_key_of(struct jinja *jinja, struct value value, const struct list_key *by)
{
    struct value path = by->path;
    struct text text = text_in(path);
    size_t comma = bytes_find(text_bytes(text), bytes_str(","), 0), from = 0;

    if (path.kind != VALUE_ABSENT && path.kind != VALUE_NONE && comma == SIZE_MAX)
        value = filters_list_attribute(jinja, value, by);
    if (comma != SIZE_MAX) {
        struct value keys = value_tuple(jinja, 2);

        for (; jinja->rc == 0; from = comma + 1) {
            comma = bytes_find(text_bytes(text), bytes_str(","), from);
            struct list_key part = *by;

            part.path = value_text(jinja, text_part(text, from, comma == SIZE_MAX ? text.len_bytes : comma));
            list_push(jinja, keys, filters_list_key_of(jinja, value, &part));
            if (comma == SIZE_MAX)
                break;
        }
        return keys;
    }
    if (value.kind == VALUE_TEXT && !by->keeps_case) {
        struct call none = {0};
        value = callable_find(text_methods, bytes_str("lower"))->fn(jinja, value, &none);
    }
    return value;
}

static struct value filters_list_sorted(struct jinja *jinja, struct value list, const struct list_key *by,
                                        bool is_reverse)
{
    struct value *keys = jinja->rc == 0 ? jinja_take(jinja, (list.list->n + 1) * sizeof(*keys)) : NULL;

    if (keys == NULL)
        return list;
    for (size_t i = 0; i < list.list->n && jinja_charge(jinja, 1); i++)
        keys[i] = filters_list_key_of(jinja, list.list->items[i], by);
    if (jinja->rc == 0)
        list_sort(jinja, list, keys, is_reverse);
    return list;
}

/* reverse case_sensitive attribute */
static struct value filter_sort(struct jinja *jinja, struct value self, struct call *call)
{
    struct list_key by = {.path = call->bound[2], .keeps_case = value_is_true(call->bound[1])};

    return filters_list_sorted(jinja, filter_list(jinja, self, call), &by, value_is_true(call->bound[0]));
}

/* case_sensitive by reverse */
static struct value filter_dictsort(struct jinja *jinja, struct value self, struct call *call)
{
    bool by_value = call->bound[1].kind == VALUE_TEXT && text_is(*call->bound[1].text, "value");
    struct list_key by = {.path = value_int(by_value), .keeps_case = value_is_true(call->bound[0])};

    return filters_list_sorted(jinja, filter_items(jinja, self, call), &by, value_is_true(call->bound[2]));
}

/* case_sensitive attribute */
static struct value filter_unique(struct jinja *jinja, struct value self, struct call *call)
{
    struct value all = value_elements(jinja, self), list = value_list(jinja, 0), seen = value_dict(jinja);
    struct list_key by = {.path = call->bound[1], .keeps_case = value_is_true(call->bound[0])};

    for (size_t i = 0; jinja->rc == 0 && i < all.list->n; i++) {
        struct value key = filters_list_key_of(jinja, all.list->items[i], &by);

        if (dict_get(jinja, seen, key) != NULL)
            continue;
        dict_set(jinja, seen, key, value_none());
        list_push(jinja, list, all.list->items[i]);
    }
    return list;
}

/* case_sensitive attribute */
static struct value filters_list_extreme(struct jinja *jinja, struct value self, struct call *call,
                                         int wanted)
{
    struct value all = value_elements(jinja, self), best = value_undefined("it"), best_key = best;
    struct list_key by = {.path = call->bound[1], .keeps_case = value_is_true(call->bound[0])};

    for (size_t i = 0; jinja->rc == 0 && i < all.list->n; i++) {
        struct value key = filters_list_key_of(jinja, all.list->items[i], &by);

        if (i > 0 && value_compare(jinja, key, best_key) != wanted)
            continue;
        best = all.list->items[i];
        best_key = key;
    }
    return best;
}

static struct value filter_min(struct jinja *jinja, struct value self, struct call *call)
{
    return filters_list_extreme(jinja, self, call, -1);
}

static struct value filter_max(struct jinja *jinja, struct value self, struct call *call)
{
    return filters_list_extreme(jinja, self, call, 1);
}

/* attribute start */
static struct value filter_sum(struct jinja *jinja, struct value self, struct call *call)
{
    struct value all = value_elements(jinja, self);
    struct value sum = call->bound[1].kind == VALUE_ABSENT ? value_int(0) : call->bound[1];

    for (size_t i = 0; jinja->rc == 0 && i < all.list->n; i++) {
        struct value one = all.list->items[i];

        if (call->bound[0].kind != VALUE_ABSENT && call->bound[0].kind != VALUE_NONE)
            one = value_path(jinja, one, call->bound[0]);
        sum = op_binary(jinja, OP_ADD, sum, one);
    }
    return sum;
}

/* attribute: gives a list of (value, the elements that have it), ordered by value; default: of elements without it */
static struct value filter_groupby(struct jinja *jinja, struct value self, struct call *call)
{
    struct list_key by = {
        .path = call->bound[0], .otherwise = call->bound[1], .keeps_case = value_is_true(call->bound[2])};
    struct value all = filters_list_sorted(jinja, filter_list(jinja, self, call), &by, false);
    struct value groups = value_list(jinja, 0), group = groups, before = value_none();

    for (size_t i = 0; jinja->rc == 0 && i < all.list->n; i++) {
        struct value key = filters_list_key_of(jinja, all.list->items[i], &by);

        if (i == 0 || !value_equal(jinja, key, before)) {
            struct value both = value_tuple(jinja, 2);

            group = value_list(jinja, 0);
            if (jinja->rc == 0)
                both.list->is_group = true;
            list_push(jinja, both, filters_list_attribute(jinja, all.list->items[i], &by));
            list_push(jinja, both, group);
            list_push(jinja, groups, both);
        }
        list_push(jinja, group, all.list->items[i]);
        before = key;
    }
    return groups;
}

/* ---- numbers and defaults ---- */

static struct value filter_default(struct jinja *jinja, struct value self, struct call *call)
{
    bool is_missing = self.kind == VALUE_UNDEFINED || (value_is_true(call->bound[1]) && !value_is_true(self));

    if (!is_missing)
        return self;
    return call->bound[0].kind == VALUE_ABSENT ? value_str(jinja, "") : call->bound[0];
}

static struct value filter_abs(struct jinja *jinja, struct value self, struct call *call)
{
    (void)call;
    bool is_negative = value_is_number(self) && value_real(self) < 0;

    return op_unary(jinja, is_negative ? OP_NEGATE : OP_PLUS, self);
}

static bool is_undefined(struct jinja *jinja, struct value value)
{
    if (value.kind == VALUE_UNDEFINED)
        jinja_fail(jinja, E_FORMAT, "'%.100s' is undefined", value.hint == NULL ? "it" : value.hint);
    return value.kind == VALUE_UNDEFINED;
}

static struct value filter_int(struct jinja *jinja, struct value self, struct call *call)
{
    struct value otherwise = call->bound[0].kind == VALUE_ABSENT ? value_int(0) : call->bound[0];
    int64_t base = 10, integer;
    double real = 0;

    if (is_undefined(jinja, self))
        return self;
    if (value_index(self, &integer))
        return value_int(integer);
    if (self.kind == VALUE_TEXT) {
        struct text text = text_strip(*self.text, NULL, true, true);
        char digits[72] = {0}, *end;

        if (text.len_bytes > 1 && text.data[0] == '+')
            text = text_part(text, 1, text.len_bytes);
        if (text.len_bytes == 0 || text.len_bytes >= sizeof(digits))
            return otherwise;
        memcpy(digits, text.data, text.len_bytes);
        if (value_index(call->bound[1], &base) && base != 10 && base >= 2 && base <= 36) {
            bool has_prefix = digits[0] == '0' && (digits[1] | 0x20) == (base == 2   ? 'b'
                                                                         : base == 8 ? 'o'
                                                                                     : 'x');

            integer = strtoll(has_prefix ? digits + 2 : digits, &end, (int)base);
            if (*end == '\0')
                return value_int(integer);
        }
        if (str_to_i64(text_bytes(text), &integer) == 0)
            return value_int(integer);
        if (str_to_f64(text_bytes(text), &real) != 0)
            return otherwise;
    } else if (self.kind == VALUE_FLOAT) {
        real = self.real;
    } else {
        return otherwise;
    }
    return fabs(real) < 9.2e18 ? value_int((int64_t)real) : otherwise;
}

static struct value filter_float(struct jinja *jinja, struct value self, struct call *call)
{
    double real;

    if (is_undefined(jinja, self))
        return self;
    if (value_is_number(self))
        return value_float(value_real(self));
    if (self.kind == VALUE_TEXT &&
        str_to_f64(text_bytes(text_strip(*self.text, NULL, true, true)), &real) == 0)
        return value_float(real);
    return call->bound[0].kind == VALUE_ABSENT ? value_float(0) : call->bound[0];
}

/* precision method */
static struct value filter_round(struct jinja *jinja, struct value self, struct call *call)
{
    struct text method = call->bound[1].kind == VALUE_TEXT ? *call->bound[1].text : text_str("common");
    int64_t precision = 0;
    char text[400];

    value_index(call->bound[0], &precision);
    if (!value_is_number(self) || precision > 30 || precision < -30) {
        jinja_fail(jinja, E_FORMAT, "round of a %s", value_type(self));
        return value_undefined(NULL);
    }
    double real = value_real(self), scale = pow(10, (double)precision);
    if (text_is(method, "ceil"))
        return value_float(ceil(real * scale) / scale);
    if (text_is(method, "floor"))
        return value_float(floor(real * scale) / scale);
    if (self.kind != VALUE_FLOAT && precision >= 0)
        return self;
    if (precision < 0 || !isfinite(real))
        return value_float(rint(real * scale) / scale);
    snprintf(text, sizeof(text), "%.*f", (int)precision, real); /* rounds as Python does */
    return value_float(strtod(text, NULL));
}

const struct callable list_filters[] = {
    {"length", "", filter_length, 0, false},
    {"count", "", filter_length, 0, false},
    {"list", "", filter_list, 0, false},
    {"first", "", filter_first, 0, false},
    {"last", "", filter_last, 0, false},
    {"reverse", "", filter_reverse, 0, false},
    {"join", "d attribute", filter_join, 0, false},
    {"items", "", filter_items, 0, false},
    {"batch", "linecount fill_with", filter_batch, 1, false},
    {"slice", "slices fill_with", filter_slice, 1, false},
    {"sort", "reverse case_sensitive attribute", filter_sort, 0, false},
    {"dictsort", "case_sensitive by reverse", filter_dictsort, 0, false},
    {"unique", "case_sensitive attribute", filter_unique, 0, false},
    {"min", "case_sensitive attribute", filter_min, 0, false},
    {"max", "case_sensitive attribute", filter_max, 0, false},
    {"sum", "attribute start", filter_sum, 0, false},
    {"groupby", "attribute default case_sensitive", filter_groupby, 1, false},
    {"default", "default_value boolean", filter_default, 0, false},
    {"d", "default_value boolean", filter_default, 0, false},
    {"abs", "", filter_abs, 0, false},
    {"int", "default base", filter_int, 0, false},
    {"float", "default", filter_float, 0, false},
    {"round", "precision method", filter_round, 0, false},
    {NULL, NULL, NULL, 0, false},
};
