/* SPDX-License-Identifier: Apache-2.0 */
/* What the scheduler's files share.  Who changes what:
 *
 *   seq.c      a sequence's memory, blocks and seals      plan.c     nothing: state -> batch
 *   queue.c    turns, places, admission                   apply.c    a sequence's progress and its end
 *   preempt.c  room for decoding                          handoff.c  arrival and departure
 *   draft.c    guesses to verify                          ngram.c    where a text repeats itself
 *   load.c     learned rates, counts                      cost.c     what a step costs */
#ifndef COMPUTE_SCHED_SCHED_PRIV_H
#define COMPUTE_SCHED_SCHED_PRIV_H

#include "base/fair.h"
#include "base/list.h"
#include "base/rate.h"
#include "compute/sched/cost_priv.h"
#include "compute/sched/ngram_priv.h"
#include "compute/sched/sched.h"

#define DRAFT_MAX  64 /* guesses for one sequence in one step, whatever the options say */
#define DRAFT_ODDS 7  /* kinds of finds with chances of their own */

/* Of guesses looked at, those that were right; old ones fade. */
struct draft_odds {
    double n_right, n_seen;
};

struct draft { /* a sequence's */
    struct ngram index;
    struct draft_odds odds;
    uint32_t n;      /* guesses of the step about to run, at tokens[n_tokens..]; else 0 */
    uint32_t source; /* place of the first one's original */
    uint32_t resume; /* place that would follow if the text went on beside its original; 0: none */
    uint32_t n_lost; /* tokens since the last find */
    unsigned kind;   /* of the find */
};

struct seq {
    struct list in_running; /* sched.running, in order of submission */
    struct fair_item turn;  /* in sched.fair while its prompt is not computed: WAITING, PREFILL */
    struct fair_flow *flow; /* its tenant's, held */
    struct list in_all;     /* sched.all */
    uint64_t order;         /* of submission */
    enum seq_state state;
    bool is_busy;      /* in the running step, or an event leads back here: it must not end now */
    bool is_cancelled; /* while busy: end it after */

    struct seq_spec spec;      /* .tokens is the buffer below, .n_tokens grows */
    token_id *tokens;          /* [cap_tokens] */
    uint32_t cap_tokens;       /* the longest it can become */
    uint32_t n_given;          /* tokens of the spec as submitted */
    uint32_t n_left;           /* of max_new_tokens */
    kv_block_id *blocks;       /* block table, [blocks for cap_tokens] */
    uint32_t n_blocks;         /* one reference each */
    uint32_t n_matched;        /* leading ones that came from the cache */
    uint32_t n_sealed;         /* leading ones that are sealed */
    struct block_hash *hashes; /* chain over tokens, [blocks for cap_tokens] */
    uint32_t n_hashes;
    uint32_t n_computed; /* tokens whose KV is in the blocks */
    uint32_t n_reached;  /* the most n_computed ever was: beyond it work is new, before it is done again */
    uint32_t n_cached_guess; /* tokens the cache had at submit */
    uint32_t score_next;     /* of the prompt's tokens, the first whose likelihood was not told; 0: none is */

    struct sample_state *past; /* of tokens[0, spec.n_tokens); NULL: draws do not depend on them */
    struct draft draft;
    struct seq_stats stats;
    uint64_t submitted_ns, admitted_ns, first_token_ns, held_since_ns, held_ns;
};

struct plan_item {
    struct seq *seq;
    uint32_t n_tokens; /* to feed from seq->n_computed on, n_drafts included */
    uint32_t n_drafts; /* guesses behind the sequence's own tokens */
};

struct plan {
    struct plan_item *items; /* [max_seqs] */
    uint32_t n_items;
    uint32_t n_decode; /* the first ones; one token each, and guesses */
    uint32_t n_drafts;
    uint32_t n_prefill_tokens;
    uint32_t budget; /* prompt tokens it could have held */
};

struct sched {
    struct sched_opts opts;
    uint32_t block_tokens;
    uint32_t context_tokens; /* the engine's context, or the pool if that is smaller */
    struct list all, running;
    struct fair *fair; /* who has prompts to compute, by tenant */
    uint32_t n_waiting, n_running;
    uint32_t n_crowd; /* taken since the last step though the queue was full */
    uint64_t n_submitted;
    bool is_draining;
    bool is_stepping;
    bool is_short; /* the head of the queue found no place or no blocks */

    struct plan plan;
    struct seq **line; /* [max_seqs] those that prefill, in the order in which they are given tokens */
    uint32_t n_line;   /* as plan.c saw them last */
    struct engine_item *items;     /* [max_seqs] */
    struct sample_result *results; /* [max_seqs + guesses of a step] */
    struct sample_result *scores;  /* [max_batch_tokens] of the step's prompts, one item's after another's */
    uint32_t max_drafts;           /* guesses of a step */

    struct cost_model cost;
    struct draft_odds odds[DRAFT_ODDS];
    double purse_s; /* what speculation may lose */
    bool has_purse;
    struct rate prefill_rate, decode_step;
    struct rate_pause pause;
    uint64_t step_end_ns; /* of the latest step */
    uint64_t n_steps, n_draft_steps, n_drafted, n_accepted;
    uint64_t n_preemptions;
};

#define EVENT(sched, name, ...)                                                                              \
    do {                                                                                                     \
        if ((sched)->opts.events.name)                                                                       \
            (sched)->opts.events.name((sched)->opts.events_arg, __VA_ARGS__);                                \
    } while (0)

static inline struct seq *seq_of(struct list *in_running)
{
    return container_of(in_running, struct seq, in_running);
}

static inline struct seq *seq_of_turn(struct fair_item *turn)
{
    return container_of(turn, struct seq, turn);
}

static inline uint64_t sched_now_ns(const struct sched *sched)
{
    return sched->opts.now_ns();
}

/* Whether it draws or computes, and so will want blocks. */
static inline bool seq_is_active(const struct seq *seq)
{
    return seq->state == SEQ_PREFILL || seq->state == SEQ_DECODE;
}

/* ---- seq.c ---- */
bool seq_is_stop(const struct seq *seq, token_id id);
/* Whether the answer may go on (or end) with this token. */
bool seq_may_draw(struct seq *seq, token_id id);
int seq_new(struct sched *sched, const struct seq_spec *spec, struct seq **out);
void seq_free(struct sched *sched, struct seq *seq);
uint32_t sched_blocks_for(const struct sched *sched, uint32_t n_tokens);
/* Leading blocks that may come from the cache. */
uint32_t seq_n_shareable(const struct sched *sched, const struct seq *seq);
/* Cached prefix and fresh blocks for all tokens; leaves n_spare blocks to others.  E_KV_FULL; E_OVERLOADED:
 * others' shares of the pool would pay for it, and its tenant has something else running. */
int seq_settle(struct sched *sched, struct seq *seq, uint32_t n_spare);
void seq_give_back(struct sched *sched, struct seq *seq);
void seq_seal(struct sched *sched, struct seq *seq);
/* Books tokens [n_computed, to) as computed here. */
void seq_advance(struct seq *seq, uint32_t to);

/* ---- queue.c ---- */
/* It has a prompt to compute, from now on or until now.  The latter may be said again. */
void queue_want(struct sched *sched, struct seq *seq);
void queue_got(struct sched *sched, struct seq *seq);
/* Whether the queue takes one more of this tenant. */
bool queue_takes(const struct sched *sched, const struct seq_spec *spec);
void queue_wait(struct sched *sched, struct seq *seq);
void queue_run(struct sched *sched, struct seq *seq, enum seq_state state);
uint32_t queue_n_active(const struct sched *sched);
void queue_admit(struct sched *sched);
/* Ends what others' requests pushed out of the full queue. */
void queue_push_out(struct sched *sched);
/* The step's tokens are on their tenants' accounts. */
void queue_charge(struct sched *sched, const struct plan_item *item, uint32_t n_accepted);

/* Blocks that a sequence may take now: all there are, for the only one of its tenant that runs, else what
 * others do not need for their shares.  So nobody's flood costs others their cache, and everybody gets on. */
uint32_t queue_room(const struct sched *sched, const struct seq *seq);

/* ---- preempt.c ---- */
void preempt_make_room(struct sched *sched);

/* ---- draft.c ---- */
int draft_init(const struct sched *sched, struct seq *seq);
/* Chooses the guesses of the step about to be planned, and takes blocks for them where there are plenty. */
void draft_propose(struct sched *sched);
/* How many of a sequence's guesses the engine drew: leading results that equal them. */
uint32_t draft_accepted(const struct plan_item *item, const struct sample_result *results);
void draft_learn(struct sched *sched, struct seq *seq, uint32_t n_drafts, uint32_t n_accepted);
/* The step's guesses are verified: what they cost and gained goes through the purse. */
void draft_settle(struct sched *sched, const struct plan *plan, uint32_t n_accepted);

/* ---- plan.c ---- */
/* The step without its prompts. */
struct cost_step plan_decode_cost(const struct sched *sched);
/* Prompt tokens that the next step could feed.  Sets the line, for the next two. */
uint32_t plan_budget(struct sched *sched);
/* What those before it in the line leave of this budget to a sequence that waits. */
uint32_t plan_budget_left(const struct sched *sched, const struct seq *seq, uint32_t budget);
void plan_make(struct sched *sched, struct plan *plan);

/* ---- apply.c ---- */
void apply_results(struct sched *sched, const struct sample_result *results);
void apply_failure(struct sched *sched);
/* A token that was drawn, here or elsewhere: ends, holds or goes on decoding.  seq is busy, and is not when
 * it returns.  True: it decodes; else it may be gone. */
bool apply_token(struct sched *sched, struct seq *seq, const struct sample_result *token, bool is_reported);
void seq_end(struct sched *sched, struct seq *seq, enum seq_finish finish); /* frees it */

/* ---- handoff.c ---- */
int handoff_admit(struct sched *sched, struct seq *seq); /* an arriving sequence; E_OVERLOADED, E_KV_FULL */

void seq_unhold(struct sched *sched, struct seq *seq); /* books the time it was HELD */

/* ---- load.c ---- */
struct load_clock { /* read before and after a step */
    uint64_t now_ns, cpu_ns;
};

struct load_clock load_clock(const struct sched *sched);
/* A step was run since `began`.  Learns from it, unless a pause spoiled what it took. */
void load_observe(struct sched *sched, const struct plan *plan, uint32_t n_accepted,
                  const struct load_clock *began);

#endif
