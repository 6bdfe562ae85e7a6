/* SPDX-License-Identifier: Apache-2.0 */
/* Decides by its schema if a value between tags is a string or JSON. A constraint on such a value (serve/prompt)
 * follows the same rule.  A value is a string if the schema allows only strings.  Otherwise it is JSON if it parses
 * as an allowed type, and a string if not. */
#ifndef TEXT_TOOLCALL_CALLS_TYPES_H
#define TEXT_TOOLCALL_CALLS_TYPES_H

#include <jansson.h>

#include "base/bytes.h"

/* The splitter reads the schema of a called tool on the loop: longer ones take milliseconds. */
#define CALLS_MAX_SCHEMA_BYTES ((size_t)16 << 10)

enum calls_type { /* bits */
                  CALLS_AS_STRING = 1,
                  CALLS_AS_INTEGER = 2,
                  CALLS_AS_NUMBER = 4,
                  CALLS_AS_BOOLEAN = 8,
                  CALLS_AS_NULL = 16,
                  CALLS_AS_ARRAY = 32,
                  CALLS_AS_OBJECT = 64,
                  CALLS_AS_ANY = 127
};

/* The types that schema allows, bits of enum calls_type.  schema is a part of root, a tool's schema. */
unsigned calls_types_of(const json_t *root, const json_t *schema);
/* The types that a tool's schema allows for the argument of this name; CALLS_AS_ANY if it says nothing of it. */
unsigned calls_types_of_key(const json_t *root, struct bytes key);
unsigned calls_type_of_value(const json_t *value); /* of one value: an integer is a number too */
/* Appends a short schema with only the types of the properties, of CALLS_MAX_SCHEMA_BYTES at most.  The
 * splitter needs no more of a long schema.  Properties without room may be of any type.  E_FORMAT, E_LIMIT,
 * E_NOMEM. */
int calls_shorten_schema(struct bytes schema, struct buf *out);
/* True if the splitter reads this name of a keyword argument (K=V). */
bool calls_is_keyword(struct bytes name);
bool calls_is_bare_key(struct bytes key);         /* the same for {K:V} without quotes */
const char *calls_python_word(struct bytes word); /* JSON of True, None or null; NULL: another word */
/* Appends the key with entities for & and ", as an attribute of a tag has it. */
void calls_put_entities(struct bytes key, struct buf *out);
/* True if the schema has only keywords of this list, which ends with NULL. */
bool calls_has_only(const json_t *schema, const char *const *known);
/* Follows references, and an allOf of one schema; borrowed.  NULL: it leads nowhere. */
const json_t *calls_resolve(const json_t *root, const json_t *schema);
/* The only alternative of schema, which is resolved, that allows one of the types; borrowed.  NULL: none, or several. */
const json_t *calls_only_branch(const json_t *root, const json_t *schema, unsigned types);
/* The schema that says what a value of one of the types holds: behind references and alternatives.  NULL: unknown. */
const json_t *calls_schema_of_type(const json_t *root, const json_t *schema, unsigned types);

#endif
