/* SPDX-License-Identifier: Apache-2.0 */
/* Long strings of a document, which bypass the JSON library. Private to text/json/json.c. */
#ifndef TEXT_JSON_JSON_LONG_PRIV_H
#define TEXT_JSON_JSON_LONG_PRIV_H

#include <jansson.h>

#include "text/json/json_walk.h"

struct json_long { /* the text between the quotes */
    size_t from, to;
    size_t number; /* its index among the strings that are values, in the document's order */
};

struct json_longs { /* a zeroed struct is empty */
    struct json_long *list;
    size_t n, cap;
    size_t n_bytes; /* of all long strings */
    size_t n_strings, from;
    bool is_in; /* inside a string that is a value */
    bool is_bad;
};

/* Call it after each quote that the walk took; at: the offset of the quote. */
void json_longs_see(struct json_longs *longs, const struct json_walk *walk, size_t at);
void json_longs_fini(struct json_longs *longs);
/* True if the strings together are long enough to be worth the cut. */
bool json_longs_pay(const struct json_longs *longs);
/* Appends text with its long strings emptied. E_NOMEM. */
int json_longs_cut(const struct json_longs *longs, struct bytes text, struct buf *out);
/* Fills in the long strings of root from text; root was loaded from the output of json_longs_cut(). E_FORMAT:
 * a string is not valid UTF-8 or has half a surrogate pair. E_NOMEM. On failure the caller discards root. */
int json_longs_fill(const struct json_longs *longs, struct bytes text, json_t *root);

#endif
