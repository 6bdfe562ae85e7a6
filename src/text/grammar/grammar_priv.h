/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the grammar engine, shared by this folder's grammar_* files.
 *
 *     text --grammar_compile, _schema, _regex, _format--> graph --grammar_state--> states --_mask--> masks
 *
 *     node      one place in the graph: reads a byte or a control token, or goes on without reading
 *     rule      a part of the graph that is called and returns, so that it can contain itself
 *     frame     the return address of a call; frames link to their callers' frames, equal frames exist once
 *     config    a node that reads, with its frames: one way to read the text so far
 *     state     the set of all such configs; equal states exist once */
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
#define GRAPH_FAR            (1u << 28) /* a distance: unreachable */
#define GRAPH_UNBOUNDED      UINT32_MAX

/* Work is counted in steps that take about the same time, some nanoseconds each.  So the limit on steps
 * bounds the time of a compilation.  Each function charges its work before it does it, with graph_spend().
 * Costs: */
#define STEPS_OF_NODE   18u /* one node of the graph, its part of graph_finish() included */
#define STEPS_OF_READ   60u /* a JSON value that is parsed */
#define STEPS_OF_VALUE  24u /* a JSON value that is copied or looked up by name */
#define STEPS_PER_BYTES 8u  /* bytes copied, hashed or compared in one step */

enum node_kind {
    NODE_STR,   /* inside a JSON string, at place pc of grammar_string.c's automaton; uses need and room */
    NODE_RET,   /* the rule returns */
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
    uint32_t min, max; /* GRAPH_UNBOUNDED: no maximum */
};

/* The first nodes of every graph: the places inside a string, then these. */
#define STR_N_PLACES 24u
#define PC_RET       STR_N_PLACES
#define PC_DEAD      (STR_N_PLACES + 1)
#define RULE_STR     0u /* a string's characters and its closing quote */

struct free_text { /* the marks that may not occur in it, as an Aho-Corasick automaton */
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
    uint32_t *rules; /* [n_rules] first node of each rule; PC_DEAD until it is known */
    uint32_t n_rules, cap_rules;
    struct bounds *bounds;
    uint32_t n_bounds, cap_bounds;
    struct free_text *frees;
    uint32_t n_frees;
    uint32_t start; /* rule */
    uint64_t steps; /* steps left of the allowed work */
    bool is_full;   /* out of memory or over a limit: see fault */
    int code;
};

/* Makes room for n elements of size bytes.  False: no memory. */
bool graph_grow(void *array, uint32_t *cap, uint32_t n, size_t size);
int graph_by_bytes(const void *left, const void *right); /* struct bytes, for qsort */
int graph_init(struct graph *graph);
/* Charges steps.  E_LIMIT: none are left; the graph is then full. */
int graph_spend(struct graph *graph, uint64_t steps);
void graph_fini(struct graph *graph);
/* These return a pc.  After a failure they return PC_DEAD, and graph_status() reports the failure. */
uint32_t graph_node(struct graph *graph, struct node node);
uint32_t graph_byte(struct graph *graph, uint8_t lo, uint8_t hi, uint32_t next);
uint32_t graph_text(struct graph *graph, struct bytes text, uint32_t next);
uint32_t graph_split(struct graph *graph, uint32_t left, uint32_t right); /* one PC_DEAD: the other */
uint32_t graph_call(struct graph *graph, uint32_t rule, uint32_t next);
uint32_t graph_string(struct graph *graph, struct bounds chars, uint32_t next); /* after the opening quote */
uint32_t graph_loop(struct graph *graph, uint32_t rule, struct bounds times, uint32_t next);
/* Accepts any of these texts, which it reorders.  Texts with a common beginning share its nodes. */
uint32_t graph_texts(struct graph *graph, struct bytes *texts, size_t n, uint32_t next);
uint32_t graph_rule(struct graph *graph);                 /* a new rule, not written yet */
uint32_t graph_rule_of(struct graph *graph, uint32_t pc); /* a new rule that begins at pc */
int graph_free(struct graph *graph, const struct bytes *marks, size_t n, uint32_t max_tokens,
               uint32_t *index_out);
#define GRAPH_NO_END "nothing can ever satisfy this, or only what is too long"
int graph_status(const struct graph *graph, struct fault *fault);
/* Computes the distances.  Refuses parts without an end, rules that call themselves before they read, and
 * repetitions of nothing. */
int graph_finish(struct graph *graph, struct fault *fault, uint32_t *pc_out); /* *pc_out: the refused node */

/* ---- inside a JSON string (grammar_string.c) ---- */

#define STR_DEAD  255
#define STR_CLOSE 254
/* The next place after byte.  *is_char_out: byte is the first of a character. */
uint8_t string_next(uint8_t place, uint8_t byte, bool *is_char_out);
uint32_t string_dist(uint8_t place); /* bytes to the end of the character */
/* Appends text as JSON spells it, without the quotes. */
void string_spell(struct buf *out, struct bytes text);

/* ---- compilers ---- */

struct schema_root { /* a schema into which the references of others lead */
    json_t *schema;
    const char *path; /* NULL: "$" */
    unsigned number;  /* equal roots have one number, from 1 */
    /* of the schemas compiled so far, so that they share what they refer to: */
    json_t *made;          /* array: schemas created for them */
    struct hashmap *rules; /* schema's address -> rule + 1 */
};

struct compile_ctx { /* one compilation */
    struct graph *graph;
    struct fault *fault;
    const struct tokenizer *tokenizer; /* NULL: marks are text */
    const char *path;                  /* path of the schema being compiled; NULL: "$" */
    struct schema_root *root;          /* of the schemas being compiled; NULL: each is its own */
    unsigned n_roots;
    json_t *known; /* object: schemas compiled before, and their rules */
};

/* grammar_compile.c: fills graph->start.  E_FORMAT, E_UNSUPPORTED, E_LIMIT, E_NOMEM. */
int compile_constraint(struct compile_ctx *ctx, struct bytes text);
/* Parses JSON of bounded size and charges the graph for it. */
int compile_load(struct graph *graph, struct bytes text, struct fault *fault, json_t **out);
/* The rule of a schema; equal schemas share one.  is_closed: see grammar.h. */
int compile_schema(struct compile_ctx *ctx, json_t *schema, bool is_closed, uint32_t *rule_out);
/* grammar_known.c: finds the rule of JSON that was compiled before as the same kind.  If there is none, key
 * is set for known_keep(). */
struct known_key {
    char name[40];
    json_t *json; /* borrowed */
};
bool known_find(struct compile_ctx *ctx, const char *kind, json_t *json, struct known_key *key,
                uint32_t *out);
int known_keep(struct compile_ctx *ctx, const struct known_key *key, uint32_t number);
/* grammar_compile_tagged.c: writes {"tagged": {a string's schema}, "until": TEXT, "inner": BOOL, "not":
 * PATTERN}, then next. */
int compile_tagged(struct compile_ctx *ctx, json_t *constraint, uint32_t next, uint32_t *pc_out);
/* grammar_schema.c */
int schema_root_init(struct schema_root *root, json_t *schema,
                     const char *path); /* E_NOMEM: not for schema_root_fini() */
void schema_root_fini(struct schema_root *root);
/* The rule of the values that the schema allows.  is_object: of those that are objects. */
int schema_compile(struct compile_ctx *ctx, json_t *schema, bool is_object, uint32_t *rule_out);

#endif
