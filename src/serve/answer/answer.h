/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens -> content blocks: detokenised, split into thinking, text and tool calls, ended by stop strings.
 *
 * One block is open at a time.  What comes out goes to a sink: a stream writes events, a whole answer is
 * collected. */
#ifndef SERVE_ANSWER_ANSWER_H
#define SERVE_ANSWER_ANSWER_H

#include "text/toolcall/calls.h"
#include "serve/api/gen.h"
#include "serve/prompt/served_model.h"

struct answer;

struct answer_sink { /* each returns 0 or a negative code, which ends the answer */
    int (*open_text)(void *arg);
    int (*text)(void *arg, struct bytes text); /* never empty, whole characters */
    int (*open_thinking)(void *arg);
    int (*thinking)(void *arg, struct bytes text);       /* the same; not at all when it is to be hidden */
    int (*signature)(void *arg, struct bytes signature); /* once, last of a thinking block; never empty */
    int (*open_call)(void *arg, const char *id, struct bytes name);
    int (*arguments)(void *arg, struct bytes json);
    int (*close)(void *arg, enum calls_end how); /* text and thinking blocks: CALLS_WHOLE */
};

struct answer_scratch { /* what lives during a push only; zeroed, shared by the answers of one thread */
    struct buf piece;   /* detokenised text of one token */
    struct buf text;    /* text or thinking, delivered at the end of the push */
};

void answer_scratch_fini(struct answer_scratch *scratch);

struct answer_opts {
    struct answer_scratch *scratch;    /* outlives the answer */
    const struct gen_model *model;     /* outlives the answer */
    const struct gen_request *request; /* the same: its tools are looked at again */
    bool begins_thinking;              /* the prompt has opened the thinking */
};

/* sink and arg are borrowed.  E_NOMEM. */
int answer_new(const struct answer_opts *opts, const struct answer_sink *sink, void *arg,
               struct answer **out);
void answer_free(struct answer *answer);

/* What the next push needs is fetched into the cache; the second time (is_deep) what the first has found. */
void answer_fetch(const struct answer *answer, bool is_deep);
/* 1: the answer is complete (a stop string, or the one call that was allowed); nothing more may be pushed. 0:
 * go on. */
int answer_push(struct answer *answer, const token_id *ids, size_t n);
/* The model ended.  limit: GEN_STOP_MAX_TOKENS or GEN_STOP_CONTEXT when it was cut, else GEN_STOP_END_TURN.
 */
int answer_finish(struct answer *answer, enum gen_stop limit);

/* After the end: why, and the index of the stop string (GEN_STOP_SEQUENCE). */
enum gen_stop answer_stop(const struct answer *answer);
size_t answer_stop_index(const struct answer *answer);
/* Tokens so far that were thinking. */
uint32_t answer_thinking_tokens(const struct answer *answer);

#endif
