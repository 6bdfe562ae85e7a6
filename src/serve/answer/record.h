/* SPDX-License-Identifier: Apache-2.0 */
/* An answer in the making, written down for the memory on its way to the client: a sink before the sink. */
#ifndef SERVE_ANSWER_RECORD_H
#define SERVE_ANSWER_RECORD_H

#include "serve/answer/answer.h"
#include "serve/conversation/memory.h"
#include "serve/prompt/prompt.h"

struct record;

extern const struct answer_sink record_sink; /* its arg is the record */

/* What comes goes on to the sink, borrowed with its arg.  E_NOMEM. */
int record_new(const struct answer_sink *sink, void *arg, struct record **out);
void record_free(struct record *record); /* NULL is fine */
/* Tokens about to be pushed into the answer.  For want of memory the record ends, and not the answer. */
void record_tokens(struct record *record, const token_id *ids, size_t n);

/* What that needs is fetched into the cache; the second time (is_deep) what the first has found.  NULL is
 * fine.
 */
void record_fetch(const struct record *record, bool is_deep);

struct record_end {
    const struct gen_model *model;
    const struct prompt *prompt; /* that it answers */
    struct bytes prefill;        /* the beginning of its text, which the client sent */
    enum gen_stop stop;
    bool is_early; /* its text ended it, and not the model or a limit */
};

/* The answer, to be taken by the memory.  E_UNSUPPORTED: it is not one that could stand for
 * itself in a prompt (cut within a call or in thinking, or not to be told from the text).  E_NOMEM. */
int record_finish(struct record *record, const struct record_end *end, struct memory_answer **out);

#endif
