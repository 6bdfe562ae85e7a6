/* SPDX-License-Identifier: Apache-2.0 */
/* Finds earlier occurrences of a text's last tokens, for draft tokens.
 *
 *     text    ... a b c d e f ...... x b c | d e f ?
 *                     ^ found: the longest earlier match of the text's ending; its continuation is the draft
 *
 * This is an index over one growing token buffer. Memory is allocated once in ngram_init. Hash tables over
 * two and over three tokens hold the latest position of each. For three tokens, links lead from each
 * position to the previous one with the same hash. A hash hit is checked against the text, so every match
 * is real. One thread; no allocation after ngram_init. */
#ifndef COMPUTE_SCHED_NGRAM_PRIV_H
#define COMPUTE_SCHED_NGRAM_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/engine/engine.h"

struct ngram {       /* zeroed: empty, finds nothing */
    uint32_t *links; /* [cap_tokens] owned: 1 + previous position with the same three tokens, 0: none */
    uint32_t *pairs; /* [1 << bits] 1 + last position where these two tokens ended */
    uint32_t *triples;
    unsigned bits;
    uint32_t n_indexed; /* tokens [0, n_indexed) are indexed */
};

int ngram_init(struct ngram *index, uint32_t cap_tokens); /* on E_NOMEM the index is zeroed */
void ngram_fini(struct ngram *index);
/* Indexes new tokens, a bounded number per call. False: more are left. */
bool ngram_extend(struct ngram *index, const token_id *tokens, uint32_t n_tokens);
/* Position of the token that followed an earlier occurrence of the text's ending: the longest match among
 * the latest positions. *length_out is the match's length, 2 to NGRAM_LENGTH_MAX tokens. Returns 0 if
 * there is no match. */
#define NGRAM_LENGTH_MAX 16
uint32_t ngram_find(const struct ngram *index, const token_id *tokens, uint32_t n_tokens,
                    uint32_t *length_out);

#endif
