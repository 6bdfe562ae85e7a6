/* SPDX-License-Identifier: Apache-2.0 */
/* JSON in and out: bounded loading, and one fixed serialisation. */
#ifndef TEXT_JSON_JSON_H
#define TEXT_JSON_JSON_H

#include <jansson.h>

#include "base/bytes.h"
#include "base/fault.h"

#define API_MAX_JSON_VALUES   1000000
#define API_JSON_MEMORY_BYTES ((size_t)64 << 20) /* limit of a document, in addition to 4 times its text */

/* Loads text within limits on depth (128), number of values and memory. Refuses duplicate keys, lone
 * surrogates, invalid UTF-8 and trailing data. If one integer exceeds 64 bits, all numbers of the document
 * become doubles. Returns E_FORMAT, E_LIMIT or E_NOMEM, with the fault. */
int api_json_load(struct bytes text, struct fault *fault, json_t **out);

/* Appends value as text, in the style of most chat templates: keys in their order, ", " and ": " as
 * separators, non-ASCII unescaped, doubles with the fewest digits that read back. E_NOMEM. */
int api_json_put(struct buf *out, const json_t *value);

/* Equal values give equal text: members sorted, 1.0 as 1, no blanks (json_sorted.c). Both return E_NOMEM;
 * api_json_sort() also returns the errors of api_json_load(). */
int api_json_put_sorted(struct buf *out, const json_t *value);
int api_json_sort(struct bytes text, struct buf *out);

struct bytes api_json_str(const json_t *value); /* a string's bytes, borrowed; empty for other values */
/* Resolves a reference such as "#", "#/$defs/a" or "#/items/0", with ~0, ~1 and %XX in its names; borrowed.  NULL: it leads
 * nowhere, or out of this document. */
json_t *api_json_follow(const json_t *root, struct bytes ref);
/* True if an object within value has a member of this name. */
bool api_json_mentions(const json_t *value, const char *name);
/* True for an integer, or a double with an integer value. A value beyond int64 is clamped. */
bool api_json_integer(const json_t *value, int64_t *out);

#endif
