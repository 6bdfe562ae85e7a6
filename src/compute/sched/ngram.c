/* SPDX-License-Identifier: Apache-2.0 */
/* The index; see ngram_priv.h.  Hot path: no allocation, no log. */
#include "compute/sched/ngram_priv.h"

#include <stdlib.h>

#include "base/err.h"

#define BITS_MIN    6
#define BITS_MAX    16
#define EXTEND_MAX  16384 /* tokens indexed per call: some tenths of a millisecond */
#define LOOK_AT_MAX 12    /* positions that are compared */

static uint32_t ngram_slot(const struct ngram *index, const token_id *end, unsigned n)
{
    uint32_t h = end[0] * 0x9e3779b1u;

    for (unsigned i = 1; i < n; i++)
        h = (h ^ h >> 15) * 0x85ebca6bu + end[-(int)i];
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    return h >> (32 - index->bits);
}

int ngram_init(struct ngram *index, uint32_t cap_tokens)
{
    unsigned bits = BITS_MIN;

    while (bits < BITS_MAX && (UINT32_C(1) << bits) < cap_tokens)
        bits++;
    *index = (struct ngram){.bits = bits};
    index->links = calloc(cap_tokens, sizeof(*index->links));
    index->pairs = calloc((size_t)1 << bits, sizeof(*index->pairs));
    index->triples = calloc((size_t)1 << bits, sizeof(*index->triples));
    if (index->links && index->pairs && index->triples)
        return 0;
    ngram_fini(index);
    return E_NOMEM;
}

void ngram_fini(struct ngram *index)
{
    free(index->triples);
    free(index->pairs);
    free(index->links);
    *index = (struct ngram){0};
}

/* Indexes new tokens, but not the text's own ending, which would find itself. */
bool ngram_extend(struct ngram *index, const token_id *tokens, uint32_t n_tokens)
{
    uint32_t to = n_tokens > 0 ? n_tokens - 1 : 0;
    bool is_all = to <= index->n_indexed || to - index->n_indexed <= EXTEND_MAX;

    if (index->links == NULL)
        return false;
    if (!is_all)
        to = index->n_indexed + EXTEND_MAX;
    for (uint32_t at = index->n_indexed; at < to; at++) {
        if (at >= 1)
            index->pairs[ngram_slot(index, tokens + at, 2)] = at + 1;
        if (at >= 2) {
            uint32_t *head = &index->triples[ngram_slot(index, tokens + at, 3)];

            index->links[at] = *head;
            *head = at + 1;
        }
    }
    if (to > index->n_indexed)
        index->n_indexed = to;
    return is_all;
}

/* How many tokens before and including positions a and b are equal; a < b. */
static uint32_t ngram_common(const token_id *tokens, uint32_t a, uint32_t b)
{
    uint32_t n = 0;

    while (n < NGRAM_LENGTH_MAX && n <= a && tokens[a - n] == tokens[b - n])
        n++;
    return n;
}

uint32_t ngram_find(const struct ngram *index, const token_id *tokens, uint32_t n_tokens,
                    uint32_t *length_out)
{
    uint32_t last = n_tokens - 1, best = 0, length = 1;

    if (index->links == NULL || n_tokens < 3)
        return 0;
    uint32_t at = index->triples[ngram_slot(index, tokens + last, 3)];
    for (unsigned i = 0; at > 0 && i < LOOK_AT_MAX && length < NGRAM_LENGTH_MAX; i++) {
        uint32_t n = ngram_common(tokens, at - 1, last);

        if (n > length) {
            length = n;
            best = at;
        }
        at = index->links[at - 1];
    }
    at = index->pairs[ngram_slot(index, tokens + last, 2)];
    if (at > 0 && length < 2) {
        length = ngram_common(tokens, at - 1, last);
        best = length >= 2 ? at : 0;
    }
    *length_out = length;
    return best;
}
