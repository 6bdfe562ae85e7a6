/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that write constraints of arguments between tags. */
#ifndef SERVE_PROMPT_CONSTRAINT_TAGS_PRIV_H
#define SERVE_PROMPT_CONSTRAINT_TAGS_PRIV_H

#include <jansson.h>
#include <stdbool.h>

#include "text/toolcall/formats.h"

struct constraint;
struct grammar_plain;

struct constraint_place { /* the place of the value being written */
    struct constraint *constraint;
    const struct calls_tags *tags;
    const json_t *root;          /* the tool's schema */
    struct grammar_plain *plain; /* the plain forms of its parts */
    unsigned types;              /* the types that the parser may give the value */
    bool has_needed;             /* keywords: a required one was written, so the next one follows a comma */
    bool is_unclear; /* elements: the parser does not know what the schema says of values within this one */
};

#define CONSTRAINT_MAX_DEPTH 8 /* alternatives nest so deep */

/* constraint_tags.c: a value of this schema, within `depth` others. */
void constraint_value(struct constraint_place *place, const json_t *schema, unsigned depth);
/* Writes a value of this schema as JSON, only of this type unless it is NULL. */
void constraint_tags_put_json(struct constraint_place *place, const json_t *schema, const char *type);
const char *constraint_string_open(const struct constraint_place *place); /* before a string; NULL: nothing */
/* The plain form of a schema, borrowed until the end of the arguments.  NULL: the request is refused. */
const json_t *constraint_plain(struct constraint_place *place, const json_t *schema);
/* Refuses the request for a keyword of the schema at the path. */
void constraint_refuse(struct constraint *constraint, const char *keyword, const char *why);

/* constraint_nested.c */
json_t *constraint_required(
    const json_t *root); /* the names that the schema requires, as an object; NULL: no memory */
/* Writes an object or a list as the format does.  False: nothing was written, as the format writes JSON, or as the schema
 * says more than this can enforce. */
bool constraint_nested(struct constraint_place *place, const json_t *schema, unsigned depth);
void constraint_pair(struct constraint_place *place, const char *key, const json_t *schema, bool is_needed,
                     unsigned depth);
void constraint_element(struct constraint_place *place, const char *key, const json_t *schema,
                        unsigned depth);
bool constraint_is_element(const char *key); /* false: the parser does not read the name in a tag */

#endif
