/* SPDX-License-Identifier: Apache-2.0 */
/* Two ways of merging a word, with the same result.  For merge.c and merge_large.c only. */
#ifndef TEXT_TOKEN_MERGE_PRIV_H
#define TEXT_TOKEN_MERGE_PRIV_H

#include <stdbool.h>

#include "text/token/tokenizer_priv.h"

#define MERGE_NOWHERE UINT32_MAX

/* The symbol at at swallows the next; its own pair and its left neighbour's are looked up anew. */
void merge_at(struct merge_symbol *symbols, uint32_t at, const struct pair_table *pairs);

/* Asks for the pairs that a merge at at will look up, should nothing near it change until then.  Any at that
 * is or was a symbol will do. */
void merge_foresee(const struct merge_symbol *symbols, uint32_t at, const struct pair_table *pairs);

/* Goes on from symbols as they are linked up, to the end. */
void merge_by_heap(struct merge_work *work, const struct pair_table *pairs);

/* The same, faster for very long words.  False: no memory, or a merge made a pair that should have been done
 * before; what was done until then was right, and merge_by_heap can go on. */
bool merge_by_rank(struct merge_work *work, const struct pair_table *pairs);

#endif
