/* SPDX-License-Identifier: Apache-2.0 */
/* JSON as text, without a tree: a walk over the output of json_respace(). Pure; any thread. */
#ifndef TEXT_JSON_JSON_TEXT_H
#define TEXT_JSON_JSON_TEXT_H

#include "base/bytes.h"

/* Appends json as Python's json.dumps(..., ensure_ascii=False) would write it: ", " and ": " as separators,
 * strings with the fewest escapes. Numbers keep their spelling. E_FORMAT, E_LIMIT (nested too deep),
 * E_NOMEM. */
int json_respace(struct bytes json, struct buf *out);
/* The following functions take text that json_respace() wrote. */
bool json_is_object(struct bytes json);
/* Iterates over an object or array; *at starts at 0. key_out is quoted, and empty in an array. Returns false
 * at the end. */
bool json_next(struct bytes json, size_t *at, struct bytes *key_out, struct bytes *value_out);
int json_unquote(struct bytes quoted, struct buf *out); /* appends the decoded string */

#endif
