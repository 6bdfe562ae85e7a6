/* SPDX-License-Identifier: Apache-2.0 */
/* Checks JSON byte by byte as it arrives: is it valid so far, is it complete, and up to which byte can it be
 * closed? No allocation, no recursion. */
#ifndef TEXT_JSON_JSON_WALK_H
#define TEXT_JSON_JSON_WALK_H

#include "base/bytes.h"

#define JSON_WALK_MAX_DEPTH 128

enum json_walk_result {
    JSON_WALK_MORE, /* valid so far */
    JSON_WALK_DONE, /* the value is complete (a bare number is complete only when another byte follows) */
    JSON_WALK_BAD,  /* this byte is invalid; feed no more */
    JSON_WALK_DEEP  /* nested beyond JSON_WALK_MAX_DEPTH; feed no more */
};

struct json_walk { /* zeroed: before the value */
    uint8_t state;
    uint8_t digits; /* hexadecimal digits still expected, or the position in a literal */
    uint8_t literal;
    bool is_key;
    uint8_t depth;
    uint8_t safe_depth;
    size_t n_bytes;    /* bytes taken so far */
    size_t n_values;   /* values begun so far, without keys */
    size_t safe_bytes; /* cutting here and closing safe_depth containers gives valid JSON; 0: no such place */
    bool is_object[JSON_WALK_MAX_DEPTH];
};

enum json_walk_result json_walk_byte(struct json_walk *walk, uint8_t c);
/* Takes the leading bytes of text that continue the current string, and returns their number. It is the fast
 * path, because most bytes of a body are in strings. */
size_t json_walk_string(struct json_walk *walk, struct bytes text);
bool json_walk_is_in_string(const struct json_walk *walk);
/* Call it after text was walked (not to BAD). Appends the longest prefix of text that can be closed, closed.
 * The least is "{}" or "[]"; E_FORMAT when not even that is possible. */
int json_walk_close(const struct json_walk *walk, struct bytes text, struct buf *out);

#endif
