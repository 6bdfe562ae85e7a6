/* SPDX-License-Identifier: Apache-2.0 */
/* JSON Schema -> graph, shared by the files grammar_schema_*.c.
 *
 * Each schema becomes a rule.  Its schema waits in a list until it is compiled, so compiling does not recurse
 * into values.  A $ref back to an enclosing schema is a call of a rule that exists already. */
#ifndef TEXT_GRAMMAR_GRAMMAR_SCHEMA_PRIV_H
#define TEXT_GRAMMAR_GRAMMAR_SCHEMA_PRIV_H

#include "base/hashmap.h"
#include "text/grammar/grammar_priv.h"

#define SCHEMA_MAX_NESTING  100u
#define SCHEMA_MAX_WORK     20000u /* limit on schemas made by merging others */
#define SCHEMA_MAX_PATH     4096u
#define SCHEMA_MAX_BRANCHES 500u
#define SCHEMA_MAX_TYPES    32u

struct waiting {
    json_t *schema;
    uint32_t rule, depth;
    char *path;
};

struct schema {
    struct graph *graph;
    struct fault *fault;
    const char *root_path;
    json_t *root;
    json_t *made; /* array: schemas created here, freed at the end */
    uint32_t n_made;
    struct hashmap *rules; /* schema's address -> rule + 1 */
    struct waiting *waiting;
    uint32_t n_waiting, cap_waiting;
    /* of the schema being compiled: */
    struct buf path;
    uint32_t depth;
    /* shared rules; 0: not made yet */
    uint32_t blank, any, number, integer;
    json_t *known; /* object: pattern and lengths -> the rule of such strings */
};

enum json_kind {
    KIND_OBJECT,
    KIND_ARRAY,
    KIND_STRING,
    KIND_NUMBER,
    KIND_INTEGER,
    KIND_BOOLEAN,
    KIND_NULL,
    N_KINDS
};

/* ---- grammar_schema.c ---- */
/* Sets the fault "$.a.b.keyword: text" and returns code.  keyword may be NULL. */
__attribute__((format(printf, 4, 5))) int schema_fault(struct schema *s, int code, const char *keyword,
                                                       const char *format, ...);
/* The rule of a schema at path.step (step NULL: at path itself).  The schema is compiled later. */
int schema_rule(struct schema *s, json_t *schema, const char *step, uint32_t *rule_out);
/* Writes a value that schema allows, then the end of the rule. */
int schema_value(struct schema *s, json_t *schema, uint32_t *pc_out);
int schema_deref(struct schema *s, json_t *schema,
                 json_t **out);                     /* borrowed: the schema that its chain of $refs ends at */
int schema_keep(struct schema *s, json_t *made);    /* takes made; E_LIMIT: too many or too large */
int schema_spend(struct schema *s, uint64_t steps); /* charges the graph's steps; E_LIMIT: none left */
int schema_copy(struct schema *s, json_t *value, json_t **out);     /* *out borrowed; a shallow copy */
int schema_weigh(struct schema *s, const json_t *value);            /* charges for a walk through value */
int schema_names(struct schema *s, json_t *list, json_t **set_out); /* borrowed: object with these keys */
/* Compares, charged by size.  When no steps are left, all values count as equal. */
bool schema_equal(struct schema *s, json_t *left, json_t *right);
bool schema_asserts(json_t *schema);                   /* has keywords beyond annotations */
bool schema_is_lone(json_t *schema, const char *only); /* has no keywords beyond this one and annotations */
/* The schema that its $ref leads to, merged with the keywords beside it; borrowed. */
int schema_behind_ref(struct schema *s, json_t *schema, json_t **out);
/* The branches of its anyOf or oneOf, each merged with the keywords beside them; borrowed. */
int schema_branches(struct schema *s, json_t *schema, const char *keyword, json_t **out);

/* ---- grammar_schema_keywords.c ---- */
int schema_check_keywords(struct schema *s, json_t *schema);
bool schema_is_assertion(const char *keyword);
unsigned schema_kinds(json_t *schema); /* bits of enum json_kind that its type (or its keywords) allow */
/* Reads a count such as minItems; absent: fallback.  E_FORMAT. */
int schema_count(struct schema *s, json_t *schema, const char *keyword, uint32_t fallback, uint32_t *out);

/* ---- grammar_schema_merge.c ---- */
int schema_merge(struct schema *s, json_t *left, json_t *right,
                 json_t **out); /* *out borrowed: the schema of values that satisfy both */
/* The same for a schema and one that it refers to, or one of its branches. */
int schema_merge_inner(struct schema *s, json_t *outer, json_t *inner, json_t **out);
int schema_all_of(struct schema *s, json_t *schema, json_t **out); /* borrowed: no allOf, no $ref */
/* True if the types or the values of both exclude each other.  False when no steps are left. */
bool schema_are_apart(struct schema *s, json_t *left, json_t *right);
int schema_one_of(struct schema *s, json_t *branches); /* refuses branches that it cannot tell apart */

/* ---- grammar_schema_object.c ---- */
int schema_object(struct schema *s, json_t *schema, uint32_t *pc_out);
int schema_array(struct schema *s, json_t *schema, uint32_t *pc_out);
int schema_any(struct schema *s, uint32_t *rule_out);
uint32_t schema_blank(struct schema *s, uint32_t next); /* optional white space of bounded length */

/* ---- grammar_schema_value.c ---- */
/* grammar_schema_enum.c */
int schema_enum(struct schema *s, json_t *schema, uint32_t *pc_out);
/* The values of its enum or const that the keywords beside it allow; borrowed. */
int schema_values(struct schema *s, json_t *schema, json_t **out);
int schema_string(struct schema *s, json_t *schema, uint32_t *pc_out);
int schema_number(struct schema *s, json_t *schema, bool is_integer, uint32_t *pc_out);
int schema_compare(const json_t *left, const json_t *right); /* two numbers, exactly: -1, 0 or 1 */

#endif
