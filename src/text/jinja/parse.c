/* SPDX-License-Identifier: Apache-2.0 */
/* The base of the parser: the lexeme at hand, names, nodes, failures.
 *
 * The parser is recursive, at most TEMPLATE_MAX_DEPTH deep. After a failure the lexeme at hand is the end of
 * the template. So every loop of the parser stops by itself, and other code need not check for failures. */
#include "text/jinja/ast_priv.h"

#include "base/err.h"
#include "text/jinja/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct lexeme at_end = {.kind = LEX_END};

struct node *parser_fail(struct parser *parser, const char *format, ...)
{
    char text[256];
    va_list args;

    if (parser->rc == 0) {
        va_start(args, format);
        vsnprintf(text, sizeof(text), format, args);
        va_end(args);
        parser->rc = fault_set(parser->fault, E_FORMAT, "line %u: %s", parser->at->line, text);
    }
    parser->at = &at_end;
    return NULL;
}

static void jinja_parse_fail_memory(struct parser *parser, int rc, const char *what)
{
    if (parser->rc == 0)
        parser->rc = fault_set(parser->fault, rc, "line %u: %s", parser->at->line, what);
    parser->at = &at_end;
}

static void *jinja_parse_take(struct parser *parser, size_t len_bytes)
{
    void *piece = arena_take(&parser->parsed->arena, len_bytes);

    if (piece == NULL)
        jinja_parse_fail_memory(parser, E_NOMEM, "out of memory");
    return piece;
}

/* Never NULL: after a failure it returns a dummy node, which is not used. */
struct node *parser_node(struct parser *parser, enum node_kind kind)
{
    static _Thread_local struct node nobody; /* the dummy: written after a failure, never read */
    struct node *node = NULL;

    if (parser->parsed->n_nodes == TEMPLATE_MAX_NODES)
        jinja_parse_fail_memory(parser, E_LIMIT, "the template is too large");
    if (parser->rc == 0)
        node = jinja_parse_take(parser, sizeof(*node));
    if (node == NULL)
        return &nobody;
    parser->parsed->n_nodes++;
    node->kind = kind;
    node->line = parser->at->line;
    return node;
}

void parser_push(struct parser *parser, struct nodes *nodes, struct node *node)
{
    if (nodes->n == nodes->cap) {
        size_t cap = nodes->cap == 0 ? 4 : nodes->cap * 2;
        struct node **items = jinja_parse_take(parser, cap * sizeof(*items));

        if (items == NULL)
            return;
        if (nodes->n > 0)
            memcpy(items, nodes->items, nodes->n * sizeof(*items));
        nodes->items = items;
        nodes->cap = cap;
    }
    nodes->items[nodes->n++] = node;
}

uint64_t bytes_hash(struct bytes bytes)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < bytes.len_bytes; i++)
        hash = (hash ^ bytes.data[i]) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 29;
}

const struct name *parser_name(struct parser *parser, struct bytes text)
{
    struct jinja_template *parsed = parser->parsed;
    struct name **bucket = &parsed->names[bytes_hash(text) % NAME_BUCKETS];

    for (const struct name *name = *bucket; name != NULL; name = name->next) {
        if (bytes_equal(text_bytes(name->text), text))
            return name;
    }
    if (parsed->n_names == TEMPLATE_MAX_NAMES)
        jinja_parse_fail_memory(parser, E_LIMIT, "the template has too many names");
    struct name *name = parser->rc == 0 ? jinja_parse_take(parser, sizeof(*name)) : NULL;
    char *copy = name == NULL ? NULL : arena_str(&parsed->arena, text);
    if (copy == NULL) {
        jinja_parse_fail_memory(parser, E_NOMEM, "out of memory");
        return NULL;
    }
    name->str = copy;
    name->text = (struct text){.data = (const uint8_t *)copy, .len_bytes = text.len_bytes};
    name->next = *bucket;
    *bucket = name;
    parsed->n_names++;
    return name;
}

/* ---- the lexeme at hand ---- */

bool parser_is_op(const struct parser *parser, const char *op)
{
    return parser->at->kind == LEX_OPERATOR && bytes_is(parser->at->text, op);
}

bool parser_is_word(const struct parser *parser, const char *word)
{
    return parser->at->kind == LEX_WORD && bytes_is(parser->at->text, word);
}

void parser_next(struct parser *parser)
{
    if (parser->at->kind != LEX_END)
        parser->at++;
}

bool parser_skip_op(struct parser *parser, const char *op)
{
    bool is_here = parser_is_op(parser, op);

    if (is_here)
        parser_next(parser);
    return is_here;
}

bool parser_skip_word(struct parser *parser, const char *word)
{
    bool is_here = parser_is_word(parser, word);

    if (is_here)
        parser_next(parser);
    return is_here;
}

const char *parser_seen(const struct parser *parser, char out[64])
{
    if (parser->at->kind == LEX_END)
        snprintf(out, 64, "the end of the template");
    else if (parser->at->kind == LEX_DATA)
        snprintf(out, 64, "text");
    else
        snprintf(out, 64, "'%.*s'", parser->at->text.len_bytes > 40 ? 40 : (int)parser->at->text.len_bytes,
                 (const char *)parser->at->text.data);
    return out;
}

void parser_expect_op(struct parser *parser, const char *op)
{
    char seen[64];

    if (!parser_skip_op(parser, op))
        parser_fail(parser, "expected '%s', found %s", op, parser_seen(parser, seen));
}

bool parser_enter(struct parser *parser)
{
    if (parser->depth == TEMPLATE_MAX_DEPTH)
        parser_fail(parser, "nested deeper than %d", TEMPLATE_MAX_DEPTH);
    if (parser->rc != 0)
        return false;
    parser->depth++;
    return true;
}

/* ---- the whole template ---- */

static int jinja_parse(struct jinja_template *parsed, struct bytes source, struct fault *fault)
{
    static const char *const no_ends[] = {NULL};
    struct parser parser = {.parsed = parsed, .fault = fault};
    struct lexeme *list;
    char seen[64];

    if (source.len_bytes > TEMPLATE_MAX_BYTES)
        return fault_set(fault, E_LIMIT, "the template has %zu bytes, at most %zu are read", source.len_bytes,
                         TEMPLATE_MAX_BYTES);
    int rc = template_lex(&parsed->arena, source, fault, &list);
    if (rc != 0)
        return rc;
    parser.at = list;
    parsed->loop = parser_name(&parser, bytes_str("loop"));
    parsed->caller = parser_name(&parser, bytes_str("caller"));
    parsed->varargs = parser_name(&parser, bytes_str("varargs"));
    parsed->kwargs = parser_name(&parser, bytes_str("kwargs"));
    parsed->body = parser_body(&parser, no_ends);
    if (parser.rc == 0 && parser.at->kind != LEX_END)
        parser_fail(&parser, "unexpected %s", parser_seen(&parser, seen));
    return parser.rc;
}

int template_new(struct bytes source, struct fault *fault, struct jinja_template **out)
{
    struct jinja_template *parsed = calloc(1, sizeof(*parsed));

    if (parsed == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    arena_init(&parsed->arena, (size_t)256 << 20);
    int rc = jinja_parse(parsed, source, fault);
    if (rc != 0) {
        template_free(parsed);
        return rc;
    }
    *out = parsed;
    return 0;
}

void template_free(struct jinja_template *parsed)
{
    if (parsed == NULL)
        return;
    arena_fini(&parsed->arena);
    free(parsed);
}
