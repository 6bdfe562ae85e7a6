/* SPDX-License-Identifier: Apache-2.0 */
/* JSON, checked byte by byte as it arrives: is it valid so far, is it complete, and up to where could it be
 * closed? No allocation, no recursion. */
#ifndef TEXT_JSON_JSON_WALK_H
#define TEXT_JSON_JSON_WALK_H

#include "base/bytes.h"

#define JSON_WALK_MAX_DEPTH 128

enum json_walk_result {
    JSON_WALK_MORE, /* valid so far */
    JSON_WALK_DONE, /* the value is complete (a bare number never is, before something follows it) */
    JSON_WALK_BAD,  /* this byte cannot be; nothing more may be fed */
    JSON_WALK_DEEP  /* nested beyond JSON_WALK_MAX_DEPTH; the same */
};

struct json_walk { /* zeroed: before the value */
    uint8_t state;
    uint8_t digits; /* hexadecimal digits still wanted, or place in a literal */
    uint8_t literal;
    bool is_key;
    uint8_t depth;
    uint8_t safe_depth;
    size_t n_bytes;    /* taken so far */
    size_t n_values;   /* begun so far, keys not counted */
    size_t safe_bytes; /* cutting here and closing safe_depth containers gives valid JSON; 0: nowhere */
    bool is_object[JSON_WALK_MAX_DEPTH];
};

enum json_walk_result json_walk_byte(struct json_walk *walk, uint8_t c);
/* Takes as much of text as only goes on with a string, and says how much: the quick way through what most of
 * a body is. */
size_t json_walk_string(struct json_walk *walk, struct bytes text);
bool json_walk_is_in_string(const struct json_walk *walk);
/* After text was walked (not to BAD): appends its longest prefix that can be closed, closed. "{}" or "[]" at
 * the least; E_FORMAT when not even that. */
int json_walk_close(const struct json_walk *walk, struct bytes text, struct buf *out);

#endif
