/* SPDX-License-Identifier: Apache-2.0 */
/* Where the last tokens of a text occurred before in it.
 *
 *     text    ... a b c d e f ...... x b c | d e f ?
 *                     ^ found: the longest earlier ending that equals the text's own, and what followed
 *
 * An index over one growing token buffer, fed as it grows.  Its memory is fixed when it is made: heads by
 * hash of two and of three tokens, which hold the latest place, and for three tokens a link from each place
 * to the one before.  What a hash hides is looked at in the text itself, so nothing is found that is not
 * there.  One thread; no allocation after ngram_init. */
#ifndef COMPUTE_SCHED_NGRAM_PRIV_H
#define COMPUTE_SCHED_NGRAM_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/engine/engine.h"

struct ngram {       /* a zeroed one is empty and finds nothing */
    uint32_t *links; /* [cap_tokens] owned: place + 1 of the same three tokens before, 0: none */
    uint32_t *pairs; /* [1 << bits] place + 1 where two tokens ended last */
    uint32_t *triples;
    unsigned bits;
    uint32_t n_indexed; /* endings of tokens [0, n_indexed) are in */
};

int ngram_init(struct ngram *index, uint32_t cap_tokens); /* E_NOMEM leaves it zeroed */
void ngram_fini(struct ngram *index);
/* Takes in the text's growth, at most so many tokens at once.  False: there is more. */
bool ngram_extend(struct ngram *index, const token_id *tokens, uint32_t n_tokens);
/* Place of the token that followed an earlier occurrence of the text's ending, the longest among the latest;
 * its length (2 to NGRAM_LENGTH_MAX tokens) in length_out.  0: there is none. */
#define NGRAM_LENGTH_MAX 16
uint32_t ngram_find(const struct ngram *index, const token_id *tokens, uint32_t n_tokens,
                    uint32_t *length_out);

#endif
