/* SPDX-License-Identifier: Apache-2.0 */
/* Long strings of a document, taken past the JSON library.  Private to text/json/json.c. */
#ifndef TEXT_JSON_JSON_LONG_PRIV_H
#define TEXT_JSON_JSON_LONG_PRIV_H

#include <jansson.h>

#include "text/json/json_walk.h"

struct json_long { /* the text between the quotes */
    size_t from, to;
    size_t number; /* among the values that are strings, in the document's order */
};

struct json_longs { /* zeroed: none yet */
    struct json_long *list;
    size_t n, cap;
    size_t n_bytes; /* of all of them */
    size_t n_strings, from;
    bool is_in; /* a string that is a value */
    bool is_bad;
};

/* To be called after each quote that the walk took; at: its place. */
void json_longs_see(struct json_longs *longs, const struct json_walk *walk, size_t at);
void json_longs_fini(struct json_longs *longs);
/* Whether taking them out is worth it. */
bool json_longs_pay(const struct json_longs *longs);
/* Appends text with the long strings emptied.  E_NOMEM. */
int json_longs_cut(const struct json_longs *longs, struct bytes text, struct buf *out);
/* Gives the strings of root, loaded from what json_longs_cut() made of text, what text says.  E_FORMAT: one
 * of them is no text (not UTF-8, or half a surrogate pair); E_NOMEM.  Then root is to be thrown away. */
int json_longs_fill(const struct json_longs *longs, struct bytes text, json_t *root);

#endif
