/* SPDX-License-Identifier: Apache-2.0 */
/* Speculation, shared by its files: draft.c (look-up, grammar, learning), draft_choose.c (how many),
 * draft_model.c (a second, smaller model, or an MTP head). */
#ifndef COMPUTE_SCHED_DRAFT_PRIV_H
#define COMPUTE_SCHED_DRAFT_PRIV_H

#include "compute/sched/cost.h"
#include "compute/sched/ngram_priv.h"
#include "compute/sched/sched.h"

enum {
    DRAFT_MAX = 64,    /* most draft tokens for one sequence in one step; options cannot exceed it */
    DRAFT_CHOICES = 64 /* most sequences with draft tokens in one step */
};

/* Least gain in expected tokens per second over plain decoding. */
#define DRAFT_GAIN_MIN 1.05

enum draft_kind { /* of draft sources, each with its own acceptance rate; 2 to 12: length of the match */
                  KIND_RESUMED,
                  KIND_2,
                  KIND_3,
                  KIND_4,
                  KIND_6,
                  KIND_12,
                  KIND_FORCED, /* the grammar leaves one choice */
                  KIND_MODEL,  /* the draft model sampled them */
                  DRAFT_KINDS
};

/* Acceptance rate: accepted draft tokens divided by those verified; old ones fade. */
struct draft_acceptance {
    double n_right, n_seen;
};

struct draft_kv { /* a sequence's KV in the draft model's arena */
    kv_block_id *blocks;
    uint32_t n_blocks;
    uint32_t first; /* token of the text at its position 0; 0 unless the draft model is an MTP head */
    /* Only with an MTP head: the rows of the model from which the text's last n_rows tokens were sampled, then one
     * for the head's own. [draft_pending_most() + 1][hidden] */
    float *rows;
    uint32_t n_rows;
    uint32_t n_computed; /* tokens of the sequence whose KV is present */
    bool departs;        /* the MTP head reads the prompt for a peer: draft_handoff.c */
    uint32_t n_ahead;    /* draft tokens behind them whose KV is present, until the step has verified them */
};

struct draft { /* drafting state of a sequence */
    struct ngram index;
    struct draft_acceptance acceptance, model_acceptance; /* of copied draft tokens; of the draft model's */
    uint32_t n;           /* draft tokens of the coming step, at tokens[n_tokens..]; else 0 */
    uint32_t source;      /* position in the text that the first draft token was copied from */
    uint32_t resume;      /* position to continue copying from if the last copy was right so far; 0: none */
    uint32_t n_lost;      /* tokens since the index last found an ending */
    enum draft_kind kind; /* of the source that was found */
    struct draft_kv kv;
};

struct draft_model {       /* of the scheduler; zeroed: there is none */
    struct engine *engine; /* borrowed; NULL: none, or it failed */
    kv_block_id *free_ids; /* [opts.draft_blocks] */
    uint32_t n_free;
    struct cost_model cost; /* of its steps */
    bool is_warm;  /* it has sampled: until then its weights come from the file, and its times say nothing */
    bool is_known; /* enough of its draft tokens were verified recently to judge it */
    double step_s; /* seconds that it took since the latest step ... */
    double drafting_s;  /* ... and the part of them that sampled draft tokens */
    float *prompt_rows; /* only with an MTP head: [max_batch_tokens of the engine][hidden] */
};

struct draft_choice { /* one sequence while draft tokens are distributed */
    struct seq *seq;
    bool is_model; /* the draft model will sample them; else they are at tokens[n_tokens..] */
    double chance; /* of one draft token */
    double next;   /* probability that all up to the next one are right */
    uint32_t n_most, n, n_best;
};

/* ---- draft.c ---- */
int draft_init(const struct sched *sched, struct seq *seq); /* E_NOMEM */
void draft_fini(struct seq *seq);
/* Chooses the draft tokens of the coming step. Takes blocks for them where plenty are free. */
void draft_propose(struct sched *sched);
/* Number of an item's draft tokens that the engine accepted: leading results that equal them. */
struct plan_item;
uint32_t draft_accepted(const struct plan_item *item, const struct sample_result *results);
/* Counts the item's draft tokens by their source. */
void draft_count(struct sched *sched, const struct plan_item *item, uint32_t n_accepted);
void draft_learn(struct sched *sched, struct seq *seq, uint32_t n_drafts, uint32_t n_accepted);
/* Books the cost and gain of the step's draft tokens in the speculation budget. */
struct plan;
void draft_book(struct sched *sched, const struct plan *plan, uint32_t n_accepted);
/* Estimated acceptance rate of a source of this kind for this sequence. */
double draft_chance(const struct sched *sched, const struct seq *seq, enum draft_kind kind);

/* ---- draft_choose.c ---- */
/* Sets n_best of each choice: the numbers with which expected tokens per predicted second are largest. */
void draft_choose(const struct sched *sched, struct draft_choice *choices, uint32_t n_choices, uint32_t room);
/* Expected tokens per second if each decoding sequence had at most n_most draft tokens of this chance. decode: the
 * step without draft tokens. */
double draft_rate(const struct sched *sched, const struct cost_step *decode, double chance, uint32_t n_most,
                  bool is_model);

/* ---- draft_model.c ---- */
int draft_model_open(struct sched *sched); /* errors of sched_new() */
void draft_model_close(struct sched *sched);
int draft_kv_init(const struct sched *sched, struct seq *seq); /* E_NOMEM */
void draft_kv_give_back(struct sched *sched, struct seq *seq);
/* Computes KV of texts that the draft model has not read yet, one slice per step, if that is expected to pay. */
void draft_model_catch_up(struct sched *sched);
/* True if the draft model is unknown and the speculation budget allows a few draft tokens to learn its acceptance
 * rate, its cost and the cost of verifying. */
bool draft_model_is_new(const struct sched *sched);
/* Returns how many draft tokens, at most n, it can sample for the sequence now. */
uint32_t draft_model_limit(const struct sched *sched, const struct seq *seq, uint32_t n);
/* Predicted seconds of one of its steps with n_rows sequences of n_tokens tokens each. */
double draft_model_row_s(const struct sched *sched, uint32_t n_rows, uint32_t n_tokens);
/* Takes blocks for KV of n_tokens tokens.  False: some are missing, and those that were free are taken. */
bool draft_kv_take(struct sched *sched, struct seq *seq, uint32_t n_tokens);
uint32_t draft_blocks_for(const struct sched *sched, uint32_t n_tokens);
/* Runs one step of the draft model, and learns its cost.  False: it failed, and there is no draft model any
 * more unless the scheduler itself is given up. */
bool draft_model_step(struct sched *sched, const struct engine_item *items, uint32_t n_items,
                      struct sample_result *results);
/* For an MTP head: keeps the rows from which item `index` of the step sampled the text's next n_new tokens. */
void draft_keep_rows(const struct sched *sched, uint32_t index, uint32_t n_new);
/* Samples n_best draft tokens for each choice with is_model, at tokens[n_tokens..]; lowers n_best where
 * there are fewer. */
void draft_model_sample(struct sched *sched, struct draft_choice *choices, uint32_t n_choices);

/* ---- draft_prompt.c ---- */
int draft_prompt_open(struct sched *sched); /* E_NOMEM */
/* Asks the step for the rows of the prompt's tokens that item `index` feeds, if the MTP head should read them. */
void draft_ask_rows(struct sched *sched, uint32_t index);
/* After the step: the head reads those rows. */
void draft_read_prompts(struct sched *sched);
/* True if the head's KV of the whole text fits into free blocks, and one more for each running sequence. */
bool draft_has_room(const struct sched *sched, const struct seq *seq);
/* Seconds that reading the sequence's prompt may take, by what the head is expected to save. 0: it saves nothing. */
double draft_worth_s(const struct sched *sched, const struct seq *seq);
/* The expected seconds of reading the rest of the prompt, the model's part included. */
double draft_read_s(const struct sched *sched, const struct seq *seq);

#endif
