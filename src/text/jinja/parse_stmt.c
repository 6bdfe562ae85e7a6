/* SPDX-License-Identifier: Apache-2.0 */
/* Statements: the text between {% and %}, and their bodies.
 *
 *     for if set macro call filter with break continue raw generation
 *
 * "generation" marks the assistant's text for training; here its body is plain text. Statements that read
 * other templates (include, import, extends, block) do not occur in a model file and are refused by name. */
#include "text/jinja/ast_priv.h"

#include "base/check.h"

#include <stdio.h>
#include <string.h>

static void expect_block_end(struct parser *parser)
{
    char seen[64];

    if (parser->at->kind != LEX_BLOCK_END)
        parser_fail(parser, "expected the end of the tag, found %s", parser_seen(parser, seen));
    parser_next(parser);
}

/* Reads the body up to {% end %}, including that tag. */
static struct node *body_until(struct parser *parser, const char *end)
{
    const char *const ends[] = {end, NULL};

    parser_skip_op(parser, ":");
    expect_block_end(parser);
    struct node *body = parser_body(parser, ends);
    if (parser->rc == 0 && !parser_skip_word(parser, end))
        parser_fail(parser, "{%% %s %%} is missing", end);
    return body;
}

static struct node *if_statement(struct parser *parser)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct node *node = parser_node(parser, NODE_IF);
    struct nodes items = {0};

    while (parser->rc == 0) {
        parser_push(parser, &items, parser_tuple(parser, false, NULL));
        parser_skip_op(parser, ":");
        expect_block_end(parser);
        parser->conditional++;
        parser_push(parser, &items, parser_body(parser, ends));
        parser->conditional--;
        if (!parser_skip_word(parser, "elif"))
            break;
    }
    node->items = items.items;
    node->n_items = items.n;
    if (parser_skip_word(parser, "else")) {
        parser->conditional++;
        node->c = body_until(parser, "endif");
        parser->conditional--;
    } else if (parser->rc == 0 && !parser_skip_word(parser, "endif")) {
        parser_fail(parser, "{%% endif %%} is missing");
    }
    return node;
}

static struct node *for_statement(struct parser *parser)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    struct node *node = parser_node(parser, NODE_FOR);

    node->a = parser_target(parser, false);
    if (!parser_skip_word(parser, "in"))
        parser_fail(parser, "expected 'in'");
    node->b = parser_tuple(parser, false, "recursive");
    if (parser_skip_word(parser, "if"))
        node->c = parser_expression(parser, true);
    node->is_recursive = parser_skip_word(parser, "recursive");
    parser_skip_op(parser, ":");
    expect_block_end(parser);
    parser->loops++;
    struct node *body = parser_body(parser, ends);
    parser->loops--;
    node->items = arena_take(&parser->parsed->arena, sizeof(*node->items));
    if (node->items == NULL)
        return parser_fail(parser, "out of memory");
    node->items[0] = body;
    node->n_items = 1;
    if (parser_skip_word(parser, "else"))
        node->d = body_until(parser, "endfor");
    else if (parser->rc == 0 && !parser_skip_word(parser, "endfor"))
        parser_fail(parser, "{%% endfor %%} is missing");
    return node;
}

static struct node *set_statement(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_SET);

    node->a = parser_target(parser, true);
    if (parser_skip_op(parser, "=")) {
        node->b = parser_tuple(parser, true, NULL);
        return node;
    }
    node->kind = NODE_SET_BLOCK;
    node->b = parser_filters(parser, NULL, false);
    node->c = body_until(parser, "endset");
    return node;
}

/* Reads after "(": the parameters of a macro or a call block. */
static struct node_args *parse_stmt_parameters(struct parser *parser)
{
    struct node_args *args = arena_take(&parser->parsed->arena, sizeof(*args));
    struct nodes names = {0}, defaults = {0};

    if (args == NULL) {
        parser_fail(parser, "out of memory");
        return NULL;
    }
    for (bool is_first = true; parser->rc == 0 && !parser_skip_op(parser, ")"); is_first = false) {
        if (!is_first)
            parser_expect_op(parser, ",");
        if (parser->at->kind != LEX_WORD) {
            parser_fail(parser, "expected the name of a parameter");
            break;
        }
        parser_push(parser, &names, (struct node *)(uintptr_t)parser_name(parser, parser->at->text));
        parser_next(parser);
        bool has_default = parser_skip_op(parser, "=");
        if (!has_default && defaults.n > 0 && defaults.items[defaults.n - 1] != NULL)
            parser_fail(parser, "a parameter without a default after one with it");
        parser_push(parser, &defaults, has_default ? parser_expression(parser, true) : NULL);
    }
    args->names = (const struct name **)(void *)names.items;
    args->values = defaults.items;
    args->n_names = names.n;
    return args;
}

static struct node *macro_statement(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_MACRO);
    unsigned loops = parser->loops;

    if (parser->at->kind != LEX_WORD)
        return parser_fail(parser, "expected the name of a macro");
    node->name = parser_name(parser, parser->at->text);
    parser_next(parser);
    parser_expect_op(parser, "(");
    node->args = parse_stmt_parameters(parser);
    parser->loops = 0;
    node->c = body_until(parser, "endmacro");
    parser->loops = loops;
    return node;
}

static struct node *call_statement(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_CALL_BLOCK);
    unsigned loops = parser->loops;

    if (parser_skip_op(parser, "("))
        node->args = parse_stmt_parameters(parser);
    node->a = parser_expression(parser, true);
    if (parser->rc == 0 && node->a->kind != NODE_CALL)
        return parser_fail(parser, "expected a call");
    parser->loops = 0;
    node->c = body_until(parser, "endcall");
    parser->loops = loops;
    return node;
}

static struct node *filter_statement(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_FILTER_BLOCK);

    node->b = parser_filters(parser, NULL, true);
    node->c = body_until(parser, "endfilter");
    return node;
}

static struct node *with_statement(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_WITH);
    struct nodes items = {0};

    while (parser->rc == 0 && parser->at->kind != LEX_BLOCK_END) {
        if (items.n > 0)
            parser_expect_op(parser, ",");
        parser_push(parser, &items, parser_target(parser, false));
        parser_expect_op(parser, "=");
        parser_push(parser, &items, parser_expression(parser, true));
    }
    node->items = items.items;
    node->n_items = items.n;
    node->c = body_until(parser, "endwith");
    return node;
}

static struct node *generation_statement(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_SCOPE);

    node->c = body_until(parser, "endgeneration");
    return node;
}

static struct node *jump_statement(struct parser *parser, enum node_kind kind)
{
    if (parser->loops == 0)
        return parser_fail(parser, "break and continue stand in loops only");
    return parser_node(parser, kind);
}

static struct node *break_statement(struct parser *parser)
{
    return jump_statement(parser, NODE_BREAK);
}

static struct node *continue_statement(struct parser *parser)
{
    return jump_statement(parser, NODE_CONTINUE);
}

static const struct {
    const char *word;
    struct node *(*parse)(struct parser *);
} statements[] = {
    {"if", if_statement},       {"for", for_statement},
    {"set", set_statement},     {"macro", macro_statement},
    {"call", call_statement},   {"filter", filter_statement},
    {"with", with_statement},   {"generation", generation_statement},
    {"break", break_statement}, {"continue", continue_statement},
};

/* Reads after "{%": the statement and the end of its tag. */
static struct node *parse_stmt_statement(struct parser *parser)
{
    struct node *node = NULL;
    char seen[64];

    if (!parser_enter(parser))
        return NULL;
    for (size_t i = 0; i < ARRAY_LEN(statements) && node == NULL && parser->rc == 0; i++) {
        if (parser_skip_word(parser, statements[i].word))
            node = statements[i].parse(parser);
    }
    if (node == NULL)
        parser_fail(parser, "unknown statement %s", parser_seen(parser, seen));
    expect_block_end(parser);
    parser->depth--;
    return node;
}

static bool is_one_of(const struct parser *parser, const char *const *words)
{
    for (; *words != NULL; words++) {
        if (parser_is_word(parser, *words))
            return true;
    }
    return false;
}

/* Reads statements up to a tag that begins with one of ends. That word is then the lexeme at hand. */
struct node *parser_body(struct parser *parser, const char *const *ends)
{
    struct node *body = parser_node(parser, NODE_BODY), *one;
    struct nodes items = {0};
    char seen[64];

    while (parser->rc == 0 && parser->at->kind != LEX_END) {
        if (parser->at->kind == LEX_DATA) {
            struct text *text = arena_take(&parser->parsed->arena, sizeof(*text));

            if (text == NULL)
                return parser_fail(parser, "out of memory");
            one = parser_node(parser, NODE_DATA);
            text->data = parser->at->text.data;
            text->len_bytes = parser->at->text.len_bytes;
            one->value = (struct value){.kind = VALUE_TEXT, .text = text};
            parser_next(parser);
        } else if (parser->at->kind == LEX_VARIABLE_BEGIN) {
            parser_next(parser);
            one = parser_node(parser, NODE_OUTPUT);
            one->a = parser_tuple(parser, true, NULL);
            if (parser->rc == 0 && parser->at->kind != LEX_VARIABLE_END)
                parser_fail(parser, "expected '}}', found %s", parser_seen(parser, seen));
            parser_next(parser);
        } else {
            parser_next(parser); /* "{%" */
            if (is_one_of(parser, ends))
                break;
            one = parse_stmt_statement(parser);
        }
        parser_push(parser, &items, one);
    }
    body->items = items.items;
    body->n_items = items.n;
    return body;
}
