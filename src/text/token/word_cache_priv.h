/* SPDX-License-Identifier: Apache-2.0 */
/* What the latest words of one text became.  Private to the tokeniser. */
#ifndef TEXT_TOKEN_WORD_CACHE_PRIV_H
#define TEXT_TOKEN_WORD_CACHE_PRIV_H

#include "text/token/tokenizer.h"

#define WORD_CACHE_BYTES 16 /* of a word, at most */
#define WORD_CACHE_IDS   11 /* of its tokens, at most */

struct word_cache; /* NULL stands for one that remembers nothing */

struct word_cache *word_cache_new(void); /* NULL: no memory, which only costs time */
void word_cache_free(struct word_cache *cache);
/* The word is the n_bytes, at least one, at text.data + at.  The number of its ids; 0: not known.  *ids_out
 * holds room for WORD_CACHE_IDS of them, all of which may be read (borrowed until the next put). */
unsigned word_cache_get(const struct word_cache *cache, struct bytes text, size_t at, size_t n_bytes,
                        const token_id **ids_out);
void word_cache_put(struct word_cache *cache, struct bytes text, size_t at, size_t n_bytes,
                    const token_id *ids, size_t n);

#endif
