/* SPDX-License-Identifier: Apache-2.0 */
/* JSON in and out: bounded loading, and one fixed serialisation. */
#ifndef TEXT_JSON_JSON_H
#define TEXT_JSON_JSON_H

#include <jansson.h>

#include "base/bytes.h"
#include "base/fault.h"

#define API_MAX_JSON_VALUES   1000000
#define API_JSON_MEMORY_BYTES ((size_t)64 << 20) /* of a loaded document, beside 4 times its text */

/* Loads text, after checking depth (128) and number of values, within a bound on memory.  Duplicate keys,
 * lone surrogates, invalid UTF-8 and trailing data are refused.  Integers beyond 64 bits make all numbers of
 * the document doubles. E_FORMAT, E_LIMIT, E_NOMEM, with the fault. */
int api_json_load(struct bytes text, struct fault *fault, json_t **out);

/* Appends value as text the way most chat templates do: keys in their order, ", " and ": " between, non-ASCII
 * as it is, doubles in the fewest digits that read back.  E_NOMEM. */
int api_json_put(struct buf *out, const json_t *value);

/* One text for all values that are equal: members sorted, 1.0 as 1, no blanks (json_sorted.c).  E_NOMEM; the
 * second also what api_json_load() says. */
int api_json_put_sorted(struct buf *out, const json_t *value);
int api_json_sort(struct bytes text, struct buf *out);

struct bytes api_json_str(const json_t *value); /* a string's bytes, borrowed; empty for anything else */
/* An integer, or a double that is one; beyond int64 clamped. */
bool api_json_integer(const json_t *value, int64_t *out);

#endif
