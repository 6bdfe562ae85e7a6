/* SPDX-License-Identifier: Apache-2.0 */
/* Operators: Python's arithmetic on 64-bit integers and doubles, concatenation, comparison.
 *
 * true and false count as 1 and 0. An integer result beyond 64 bits is a failure, never a wrong number.
 * Division by zero is a failure too. "//" and "%" round towards minus infinity. */
#include "text/jinja/jinja_priv.h"

#include "base/err.h"

#include <math.h>
#include <string.h>

bool value_is_number(struct value value)
{
    return value.kind == VALUE_INT || value.kind == VALUE_FLOAT || value.kind == VALUE_BOOL;
}

bool value_index(struct value value, int64_t *out)
{
    if (value.kind == VALUE_BOOL)
        *out = value.is_true;
    else if (value.kind == VALUE_INT)
        *out = value.integer;
    else
        return false;
    return true;
}

double value_real(struct value value)
{
    int64_t integer = 0;

    if (value.kind == VALUE_FLOAT)
        return value.real;
    value_index(value, &integer);
    return (double)integer;
}

static struct value op_overflow(struct jinja *jinja)
{
    jinja_fail(jinja, E_RANGE, "an integer result does not fit into 64 bits");
    return value_undefined(NULL);
}

/* ---- numbers ---- */

static struct value power_of(struct jinja *jinja, int64_t base, int64_t exponent)
{
    int64_t result = 1;

    if (exponent < 0) {
        if (base == 0) {
            jinja_fail(jinja, E_RANGE, "division by zero");
            return value_undefined(NULL);
        }
        return value_float(pow((double)base, (double)exponent));
    }
    for (; exponent > 0; exponent >>= 1) {
        if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result))
            return op_overflow(jinja);
        if (exponent > 1 && __builtin_mul_overflow(base, base, &base))
            return op_overflow(jinja);
    }
    return value_int(result);
}

static struct value divide_integers(struct jinja *jinja, enum op op, int64_t a, int64_t b)
{
    if (b == 0) {
        jinja_fail(jinja, E_RANGE, "division by zero");
        return value_undefined(NULL);
    }
    if (op == OP_DIV)
        return value_float((double)a / (double)b);
    if (b == -1) {
        if (op == OP_MOD)
            return value_int(0);
        return a == INT64_MIN ? op_overflow(jinja) : value_int(-a);
    }
    int64_t rest = a % b;
    bool is_rounded = rest != 0 && (rest < 0) != (b < 0);
    return value_int(op == OP_MOD ? rest + (is_rounded ? b : 0) : a / b - is_rounded);
}

static struct value on_integers(struct jinja *jinja, enum op op, int64_t a, int64_t b)
{
    int64_t result = 0;
    bool is_over = false;

    if (op == OP_ADD)
        is_over = __builtin_add_overflow(a, b, &result);
    else if (op == OP_SUB)
        is_over = __builtin_sub_overflow(a, b, &result);
    else if (op == OP_MUL)
        is_over = __builtin_mul_overflow(a, b, &result);
    else if (op == OP_POW)
        return power_of(jinja, a, b);
    else
        return divide_integers(jinja, op, a, b);
    return is_over ? op_overflow(jinja) : value_int(result);
}

static struct value on_reals(struct jinja *jinja, enum op op, double a, double b)
{
    double result = 0;

    if ((op == OP_DIV || op == OP_FLOOR || op == OP_MOD) && b == 0) {
        jinja_fail(jinja, E_RANGE, "division by zero");
        return value_undefined(NULL);
    }
    if (op == OP_ADD) {
        result = a + b;
    } else if (op == OP_SUB) {
        result = a - b;
    } else if (op == OP_MUL) {
        result = a * b;
    } else if (op == OP_DIV) {
        result = a / b;
    } else if (op == OP_POW) {
        result = pow(a, b);
        if (!isfinite(result) && isfinite(a) && isfinite(b))
            jinja_fail(jinja, E_RANGE, "the power has no finite real value");
    } else {
        double rest = fmod(a, b);

        if (rest != 0 && (rest < 0) != (b < 0))
            rest += b;
        result = op == OP_MOD ? (rest == 0 ? copysign(0, b) : rest) : floor((a - rest) / b + 0.5);
    }
    return value_float(result);
}

/* ---- texts and lists ---- */

static struct value op_repeated(struct jinja *jinja, struct value value, int64_t times)
{
    if (value.kind == VALUE_TEXT) {
        struct build build = build_begin(jinja);

        for (; times > 0 && value.text->len_bytes > 0 && jinja_charge(jinja, 1); times--)
            build_text(&build, *value.text);
        return build_end(&build);
    }
    struct value list = value.kind == VALUE_LIST ? value_list(jinja, 0) : value_tuple(jinja, 0);
    for (; times > 0 && value.list->n > 0 && jinja_charge(jinja, 1); times--) {
        for (size_t i = 0; i < value.list->n && jinja->rc == 0; i++)
            list_push(jinja, list, value.list->items[i]);
    }
    return list;
}

static struct value joined_lists(struct jinja *jinja, struct value a, struct value b)
{
    size_t n = a.list->n + b.list->n;
    struct value list = a.kind == VALUE_LIST ? value_list(jinja, n) : value_tuple(jinja, n);

    for (size_t i = 0; i < a.list->n && jinja->rc == 0; i++)
        list_push(jinja, list, a.list->items[i]);
    for (size_t i = 0; i < b.list->n && jinja->rc == 0; i++)
        list_push(jinja, list, b.list->items[i]);
    return list;
}

static struct value op_refuse(struct jinja *jinja, enum op op, struct value a, struct value b)
{
    static const char *const signs[] = {[OP_ADD] = "+",    [OP_SUB] = "-", [OP_MUL] = "*", [OP_DIV] = "/",
                                        [OP_FLOOR] = "//", [OP_MOD] = "%", [OP_POW] = "**"};
    struct value bad = a.kind == VALUE_UNDEFINED ? a : b;

    if (bad.kind == VALUE_UNDEFINED)
        jinja_fail(jinja, E_FORMAT, "'%.100s' is undefined", bad.hint == NULL ? "it" : bad.hint);
    else
        jinja_fail(jinja, E_FORMAT, "'%s' of a %s and a %s", op <= OP_POW ? signs[op] : "?", value_type(a),
                   value_type(b));
    return value_undefined(NULL);
}

struct value op_binary(struct jinja *jinja, enum op op, struct value a, struct value b)
{
    int64_t x, y;

    if (!jinja_charge(jinja, 1))
        return value_undefined(NULL);
    if (value_index(a, &x) && value_index(b, &y))
        return on_integers(jinja, op, x, y);
    if (value_is_number(a) && value_is_number(b))
        return on_reals(jinja, op, value_real(a), value_real(b));
    if (op == OP_ADD && a.kind == VALUE_TEXT && b.kind == VALUE_TEXT)
        return text_add(jinja, a, b);
    if (op == OP_ADD && value_is_sequence(a) && a.kind == b.kind)
        return joined_lists(jinja, a, b);
    if (op == OP_MUL && (a.kind == VALUE_TEXT || value_is_sequence(a)) && value_index(b, &y))
        return op_repeated(jinja, a, y);
    if (op == OP_MUL && (b.kind == VALUE_TEXT || value_is_sequence(b)) && value_index(a, &x))
        return op_repeated(jinja, b, x);
    if (op == OP_MOD && a.kind == VALUE_TEXT && b.kind != VALUE_UNDEFINED)
        return text_format(jinja, *a.text, b);
    return op_refuse(jinja, op, a, b);
}

struct value op_unary(struct jinja *jinja, enum op op, struct value a)
{
    int64_t x;

    if (op == OP_NOT)
        return value_bool(!value_is_true(a));
    if (a.kind == VALUE_FLOAT)
        return value_float(op == OP_NEGATE ? -a.real : a.real);
    if (!value_index(a, &x)) {
        if (a.kind == VALUE_UNDEFINED)
            return op_refuse(jinja, OP_SUB, a, a);
        jinja_fail(jinja, E_FORMAT, "the sign of a %s", value_type(a));
        return value_undefined(NULL);
    }
    if (op == OP_NEGATE && x == INT64_MIN)
        return op_overflow(jinja);
    return value_int(op == OP_NEGATE ? -x : x);
}

/* ---- comparing ---- */

static int compare_numbers(struct value a, struct value b)
{
    int64_t x, y;

    if (value_index(a, &x) && value_index(b, &y))
        return (x > y) - (x < y);
    /* Holds either kind without rounding. */
    long double left = a.kind == VALUE_FLOAT ? (long double)a.real : value_index(a, &x) ? (long double)x : 0;
    long double right = b.kind == VALUE_FLOAT ? (long double)b.real : value_index(b, &y) ? (long double)y : 0;
    return (left > right) - (left < right);
}

static bool is_nan(struct value value)
{
    return value.kind == VALUE_FLOAT && isnan(value.real);
}

static bool equal_lists(struct jinja *jinja, const struct value_list *a, const struct value_list *b)
{
    bool is_equal = a->n == b->n;

    for (size_t i = 0; is_equal && i < a->n; i++)
        is_equal = value_equal(jinja, a->items[i], b->items[i]);
    return is_equal;
}

static bool equal_dicts(struct jinja *jinja, struct value a, struct value b)
{
    bool is_equal = a.dict->n == b.dict->n;

    for (size_t i = 0; is_equal && i < a.dict->n; i++) {
        const struct value *other = dict_get(jinja, b, a.dict->entries[i].key);
        is_equal = other != NULL && value_equal(jinja, a.dict->entries[i].value, *other);
    }
    return is_equal;
}

bool value_equal(struct jinja *jinja, struct value a, struct value b)
{
    bool is_equal;

    if (value_is_number(a) && value_is_number(b))
        return !is_nan(a) && !is_nan(b) && compare_numbers(a, b) == 0;
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return true;
    case VALUE_BIG:
    case VALUE_TEXT:
        return jinja_charge(jinja, a.text->len_bytes / 64) &&
               bytes_equal(text_bytes(*a.text), text_bytes(*b.text));
    case VALUE_LIST:
    case VALUE_TUPLE:
        if (a.list == b.list || !jinja_enter(jinja))
            return a.list == b.list;
        is_equal = equal_lists(jinja, a.list, b.list);
        jinja_leave(jinja);
        return is_equal;
    case VALUE_DICT:
        if (a.dict == b.dict || !jinja_enter(jinja))
            return a.dict == b.dict;
        is_equal = equal_dicts(jinja, a, b);
        jinja_leave(jinja);
        return is_equal;
    default:
        return a.list == b.list; /* the same object */
    }
}

static int compare_lists(struct jinja *jinja, const struct value_list *a, const struct value_list *b)
{
    for (size_t i = 0; i < a->n && i < b->n && jinja->rc == 0; i++) {
        if (!value_equal(jinja, a->items[i], b->items[i]))
            return value_compare(jinja, a->items[i], b->items[i]);
    }
    return (a->n > b->n) - (a->n < b->n);
}

int value_compare(struct jinja *jinja, struct value a, struct value b)
{
    int order = 0;

    if (value_is_number(a) && value_is_number(b))
        return compare_numbers(a, b);
    if (a.kind == VALUE_TEXT && b.kind == VALUE_TEXT) { /* UTF-8 sorts as its code points do */
        size_t len = a.text->len_bytes < b.text->len_bytes ? a.text->len_bytes : b.text->len_bytes;

        if (!jinja_charge(jinja, len / 64))
            return 0;
        order = len == 0 ? 0 : memcmp(a.text->data, b.text->data, len);
        return order != 0 ? (order > 0) - (order < 0)
                          : (a.text->len_bytes > b.text->len_bytes) - (a.text->len_bytes < b.text->len_bytes);
    }
    if (value_is_sequence(a) && a.kind == b.kind) {
        if (!jinja_enter(jinja))
            return 0;
        order = compare_lists(jinja, a.list, b.list);
        jinja_leave(jinja);
        return order;
    }
    if (a.kind == VALUE_UNDEFINED || b.kind == VALUE_UNDEFINED)
        op_refuse(jinja, OP_SUB, a, b);
    jinja_fail(jinja, E_FORMAT, "a %s and a %s have no order", value_type(a), value_type(b));
    return 0;
}

static bool op_contains(struct jinja *jinja, struct value item, struct value container)
{
    switch (container.kind) {
    case VALUE_UNDEFINED:
        return false;
    case VALUE_DICT:
        return dict_get(jinja, container, item) != NULL;
    case VALUE_LIST:
    case VALUE_TUPLE:
        for (size_t i = 0; i < container.list->n && jinja_charge(jinja, 1); i++) {
            if (value_equal(jinja, container.list->items[i], item))
                return true;
        }
        return false;
    case VALUE_TEXT:
        if (item.kind == VALUE_TEXT)
            return jinja_charge(jinja, container.text->len_bytes / 64) &&
                   bytes_find(text_bytes(*container.text), text_bytes(*item.text), 0) != SIZE_MAX;
        jinja_fail(jinja, E_FORMAT, "'in' a string wants a string, not a %s", value_type(item));
        return false;
    default:
        jinja_fail(jinja, E_FORMAT, "'in' a %s", value_type(container));
        return false;
    }
}

bool op_compare(struct jinja *jinja, enum op op, struct value a, struct value b)
{
    if (op == OP_IN || op == OP_NOT_IN)
        return op_contains(jinja, a, b) == (op == OP_IN);
    if (op == OP_EQ || op == OP_NE)
        return value_equal(jinja, a, b) == (op == OP_EQ);
    int order = value_compare(jinja, a, b);
    if (is_nan(a) || is_nan(b))
        return false;
    return op == OP_LT ? order < 0 : op == OP_LE ? order <= 0 : op == OP_GT ? order > 0 : order >= 0;
}
