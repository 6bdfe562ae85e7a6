/* SPDX-License-Identifier: Apache-2.0 */
/* The effect of a sequence's own tokens on its next one: penalties for earlier tokens, biases, and the
 * grammar that the answer must match.
 *
 * All of this is a function of the tokens alone: the prompt, and the answer so far in its order. The
 * source of the tokens leaves no trace (sampled here, answered by another worker, drafted and rejected).
 * So a sequence that moves, is preempted or speculates samples the same tokens. There is one exception:
 * some grammars are so complex that a complete mask would exceed the limit of steps (docs/grammars.md).
 * Then the mask holds the tokens found so far and the shortest way to the end. It then also depends on
 * what other sequences have found before.
 *
 * A logit is changed in this order, each step in single precision:
 *
 *     repetition   token in prompt or answer: divided by it if above 0, else multiplied
 *     frequency    minus frequency_penalty x (times in the answer)
 *     presence     minus presence_penalty, if in the answer
 *     bias         plus bias
 *     min_tokens   a stop id of an answer that is shorter: the least finite number
 *
 * A barred stop id has weight 0, unless it is the only token that the grammar allows: it ends the answer then.
 *
 * More than 15 functions: the sampler reads a state through its logits, the simulated engine one token at a time.
 *
 * One thread; with a grammar, the grammar's thread. */
#ifndef COMPUTE_SAMPLE_STATE_H
#define COMPUTE_SAMPLE_STATE_H

#include "text/grammar/grammar.h"
#include "compute/sample/sampler.h"

struct sample_state;

/* If nothing depends on the tokens, *out is NULL; all functions below accept NULL as an empty state.
 * Copies bias and stop ids (those beyond the vocabulary are ignored) and takes a reference to grammar (may be NULL).
 * cap_tokens: most tokens of prompt and answer together. E_NOMEM. */
int sample_state_new(const struct sample_opts *opts, struct grammar *grammar, uint32_t vocab_size,
                     uint32_t cap_tokens, struct sample_state **out);
void sample_state_free(struct sample_state *state);

void sample_state_prompt(struct sample_state *state, const token_id *ids, uint32_t n);
/* Appends the answer's next token, below vocab_size. E_INVAL: the grammar does not allow it (nothing
 * changed). E_NOMEM. */
int sample_state_push(struct sample_state *state, token_id id);
/* Removes the last n pushed tokens, ids[0] the first of them. All were pushed after the last
 * sample_state_commit(). */
void sample_state_pop(struct sample_state *state, const token_id *ids, uint32_t n);
void sample_state_commit(struct sample_state *state); /* makes the pushed tokens final */

/* As grammar_mask(): one bit per token, NULL: all allowed. Valid until the next call with any state of
 * this grammar. */
const uint64_t *sample_state_mask(struct sample_state *state, uint32_t tokens_left);
bool sample_state_is_complete(const struct sample_state *state); /* the grammar may end here */
/* As grammar_forced(). */
uint32_t sample_state_forced(struct sample_state *state, token_id *ids_out, uint32_t max);
bool sample_state_has_grammar(const struct sample_state *state);

/* Changes the logits [vocab_size] of all affected tokens; unbend restores them bit by bit. The time
 * depends on the number of different tokens, not on the vocabulary. */
void sample_state_bend(struct sample_state *state, float *logits);
void sample_state_unbend(struct sample_state *state, float *logits);
/* For an engine without logits. is_bent: whether any logit is changed. bent: the changed logit of one
 * token. most: of the tokens with a bias, the one whose logit of 0 is raised highest, if above `highest`
 * (else best). */
bool sample_state_is_bent(const struct sample_state *state);
bool sample_state_bars_stops(const struct sample_state *state); /* the answer is shorter than min_tokens */
float sample_state_bent(const struct sample_state *state, token_id id, float logit);
token_id sample_state_most(const struct sample_state *state, float highest, token_id best);

#endif
