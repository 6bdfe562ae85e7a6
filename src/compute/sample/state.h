/* SPDX-License-Identifier: Apache-2.0 */
/* What a sequence's own tokens do to its next draw: penalties for tokens that were there, biases, and the
 * shape that the answer must have.
 *
 * Everything here is a function of the tokens alone: of the prompt, and of the answer so far in its order.
 * How the tokens came to be known (drawn here, answered by another worker, guessed and taken back) leaves no
 * trace, so a sequence that moves, is preempted or speculates draws the same tokens.  There is one exception:
 * where a shape is so involved that a mask would take more looks than it may (docs/grammars.md), the mask
 * holds what was found so far and the shortest way on, and what was found before by other sequences counts.
 *
 * A logit is bent in this order, each step in single precision:
 *
 *     repetition   in prompt or answer: divided by it if above 0, else multiplied
 *     frequency    minus frequency_penalty x (times in the answer)
 *     presence     minus presence_penalty, if in the answer
 *     bias         plus bias
 *
 * One thread, with a grammar that of the grammar. */
#ifndef COMPUTE_SAMPLE_STATE_H
#define COMPUTE_SAMPLE_STATE_H

#include "text/grammar/grammar.h"
#include "compute/sample/sampler.h"

struct sample_state;

/* Nothing depends on the tokens: *out is NULL, which all calls below take for "no such state".  The bias is
 * copied (ids beyond the vocabulary count for nothing), a reference to grammar (may be NULL) is taken.
 * cap_tokens: prompt and answer together never have more.  E_NOMEM. */
int sample_state_new(const struct sample_opts *opts, struct grammar *grammar, uint32_t vocab_size,
                     uint32_t cap_tokens, struct sample_state **out);
void sample_state_free(struct sample_state *state);

void sample_state_prompt(struct sample_state *state, const token_id *ids, uint32_t n);
/* The answer's next token, below vocab_size.  E_INVAL: the shape does not allow it (nothing changed).
 * E_NOMEM. */
int sample_state_push(struct sample_state *state, token_id id);
/* Takes the n tokens pushed last back, ids[0] the first of them; all were pushed since sample_state_settle().
 */
void sample_state_pop(struct sample_state *state, const token_id *ids, uint32_t n);
void sample_state_settle(struct sample_state *state); /* what was pushed stays */

/* As grammar_mask(): one bit a token, NULL: all; valid until the next call with any state of this grammar. */
const uint64_t *sample_state_mask(struct sample_state *state, uint32_t tokens_left);
bool sample_state_is_complete(const struct sample_state *state); /* the shape may end here */
/* As grammar_forced(). */
uint32_t sample_state_forced(struct sample_state *state, token_id *ids_out, uint32_t max);
bool sample_state_has_shape(const struct sample_state *state);

/* Bends the logits of all tokens it has to do with, [vocab_size]; unbend puts back what was there, bit by
 * bit. Costs the number of different tokens, whatever the vocabulary. */
void sample_state_bend(struct sample_state *state, float *logits);
void sample_state_unbend(struct sample_state *state, float *logits);
/* For an engine without logits: whether any logit is bent at all; the logit of one token, bent; and, of the
 * tokens with a bias, the one that a logit of 0 is bent highest, if that is above highest (else best). */
bool sample_state_is_bent(const struct sample_state *state);
float sample_state_bent(const struct sample_state *state, token_id id, float logit);
token_id sample_state_most(const struct sample_state *state, float highest, token_id best);

#endif
