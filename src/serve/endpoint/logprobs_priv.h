/* SPDX-License-Identifier: Apache-2.0 */
/* Log probabilities of an answer's text, token by token.
 *
 * Each token is pushed before its text goes through the answer.  The answer may hold the text back (half a
 * character, a possible stop string), deliver it, or put it elsewhere (a call, thinking).  The caller reports
 * delivered text here, and the tokens that made it become ready to write.  Loop thread only. */
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
/* Makes room for n tokens in all: growth would copy megabytes.  E_NOMEM. */
int logprobs_reserve(struct logprobs *logprobs, size_t n);
int logprobs_push(struct logprobs *logprobs, const struct sample_result *draw); /* E_NOMEM */
/* Adds the logprob of a prompt token, or of the stop id that ended the answer.  Prompt tokens come in order
 * before any push, the stop id last.  The entry is ready at once, and text_offset advances over its text.
 * is_unknown: the token has no logprob (the prompt's first token).  E_NOMEM. */
int logprobs_push_prompt(struct logprobs *logprobs, const struct sample_result *score, bool is_unknown);
/* Ends the prompt.  text is the prompt's text; text_offset continues after it. */
void logprobs_end_prompt(struct logprobs *logprobs, struct bytes text);
/* Reports that this text was delivered. */
void logprobs_text(struct logprobs *logprobs, struct bytes text);
/* Drops pushed tokens whose text was not delivered and never will be: it went into a call or thinking.
 * A token delivered in part counts as delivered. */
void logprobs_skip(struct logprobs *logprobs);
/* The same where text may end.  The tokens of a character that a limit has cut count as delivered. */
void logprobs_end_text(struct logprobs *logprobs);
bool logprobs_is_ready(const struct logprobs *logprobs); /* true if anything is ready to write */

/* These three append the ready tokens and forget them.  put_chat: {"content":[...],"refusal":null}.
 * put_text: {"tokens":[...],"token_logprobs":[...],"top_logprobs":[...],"text_offset":[...]}.  E_NOMEM. */
/* put_items: the items of a JSON list, {...},{...}. */
int logprobs_put_items(struct logprobs *logprobs, struct buf *out);
int logprobs_put_chat(struct logprobs *logprobs, struct buf *out);
int logprobs_put_text(struct logprobs *logprobs, struct buf *out);

#endif
