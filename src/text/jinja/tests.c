/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: the words that may follow "is". */
#include "text/jinja/jinja_priv.h"

#include "base/err.h"

static struct value test_none(struct jinja *jinja, struct value self, struct call *call)
{
    (void)jinja;
    (void)call;
    return value_bool(self.kind == VALUE_NONE);
}

static struct value test_defined(struct jinja *jinja, struct value self, struct call *call)
{
    (void)jinja;
    (void)call;
    return value_bool(self.kind != VALUE_UNDEFINED);
}

static struct value test_undefined(struct jinja *jinja, struct value self, struct call *call)
{
    (void)jinja;
    (void)call;
    return value_bool(self.kind == VALUE_UNDEFINED);
}

static struct value test_string(struct jinja *jinja, struct value self, struct call *call)
{
    (void)jinja;
    (void)call;
    return value_bool(self.kind == VALUE_TEXT);
}

static struct value test_number(struct jinja *jinja, struct value self, struct call *call)
{
    (void)jinja;
    (void)call;
    return value_bool(value_is_number(self) || self.kind == VALUE_BIG);
}

static struct value test_integer(struct jinja *jinja, struct value self, struct call *call)
{
    (void)jinja;
    (void)call;
    return value_bool(self.kind == VALUE_INT || self.kind == VALUE_BIG);
}

static struct value test_float(struct jinja *jinja, struct value self, struct call *call)
{
    (void)jinja;
    (void)call;
    return value_bool(self.kind == VALUE_FLOAT);
}

static struct value test_boolean(struct jinja *jinja, struct value self, struct call *call)
{
    (void)jinja;
    (void)call;
    return value_bool(self.kind == VALUE_BOOL);
}

static struct value test_true(struct jinja *jinja, struct value self, struct call *call)
{
    (void)jinja;
    (void)call;
    return value_bool(self.kind == VALUE_BOOL && self.is_true);
}

static struct value test_false(struct jinja *jinja, struct value self, struct call *call)
{
    (void)jinja;
    (void)call;
    return value_bool(self.kind == VALUE_BOOL && !self.is_true);
}

static struct value test_mapping(struct jinja *jinja, struct value self, struct call *call)
{
    (void)jinja;
    (void)call;
    return value_bool(self.kind == VALUE_DICT);
}

/* An undefined value counts as an empty list. */
static struct value test_iterable(struct jinja *jinja, struct value self, struct call *call)
{
    (void)jinja;
    (void)call;
    return value_bool(value_is_sequence(self) || self.kind == VALUE_TEXT || self.kind == VALUE_DICT ||
                      self.kind == VALUE_UNDEFINED || self.kind == VALUE_LOOP);
}

static struct value test_sequence(struct jinja *jinja, struct value self, struct call *call)
{
    (void)jinja;
    (void)call;
    return value_bool(value_is_sequence(self) || self.kind == VALUE_TEXT || self.kind == VALUE_DICT ||
                      self.kind == VALUE_UNDEFINED);
}

static struct value test_callable(struct jinja *jinja, struct value self, struct call *call)
{
    (void)jinja;
    (void)call;
    return value_bool(self.kind >= VALUE_MACRO || self.kind == VALUE_UNDEFINED);
}

static struct value remainder_is(struct jinja *jinja, struct value a, struct value b, int64_t wanted)
{
    return value_bool(value_equal(jinja, op_binary(jinja, OP_MOD, a, b), value_int(wanted)));
}

static struct value test_odd(struct jinja *jinja, struct value self, struct call *call)
{
    (void)call;
    return remainder_is(jinja, self, value_int(2), 1);
}

static struct value test_even(struct jinja *jinja, struct value self, struct call *call)
{
    (void)call;
    return remainder_is(jinja, self, value_int(2), 0);
}

static struct value test_divisibleby(struct jinja *jinja, struct value self, struct call *call)
{
    return remainder_is(jinja, self, call->bound[0], 0);
}

static struct value test_eq(struct jinja *jinja, struct value self, struct call *call)
{
    return value_bool(op_compare(jinja, OP_EQ, self, call->bound[0]));
}

static struct value test_ne(struct jinja *jinja, struct value self, struct call *call)
{
    return value_bool(op_compare(jinja, OP_NE, self, call->bound[0]));
}

static struct value test_lt(struct jinja *jinja, struct value self, struct call *call)
{
    return value_bool(op_compare(jinja, OP_LT, self, call->bound[0]));
}

static struct value test_le(struct jinja *jinja, struct value self, struct call *call)
{
    return value_bool(op_compare(jinja, OP_LE, self, call->bound[0]));
}

static struct value test_gt(struct jinja *jinja, struct value self, struct call *call)
{
    return value_bool(op_compare(jinja, OP_GT, self, call->bound[0]));
}

static struct value test_ge(struct jinja *jinja, struct value self, struct call *call)
{
    return value_bool(op_compare(jinja, OP_GE, self, call->bound[0]));
}

static struct value test_in(struct jinja *jinja, struct value self, struct call *call)
{
    return value_bool(op_compare(jinja, OP_IN, self, call->bound[0]));
}

static struct value test_sameas(struct jinja *jinja, struct value self, struct call *call)
{
    struct value other = call->bound[0];

    return value_bool(self.kind == other.kind &&
                      (self.kind <= VALUE_TEXT ? value_equal(jinja, self, other) : self.list == other.list));
}

static struct value tests_cased(struct jinja *jinja, struct value self, struct call *call, const char *method)
{
    struct value text = value_to_text(jinja, self);

    return jinja->rc == 0 ? callable_find(text_methods, bytes_str(method))->fn(jinja, text, call) : text;
}

static struct value test_lower(struct jinja *jinja, struct value self, struct call *call)
{
    return tests_cased(jinja, self, call, "islower");
}

static struct value test_upper(struct jinja *jinja, struct value self, struct call *call)
{
    return tests_cased(jinja, self, call, "isupper");
}

static struct value test_filter(struct jinja *jinja, struct value self, struct call *call)
{
    (void)jinja;
    (void)call;
    return value_bool(filter_find(text_bytes(text_in(self))) != NULL);
}

static struct value test_test(struct jinja *jinja, struct value self, struct call *call)
{
    (void)jinja;
    (void)call;
    return value_bool(test_find(text_bytes(text_in(self))) != NULL);
}

static const struct callable all_tests[] = {
    {"defined", "", test_defined, 0, false},
    {"undefined", "", test_undefined, 0, false},
    {"none", "", test_none, 0, false},
    {"string", "", test_string, 0, false},
    {"number", "", test_number, 0, false},
    {"integer", "", test_integer, 0, false},
    {"float", "", test_float, 0, false},
    {"boolean", "", test_boolean, 0, false},
    {"true", "", test_true, 0, false},
    {"false", "", test_false, 0, false},
    {"mapping", "", test_mapping, 0, false},
    {"iterable", "", test_iterable, 0, false},
    {"sequence", "", test_sequence, 0, false},
    {"callable", "", test_callable, 0, false},
    {"odd", "", test_odd, 0, false},
    {"even", "", test_even, 0, false},
    {"divisibleby", "num", test_divisibleby, 1, false},
    {"eq", "other", test_eq, 1, false},
    {"equalto", "other", test_eq, 1, false},
    {"==", "other", test_eq, 1, false},
    {"ne", "other", test_ne, 1, false},
    {"!=", "other", test_ne, 1, false},
    {"lt", "other", test_lt, 1, false},
    {"lessthan", "other", test_lt, 1, false},
    {"<", "other", test_lt, 1, false},
    {"le", "other", test_le, 1, false},
    {"<=", "other", test_le, 1, false},
    {"gt", "other", test_gt, 1, false},
    {"greaterthan", "other", test_gt, 1, false},
    {">", "other", test_gt, 1, false},
    {"ge", "other", test_ge, 1, false},
    {">=", "other", test_ge, 1, false},
    {"in", "seq", test_in, 1, false},
    {"sameas", "other", test_sameas, 1, false},
    {"lower", "", test_lower, 0, false},
    {"upper", "", test_upper, 0, false},
    {"filter", "", test_filter, 0, false},
    {"test", "", test_test, 0, false},
    {NULL, NULL, NULL, 0, false},
};

const struct callable *test_find(struct bytes name)
{
    return callable_find(all_tests, name);
}
