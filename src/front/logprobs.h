/* SPDX-License-Identifier: Apache-2.0 */
/* Log probabilities of an answer's text, token by token.
 *
 * A token is pushed before its text goes through the answer, which may hold it back (half a character, what
 * may become a stop string), give it as text, or take it for something else (a call, thinking).  What is
 * delivered is told here, and the tokens it came from become ready to be written.  One loop's thread. */
#ifndef FRONT_LOGPROBS_H
#define FRONT_LOGPROBS_H

#include "sample/sampler.h"
#include "token/tokenizer.h"

struct logprobs;

/* tokenizer is borrowed; n_top: likeliest tokens written for each, at most SAMPLE_MAX_TOP; is_continuation as
 * for detok_init.  E_NOMEM. */
int logprobs_new(const struct tokenizer *tokenizer, uint32_t n_top, bool is_continuation,
                 struct logprobs **out);
void logprobs_free(struct logprobs *logprobs);
int logprobs_push(struct logprobs *logprobs, const struct sample_result *draw); /* E_NOMEM */
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
