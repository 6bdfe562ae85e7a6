/* SPDX-License-Identifier: Apache-2.0 */
/* Log probabilities of an answer's text, token by token.
 *
 * Each token is pushed before its text goes through the answer.  The answer may hold the text back (half
 * a character, a possible stop string), deliver it, or use it otherwise (a call, thinking).  The caller
 * reports delivered text here, and the tokens that made it become ready to write.  One loop's thread. */
#ifndef SERVE_ENDPOINT_LOGPROBS_PRIV_H
#define SERVE_ENDPOINT_LOGPROBS_PRIV_H

#include "compute/sample/sampler.h"
#include "text/token/tokenizer.h"

struct logprobs;

/* tokenizer is borrowed.  n_top: the number of likeliest tokens written for each, at most SAMPLE_MAX_TOP.
 * is_continuation is passed to detok_init, for sampled and for prompt tokens.  E_NOMEM. */
int logprobs_new(const struct tokenizer *tokenizer, uint32_t n_top, bool is_continuation,
                 struct logprobs **out);
void logprobs_begin_text(struct logprobs *logprobs); /* the prompt's text is not a continuation */
void logprobs_free(struct logprobs *logprobs);
int logprobs_push(struct logprobs *logprobs, const struct sample_result *draw); /* E_NOMEM */
/* Adds a prompt logprob: of prompt tokens in order before any push, or at the very end of the stop id
 * that ended the answer.  It is ready at once, and text_offset advances over its text.  is_unknown: the
 * token has no logprob (the first).  E_NOMEM. */
int logprobs_push_prompt(struct logprobs *logprobs, const struct sample_result *score, bool is_unknown);
/* The prompt is complete and has this text; text_offset continues after it. */
void logprobs_end_prompt(struct logprobs *logprobs, struct bytes text);
/* Reports that this text was delivered. */
void logprobs_text(struct logprobs *logprobs, struct bytes text);
/* Drops pushed tokens that were not delivered: they were not text or never will be.  A token delivered in
 * part counts as whole. */
void logprobs_skip(struct logprobs *logprobs);
bool logprobs_is_ready(const struct logprobs *logprobs); /* true if anything is ready to write */

/* Append the ready tokens and forget them: {"content":[...],"refusal":null} or {"tokens":[...],
 * "token_logprobs":[...],"top_logprobs":[...],"text_offset":[...]}.  E_NOMEM. */
/* The same as the items of a JSON list: {...},{...}. */
int logprobs_put_items(struct logprobs *logprobs, struct buf *out);
int logprobs_put_chat(struct logprobs *logprobs, struct buf *out);
int logprobs_put_text(struct logprobs *logprobs, struct buf *out);

#endif
