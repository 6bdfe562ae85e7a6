/* SPDX-License-Identifier: Apache-2.0 */
/* The choices of a request: the state of each answer, and the calls that submit it to the backend. */
#ifndef SERVE_ENDPOINT_CHOICE_PRIV_H
#define SERVE_ENDPOINT_CHOICE_PRIV_H

#include "serve/answer/answer.h"
#include "serve/endpoint/front_priv.h"
#include "serve/endpoint/logprobs_priv.h"
#include "serve/answer/transcript.h"

struct collected { /* a block of an answer that is sent as one reply */
    enum gen_block_kind kind;
    char id[IDS_BYTES];
    struct buf name;     /* name of a call, or the signature of thinking */
    struct buf text;     /* text, or the arguments of a call */
    struct buf logprobs; /* logprobs of text as items of a JSON list; only in a Responses stream */
    bool lacks_logprobs; /* they were too many to be repeated */
    bool is_escaped;     /* the text is the inside of a JSON string: of a Responses stream */
    bool is_cut;         /* a limit ended it early, or its arguments are not valid JSON */
};

#define CHOICE_SLICE_TOKENS ((size_t)128 << 10) /* how many prompt tokens one turn of the loop copies */

enum choice_state {
    CHOICE_WAITING, /* not submitted: another choice computes the shared prompt first */
    CHOICE_PLACED,  /* the backend has it */
    CHOICE_RUNNING, /* accepted: its cached prefix is known */
    CHOICE_OVER     /* its answer is complete */
};

struct choice { /* one answer of a request, with its own job; fields used for every token come first */
    struct request *request;
    uint32_t index; /* the client's number for it, from 0 */
    enum choice_state state;
    struct answer *answer;
    struct transcript *transcript; /* NULL: neither the answer cache nor a conversation keeps the answer */
    uint64_t last_ns;              /* time of the last tokens */
    unsigned n_blocks;             /* blocks started so far */
    uint32_t n_events;             /* numbered events of a Responses stream so far */
    struct logprobs *logprobs;     /* NULL: not requested */
    bool has_logprobs;             /* the backend delivers them */

    bool is_clamped;             /* max_tokens was cut to the remaining context */
    const struct prompt *prompt; /* one of the request's prompts */
    struct work_order order;     /* WAITING: filled slice by slice */
    struct gen_handle *handle;   /* NULL: the backend does not hold it */
    struct gen_serving serving;
    enum gen_stop stop;         /* a limit, while the answer is closed; final once it is over ... */
    struct bytes stop_sequence; /* ... and the stop sequence that matched */

    uint32_t n_prompt_logprobs; /* prompt tokens with logprobs so far */
    bool has_stop_score;
    struct sample_result stop_score; /* logprob of the stop id that ended the answer */
    float *embedding;                /* heap, [n_dims]; NULL: none yet, or rendered */
    uint32_t n_dims, n_rendered;     /* n_rendered: its numbers in request.body */
    unsigned n_calls;
    struct collected *blocks; /* [n_blocks]; NULL in a stream, except for Responses */
    size_t repeated_bytes;    /* of logprobs in blocks */
};

/* choices.c: submitting choices to the backend and withdrawing them */
void choices_submit(struct request *request); /* once tokenised; may fail the request */
/* Like choices_withdraw, but the worker keeps the work: another router resumes the stream. */
void choices_leave(struct request *request);
/* Withdraws the jobs and ends the request.  The orders are kept, so that the client can return for its stream. */
void choices_refuse(struct request *request, const struct api_error *error);
void choices_withdraw(struct request *request); /* withdraws all jobs from the backend */
void choices_pause(struct request *request, bool is_paused);
void choices_fini(struct request *request);
void choices_fail(struct request *request, const struct gen_failure *failure); /* ends the request */
bool choice_is_repeated(const struct choice *choice); /* the previous choice has the same prompt */
void choice_withdraw(struct choice *choice);          /* cancels the job; keeps its serving stats so far */

/* choice_events.c: the backend's events */
extern const struct gen_events choice_events;     /* their arg is the choice */
int choice_begin_logprobs(struct choice *choice); /* before submission, if requested; E_NOMEM */

/* choice_end.c: how choices end */
/* Ends a choice whose answer is complete; the last one ends the request.  stop_sequence: the one that
 * matched, in the request's memory. */
void choice_finish(struct choice *choice, enum gen_stop why, struct bytes stop_sequence);
void choice_finish_early(struct choice *choice); /* the same, when the answer's own text ended it */
/* Stores the answer in the answer cache.  A failure here only costs a cache hit. */
void choice_remember(struct choice *choice, enum gen_stop why, bool is_early);
/* Sets the request's serving stats.  Tokens are summed over choices, and so are prompts, because each choice
 * computed or reused its prompt.  Times overlap, so the longest one counts. */
void choices_sum_serving(struct request *request);

/* choice_job.c: the job that a choice submits */
uint32_t choices_per_prompt(const struct request *request);
bool choice_scores_prompt(const struct choice *choice); /* true if prompt logprobs are requested */
/* Builds the choice's work order, one slice a call, and sets is_clamped.
 * 1: the order is complete. E_NOMEM. */
int choice_order_work(struct choice *choice);

#endif
