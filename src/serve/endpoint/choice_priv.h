/* SPDX-License-Identifier: Apache-2.0 */
/* A request's answers, of which there may be several: what stands of each, and who asks the backend for it.
 */
#ifndef SERVE_ENDPOINT_CHOICE_PRIV_H
#define SERVE_ENDPOINT_CHOICE_PRIV_H

#include "serve/answer/answer.h"
#include "serve/endpoint/front_priv.h"
#include "serve/endpoint/logprobs_priv.h"
#include "serve/answer/record.h"

struct collected { /* a block of an answer that is sent as a whole */
    enum gen_block_kind kind;
    char id[IDS_BYTES];
    struct buf name; /* or the signature of thinking */
    struct buf text; /* or a call's arguments */
};

enum choice_state {
    CHOICE_WAITING, /* not handed on yet: another choice computes their prompt first */
    CHOICE_PLACED,  /* the backend has it */
    CHOICE_RUNNING, /* accepted: its cached prefix is known */
    CHOICE_OVER     /* its answer is complete */
};

struct choice { /* one of a request's answers: a job of its own; what every token needs comes first */
    struct request *request;
    uint32_t index; /* as the client counts them, from 0 */
    enum choice_state state;
    struct answer *answer;
    struct record *record; /* NULL: it is not remembered */
    uint64_t last_ns;      /* when tokens came last */
    uint32_t n_output;
    unsigned n_blocks;         /* begun */
    struct logprobs *logprobs; /* NULL: not asked for */
    bool has_logprobs;         /* the backend gives them */

    bool is_clamped;             /* max_tokens was cut to what the context leaves */
    const struct prompt *prompt; /* one of the request's */
    struct gen_handle *handle;   /* NULL: the backend does not have it */
    struct gen_proof proof;
    enum gen_stop stop;         /* once it is over ... */
    struct bytes stop_sequence; /* ... and the one that matched */

    uint32_t n_scored; /* of the prompt's tokens, in logprobs */
    bool has_stop_score;
    struct sample_result stop_score; /* of the stop id that ended it */
    unsigned n_calls;
    struct collected *blocks; /* [n_blocks]; NULL in a stream */
};

/* choices.c: the request's answers in the backend's hands */
void choices_submit(struct request *request);                /* tokenised; may fail the request */
void choices_withdraw(struct request *request);              /* takes back what the backend has */
void choices_pause(struct request *request, bool is_paused); /* may end the request */
void choices_fini(struct request *request);
void choices_fail(struct request *request, const struct gen_failure *failure); /* ends it */
bool choice_is_repeated(const struct choice *choice); /* has the one before it the same prompt? */
void choice_withdraw(struct choice *choice);          /* the backend forgets it; its proof so far is kept */

/* choice_events.c: what the backend says */
extern const struct gen_events choice_events;     /* their arg is the choice */
int choice_begin_logprobs(struct choice *choice); /* before it is handed on, if they are asked for; E_NOMEM */

/* choice_end.c: how they end */
/* The choice's answer is complete, and with the last one the request's.  stop_sequence: the one that matched,
 * in the request's memory. */
void choice_finish(struct choice *choice, enum gen_stop why, struct bytes stop_sequence);
void choice_finish_early(struct choice *choice); /* the same; its answer's text brought the end about */
/* Keeps the answer for when the conversation comes back.  Whatever fails here costs a cache hit. */
void choice_remember(struct choice *choice, enum gen_stop why, bool is_early);
/* Sets the request's proof.  Tokens are added up, each choice's prompt too, since each was computed or
 * reused; of times, which overlap, the longest counts. */
void choices_sum_proof(struct request *request);

/* choice_job.c: what the backend is asked for one of them */
uint32_t choices_per_prompt(const struct request *request);
bool choice_scores_prompt(const struct choice *choice); /* are log probabilities of the prompt asked for? */
/* Biases in the sampler's words, in the request's memory: before the first job.  E_NOMEM. */
int choices_make_bias(struct request *request);
/* Fills job, whose tokens and constraint are the caller's to free or to hand on; sets is_clamped.  E_NOMEM.
 */
int choice_job(struct choice *choice, struct gen_job *job);

#endif
