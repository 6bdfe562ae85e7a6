/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens of the latest words of one text. Private to the tokeniser. */
#ifndef TEXT_TOKEN_WORD_CACHE_PRIV_H
#define TEXT_TOKEN_WORD_CACHE_PRIV_H

#include "text/token/tokenizer.h"

#define WORD_CACHE_BYTES 16 /* longest word that is cached */
#define WORD_CACHE_IDS   11 /* most tokens of a cached word */

struct word_span { /* a word: the n_bytes (at least one) at text.data + at */
    struct bytes text;
    size_t at, n_bytes;
};

struct word_cache; /* NULL is a valid cache that stores nothing */

struct word_cache *word_cache_new(void); /* NULL: no memory; encoding is then only slower */
void word_cache_free(struct word_cache *cache);
/* Returns the number of the word's ids; 0: not cached.
 * *ids_out has WORD_CACHE_IDS entries, and all of them may be read. Borrowed until the next put. */
unsigned word_cache_get(const struct word_cache *cache, const struct word_span *word,
                        const token_id **ids_out);
void word_cache_put(struct word_cache *cache, const struct word_span *word, const token_id *ids, size_t n);

#endif
