/* SPDX-License-Identifier: Apache-2.0 */
/* A parsed template: names and nodes. All of them live in the template's arena and never change after
 * parsing. */
#ifndef TEXT_JINJA_AST_PRIV_H
#define TEXT_JINJA_AST_PRIV_H

#include "text/jinja/jinja_priv.h"

#define TEMPLATE_MAX_BYTES ((size_t)1 << 20)
#define TEMPLATE_MAX_NODES (1u << 18)
#define TEMPLATE_MAX_DEPTH 100
#define TEMPLATE_MAX_NAMES 4096
#define NAME_BUCKETS       256

struct name { /* one object for each spelling */
    struct name *next;
    struct text text;
    const char *str; /* the same, NUL-terminated */
};

enum lexeme_kind {
    LEX_DATA,
    LEX_BLOCK_BEGIN,
    LEX_BLOCK_END,
    LEX_VARIABLE_BEGIN,
    LEX_VARIABLE_END,
    LEX_WORD,
    LEX_STRING,
    LEX_INTEGER,
    LEX_REAL,
    LEX_OPERATOR,
    LEX_END
};

struct lexeme {
    enum lexeme_kind kind;
    uint32_t line;
    struct bytes text; /* STRING: with escapes decoded */
};

/* lex.c: the whole source as lexemes, ending with LEX_END. Returns E_FORMAT, E_LIMIT or E_NOMEM; the fault
 * names the line. */
int template_lex(struct arena *arena, struct bytes source, struct fault *fault, struct lexeme **out);

enum node_kind {
    NODE_CONST,
    NODE_NAME,
    NODE_LIST,
    NODE_TUPLE,
    NODE_DICT,
    NODE_ATTRIBUTE,
    NODE_ITEM,
    NODE_SLICE,
    NODE_CALL,
    NODE_FILTER,
    NODE_TEST,
    NODE_UNARY,
    NODE_BINARY,
    NODE_CONCAT,
    NODE_COMPARE,
    NODE_AND,
    NODE_OR,
    NODE_CONDITION,
    NODE_DATA,
    NODE_OUTPUT,
    NODE_IF,
    NODE_FOR,
    NODE_SET,
    NODE_SET_BLOCK,
    NODE_MACRO,
    NODE_CALL_BLOCK,
    NODE_FILTER_BLOCK,
    NODE_WITH,
    NODE_BREAK,
    NODE_CONTINUE,
    NODE_BODY,
    NODE_SCOPE
};

struct node_args {
    struct node **items;       /* positional */
    const struct name **names; /* keyword arguments; parameters of a macro */
    struct node **values;      /* values of the keywords; defaults of the parameters, NULL: none */
    size_t n_items, n_names;
    struct node *star, *star_star;
};

struct node {
    enum node_kind kind;
    enum op op;
    uint32_t line;
    bool is_recursive;       /* FOR */
    bool uses_caller;        /* MACRO */
    const struct name *name; /* NAME, ATTRIBUTE, FILTER, TEST, MACRO */
    struct value value;      /* CONST; DATA: a text */
    /* FILTER, TEST; NULL: unknown name, an error only when the node is evaluated */
    const struct callable *callable;
    struct node *a, *b, *c, *d;
    /* elements; key, value, ...; operands; IF: test, body, ...; BODY: statements */
    struct node **items;
    size_t n_items;
    enum op *ops; /* COMPARE */
    struct node_args *args;
};

struct jinja_template {
    struct arena arena;
    struct name *names[NAME_BUCKETS];
    uint32_t n_names, n_nodes;
    const struct name *loop, *caller, *varargs, *kwargs;
    bool uses_varargs, uses_kwargs, uses_markup;
    struct node *body;
};

struct parser {
    struct jinja_template *parsed;
    struct fault *fault;
    const struct lexeme *at;
    int rc;
    unsigned depth;
    unsigned conditional; /* number of enclosing branches that may not be taken */
    unsigned expressions; /* number of enclosing expressions */
    const struct node
        *unknown; /* an unknown filter or test of the expression at hand, unless a condition follows it */
    unsigned loops;
};

/* parse.c: helpers that all parser files use. The first failure is kept; after it the lexeme at hand is
 * LEX_END. */
__attribute__((format(printf, 2, 3))) struct node *parser_fail(struct parser *parser, const char *format,
                                                               ...);
struct node *parser_node(struct parser *parser, enum node_kind kind);
const struct name *parser_name(struct parser *parser, struct bytes text);
bool parser_is_op(const struct parser *parser, const char *op);
bool parser_is_word(const struct parser *parser, const char *word);
bool parser_skip_op(struct parser *parser, const char *op);
bool parser_skip_word(struct parser *parser, const char *word);
void parser_expect_op(struct parser *parser, const char *op);
void parser_next(struct parser *parser);
bool parser_enter(struct parser *parser);
struct nodes { /* growable array */
    struct node **items;
    size_t n, cap;
};
void parser_push(struct parser *parser, struct nodes *nodes, struct node *node);
const char *parser_seen(const struct parser *parser, char out[64]); /* the lexeme at hand, for messages */

/* parse_literal.c */
struct node *parser_primary(struct parser *parser);
struct node *parser_word(struct parser *parser);
struct node *parser_number(struct parser *parser);

/* parse_expr.c */
struct node *parser_expression(struct parser *parser, bool with_condition);
/* A tuple without parentheses, or one expression. end: a word that ends it, or NULL. */
struct node *parser_tuple(struct parser *parser, bool with_condition, const char *end);
struct node *parser_target(struct parser *parser, bool with_namespace);
struct node *parser_filters(struct parser *parser, struct node *node, bool begins_inline);
struct node *parser_postfix(struct parser *parser, struct node *node);
struct node *parser_unary(struct parser *parser, bool with_filters);
struct node_args *parser_args(struct parser *parser);

/* parse_stmt.c */
struct node *parser_body(struct parser *parser, const char *const *ends);

/* eval.c */
struct value jinja_eval(struct jinja *jinja, const struct node *node);
/* Evaluates the node and writes its text to the output. A sum of texts is written piece by piece, without
 * building it first. */
void jinja_print(struct jinja *jinja, const struct node *node);
struct value eval_filters(struct jinja *jinja, const struct node *node, struct value self);

/* call.c */
struct macro {
    const struct node *node; /* MACRO or CALL_BLOCK */
    struct scope *scope;     /* the scope of the definition */
};
void eval_args(struct jinja *jinja, const struct node_args *args, struct call *out);
struct value eval_call(struct jinja *jinja, const struct node *node, const struct value *caller);
struct value macro_new(struct jinja *jinja, const struct node *node);
struct value macro_call(struct jinja *jinja, const struct macro *macro, struct call *call);

/* exec.c, loop.c */
void jinja_exec(struct jinja *jinja, const struct node *body);
struct value jinja_capture(struct jinja *jinja, const struct node *body);
void jinja_assign(struct jinja *jinja, const struct node *target, struct value value);
void exec_for(struct jinja *jinja, const struct node *node);

/* jinja.c */
struct scope *scope_push(struct jinja *jinja, struct scope *parent);
void scope_set(struct jinja *jinja, struct scope *scope, const struct name *name, struct value value);
/* Searches this scope, then outer ones; NULL: not found. */
struct value *scope_get(struct scope *scope, const struct name *name);

#endif
