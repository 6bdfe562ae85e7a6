/* SPDX-License-Identifier: Apache-2.0 */
/* As what a value between tags is read, by what its schema says: who lets a model write one must know.  A
 * value is a string where that is all it may be; else it is JSON if it is of one of the types, and a string
 * if not. */
#ifndef TEXT_TOOLCALL_CALLS_TYPES_H
#define TEXT_TOOLCALL_CALLS_TYPES_H

#include <jansson.h>

#include "base/bytes.h"

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

/* schema stands in root, a tool's. */
unsigned calls_types_of(const json_t *root, const json_t *schema);
/* "#/$defs/a" in the tool's schema, borrowed; NULL: there is none. */
const json_t *calls_follow_ref(const json_t *root, struct bytes ref);

#endif
