/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler: sequences in, steps out.
 *
 * Chunked prefill beside decode in one continuous batch; admission by free blocks; preemption that loses
 * nothing (the youngest sequence gives its blocks back, its sealed ones staying in the cache, and is computed
 * again later with the same bits); cancel at any moment.  Prompts are computed, and places are given, in
 * turns by tenant, counted in tokens (base/fair.h).  A sequence may begin with KV that comes from elsewhere
 * (arrival) and may end its prefill by being handed on (departure).
 *
 *   WAITING --admit--> PREFILL --last prompt token--> DECODE --stop, limit--> DONE
 *      ^                |   ^  \                        | ^
 *      +--- preempt ----+---|---\-----------------------+ |
 *                           |    +--departs--> HELD --kept+
 *          fewer than all   |                    +--released--> DONE
 *      ARRIVING ------------+
 *          +--all, first token drawn elsewhere--> DECODE
 *
 * Cancel and failure lead from everywhere to DONE.  Engine thread only.  Inside sched, planning (state ->
 * batch) is pure, and applying (results -> state) is the only place that advances a sequence. */
#ifndef COMPUTE_SCHED_SCHED_H
#define COMPUTE_SCHED_SCHED_H

#include "compute/engine/engine.h"
#include "cache/kv/pool.h"
#include "cache/prefix/block_hash.h"
#include "text/grammar/grammar.h"

struct sched;
struct seq; /* one token timeline; valid until its on_done returns */

enum seq_state {
    SEQ_WAITING,  /* in its tenant's line, holds nothing */
    SEQ_ARRIVING, /* holds blocks that a transfer fills */
    SEQ_PREFILL,  /* holds blocks for all its tokens, is computing them */
    SEQ_DECODE,   /* draws a token per step */
    SEQ_HELD,     /* departs: first token drawn, KV kept for the peer */
    SEQ_DONE      /* on_done is being called */
};
enum seq_finish {
    SEQ_FINISH_NONE,
    SEQ_FINISH_STOP,    /* a stop id was drawn */
    SEQ_FINISH_LENGTH,  /* max_new_tokens are drawn */
    SEQ_FINISH_CONTEXT, /* the engine's context, or the whole pool, is full */
    SEQ_FINISH_CANCELLED,
    SEQ_FINISH_DEPARTED,
    SEQ_FINISH_FAILED, /* its step failed; sched_run_step returned why */
    SEQ_FINISH_SHAPE,  /* the answer's shape allows no token where it must go on (E_SHAPE) */
    SEQ_FINISH_SPOILT, /* logits that are not finite (E_NUMERICS): none of its blocks is found any more */
    SEQ_FINISH_CROWDED /* never begun: its tenant had most waiting when the queue was full (E_OVERLOADED) */
};

struct seq_spec {           /* copied on submit */
    uint64_t id;            /* the caller's, for logs */
    const token_id *tokens; /* prompt, then tokens already answered when a stream is resumed; at least one */
    uint32_t n_tokens;
    uint32_t n_prompt;        /* <= n_tokens: where the answer begins, for penalties and shape */
    uint32_t max_new_tokens;  /* still to be drawn; 0: prefill only */
    const token_id *stop_ids; /* end the answer; borrowed for the sequence's life */
    uint32_t n_stop_ids;
    struct sample_opts sample; /* its bias is copied */
    struct grammar *grammar;   /* the answer's shape; a reference is taken; NULL: any */
    uint32_t keep_tokens;      /* cached KV up to there is wanted for 5 minutes from submit ... */
    uint32_t keep_1h_tokens;   /* ... and up to there for an hour */
    kv_tenant tenant; /* whose share of the pool its blocks count for, and of the machine its tokens */
    uint32_t weight;  /* of the latter; 0: as 1 */
    struct prefix_key prefix_key; /* root of the tenant's hash chain ... */
    struct prefix_key public_key; /* ... and of the public one, for ... */
    uint32_t public_tokens;       /* ... so many tokens at the beginning, which all tenants share */
    /* Not 0: how likely the prompt's tokens from here on were is told (on_scored), and of a stop id that ends
     * the answer too.  What lies before is taken from the cache, the rest is computed, whatever the cache
     * has. */
    uint32_t score_from;
    uint32_t fetched_from, fetched_to; /* tokens that a peer pushed for it: transferred, if found */
    bool departs;        /* draw the first token, then hold the KV for a transfer instead of decoding */
    bool leaves_nothing; /* a measurement: its blocks are not sealed, so nobody finds them, and nothing is
                            guessed */
    bool arrives;        /* KV comes from elsewhere: blocks are taken at once, computing waits */
    void *user;          /* the caller's */
};

/* The proof: what was done for this sequence on this worker.  "Given" tokens are those of the spec.  Once all
 * have KV, n_computed + n_reused + n_transferred is their number. */
struct seq_stats {
    uint32_t n_computed;    /* given tokens computed here */
    uint32_t n_reused;      /* given tokens found in the prefix cache */
    uint32_t n_transferred; /* given tokens whose KV arrived from a peer, for this sequence */
    uint32_t n_recomputed;  /* tokens computed once more after a preemption */
    uint32_t n_drawn;       /* here, a stop id included */
    uint32_t n_drafted;     /* guesses fed to be verified */
    uint32_t n_accepted;    /* of these right: tokens drawn without a step of their own */
    uint32_t n_preempted;   /* times */
    uint64_t queue_ns;      /* submit -> admitted (arriving: 0) */
    uint64_t prefill_ns;    /* admitted -> last given token has KV; for arriving ones without transfer_ns */
    uint64_t transfer_ns;   /* arriving: submit -> arrived.  Departing: held -> released or kept */
    uint64_t decode_ns;     /* first token -> end, without transfer_ns */
};

/* Called from sched_run_step and from the calls below, on the engine thread; any may be NULL.  Within a step
 * a sequence's events come in the order given here.  An event may submit, cancel, release and so on, also the
 * sequence it is about; it may not run a step nor free the scheduler. */
struct sched_events {
    /* Left the queue; what the cache had is in seq_stats().  Once per sequence; not for arriving ones. */
    void (*on_admitted)(void *arg, struct seq *seq);
    /* Inside the step, after the KV of this layer is written for all its items: who ships layers ships now,
     * who watches for progress sees it.  See sched_step_item.  Must not block. */
    void (*on_layer)(void *arg, uint32_t layer);
    /* Tokens [from, to) got KV in this step, all layers.  Not for decode steps.  After a preemption ranges
     * come again, in other blocks (see seq_blocks) with the same bytes. */
    void (*on_prefilled)(void *arg, struct seq *seq, uint32_t from, uint32_t to);
    /* How likely tokens [from, from + n) of the prompt were, each once and in order; or the stop id, n = 1,
     * that was drawn at from.  Only where the spec has score_from. */
    void (*on_scored)(void *arg, struct seq *seq, uint32_t from, const struct sample_result *scores,
                      uint32_t n);
    /* token is appended to seq_spec()->tokens already.  Stop ids are not reported, nothing is twice. */
    void (*on_token)(void *arg, struct seq *seq, const struct sample_result *token);
    /* Is HELD now: end with sched_release or sched_keep.  Not when the first token ended the answer. */
    void (*on_held)(void *arg, struct seq *seq);
    /* The last event.  Its blocks are given back, leased ones stay pinned.  seq is gone when this returns. */
    void (*on_done)(void *arg, struct seq *seq, enum seq_finish finish);
};

enum sched_speculate {
    SPECULATE_OFF,
    SPECULATE_AUTO,  /* guesses as far as they are expected to pay, see compute/sched/draft.c */
    SPECULATE_ALWAYS /* as many as there are: for tests and measurements */
};

struct sched_opts {
    struct engine *engine; /* borrowed */
    struct kv_pool *pool;  /* borrowed; blocks of the engine's layout */
    uint32_t max_seqs;     /* admitted at once, also HELD and ARRIVING; max_batch_tokens at most count */
    uint32_t max_queue;    /* waiting at most (preempted ones come on top); E_OVERLOADED beyond, see submit */
    uint32_t chunk_tokens; /* prompt tokens per step while anything decodes, at most */
    uint64_t itl_ns;       /* objective for a step with decoding sequences; 0: chunk_tokens alone rules */
    uint64_t max_step_ns;  /* no step shall take longer for its prompt tokens; 0: no bound */
    enum sched_speculate speculate;
    uint32_t max_drafts; /* guesses for one sequence in one step, at most */
    struct sched_events events;
    void *events_arg;
    uint64_t (*now_ns)(void); /* NULL: the monotonic clock */
    /* Processor time of the thread that runs steps.  NULL: the real one beside the monotonic clock; beside
     * another clock nobody knows it. */
    uint64_t (*cpu_ns)(void);
    /* When another thread makes it true, a running step ends soon, as a failed one: for who will not run
     * another.  NULL: nobody does. */
    const atomic_bool *is_given_up;
};

/* E_INVAL, E_MISMATCH (the pool's blocks are not the engine's), E_NOMEM. */
int sched_new(const struct sched_opts *opts, struct sched **out);
void sched_free(struct sched *sched); /* ends every sequence without events */

/* Calls no events.  E_INVAL (no tokens, one beyond the vocabulary, arrives and departs), E_CLOSED (draining),
 * E_OVERLOADED (queue full), E_LIMIT (can never fit: longer than the context or than the whole pool),
 * E_SHAPE (what was answered before is not of the answer's shape), E_NOMEM.
 * When the queue is full a tenant with less in it than another is taken all the same: the next step ends the
 * newest of whoever has most (CROWDED). An arriving sequence is never queued: E_OVERLOADED (all places taken,
 * or others wait for room) and E_KV_FULL (no blocks) mean "not now". */
int sched_submit(struct sched *sched, const struct seq_spec *spec, struct seq **out);
/* Ends it; on_done(CANCELLED) is called before this returns or, for a sequence of the step or event under
 * way, before sched_run_step (or the call that caused the event) does.  Leased blocks stay pinned until
 * unleased. */
void sched_cancel(struct sched *sched, struct seq *seq);

/* Runs one step: plan, engine, apply.  Returns the number of tokens fed; 0: nothing can be done before
 * something else happens (a submit, an arrival, blocks given back or unleased); negative: the engine's error,
 * after which the sequences of the step are FAILED. */
int sched_run_step(struct sched *sched);
bool sched_has_work(const struct sched *sched); /* anything waits, prefills or decodes */

/* ---- arrival ---- */
/* Blocks of a sequence: in ARRIVING ids[n_reused_out..] are to be written by the transfer (FILLING), the
 * first ones were found here.  Valid until the sequence's next event or call. */
const kv_block_id *seq_blocks(const struct seq *seq, uint32_t *n_out, uint32_t *n_reused_out);
/* KV of given tokens [0, n_tokens) is present and nobody writes these blocks any more.  With all of them and
 * the first token (drawn elsewhere; counts as one of max_new_tokens; reported by on_token only if
 * reports_first) decode begins.  With fewer, or first == NULL, or one beyond the vocabulary, the rest is
 * computed here; so is a first token that the answer's shape forbids.  n_tokens is cut to what was granted.
 * E_INVAL: not ARRIVING (nothing was done). */
int sched_arrived(struct sched *sched, struct seq *seq, uint32_t n_tokens, const struct sample_result *first,
                  bool reports_first);
/* ---- departure ---- */
/* A HELD sequence may go: its blocks become cached; ends in on_done(DEPARTED).  E_INVAL: not HELD. */
int sched_release(struct sched *sched, struct seq *seq);
/* The peer cannot take it: decode here after all.  E_INVAL: not HELD. */
int sched_keep(struct sched *sched, struct seq *seq);

/* ---- looking ---- */
enum seq_state seq_state(const struct seq *seq);
const struct seq_spec *seq_spec(const struct seq *seq); /* tokens and n_tokens grow as the answer does */
const struct seq_stats *seq_stats(const struct seq *seq);
uint32_t seq_n_computed(const struct seq *seq); /* tokens whose KV is present */
/* Inside on_layer: the items of the running step.  Index from 0; false beyond the last.  to = first token not
 * fed; guesses under verification are nobody's business and not counted. */
bool sched_step_item(const struct sched *sched, uint32_t index, struct seq **seq_out, uint32_t *from_out,
                     uint32_t *to_out);
/* All sequences in order of submission: NULL gives the first; NULL after the last.  A loop that cancels asks
 * for the next one first. */
struct seq *sched_next(const struct sched *sched, const struct seq *after);

/* Draining: submits are refused with E_CLOSED, everything else goes on. */
void sched_set_draining(struct sched *sched, bool is_draining);

struct sched_load {                /* for the router's picture of this worker, and for metrics */
    uint32_t n_waiting, n_running; /* running: admitted, whatever its state */
    uint32_t n_arriving, n_prefill, n_decode, n_held;
    uint32_t n_tenants;             /* with prompts to compute, waiting or running */
    uint64_t queued_prefill_tokens; /* uncached given tokens not yet computed, waiting and running */
    uint64_t decode_tokens_context; /* sum of contexts of decoding sequences */
    double prefill_tokens_per_s;    /* learned; 0 when nothing was seen yet */
    double decode_step_s;           /* learned mean time between two tokens of a sequence; 0: none seen yet */
    uint64_t n_preemptions;         /* since the start, as are all below */
    uint64_t n_steps;               /* that fed anything */
    uint64_t n_draft_steps;         /* that verified guesses */
    uint64_t n_drafted, n_accepted; /* guesses verified, and those that were right */
    uint32_t chunk_tokens;          /* of prompts that the latest step could have fed */
};
void sched_load(const struct sched *sched, struct sched_load *out);

#endif
