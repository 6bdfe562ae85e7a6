/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of an expression: numbers, strings, names, and lists, tuples and dicts of expressions.
 *
 * Adjacent strings become one. An integer beyond 64 bits is refused here, where its line is known. */
#include "text/jinja/ast_priv.h"

#include "base/check.h"
#include "base/str.h"

#include <string.h>

static struct node *parse_literal_constant(struct parser *parser, struct value value)
{
    struct node *node = parser_node(parser, NODE_CONST);

    node->value = value;
    return node;
}

/* ---- literals ---- */

static struct node *text_literal(struct parser *parser)
{
    struct arena *arena = &parser->parsed->arena;
    struct text *text = arena_take(arena, sizeof(*text));
    const struct lexeme *from = parser->at;
    size_t len = 0;

    for (; parser->at->kind == LEX_STRING; parser_next(parser))
        len += parser->at->text.len_bytes;
    uint8_t *joined = from + 1 == parser->at ? NULL : arena_take(arena, len + 1);
    if (text == NULL || (joined == NULL && from + 1 != parser->at))
        return parser_fail(parser, "out of memory");
    text->data = joined == NULL ? from->text.data : joined;
    text->len_bytes = len;
    for (size_t at = 0; joined != NULL && from < parser->at; at += from->text.len_bytes, from++)
        memcpy(joined + at, from->text.data, from->text.len_bytes);
    return parse_literal_constant(parser, (struct value){.kind = VALUE_TEXT, .text = text});
}

/* The digits without underscores; NULL: too long. */
static const char *parse_literal_digits_of(struct bytes text, char out[64])
{
    size_t n = 0;

    for (size_t i = 0; i < text.len_bytes; i++) {
        if (n == 63)
            return NULL;
        if (text.data[i] != '_')
            out[n++] = (char)text.data[i];
    }
    out[n] = '\0';
    return out;
}

struct node *parser_number(struct parser *parser)
{
    char room[64];
    const char *digits = parse_literal_digits_of(parser->at->text, room);
    struct value value = value_none();
    bool is_good = digits != NULL;

    if (is_good && parser->at->kind == LEX_REAL) {
        value = value_float(0);
        is_good = str_to_f64(bytes_str(digits), &value.real) == 0;
    } else if (is_good && strlen(digits) > 2 && digits[0] == '0' && digits[1] > '9') {
        int base = (digits[1] | 0x20) == 'x' ? 16 : (digits[1] | 0x20) == 'o' ? 8 : 2;
        uint64_t number = 0;

        for (const char *at = digits + 2; *at != '\0' && is_good; at++) {
            int digit = *at <= '9' ? *at - '0' : (*at | 0x20) - 'a' + 10;
            is_good = digit >= 0 && digit < base && number <= (uint64_t)(INT64_MAX - digit) / (unsigned)base;
            number = number * (unsigned)base + (unsigned)digit;
        }
        value = value_int((int64_t)number);
    } else if (is_good) {
        value = value_int(0);
        is_good = str_to_i64(bytes_str(digits), &value.integer) == 0;
    }
    if (!is_good)
        return parser_fail(parser, "a number that does not fit into 64 bits");
    parser_next(parser);
    return parse_literal_constant(parser, value);
}

static struct node *list_literal(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_LIST);
    struct nodes items = {0};

    while (!parser_skip_op(parser, "]") && parser->rc == 0) {
        if (items.n > 0) {
            parser_expect_op(parser, ",");
            if (parser_skip_op(parser, "]"))
                break;
        }
        parser_push(parser, &items, parser_expression(parser, true));
    }
    node->items = items.items;
    node->n_items = items.n;
    return node;
}

static struct node *dict_literal(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_DICT);
    struct nodes items = {0};

    while (!parser_skip_op(parser, "}") && parser->rc == 0) {
        if (items.n > 0) {
            parser_expect_op(parser, ",");
            if (parser_skip_op(parser, "}"))
                break;
        }
        parser_push(parser, &items, parser_expression(parser, true));
        parser_expect_op(parser, ":");
        parser_push(parser, &items, parser_expression(parser, true));
    }
    node->items = items.items;
    node->n_items = items.n;
    return node;
}

static bool ends_tuple(const struct parser *parser, const char *end)
{
    return parser->at->kind == LEX_VARIABLE_END || parser->at->kind == LEX_BLOCK_END ||
           parser->at->kind == LEX_END || parser_is_op(parser, ")") ||
           (end != NULL && parser_is_word(parser, end));
}

static struct node *tuple_rest(struct parser *parser, bool with_condition, const char *end, bool may_be_empty)
{
    struct nodes items = {0};
    bool is_tuple = false;
    char seen[64];

    while (parser->rc == 0) {
        if (items.n > 0) {
            if (!parser_skip_op(parser, ","))
                break;
            is_tuple = true;
        }
        if (ends_tuple(parser, end))
            break;
        parser_push(parser, &items, parser_expression(parser, with_condition));
    }
    if (!is_tuple && items.n == 1)
        return items.items[0];
    if (items.n == 0 && !may_be_empty)
        return parser_fail(parser, "expected an expression, found %s", parser_seen(parser, seen));
    struct node *node = parser_node(parser, NODE_TUPLE);
    node->items = items.items;
    node->n_items = items.n;
    return node;
}

struct node *parser_tuple(struct parser *parser, bool with_condition, const char *end)
{
    return tuple_rest(parser, with_condition, end, false);
}

static struct node *parse_literal_parenthesised(struct parser *parser)
{
    struct node *node = tuple_rest(parser, true, NULL, true);

    parser_expect_op(parser, ")");
    return node;
}

struct node *parser_word(struct parser *parser)
{
    static const struct {
        const char *word;
        struct value value;
    } words[] = {{"true", {.kind = VALUE_BOOL, .is_true = true}},
                 {"True", {.kind = VALUE_BOOL, .is_true = true}},
                 {"false", {.kind = VALUE_BOOL}},
                 {"False", {.kind = VALUE_BOOL}},
                 {"none", {.kind = VALUE_NONE}},
                 {"None", {.kind = VALUE_NONE}}};

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (parser_skip_word(parser, words[i].word))
            return parse_literal_constant(parser, words[i].value);
    }
    struct node *node = parser_node(parser, NODE_NAME);
    node->name = parser_name(parser, parser->at->text);
    parser->parsed->uses_varargs |= node->name == parser->parsed->varargs;
    parser->parsed->uses_kwargs |= node->name == parser->parsed->kwargs;
    parser_next(parser);
    return node;
}

struct node *parser_primary(struct parser *parser)
{
    char seen[64];

    switch (parser->at->kind) {
    case LEX_WORD:
        return parser_word(parser);
    case LEX_STRING:
        return text_literal(parser);
    case LEX_INTEGER:
    case LEX_REAL:
        return parser_number(parser);
    default:
        break;
    }
    if (parser_skip_op(parser, "("))
        return parse_literal_parenthesised(parser);
    if (parser_skip_op(parser, "["))
        return list_literal(parser);
    if (parser_skip_op(parser, "{"))
        return dict_literal(parser);
    return parser_fail(parser, "expected an expression, found %s", parser_seen(parser, seen));
}
