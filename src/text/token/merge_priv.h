/* SPDX-License-Identifier: Apache-2.0 */
/* Two algorithms that merge a word, with the same result. For merge.c and merge_large.c only. */
#ifndef TEXT_TOKEN_MERGE_PRIV_H
#define TEXT_TOKEN_MERGE_PRIV_H

#include <stdbool.h>

#include "text/token/tokenizer_priv.h"

#define MERGE_NOWHERE UINT32_MAX

/* Merges the symbol at index at with the next one, then looks up its new pair and that of its left
 * neighbour. */
void merge_at(struct merge_symbol *symbols, uint32_t at, const struct pair_table *pairs);

/* Prefetches the pairs that merge_at(at) will look up if no symbol near it changes until then. at may be any
 * index that is or was a symbol. */
void merge_foresee(const struct merge_symbol *symbols, uint32_t at, const struct pair_table *pairs);

/* Merges the linked symbols, in their current state, to the end. */
void merge_by_heap(struct merge_work *work, const struct pair_table *pairs);

/* The same, faster for very long words. Returns false when memory runs out, or when a merge made a pair that
 * should have merged earlier. The merges done until then are right, and merge_by_heap() can continue. */
bool merge_by_rank(struct merge_work *work, const struct pair_table *pairs);

#endif
