/* SPDX-License-Identifier: Apache-2.0 */
/* Turns tokens into content blocks: detokenises, splits into thinking, text and tool calls, and stops at
 * stop strings.
 *
 * One block is open at a time.  The output goes to a sink: a stream's sink writes events, a whole
 * answer's sink collects blocks. */
#ifndef SERVE_ANSWER_ANSWER_H
#define SERVE_ANSWER_ANSWER_H

#include "compute/sample/stop.h"
#include "text/toolcall/calls.h"
#include "serve/api/gen.h"
#include "serve/prompt/served_model.h"

struct answer;

struct answer_sink { /* each call returns 0 or a negative code, which ends the answer */
    int (*open_text)(void *arg);
    int (*text)(void *arg, struct bytes text); /* never empty, whole characters */
    int (*open_thinking)(void *arg);
    int (*thinking)(void *arg, struct bytes text); /* the same; not called at all when thinking is hidden */
    int (*signature)(void *arg, struct bytes signature); /* once, last of a thinking block; never empty */
    int (*open_call)(void *arg, const char *id, struct bytes name);
    int (*arguments)(void *arg, struct bytes json);
    int (*close)(void *arg, enum calls_end how); /* text and thinking blocks: CALLS_WHOLE */
};

struct answer_scratch { /* used only during a push; zeroed at first, shared by one thread's answers */
    struct buf piece;   /* detokenised text of one token */
    struct buf text;    /* text or thinking, delivered at the end of the push */
};

void answer_scratch_fini(struct answer_scratch *scratch);

struct answer_opts {
    struct answer_scratch *scratch;    /* outlives the answer */
    const struct gen_model *model;     /* outlives the answer */
    const struct gen_request *request; /* the same: its tools are read later */
    const char *id_seed;               /* borrowed likewise; call ids are derived from it; NULL: they are
                                        * random */
    const struct stop_set *stops;      /* of request's stop sequences; outlives the answer; NULL: none */
    bool begins_thinking;              /* the prompt has opened the thinking block */
};

/* sink and arg are borrowed.  E_NOMEM. */
int answer_new(const struct answer_opts *opts, const struct answer_sink *sink, void *arg,
               struct answer **out);
void answer_free(struct answer *answer);

/* Prefetches into the CPU cache what the next push needs.  A second call (is_deep) prefetches what the
 * first one's data points to. */
void answer_fetch(const struct answer *answer, bool is_deep);
/* 1: the answer is complete (a stop string matched, or the one allowed call ended); push nothing more.
 * 0: the answer continues. */
int answer_push(struct answer *answer, const token_id *ids, size_t n);
/* The model ended.  limit: GEN_STOP_MAX_TOKENS or GEN_STOP_CONTEXT when a limit cut the answer, else
 * GEN_STOP_END_TURN. */
int answer_finish(struct answer *answer, enum gen_stop limit);

/* After the end: the stop reason, and the index of the stop string (GEN_STOP_SEQUENCE). */
enum gen_stop answer_stop(const struct answer *answer);
size_t answer_stop_index(const struct answer *answer);
/* The same: how much text of the pushed tokens lies behind the delivered text, from the stop string on; 0: none
 * matched. */
size_t answer_cut_bytes(const struct answer *answer);
/* Appends the text of a token as the answer reads it: a mark is spelled, also if it is a control token. */
int answer_spell(const struct answer *answer, struct detok *detok, token_id id, struct buf *text);
/* Number of tokens so far: of those pushed, all up to the one that made the answer complete.  How the pushes grouped
 * them does not matter. */
uint32_t answer_tokens(const struct answer *answer);
/* Number of thinking tokens so far. */
uint32_t answer_thinking_tokens(const struct answer *answer);

#endif
