/* SPDX-License-Identifier: Apache-2.0 */
/* Log probabilities of an answer's text, token by token.
 *
 * A token is pushed before its text goes through the answer, which may hold it back (half a character, what
 * may become a stop string), give it as text, or take it for something else (a call, thinking).  What is
 * delivered is told here, and the tokens it came from become ready to be written.  One loop's thread. */
#ifndef SERVE_ENDPOINT_LOGPROBS_PRIV_H
#define SERVE_ENDPOINT_LOGPROBS_PRIV_H

#include "compute/sample/sampler.h"
#include "text/token/tokenizer.h"

struct logprobs;

/* tokenizer is borrowed; n_top: likeliest tokens written for each, at most SAMPLE_MAX_TOP; is_continuation as
 * for detok_init, of what is drawn and of what is given.  E_NOMEM. */
int logprobs_new(const struct tokenizer *tokenizer, uint32_t n_top, bool is_continuation,
                 struct logprobs **out);
void logprobs_begin_text(struct logprobs *logprobs); /* what is given is no continuation */
void logprobs_free(struct logprobs *logprobs);
int logprobs_push(struct logprobs *logprobs, const struct sample_result *draw); /* E_NOMEM */
/* A token of the prompt, in order and before any is pushed, or after all the stop id that ended the answer:
 * ready at once, text_offset counts on over its text.  is_unknown: nothing tells how likely it was (the
 * first). E_NOMEM. */
int logprobs_push_given(struct logprobs *logprobs, const struct sample_result *score, bool is_unknown);
/* The prompt is over; this is how it reads: text_offset counts on from there. */
void logprobs_end_prompt(struct logprobs *logprobs, struct bytes text);
/* This text was delivered. */
void logprobs_text(struct logprobs *logprobs, struct bytes text);
/* What was pushed and not delivered was no text, or never will be; of a token that was delivered in part the
 * whole counts. */
void logprobs_skip(struct logprobs *logprobs);
bool logprobs_is_ready(const struct logprobs *logprobs); /* is there anything to write? */

/* Append what is ready, which is then forgotten: {"content":[...],"refusal":null} or {"tokens":[...],
 * "token_logprobs":[...],"top_logprobs":[...],"text_offset":[...]}.  E_NOMEM. */
int logprobs_put_chat(struct logprobs *logprobs, struct buf *out);
int logprobs_put_text(struct logprobs *logprobs, struct buf *out);

#endif
