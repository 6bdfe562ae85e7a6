/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions, from the loosest binding to the tightest:
 *
 *     a if c else b     or     and     not     == != < <= > >= in     + -     ~     * / // %     **
 *     - +    . [] () |filter is test
 *
 * The order is that of the reference parser. Two details: a sign binds tighter than a filter ("-1|abs" is
 * "(-1)|abs"), and "~" binds tighter than "+". A chain of one level becomes one node with a list, or a tree
 * that leans left. Evaluation walks those without recursion (eval.c). */
#include "text/jinja/ast_priv.h"

#include "base/check.h"
#include "base/str.h"

#include <string.h>

static struct node *parse_expr_with(struct parser *parser, enum node_kind kind, struct node *a,
                                    struct node *b)
{
    struct node *node = parser_node(parser, kind);

    node->a = a;
    node->b = b;
    return node;
}

/* ---- suffixes of a primary ---- */

/* Reads after "[": an index, or a slice whose parts may be missing. */
static struct node *parse_expr_subscript(struct parser *parser)
{
    struct node *parts[3] = {NULL};
    size_t n = 0;

    for (;;) {
        if (!parser_is_op(parser, ":") && !parser_is_op(parser, "]") && !parser_is_op(parser, ","))
            parts[n] = parser_expression(parser, true);
        n++;
        if (n == 3 || !parser_skip_op(parser, ":"))
            break;
    }
    if (n == 1) {
        if (parser_is_op(parser, ","))
            return parser_fail(parser, "an index of several parts is not known");
        return parts[0] != NULL ? parts[0] : parser_fail(parser, "expected an index");
    }
    struct node *node = parser_node(parser, NODE_SLICE);
    node->a = parts[0];
    node->b = parts[1];
    node->c = parts[2];
    return node;
}

static struct node *parse_expr_dotted(struct parser *parser, struct node *node)
{
    char seen[64];

    if (parser->at->kind == LEX_INTEGER)
        return parse_expr_with(parser, NODE_ITEM, node, parser_number(parser));
    if (parser->at->kind != LEX_WORD)
        return parser_fail(parser, "expected a name after '.', found %s", parser_seen(parser, seen));
    struct node *attribute = parse_expr_with(parser, NODE_ATTRIBUTE, node, NULL);
    attribute->name = parser_name(parser, parser->at->text);
    parser_next(parser);
    return attribute;
}

/* Reads after "(". */
struct node_args *parser_args(struct parser *parser)
{
    struct node_args *args = arena_take(&parser->parsed->arena, sizeof(*args));
    struct nodes items = {0}, names = {0}, values = {0};

    if (args == NULL) {
        parser_fail(parser, "out of memory");
        return NULL;
    }
    for (bool is_first = true; parser->rc == 0 && !parser_skip_op(parser, ")"); is_first = false) {
        if (!is_first) {
            parser_expect_op(parser, ",");
            if (parser_skip_op(parser, ")"))
                break;
        }
        const struct lexeme *next = parser->at->kind == LEX_END ? parser->at : parser->at + 1;
        if (parser_skip_op(parser, "**")) {
            args->star_star = parser_expression(parser, true);
        } else if (parser_skip_op(parser, "*")) {
            args->star = parser_expression(parser, true);
        } else if (parser->at->kind == LEX_WORD && next->kind == LEX_OPERATOR && bytes_is(next->text, "=")) {
            parser_push(parser, &names, (struct node *)(uintptr_t)parser_name(parser, parser->at->text));
            parser_next(parser);
            parser_next(parser);
            parser_push(parser, &values, parser_expression(parser, true));
        } else {
            if (names.n > 0)
                parser_fail(parser, "a positional argument after one with a name");
            parser_push(parser, &items, parser_expression(parser, true));
        }
    }
    *args = (struct node_args){.items = items.items,
                               .names = (const struct name **)(void *)names.items,
                               .values = values.items,
                               .n_items = items.n,
                               .n_names = names.n,
                               .star = args->star,
                               .star_star = args->star_star};
    return args;
}

static struct node *parse_expr_call(struct parser *parser, struct node *callee)
{
    struct node *node = parse_expr_with(parser, NODE_CALL, callee, NULL);

    node->args = parser_args(parser);
    return node;
}

/* "a.b.c" as one name */
static struct bytes dotted_name(struct parser *parser)
{
    struct bytes name = parser->at->text;
    char seen[64];

    if (parser->at->kind != LEX_WORD)
        parser_fail(parser, "expected a name, found %s", parser_seen(parser, seen));
    parser_next(parser);
    while (parser_is_op(parser, ".")) {
        parser_next(parser);
        name.len_bytes = (size_t)(parser->at->text.data - name.data) + parser->at->text.len_bytes;
        parser_next(parser);
    }
    return parser->rc == 0 ? name : bytes_str("?");
}

/* Fails if the expression has an unknown filter or test. */
static void parse_expr_check_known(struct parser *parser)
{
    const struct node *node = parser->unknown;

    if (node != NULL)
        parser_fail(parser, "unknown %s \"%.64s\"", node->kind == NODE_FILTER ? "filter" : "test",
                    node->name == NULL ? "?" : node->name->str);
    parser->unknown = NULL;
}

/* Looks up a filter or test. An unknown one fails at the end of its expression. Inside a branch that may not be
 * taken, it fails only when it is evaluated. */
static void find_callable(struct parser *parser, struct node *node)
{
    struct bytes name = node->name == NULL ? bytes_str("?") : text_bytes(node->name->text);

    node->callable = node->kind == NODE_FILTER ? filter_find(name) : test_find(name);
    if (node->callable != NULL && node->kind == NODE_FILTER)
        parser->parsed->uses_markup |= node->callable->makes_markup;
    if (node->callable == NULL && parser->conditional == 0 && parser->unknown == NULL)
        parser->unknown = node;
    if (parser->expressions == 0)
        parse_expr_check_known(parser);
}

struct node *parser_filters(struct parser *parser, struct node *node, bool begins_inline)
{
    while (parser->rc == 0 && (begins_inline || parser_skip_op(parser, "|"))) {
        struct node *filter = parse_expr_with(parser, NODE_FILTER, node, NULL);

        filter->name = parser_name(parser, dotted_name(parser));
        find_callable(parser, filter);
        if (parser_skip_op(parser, "("))
            filter->args = parser_args(parser);
        node = filter;
        begins_inline = false;
    }
    return node;
}

static bool begins_operand(const struct parser *parser)
{
    if (parser->at->kind == LEX_WORD)
        return !parser_is_word(parser, "else") && !parser_is_word(parser, "or") &&
               !parser_is_word(parser, "and") && !parser_is_word(parser, "if");
    return parser->at->kind == LEX_STRING || parser->at->kind == LEX_INTEGER ||
           parser->at->kind == LEX_REAL || parser_is_op(parser, "(") || parser_is_op(parser, "[") ||
           parser_is_op(parser, "{");
}

/* Reads after "is". */
static struct node *parse_expr_test(struct parser *parser, struct node *operand)
{
    bool is_negated = parser_skip_word(parser, "not");
    struct node *node = parse_expr_with(parser, NODE_TEST, operand, NULL);

    node->name = parser_name(parser, dotted_name(parser));
    find_callable(parser, node);
    if (parser_skip_op(parser, "(")) {
        node->args = parser_args(parser);
    } else if (begins_operand(parser)) {
        struct nodes items = {0};

        if (parser_is_word(parser, "is"))
            return parser_fail(parser, "tests cannot be chained with \"is\"");
        parser_push(parser, &items, parser_postfix(parser, parser_primary(parser)));
        node->args = arena_take(&parser->parsed->arena, sizeof(*node->args));
        if (node->args == NULL)
            return parser_fail(parser, "out of memory");
        node->args->items = items.items;
        node->args->n_items = items.n;
    }
    if (!is_negated)
        return node;
    struct node *negated = parse_expr_with(parser, NODE_UNARY, node, NULL);
    negated->op = OP_NOT;
    return negated;
}

struct node *parser_postfix(struct parser *parser, struct node *node)
{
    while (parser->rc == 0) {
        if (parser_skip_op(parser, ".")) {
            node = parse_expr_dotted(parser, node);
        } else if (parser_skip_op(parser, "[")) {
            node = parse_expr_with(parser, NODE_ITEM, node, parse_expr_subscript(parser));
            parser_expect_op(parser, "]");
        } else if (parser_skip_op(parser, "(")) {
            node = parse_expr_call(parser, node);
        } else {
            break;
        }
    }
    return node;
}

static struct node *filters_and_tests(struct parser *parser, struct node *node)
{
    while (parser->rc == 0) {
        if (parser_is_op(parser, "|"))
            node = parser_filters(parser, node, false);
        else if (parser_skip_word(parser, "is"))
            node = parse_expr_test(parser, node);
        else if (parser_skip_op(parser, "("))
            node = parse_expr_call(parser, node);
        else
            break;
    }
    return node;
}

struct node *parser_unary(struct parser *parser, bool with_filters)
{
    struct node *node;

    if (!parser_enter(parser))
        return parser_node(parser, NODE_CONST);
    if (parser_is_op(parser, "-") || parser_is_op(parser, "+")) {
        bool is_minus = parser_is_op(parser, "-");

        parser_next(parser);
        node = parse_expr_with(parser, NODE_UNARY, parser_unary(parser, false), NULL);
        node->op = is_minus ? OP_NEGATE : OP_PLUS;
    } else {
        node = parser_primary(parser);
    }
    node = parser_postfix(parser, node);
    if (with_filters)
        node = filters_and_tests(parser, node);
    parser->depth--;
    return node;
}

/* ---- operators ---- */

static struct node *parse_expr_binary(struct parser *parser, enum op op, struct node *a, struct node *b)
{
    struct node *node = parse_expr_with(parser, NODE_BINARY, a, b);

    node->op = op;
    return node;
}

static struct node *parse_expr_power(struct parser *parser)
{
    struct node *node = parser_unary(parser, true);

    while (parser_skip_op(parser, "**"))
        node = parse_expr_binary(parser, OP_POW, node, parser_unary(parser, true));
    return node;
}

static struct node *parse_expr_product(struct parser *parser)
{
    static const struct {
        const char *text;
        enum op op;
    } ops[] = {{"*", OP_MUL}, {"/", OP_DIV}, {"//", OP_FLOOR}, {"%", OP_MOD}};
    struct node *node = parse_expr_power(parser);

    for (size_t i = 0; i < ARRAY_LEN(ops);) {
        if (parser_skip_op(parser, ops[i].text)) {
            node = parse_expr_binary(parser, ops[i].op, node, parse_expr_power(parser));
            i = 0;
        } else {
            i++;
        }
    }
    return node;
}

static struct node *parse_expr_concatenation(struct parser *parser)
{
    struct node *first = parse_expr_product(parser);
    struct nodes items = {0};

    if (!parser_is_op(parser, "~"))
        return first;
    parser_push(parser, &items, first);
    while (parser_skip_op(parser, "~"))
        parser_push(parser, &items, parse_expr_product(parser));
    struct node *node = parser_node(parser, NODE_CONCAT);
    node->items = items.items;
    node->n_items = items.n;
    return node;
}

static struct node *parse_expr_sum(struct parser *parser)
{
    struct node *node = parse_expr_concatenation(parser);

    for (;;) {
        if (parser_skip_op(parser, "+"))
            node = parse_expr_binary(parser, OP_ADD, node, parse_expr_concatenation(parser));
        else if (parser_skip_op(parser, "-"))
            node = parse_expr_binary(parser, OP_SUB, node, parse_expr_concatenation(parser));
        else
            return node;
    }
}

static bool comparison_op(struct parser *parser, enum op *out)
{
    static const struct {
        const char *text;
        enum op op;
    } ops[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<=", OP_LE}, {"<", OP_LT}, {">=", OP_GE}, {">", OP_GT}};

    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        if (parser_skip_op(parser, ops[i].text)) {
            *out = ops[i].op;
            return true;
        }
    }
    *out = OP_IN;
    if (parser_skip_word(parser, "in"))
        return true;
    *out = OP_NOT_IN;
    if (parser_is_word(parser, "not") && parser->at[1].kind == LEX_WORD &&
        bytes_is(parser->at[1].text, "in")) {
        parser_next(parser);
        parser_next(parser);
        return true;
    }
    return false;
}

static struct node *parse_expr_comparison(struct parser *parser)
{
    struct node *first = parse_expr_sum(parser);
    struct nodes items = {0};
    enum op ops[16], op;
    size_t n = 0;

    while (comparison_op(parser, &op)) {
        if (n == ARRAY_LEN(ops))
            return parser_fail(parser, "more than %zu comparisons in a chain", ARRAY_LEN(ops));
        ops[n++] = op;
        if (n == 1)
            parser_push(parser, &items, first);
        parser_push(parser, &items, parse_expr_sum(parser));
    }
    if (n == 0)
        return first;
    struct node *node = parser_node(parser, NODE_COMPARE);
    node->ops = arena_take(&parser->parsed->arena, sizeof(ops));
    if (node->ops == NULL)
        return parser_fail(parser, "out of memory");
    memcpy(node->ops, ops, sizeof(ops));
    node->items = items.items;
    node->n_items = items.n;
    return node;
}

static struct node *parse_expr_negation(struct parser *parser)
{
    if (!parser_is_word(parser, "not"))
        return parse_expr_comparison(parser);
    if (!parser_enter(parser))
        return parser_node(parser, NODE_CONST);
    parser_next(parser);
    struct node *node = parse_expr_with(parser, NODE_UNARY, parse_expr_negation(parser), NULL);
    node->op = OP_NOT;
    parser->depth--;
    return node;
}

static struct node *parse_expr_conjunction(struct parser *parser)
{
    struct node *node = parse_expr_negation(parser);

    while (parser_skip_word(parser, "and"))
        node = parse_expr_with(parser, NODE_AND, node, parse_expr_negation(parser));
    return node;
}

static struct node *parse_expr_disjunction(struct parser *parser)
{
    struct node *node = parse_expr_conjunction(parser);

    while (parser_skip_word(parser, "or"))
        node = parse_expr_with(parser, NODE_OR, node, parse_expr_conjunction(parser));
    return node;
}

struct node *parser_expression(struct parser *parser, bool with_condition)
{
    if (!parser_enter(parser))
        return parser_node(parser, NODE_CONST);
    const struct node *unknown_before = parser->unknown;

    parser->expressions++;
    struct node *node = parse_expr_disjunction(parser);
    while (with_condition && parser_skip_word(parser, "if")) {
        struct node *choice = parse_expr_with(parser, NODE_CONDITION, NULL, node);

        choice->a = parse_expr_disjunction(parser);
        if (parser_skip_word(parser, "else"))
            choice->c = parser_expression(parser, true);
        parser->unknown = unknown_before; /* one of the three parts may not be evaluated */
        node = choice;
    }
    parser->expressions--;
    if (parser->expressions == 0)
        parse_expr_check_known(parser);
    parser->depth--;
    return node;
}

/* A target of an assignment: a name, a tuple of names, an attribute of a namespace. */
struct node *parser_target(struct parser *parser, bool with_namespace)
{
    const struct lexeme *next = parser->at->kind == LEX_END ? parser->at : parser->at + 1;

    if (with_namespace && parser->at->kind == LEX_WORD && next->kind == LEX_OPERATOR &&
        bytes_is(next->text, ".")) {
        struct node *name = parser_word(parser);

        parser_next(parser);
        return parse_expr_dotted(parser, name);
    }
    struct nodes items = {0};
    bool is_tuple = false;
    do {
        if (parser_skip_op(parser, "(")) {
            parser_push(parser, &items, parser_target(parser, false));
            parser_expect_op(parser, ")");
        } else if (parser->at->kind == LEX_WORD && !parser_is_word(parser, "in")) {
            parser_push(parser, &items, parser_word(parser));
        } else {
            break;
        }
        is_tuple |= parser_is_op(parser, ",");
    } while (parser_skip_op(parser, ","));
    for (size_t i = 0; i < items.n && parser->rc == 0; i++) {
        if (items.items[i]->kind != NODE_NAME && items.items[i]->kind != NODE_TUPLE)
            return parser_fail(parser, "this cannot be assigned to");
    }
    if (items.n == 0)
        return parser_fail(parser, "expected a name to assign to");
    if (!is_tuple)
        return items.items[0];
    struct node *node = parser_node(parser, NODE_TUPLE);
    node->items = items.items;
    node->n_items = items.n;
    return node;
}
