/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates expressions.
 *
 * Recursion is as deep as the expression nests, counted against JINJA_MAX_DEPTH. Sums are the exception: the
 * tree of 'a' + b + 'c' + ... leans left and is as deep as the sum is long. Recursion would copy the text at
 * every step. So the operands are walked in order. When the first is a text, all operands go into one text
 * builder. A printed sum goes straight into the output. */
#include "text/jinja/ast_priv.h"

#include "base/err.h"

#define SUM_AT_ONCE 32

/* ---- sums ---- */

static bool is_sum(const struct node *node)
{
    return node->kind == NODE_BINARY && node->op == OP_ADD;
}

static void sum_texts(struct jinja *jinja, struct value first, const struct node *const *rest, size_t n,
                      struct build *into)
{
    build_text(into, *first.text);
    while (n-- > 0 && jinja->rc == 0) {
        struct value next = jinja_eval(jinja, rest[n]);

        if (next.kind == VALUE_TEXT)
            build_text(into, *next.text);
        else
            op_binary(jinja, OP_ADD, first, next); /* records the failure */
    }
}

/* into: the builder that a text is appended to; NULL: the text is the result. */
static struct value eval_sum(struct jinja *jinja, const struct node *node, struct build *into)
{
    const struct node *rest[SUM_AT_ONCE];
    struct build build = build_begin(jinja);
    size_t n = 0;

    for (; is_sum(node) && n < SUM_AT_ONCE; node = node->a)
        rest[n++] = node->b;
    struct value sum = jinja_eval(jinja, node);
    if (sum.kind == VALUE_TEXT && !jinja->parsed->uses_markup) {
        sum_texts(jinja, sum, rest, n, into != NULL ? into : &build);
        return into != NULL ? value_undefined(NULL) : build_end(&build);
    }
    while (n-- > 0 && jinja->rc == 0)
        sum = op_binary(jinja, OP_ADD, sum, jinja_eval(jinja, rest[n]));
    return sum;
}

static struct value eval_concat(struct jinja *jinja, const struct node *node)
{
    struct build build = build_begin(jinja);

    for (size_t i = 0; i < node->n_items && jinja->rc == 0; i++)
        print_str(&build, jinja_eval(jinja, node->items[i]));
    return build_end(&build);
}

void jinja_print(struct jinja *jinja, const struct node *node)
{
    print_str(jinja->out, is_sum(node) ? eval_sum(jinja, node, jinja->out) : jinja_eval(jinja, node));
}

/* ---- literals ---- */

static struct value eval_items(struct jinja *jinja, const struct node *node)
{
    struct value list =
        node->kind == NODE_LIST ? value_list(jinja, node->n_items) : value_tuple(jinja, node->n_items);

    for (size_t i = 0; i < node->n_items && jinja->rc == 0; i++)
        list_push(jinja, list, jinja_eval(jinja, node->items[i]));
    if (list.kind == VALUE_LIST)
        list.list->is_open = true;
    return list;
}

static struct value eval_dict(struct jinja *jinja, const struct node *node)
{
    struct value dict = value_dict(jinja);

    for (size_t i = 0; i + 1 < node->n_items && jinja->rc == 0; i += 2) {
        struct value key = jinja_eval(jinja, node->items[i]);

        dict_set(jinja, dict, key, jinja_eval(jinja, node->items[i + 1]));
    }
    return dict;
}

/* ---- attributes, items, slices ---- */

/* An item of a group by its name; NULL: another name, or no group. */
static const struct value *eval_group_item(struct value value, struct text name)
{
    if (value.kind != VALUE_TUPLE || !value.list->is_group)
        return NULL;
    if (text_is(name, "grouper"))
        return &value.list->items[0];
    return text_is(name, "list") ? &value.list->items[1] : NULL;
}

struct value value_attribute(struct jinja *jinja, struct value value, struct text name)
{
    struct value key = {.kind = VALUE_TEXT, .text = &name};

    if (value.kind == VALUE_UNDEFINED) {
        jinja_fail(jinja, E_FORMAT, "'%.100s' is undefined", value.hint == NULL ? "it" : value.hint);
        return value;
    }
    if (value.kind == VALUE_LOOP)
        return loop_attribute(jinja, value.loop, name);
    const struct callable *callable =
        value.kind == VALUE_NAMESPACE ? NULL : method_find(jinja, value, text_bytes(name));
    if (callable == NULL) {
        const struct value *item = eval_group_item(value, name);

        if (item == NULL)
            item = dict_get(jinja, value, key);
        return item != NULL ? *item : value_undefined(NULL);
    }
    struct method *method = jinja_take(jinja, sizeof(*method));
    if (method == NULL)
        return value_undefined(NULL);
    *method = (struct method){.self = value, .callable = callable};
    return (struct value){.kind = VALUE_METHOD, .method = method};
}

static struct value eval_element(struct jinja *jinja, struct value value, int64_t index)
{
    size_t n = value_len(jinja, value);

    if (index < 0)
        index += (int64_t)n;
    if (index < 0 || (uint64_t)index >= n)
        return value_undefined(NULL);
    if (value_is_sequence(value))
        return value.list->items[index];
    size_t from = text_offset(*value.text, (size_t)index), len;
    text_code(*value.text, from, &len);
    return value_text(jinja, text_part(*value.text, from, from + len));
}

struct value value_item(struct jinja *jinja, struct value value, struct value key)
{
    int64_t index;

    if (value.kind == VALUE_UNDEFINED && key.kind != VALUE_TEXT)
        return value_attribute(jinja, value, (struct text){0});
    if ((value_is_sequence(value) || value.kind == VALUE_TEXT) && value_index(key, &index))
        return eval_element(jinja, value, index);
    if (value.kind == VALUE_DICT && key.kind != VALUE_LIST && key.kind != VALUE_DICT) {
        const struct value *item = dict_get(jinja, value, key);

        if (item != NULL)
            return *item;
    }
    return key.kind == VALUE_TEXT ? value_attribute(jinja, value, *key.text) : value_undefined(NULL);
}

struct value value_path(struct jinja *jinja, struct value value, struct value path)
{
    struct text text = text_in(path);
    size_t from = 0;

    if (path.kind != VALUE_TEXT)
        return value_item(jinja, value, path);
    while (from <= text.len_bytes && jinja->rc == 0) {
        size_t to = bytes_find(text_bytes(text), bytes_str("."), from);
        struct text part = text_part(text, from, to == SIZE_MAX ? text.len_bytes : to);
        int64_t index = 0;
        bool is_index = part.len_bytes > 0 && part.len_bytes < 10;

        for (size_t i = 0; i < part.len_bytes && is_index; i++) {
            is_index = part.data[i] >= '0' && part.data[i] <= '9';
            index = index * 10 + part.data[i] - '0';
        }
        value = value_item(jinja, value, is_index ? value_int(index) : value_text(jinja, part));
        if (to == SIZE_MAX)
            break;
        from = to + 1;
    }
    return value;
}

/* One end of a slice, as an index in [low, high]. It may be missing, negative or out of range. */
static int64_t slice_end(struct jinja *jinja, const struct node *node, int64_t otherwise, int64_t n,
                         bool is_backward)
{
    struct value value = node == NULL ? value_none() : jinja_eval(jinja, node);
    int64_t low = is_backward ? -1 : 0, high = is_backward ? n - 1 : n, index;

    if (value.kind == VALUE_NONE)
        return otherwise;
    if (!value_index(value, &index)) {
        jinja_fail(jinja, E_FORMAT, "a slice wants integers, not a %s", value_type(value));
        return 0;
    }
    if (index < 0)
        index = index < -n ? low : index + n;
    return index < low ? low : index > high ? high : index;
}

static struct value slice_text(struct jinja *jinja, struct text text, int64_t from, int64_t to)
{
    size_t begin = text_offset(text, (size_t)from);
    struct text rest = text_part(text, begin, text.len_bytes);

    if (to <= from)
        return value_text(jinja, text_part(text, 0, 0));
    return value_text(jinja, text_part(rest, 0, text_offset(rest, (size_t)(to - from))));
}

static struct value eval_slice(struct jinja *jinja, struct value value, const struct node *node)
{
    struct value step_value = node->c == NULL ? value_int(1) : jinja_eval(jinja, node->c);
    int64_t step = 1;

    if (value.kind == VALUE_UNDEFINED)
        return value_attribute(jinja, value, (struct text){0});
    if (!value_is_sequence(value) && value.kind != VALUE_TEXT)
        jinja_fail(jinja, E_FORMAT, "a slice of a %s", value_type(value));
    if ((step_value.kind != VALUE_NONE && !value_index(step_value, &step)) || step == 0) {
        jinja_fail(jinja, E_FORMAT, "the step of a slice is an integer and not 0");
        return value_undefined(NULL);
    }
    if (jinja->rc != 0)
        return value_undefined(NULL);
    int64_t n = (int64_t)value_len(jinja, value);
    int64_t from = slice_end(jinja, node->a, step < 0 ? n - 1 : 0, n, step < 0);
    int64_t to = slice_end(jinja, node->b, step < 0 ? -1 : n, n, step < 0);

    if (value.kind == VALUE_TEXT && step == 1)
        return jinja->rc == 0 ? slice_text(jinja, *value.text, from, to) : value_undefined(NULL);
    struct value all = value_elements(jinja, value);
    struct value list = value.kind == VALUE_TUPLE ? value_tuple(jinja, 0) : value_list(jinja, 0);
    for (int64_t i = from; jinja->rc == 0 && (step > 0 ? i < to : i > to);) {
        list_push(jinja, list, all.list->items[i]);
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    if (value.kind != VALUE_TEXT || jinja->rc != 0)
        return list;
    struct build build = build_begin(jinja);
    for (size_t i = 0; i < list.list->n; i++)
        build_text(&build, *list.list->items[i].text);
    return build_end(&build);
}

static struct value eval_item(struct jinja *jinja, const struct node *node)
{
    struct value value = jinja_eval(jinja, node->a), key, item;

    if (jinja->rc != 0)
        return value;
    if (node->b->kind == NODE_SLICE)
        return eval_slice(jinja, value, node->b);
    key = jinja_eval(jinja, node->b);
    jinja->line = node->line;
    item = value_item(jinja, value, key);
    if (item.kind == VALUE_UNDEFINED && node->b->kind == NODE_CONST && key.kind == VALUE_TEXT)
        item.hint = (const char *)key.text->data;
    return item;
}

static struct value eval_attribute(struct jinja *jinja, const struct node *node)
{
    struct value value = jinja_eval(jinja, node->a);

    jinja->line = node->line;
    value = value_attribute(jinja, value, node->name->text);
    if (value.kind == VALUE_UNDEFINED)
        value.hint = node->name->str;
    return value;
}

/* ---- filters, tests, logic ---- */

static const struct callable *eval_known(struct jinja *jinja, const struct node *node)
{
    jinja->line = node->line;
    if (node->callable == NULL)
        jinja_fail(jinja, E_UNSUPPORTED, "unknown %s \"%.64s\"",
                   node->kind == NODE_FILTER ? "filter" : "test", node->name->str);
    return node->callable;
}

/* A chain of filters. If the innermost filter names no operand, it works on self. */
struct value eval_filters(struct jinja *jinja, const struct node *node, struct value self)
{
    struct call call;

    if (!jinja_enter(jinja))
        return value_undefined(NULL);
    if (node->a != NULL)
        self = node->a->kind == NODE_FILTER ? eval_filters(jinja, node->a, self) : jinja_eval(jinja, node->a);
    eval_args(jinja, node->args, &call);
    const struct callable *callable = jinja->rc == 0 ? eval_known(jinja, node) : NULL;
    self = callable == NULL ? value_undefined(NULL) : callable_call(jinja, callable, self, &call);
    jinja_leave(jinja);
    return self;
}

static struct value eval_test(struct jinja *jinja, const struct node *node)
{
    struct value self = jinja_eval(jinja, node->a);
    struct call call;

    eval_args(jinja, node->args, &call);
    const struct callable *callable = jinja->rc == 0 ? eval_known(jinja, node) : NULL;
    return callable == NULL ? value_undefined(NULL) : callable_call(jinja, callable, self, &call);
}

static struct value eval_compare(struct jinja *jinja, const struct node *node)
{
    struct value left = jinja_eval(jinja, node->items[0]);
    bool is_true = true;

    for (size_t i = 1; i < node->n_items && is_true && jinja->rc == 0; i++) {
        struct value right = jinja_eval(jinja, node->items[i]);

        jinja->line = node->line;
        is_true = op_compare(jinja, node->ops[i - 1], left, right);
        left = right;
    }
    return value_bool(is_true);
}

static struct value eval_condition(struct jinja *jinja, const struct node *node)
{
    bool is_true = value_is_true(jinja_eval(jinja, node->a));
    const struct node *chosen = is_true ? node->b : node->c;

    return chosen == NULL ? value_undefined(NULL) : jinja_eval(jinja, chosen);
}

static struct value eval_logic(struct jinja *jinja, const struct node *node)
{
    struct value value = jinja_eval(jinja, node->a);

    return value_is_true(value) == (node->kind == NODE_OR) ? value : jinja_eval(jinja, node->b);
}

static struct value eval_binary(struct jinja *jinja, const struct node *node)
{
    if (is_sum(node))
        return eval_sum(jinja, node, NULL);
    struct value a = jinja_eval(jinja, node->a), b = jinja_eval(jinja, node->b);

    jinja->line = node->line;
    return jinja->rc == 0 ? op_binary(jinja, node->op, a, b) : a;
}

static struct value eval_unary(struct jinja *jinja, const struct node *node)
{
    struct value a = jinja_eval(jinja, node->a);

    return jinja->rc == 0 ? op_unary(jinja, node->op, a) : a;
}

static struct value eval_name(struct jinja *jinja, const struct node *node)
{
    const struct value *value = scope_get(jinja->scope, node->name);

    return value == NULL ? value_undefined(node->name->str) : *value;
}

static struct value eval_kind(struct jinja *jinja, const struct node *node)
{
    switch (node->kind) {
    case NODE_CONST:
        return node->value;
    case NODE_NAME:
        return eval_name(jinja, node);
    case NODE_LIST:
    case NODE_TUPLE:
        return eval_items(jinja, node);
    case NODE_DICT:
        return eval_dict(jinja, node);
    case NODE_ATTRIBUTE:
        return eval_attribute(jinja, node);
    case NODE_ITEM:
        return eval_item(jinja, node);
    case NODE_CALL:
        return eval_call(jinja, node, NULL);
    case NODE_FILTER:
        return eval_filters(jinja, node, value_undefined(NULL));
    case NODE_TEST:
        return eval_test(jinja, node);
    case NODE_UNARY:
        return eval_unary(jinja, node);
    case NODE_BINARY:
        return eval_binary(jinja, node);
    case NODE_CONCAT:
        return eval_concat(jinja, node);
    case NODE_COMPARE:
        return eval_compare(jinja, node);
    case NODE_AND:
    case NODE_OR:
        return eval_logic(jinja, node);
    case NODE_CONDITION:
        return eval_condition(jinja, node);
    default:
        jinja_fail(jinja, E_INTERNAL, "a statement where an expression was expected");
        return value_undefined(NULL);
    }
}

struct value jinja_eval(struct jinja *jinja, const struct node *node)
{
    if (!jinja_enter(jinja))
        return value_undefined(NULL);
    jinja->line = node->line;
    struct value value = eval_kind(jinja, node);
    jinja_leave(jinja);
    return jinja->rc == 0 ? value : value_undefined(NULL);
}
