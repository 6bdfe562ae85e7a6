/* SPDX-License-Identifier: Apache-2.0 */
/* The transcript of one answer: a sink in front of the client's sink that records the answer for the
 * answer cache. */
#ifndef SERVE_ANSWER_TRANSCRIPT_H
#define SERVE_ANSWER_TRANSCRIPT_H

#include "serve/answer/answer.h"
#include "serve/conversation/answer_cache.h"
#include "serve/prompt/prompt.h"

struct transcript;

extern const struct answer_sink transcript_sink; /* its arg is the transcript */

/* Passes everything on to the sink, borrowed with its arg.  E_NOMEM. */
int transcript_new(const struct answer_sink *sink, void *arg, struct transcript **out);
void transcript_free(struct transcript *transcript); /* accepts NULL */
/* Records tokens that were pushed into the answer, up to the one that made it complete.  When memory runs out the
 * transcript ends; the answer continues. */
void transcript_tokens(struct transcript *transcript, const token_id *ids, size_t n);

/* Prefetches the memory that transcript_tokens() needs.  A second call (is_deep) prefetches the memory that the
 * first one's data points to.  Accepts NULL. */
void transcript_fetch(const struct transcript *transcript, bool is_deep);

struct transcript_end {
    const struct gen_model *model;
    const struct prompt *prompt; /* the prompt that it answers */
    struct bytes prefill;        /* the beginning of its text, sent by the client */
    const struct answer *answer; /* that a stop string or a limit ended; else it may be NULL */
    enum gen_stop stop;
    bool is_early;         /* its text ended it, not the model or a limit */
    bool has_other_prompt; /* the prompt's ids come from another router, its base does not */
};

/* Builds the answer for the answer cache to take.  It is_keyless, so that only a conversation can keep it, if its ids
 * cannot stand for it in a prompt (its text does not determine them, the tokens that close it are missing, or its
 * prompt is another router's), if it has no blocks, or if its calls are so large that sorting them, or so far from its
 * end that finding their ids, would hold up the loop.  E_UNSUPPORTED: it was cut within a call or in thinking.
 * E_NOMEM. */
int transcript_finish(struct transcript *transcript, const struct transcript_end *end,
                      struct cached_answer **out);

#endif
