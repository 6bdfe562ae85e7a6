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

/* constraint_tags.c: a value of this schema, within `depth` others. */
void constraint_value(struct constraint_place *place, const json_t *schema, unsigned depth);

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
