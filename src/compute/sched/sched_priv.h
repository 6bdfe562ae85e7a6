/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the scheduler's files. Each file changes:
 *
 *    seq.c      a sequence's memory, blocks and seals      plan.c     no sequence: state -> batch
 *    queue.c    turns, admission, the full queue           apply.c    a sequence's progress and end
 *    preempt.c  block room for decoding sequences          handoff.c  arrival and departure
 *    draft.c    draft tokens to verify                     ngram.c    index of repeated text
 *    draft_choose.c  how many of them                      draft_model.c  a second model that samples them
 *    draft_prompt.c  an MTP head reads prompts             draft_handoff.c  its KV goes to another worker
 *    load.c     counters, measured steps                   speed.c    what the steps teach
 *    cost.c     cost model of a step                       prompt_cost.c  and of whole prompts
 *    recurrent.c  recurrent state and its snapshots      windows.c  blocks of windowed layers
 */
#ifndef COMPUTE_SCHED_SCHED_PRIV_H
#define COMPUTE_SCHED_SCHED_PRIV_H

#include "base/fair.h"
#include "base/list.h"
#include "base/rate.h"
#include "compute/sched/draft_priv.h"
#include "compute/sched/recurrent_priv.h"
#include "compute/sched/sched.h"
#include "compute/sched/speed.h"
#include "compute/sched/windows_priv.h"

struct seq {
    struct list in_running; /* sched.running, in order of submission */
    struct fair_item turn;  /* in sched.fair while its prompt is not computed: WAITING, PREFILL */
    struct fair_flow *flow; /* its tenant's flow, one reference */
    struct list in_all;     /* sched.all */
    uint64_t order;         /* number in order of submission */
    enum seq_state state;
    bool is_busy; /* in the running step, or an event will return to code that uses it: must not end now */
    bool is_cancelled; /* cancelled while busy: ends when no longer busy */

    struct seq_spec spec;        /* .tokens is the buffer below, .n_tokens grows */
    token_id *tokens;            /* [cap_tokens] */
    uint32_t cap_tokens;         /* most tokens it can reach */
    uint32_t n_submitted_tokens; /* tokens of the spec as submitted */
    uint32_t n_left;             /* tokens still to be sampled, of max_new_tokens */
    kv_block_id *blocks;         /* block table, [blocks for cap_tokens] */
    uint32_t n_blocks;           /* the sequence holds one reference to each */
    uint32_t n_matched;          /* leading blocks that came from the prefix cache */
    uint32_t n_sealed;           /* leading blocks that are sealed */
    struct block_hash *hashes;   /* hash chain over tokens, [blocks for cap_tokens] */
    uint32_t n_hashes;
    uint32_t n_computed; /* tokens whose KV is in the blocks */
    uint32_t n_reached;  /* largest n_computed so far: work up to it is a repetition, work beyond it is new */
    uint32_t n_cached_estimate; /* tokens that the cache had at submit */
    uint32_t score_next;        /* first prompt token whose logprob was not reported yet; 0: none wanted */

    struct seq_recurrent recurrent;
    struct seq_windows windows;
    struct sample_state *past; /* sampling state of tokens[0, spec.n_tokens); NULL: none needed */
    struct draft draft;
    float *embedding; /* [engine info.hidden] of the prompt; NULL: not wanted */
    struct seq_stats stats;
    uint64_t submitted_ns, admitted_ns, first_token_ns, held_since_ns, held_ns;
};

struct plan_item {
    struct seq *seq;
    uint32_t n_tokens; /* tokens to feed from seq->n_computed on, n_drafts included */
    uint32_t n_drafts; /* draft tokens after the sequence's own tokens */
};

struct plan {
    struct plan_item *items; /* [max_seqs] */
    uint32_t n_items;
    uint32_t n_decode; /* the first n_decode items decode: one token each, plus draft tokens */
    uint32_t n_drafts;
    uint32_t n_decode_rows; /* tokens that they feed, draft and accepted ones included */
    uint32_t n_prefill_tokens;
    uint32_t budget; /* prompt tokens that the step could have fed */
};

struct sched {
    struct sched_opts opts;
    uint32_t block_tokens;
    uint32_t n_state_blocks;         /* blocks of a recurrent state; 0: the model has none */
    struct block_hash *state_hashes; /* [n_state_blocks] scratch */
    struct sched_windows windows;
    uint32_t context_tokens; /* the engine's context, or the pool's size if that is smaller */
    struct list all, running;
    struct fair *fair; /* sequences with prompts to compute, by tenant */
    uint32_t n_waiting, n_running;
    uint32_t n_crowd; /* sequences accepted since the last step although the queue was full */
    uint64_t n_submitted;
    bool is_stepping;
    bool is_short; /* the head of the queue found no free place or no blocks */

    struct plan plan;
    struct seq **line;         /* [max_seqs] sequences in PREFILL, in the order in which they get tokens */
    uint32_t n_line;           /* length of line at plan.c's last update */
    struct engine_item *items; /* [max_seqs] */
    struct sample_result *results; /* [max_seqs + draft tokens of a step] */
    struct sample_result *scores;  /* [max_batch_tokens] prompt logprobs of the step, item after item */
    uint32_t max_drafts;           /* most draft tokens of a step */

    struct sched_speed speed;
    struct draft_acceptance acceptance[DRAFT_KINDS];
    struct draft_model draft_model;
    double speculation_budget_s; /* speculation budget: seconds that drafting may lose */
    bool has_speculation_budget;
    struct rate_pause pause;
    uint64_t step_end_ns; /* end of the latest step */
    uint64_t n_steps, n_draft_steps, n_drafted[SCHED_DRAFTS], n_accepted[SCHED_DRAFTS];
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

/* True if the sequence computes or samples, and so will need blocks. */
static inline bool seq_is_active(const struct seq *seq)
{
    return seq->state == SEQ_PREFILL || seq->state == SEQ_DECODE;
}

/* Returns the tokens without KV: the last one while decoding.  With recurrent state also the draft tokens
 * that the latest step accepted, because the state stays before them. */
static inline uint32_t seq_n_pending(const struct seq *seq)
{
    return seq->spec.n_tokens - seq->n_computed;
}

/* ---- seq.c ---- */
bool seq_is_stop(const struct seq *seq, token_id id);
/* True if the answer may continue (or end) with this token. */
bool seq_may_draw(struct seq *seq, token_id id);
int seq_new(struct sched *sched, const struct seq_spec *spec, struct seq **out);
void seq_free(struct sched *sched, struct seq *seq);
uint32_t sched_blocks_for(const struct sched *sched, uint32_t n_tokens);
/* Number of leading blocks that the sequence may take from the cache. */
uint32_t seq_n_matchable(const struct sched *sched, const struct seq *seq);
/* Takes the cached prefix and fresh blocks for all tokens; leaves n_spare blocks for other sequences.
 * E_KV_FULL. E_OVERLOADED: the blocks would come out of other tenants' quotas and the tenant has another
 * sequence running. */
int seq_take_blocks(struct sched *sched, struct seq *seq, uint32_t n_spare);
void seq_give_back(struct sched *sched, struct seq *seq);
void seq_seal(struct sched *sched, struct seq *seq);
/* Pins a block for the longest time that the request asks for it (compute/order/pins.h).
 * It has the last tokens of the first `end` blocks, or the state after them. */
void seq_pin(struct sched *sched, struct seq *seq, kv_block_id id, uint32_t end);
/* Counts tokens [n_computed, to) as computed here. */
void seq_advance(struct seq *seq, uint32_t to);

/* ---- queue.c ---- */
/* queue_want: the sequence has a prompt to compute from now on.
 * queue_got: it has none any more; calls may repeat. */
void queue_want(struct sched *sched, struct seq *seq);
void queue_got(struct sched *sched, struct seq *seq);
/* True if the queue accepts one more sequence of this tenant. */
bool queue_takes(const struct sched *sched, const struct seq_spec *spec);
void queue_wait(struct sched *sched, struct seq *seq);
void queue_run(struct sched *sched, struct seq *seq, enum seq_state state);
uint32_t queue_n_active(const struct sched *sched);
void queue_admit(struct sched *sched);
/* Ends the sequences that must leave because the queue is over-full. */
void queue_push_out(struct sched *sched);
/* Charges the item's tokens to its tenant. */
void queue_charge(struct sched *sched, const struct plan_item *item, uint32_t n_accepted);

/* Blocks that a sequence may take now. The only running sequence of a tenant may take all available
 * blocks. Others may take only blocks that other tenants' quotas do not need. So a flood from one tenant
 * does not evict the others' cache, and every tenant makes progress. */
uint32_t queue_room(const struct sched *sched, const struct seq *seq);

/* ---- preempt.c ---- */
void preempt_make_room(struct sched *sched);

/* ---- plan.c ---- */
/* The cost inputs of the coming step without its prompts. */
struct cost_step plan_decode_cost(const struct sched *sched);
/* Prompt tokens that the next step may feed. Also updates sched->line for the two functions below. */
uint32_t plan_budget(struct sched *sched);
/* Returns how much of the budget the sequences before seq in the line leave to it.  seq waits. */
uint32_t plan_budget_left(const struct sched *sched, const struct seq *seq, uint32_t budget);
void plan_make(struct sched *sched, struct plan *plan);

/* ---- apply.c ---- */
void apply_results(struct sched *sched, const struct sample_result *results);
void apply_failure(struct sched *sched);
/* Applies a token, sampled here or by a peer: the sequence ends, holds or continues to decode. seq is busy
 * on entry and not busy on return. True: it decodes; false: it may be freed. */
bool apply_token(struct sched *sched, struct seq *seq, const struct sample_result *token, bool is_reported);
void seq_end(struct sched *sched, struct seq *seq, enum seq_finish finish); /* frees seq */

/* ---- handoff.c ---- */
/* Admits an arriving sequence. E_OVERLOADED, E_KV_FULL. */
int handoff_admit(struct sched *sched, struct seq *seq);

void seq_unhold(struct sched *sched, struct seq *seq); /* adds the time it was HELD to the stats */

/* ---- load.c ---- */
struct load_clock { /* read at the start and at the end of a step */
    uint64_t now_ns, cpu_ns;
};

struct load_clock load_clock(const struct sched *sched);
/* Learns from a step that started at `began`, unless the thread was paused during it. */
void load_observe(struct sched *sched, const struct plan *plan, uint32_t n_accepted,
                  const struct load_clock *began);

#endif
