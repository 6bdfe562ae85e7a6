/* SPDX-License-Identifier: Apache-2.0 */
/* What the latest words of one text became.  Private to the tokeniser. */
#ifndef TOKEN_WORD_CACHE_H
#define TOKEN_WORD_CACHE_H

#include "token/tokenizer.h"

#define WORD_CACHE_BYTES 16 /* of a word, at most */
#define WORD_CACHE_IDS   6  /* of its tokens, at most */

struct word_cache; /* NULL stands for one that remembers nothing */

struct word_cache *word_cache_new(void); /* NULL: no memory, which only costs time */
void word_cache_free(struct word_cache *cache);
/* The number of ids that *ids_out (borrowed until the next put) holds; 0: not known. */
unsigned word_cache_get(const struct word_cache *cache, struct bytes word, const token_id **ids_out);
void word_cache_put(struct word_cache *cache, struct bytes word, const token_id *ids, size_t n);

#endif
