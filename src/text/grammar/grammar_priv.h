/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the grammar engine, shared by the files of this folder named grammar_*.
 *
 *     text --grammar_shape, _schema, _regex, _format--> graph --grammar_state--> states --_mask--> masks
 *
 *     node      one place in the graph: reads a byte, a control token, or goes on without reading
 *     rule      a part of the graph that is called and returns, so that it can contain itself
 *     frame     where a call returns to; frames hang on their callers' frames, equal ones exist once
 *     config    a node to read at, with its frames: one of the readings of what was written so far
 *     state     all of them; equal ones exist once */
#ifndef TEXT_GRAMMAR_GRAMMAR_PRIV_H
#define TEXT_GRAMMAR_GRAMMAR_PRIV_H

#include <jansson.h>

#include "text/grammar/grammar.h"

/* ---- the graph (grammar_graph.c) ---- */

#define GRAPH_MAX_TEXT_BYTES (1u << 20)
#define GRAPH_MAX_NODES      300000u
#define GRAPH_MAX_RULES      100000u
#define GRAPH_MAX_NESTING    100u
#define GRAPH_MAX_REPEAT     1000000u
#define GRAPH_FAR            (1u << 28) /* a distance: not to be reached */
#define GRAPH_UNBOUNDED      UINT32_MAX

/* Work is counted in steps of about the same time, some nanoseconds each, so that no text takes longer to
 * compile than so many: each function charges what it does before it does it, by graph_spend().  What a thing
 * costs: */
#define STEPS_OF_NODE   18u /* a node of the graph, with its part of graph_finish() */
#define STEPS_OF_READ   60u /* a JSON value that is read from its text */
#define STEPS_OF_VALUE  24u /* one that is copied, or found by its name */
#define STEPS_PER_BYTES 8u  /* one step for so many bytes that are copied, hashed or compared */

enum node_kind {
    NODE_STR,   /* inside a JSON string, at place pc of grammar_string.c's automaton; need and room count */
    NODE_RET,   /* the rule is done */
    NODE_DEAD,  /* no way on */
    NODE_BYTE,  /* a byte from lo to hi, then next */
    NODE_TOKEN, /* control token a, then next */
    NODE_FREE,  /* any text without a mark of frees[a]; next at any time */
    NODE_SPLIT, /* next or a */
    NODE_CALL,  /* rule a, then next; with bounds b when the rule is a string */
    NODE_LOOP   /* rule a as often as bounds b say, then next */
};

struct node {
    uint8_t kind, lo, hi;
    uint32_t next, a, b;
};

struct bounds {
    uint32_t min, max; /* GRAPH_UNBOUNDED: no end */
};

/* Places inside a string come first in every graph, then these. */
#define STR_N_PLACES 24u
#define PC_RET       STR_N_PLACES
#define PC_DEAD      (STR_N_PLACES + 1)
#define RULE_STR     0u /* a string's characters and its closing quote */

struct free_text { /* what may not occur in it, as an Aho-Corasick automaton */
    uint32_t max_tokens;
    uint16_t n_places;
    uint8_t *is_hit;       /* [n_places] */
    uint16_t (*next)[256]; /* [n_places] */
    uint8_t starts[32];    /* bitmap: first bytes of marks */
};

struct graph {
    struct node *nodes; /* [n_nodes] */
    uint32_t *dist;     /* [n_nodes] least bytes (and control tokens) to the end of the rule */
    uint32_t n_nodes, cap_nodes;
    uint32_t *rules; /* [n_rules] where each begins; PC_DEAD until it is known */
    uint32_t n_rules, cap_rules;
    struct bounds *bounds;
    uint32_t n_bounds, cap_bounds;
    struct free_text *frees;
    uint32_t n_frees;
    uint32_t start; /* rule */
    uint64_t steps; /* of the work that is allowed, those left */
    bool is_full;   /* no memory, or over a limit: see fault */
    int code;
};

/* Room for n elements of size bytes; false: there is none. */
bool graph_grow(void *array, uint32_t *cap, uint32_t n, size_t size);
int graph_by_bytes(const void *left, const void *right); /* struct bytes, for qsort */
int graph_init(struct graph *graph);
/* E_LIMIT: they are used up, and the graph is full. */
int graph_spend(struct graph *graph, uint64_t steps);
void graph_fini(struct graph *graph);
/* These give a pc; PC_DEAD after a failure, which graph_status() tells at the end. */
uint32_t graph_node(struct graph *graph, struct node node);
uint32_t graph_byte(struct graph *graph, uint8_t lo, uint8_t hi, uint32_t next);
uint32_t graph_text(struct graph *graph, struct bytes text, uint32_t next);
uint32_t graph_split(struct graph *graph, uint32_t left, uint32_t right); /* one dead: the other */
uint32_t graph_call(struct graph *graph, uint32_t rule, uint32_t next);
uint32_t graph_string(struct graph *graph, struct bounds chars, uint32_t next); /* after the opening quote */
uint32_t graph_loop(struct graph *graph, uint32_t rule, struct bounds times, uint32_t next);
/* One of these texts; reorders them.  Shared beginnings are shared. */
uint32_t graph_texts(struct graph *graph, struct bytes *texts, size_t n, uint32_t next);
uint32_t graph_rule(struct graph *graph);                 /* a new one */
uint32_t graph_rule_of(struct graph *graph, uint32_t pc); /* a new one that begins there */
int graph_free(struct graph *graph, const struct bytes *marks, size_t n, uint32_t max_tokens,
               uint32_t *index_out);
#define GRAPH_NO_END "nothing can ever satisfy this, or only what is too long"
int graph_status(const struct graph *graph, struct fault *fault);
/* Distances; refuses what has no end, what calls itself before it reads, and repetitions of nothing. */
int graph_finish(struct graph *graph, struct fault *fault, uint32_t *pc_out); /* a node that it refuses for */

/* ---- inside a JSON string (grammar_string.c) ---- */

#define STR_DEAD  255
#define STR_CLOSE 254
/* Where byte leads from place; *is_char_out: it is the first of a character. */
uint8_t string_next(uint8_t place, uint8_t byte, bool *is_char_out);
uint32_t string_dist(uint8_t place); /* to the end of the character */
/* Appends text as JSON spells it, without the quotes. */
void string_spell(struct buf *out, struct bytes text);

/* ---- compilers ---- */

struct shape_ctx { /* one compilation */
    struct graph *graph;
    struct fault *fault;
    const struct tokenizer *tokenizer; /* NULL: marks are text */
    const char *path;                  /* of the schema being compiled; NULL: "$" */
    json_t *known;                     /* object: what was compiled before, and its rule */
};

/* grammar_shape.c: fills graph->start.  E_FORMAT, E_UNSUPPORTED, E_LIMIT, E_NOMEM. */
int shape_compile(struct shape_ctx *ctx, struct bytes text);
/* Bounded JSON, whose reading the graph pays for. */
int shape_load(struct graph *graph, struct bytes text, struct fault *fault, json_t **out);
/* A rule for a schema, made once for equal ones; closed: see grammar.h. */
int shape_schema(struct shape_ctx *ctx, json_t *schema, bool is_closed, uint32_t *rule_out);
/* grammar_known.c: was the same compiled before, as kind, and what came of it?  Otherwise key is what to keep
 * it under. */
struct known_key {
    char name[40];
    json_t *json; /* borrowed */
};
bool known_find(struct shape_ctx *ctx, const char *kind, json_t *json, struct known_key *key, uint32_t *out);
int known_keep(struct shape_ctx *ctx, const struct known_key *key, uint32_t number);
/* grammar_shape_tagged.c: {"tagged": {a string's schema}, "until": TEXT, "inner": BOOL, "not": PATTERN}, then
 * next. */
int shape_compile_tagged(struct shape_ctx *ctx, json_t *shape, uint32_t next, uint32_t *pc_out);
/* grammar_schema.c: a rule for a value that the schema allows. */
int schema_compile(struct shape_ctx *ctx, json_t *schema, uint32_t *rule_out);

#endif
