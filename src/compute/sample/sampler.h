/* SPDX-License-Identifier: Apache-2.0 */
/* Logits -> one token. The sampled token depends only on (seed, position) and the logits: the generator is
 * counter-based. So a sequence that moves to another worker in mid-answer continues with the same tokens.
 *
 * Filters in this order; each works on the tokens that the one before left:
 *    temperature  weight of a token = exp((logit - highest logit) / temperature)
 *    top-k        the k heaviest
 *    top-p        the fewest heaviest whose weights reach top_p of the sum of all that are left
 *    min-p        those of at least min_p times the heaviest weight
 * Of equal logits the lower id counts as heavier. Weights are fixed-point integers, so no sum depends on
 * its order. sampler.c defines the result to the last bit.
 * How to change it: docs/changes-api.md, "A sampling parameter". */
#ifndef COMPUTE_SAMPLE_SAMPLER_H
#define COMPUTE_SAMPLE_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "text/token/tokenizer.h"

#define SAMPLE_MAX_TOP        20
#define SAMPLE_MAX_BIAS       1024
#define SAMPLE_MAX_STOP_BYTES 65536 /* all stop strings of a request together */

struct sample_bias { /* added to a token's logit */
    token_id id;
    float bias;
};

struct sample_top { /* one of the likeliest tokens */
    token_id id;
    float logprob;
};

struct sample_opts {
    float temperature;  /* 0 (or less, or NaN): greedy, ties to the lowest id */
    float top_p;        /* 1: off */
    float min_p;        /* 0: off */
    uint32_t top_k;     /* 0: off */
    bool wants_logprob; /* costs a pass over the vocabulary */
    uint32_t n_top;     /* with wants_logprob: also the n_top likeliest tokens, at most SAMPLE_MAX_TOP */
    uint64_t seed;
    /* OpenAI's penalties for tokens of the answer: a logit loses frequency_penalty per occurrence and
     * presence_penalty once. */
    float frequency_penalty, presence_penalty;
    float repetition_penalty; /* for tokens of the prompt and the answer: logits above 0 are divided by it,
                                 others multiplied; 0 and 1: off */
    const struct sample_bias *bias; /* borrowed, [n_bias], at most SAMPLE_MAX_BIAS; ids ascending */
    uint32_t n_bias;
    uint32_t min_tokens;      /* so many tokens of the answer come before a stop id may be sampled; 0: off */
    const token_id *stop_ids; /* borrowed, [n_stop_ids]; the scheduler fills them in for min_tokens */
    uint32_t n_stop_ids;
};

struct sample_result {
    token_id id;
    float logprob; /* natural log, of the untempered, unfiltered distribution; 0 when not asked for */
    uint32_t n_top;
    bool is_spoilt; /* a logit that was read is NaN or infinite: its computation is damaged */
    struct sample_top top[SAMPLE_MAX_TOP]; /* likeliest first, of the same distribution */
};

struct sampler; /* scratch for one vocabulary size; one thread */

/* Allocates all memory. E_INVAL: 0 or more than 2^23 tokens. E_NOMEM. */
int sampler_new(uint32_t vocab_size, struct sampler **out);
void sampler_free(struct sampler *sampler);

/* Samples a token. logits: [vocab_size], left unchanged. position: index of the sampled token in its
 * sequence (prompt included). Never fails: NaN counts as -inf, +inf as the largest float; if all logits
 * are -inf, id is 0. */
void sampler_draw(struct sampler *sampler, const float *logits, const struct sample_opts *opts,
                  uint64_t position, struct sample_result *out);

struct sample_state; /* compute/sample/state.h */

struct sample_place { /* the place in its sequence where a token is sampled */
    uint64_t position;
    struct sample_state *state; /* of the tokens before position; NULL: no penalties, bias or grammar */
    uint32_t tokens_left;       /* for the grammar: tokens that may still be sampled, this one included */
};

/* Computes the logprob of a given next token: out->id is that token. The log probabilities are those of
 * sampler_draw() with wants_logprob. E_INVAL: TOKEN_NONE, or a token beyond the vocabulary. */
int sampler_score(struct sampler *sampler, const float *logits, token_id id, uint32_t n_top,
                  struct sample_result *out);

/* sampler_draw() with penalties, bias and grammar of the state; those of opts are ignored. Tokens that the
 * grammar forbids count as -inf before top-k, top-p and min-p. The log probabilities are still those of
 * sampler_draw(). logits are changed and restored. id is TOKEN_NONE if the grammar allows no token. */
void sampler_draw_at(struct sampler *sampler, float *logits, const struct sample_opts *opts,
                     const struct sample_place *place, struct sample_result *out);

#endif
