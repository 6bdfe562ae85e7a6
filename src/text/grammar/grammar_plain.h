/* SPDX-License-Identifier: Apache-2.0 */
/* Plain forms of schemas: what a schema says of a value itself, in one schema.  Formats whose arguments are no JSON need
 * them (serve/prompt), as they write each kind of value in a way of its own.  A plain form is one of these:
 *
 *     true, false
 *     {"enum": [...]}                the values that the keywords beside enum and const allow, maybe none
 *     {"anyOf": [...]}               or oneOf, with nothing that is asserted beside it; the alternatives are not plain yet
 *     {"type": ..., keywords}        no references, alternatives, enum or nullable; a type unless the value may be of any
 *
 * Schemas of inner values stay as they are. */
#ifndef TEXT_GRAMMAR_GRAMMAR_PLAIN_H
#define TEXT_GRAMMAR_GRAMMAR_PLAIN_H

#include <jansson.h>
#include <stdint.h>

#include "base/fault.h"

struct grammar_plain; /* the plain forms of the parts of one schema; one thread */

/* Borrows root, into which references lead, until grammar_plain_free(); spends of *steps_left (GRAMMAR_MAX_STEPS for one
 * request) until then.  E_NOMEM. */
int grammar_plain_new(const json_t *root, uint64_t *steps_left, struct grammar_plain **out);
void grammar_plain_free(struct grammar_plain *plain);
/* *out is borrowed until grammar_plain_free().  It is a part of root if no keywords had to be merged.  path names the schema
 * in faults.  E_FORMAT, E_UNSUPPORTED, E_LIMIT, E_NOMEM. */
int grammar_plain_of(struct grammar_plain *plain, const char *path, const json_t *schema, struct fault *fault,
                     const json_t **out);

#endif
