/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler takes sequences and runs steps: continuous batching with chunked prefill.
 *
 * Each step holds decode tokens and prompt chunks. A sequence is admitted when the pool has free blocks
 * for it. Preemption loses no work: the youngest sequence returns its blocks, its sealed blocks stay in
 * the prefix cache, and it is computed again later with the same bits. A sequence can be cancelled at any
 * moment. Tenants take turns for prompt computation and for admission, by fair queuing over tokens
 * (base/fair.h). A sequence may start with KV received from another worker (arrival). It may end its
 * prefill by sending its KV to another worker (departure).
 *
 *    WAITING --admit--> PREFILL --last prompt token--> DECODE --stop, limit--> DONE
 *       ^                |   ^  \                        | ^
 *       +--- preempt ----+---|---\-----------------------+ |
 *                            |    +--departs--> HELD --kept+
 *           part of the KV   |                    +--released--> DONE
 *       ARRIVING ------------+
 *           +--all KV and the first token--> DECODE
 *
 * Cancellation and failure lead from every state to DONE. Engine thread only. Inside sched, planning
 * (state -> batch) changes no sequence; only applying (results -> state) advances a sequence.
 *
 * More than 15 functions: the scheduler, and one getter for each fact about a sequence. */
#ifndef COMPUTE_SCHED_SCHED_H
#define COMPUTE_SCHED_SCHED_H

#include "compute/engine/engine.h"
#include "compute/order/work.h"
#include "compute/sched/load.h"
#include "cache/kv/pool.h"
#include "cache/kv/pool_quota.h"
#include "cache/prefix/block_hash.h"
#include "text/grammar/grammar.h"

struct sched;
struct seq; /* the token timeline of one task; valid until its on_done returns */

enum seq_state {
    SEQ_WAITING,  /* in its tenant's queue, holds no blocks */
    SEQ_ARRIVING, /* holds blocks that a transfer fills */
    SEQ_PREFILL,  /* holds blocks for all its tokens; its prompt is being computed */
    SEQ_DECODE,   /* samples at least one token per step */
    SEQ_HELD,     /* departs: first token sampled, KV kept for the peer */
    SEQ_DONE      /* on_done is being called */
};
enum seq_finish {
    SEQ_FINISH_NONE,
    SEQ_FINISH_STOP,    /* a stop id was sampled */
    SEQ_FINISH_LENGTH,  /* max_new_tokens were sampled */
    SEQ_FINISH_CONTEXT, /* the engine's context, or the whole pool, is full */
    SEQ_FINISH_CANCELLED,
    SEQ_FINISH_DEPARTED,
    SEQ_FINISH_FAILED,     /* its step failed; sched_run_step returned the error */
    SEQ_FINISH_CONSTRAINT, /* the grammar allows no token, although the answer is incomplete (E_CONSTRAINT) */
    SEQ_FINISH_SPOILT,     /* logits are not finite (E_NUMERICS); all its blocks left the prefix cache */
    SEQ_FINISH_CROWDED     /* ended before it began, because the queue was full and its tenant had the most
                            * waiting (E_OVERLOADED) */
};

struct seq_spec {           /* copied on submit */
    uint64_t id;            /* the caller's id, for logs */
    const token_id *tokens; /* prompt, then the answer so far when a stream is resumed; at least one */
    uint32_t n_tokens;
    uint32_t n_prompt;        /* <= n_tokens: where the answer begins, for penalties and the grammar */
    const token_id *stop_ids; /* these end the answer; borrowed until the sequence ends */
    uint32_t n_stop_ids;
    /* Sampling, limits, weight and cache marks. sample.bias is copied. KV before score_from (see
     * on_prompt_logprobs) comes from the cache if possible; the rest is always computed. */
    struct work work;
    struct grammar *grammar;      /* constraint on the answer; the sequence takes a reference; NULL: none */
    kv_tenant tenant;             /* pays for its blocks (quota) and its tokens (fair queue) */
    struct prefix_key prefix_key; /* root of the tenant's hash chain ... */
    struct prefix_key public_key; /* ... and of the public chain over the first work.public_tokens tokens */
    const struct block_hash *hashes; /* of the tokens' first n_hashes blocks, copied; the rest is computed */
    uint32_t n_hashes;
    uint32_t fetched_from, fetched_to; /* range that a peer pushed by prefix fetch: counted as transferred
                                          where the cache has it */
    bool departs;        /* sample the first token, then hold the KV for a KV send instead of decoding */
    bool leaves_nothing; /* a measurement: its blocks are never sealed, so no lookup finds them; no draft
                            tokens */
    bool arrives;        /* its KV is received from a peer: blocks are taken on submit, computing waits */
    void *user;          /* the caller's pointer */
};

/* Serving stats of this sequence on this worker. "Given" tokens are the tokens of the spec. Once all of
 * them have KV, n_computed + n_reused + n_transferred equals their number. */
struct seq_stats {
    uint32_t n_computed;    /* given tokens computed here */
    uint32_t n_reused;      /* given tokens found in the prefix cache */
    uint32_t n_transferred; /* given tokens whose KV a peer sent for this sequence */
    uint32_t n_recomputed;  /* tokens computed again after a preemption */
    uint32_t n_drawn;       /* tokens sampled here, stop ids included */
    uint32_t n_drafted;     /* draft tokens fed for verification */
    uint32_t n_accepted;    /* draft tokens accepted: each saved one step */
    uint32_t n_preempted;   /* number of preemptions */
    uint64_t queue_ns;      /* submit -> admitted (arriving: 0) */
    uint64_t prefill_ns;    /* admitted -> last given token has KV; without transfer_ns if it arrived */
    uint64_t transfer_ns;   /* arriving: submit -> arrived; departing: held -> released or kept */
    uint64_t decode_ns;     /* first token -> end, without transfer_ns */
};

/* Callbacks from sched_run_step and from the functions below, on the engine thread. Any may be NULL.
 * Within a step, a sequence's events come in the order of this struct. An event may submit, cancel and
 * release, also the sequence that it concerns. It may not run a step and may not free the scheduler. */
struct sched_events {
    /* The sequence left the queue; seq_stats() says how many tokens the cache had. Once per sequence;
     * never for arriving sequences. */
    void (*on_admitted)(void *arg, struct seq *seq);
    /* Inside the step, after the KV of this layer is written for all items. Senders push the layer now;
     * watchers see progress. See sched_step_item. Must not block. */
    void (*on_layer)(void *arg, uint32_t layer);
    /* Tokens [from, to) got KV in this step, in all layers. Not called for decode steps. After a
     * preemption the same ranges come again, in other blocks (see seq_blocks) with the same bytes. */
    void (*on_prefilled)(void *arg, struct seq *seq, uint32_t from, uint32_t to);
    /* Logprobs of prompt tokens [from, from + n), each reported once and in order; or of the stop id (n =
     * 1) sampled at from. Only where the spec has score_from. */
    void (*on_prompt_logprobs)(void *arg, struct seq *seq, uint32_t from, const struct sample_result *scores,
                               uint32_t n);
    /* The token is already appended to seq_spec()->tokens.
     * Stop ids are not reported. No token is reported twice. */
    void (*on_token)(void *arg, struct seq *seq, const struct sample_result *token);
    /* The sequence is HELD now: end this with sched_release or sched_keep. Not called when the first token
     * ended the answer. */
    void (*on_held)(void *arg, struct seq *seq);
    /* The last event. The sequence's blocks are returned, leased blocks stay pinned.
     * seq is freed when this returns. */
    void (*on_done)(void *arg, struct seq *seq, enum seq_finish finish);
};

enum sched_speculate {
    SPECULATE_OFF,
    SPECULATE_AUTO,  /* draft tokens if they are expected to save time, see compute/sched/draft.c */
    SPECULATE_ALWAYS /* as many draft tokens as are found: for tests and measurements */
};

struct sched_opts {
    struct engine *engine; /* borrowed */
    struct kv_pool *pool;  /* borrowed; blocks of the engine's layout */
    uint32_t max_seqs;     /* most sequences admitted at once, HELD and ARRIVING included; capped at
                              max_batch_tokens */
    uint32_t max_queue;    /* most waiting sequences, preempted ones not counted; beyond it E_OVERLOADED, see
                              sched_submit */
    uint32_t chunk_tokens; /* most prompt tokens per step while any sequence decodes */
    uint64_t itl_ns;       /* objective for a step with decoding sequences; 0: only chunk_tokens limits the
                            * step */
    uint64_t max_step_ns;  /* most time that a step may take because of its prompt tokens; 0: no bound */
    enum sched_speculate speculate;
    uint32_t max_drafts; /* most draft tokens for one sequence in one step */
    /* Borrowed: a model of the same vocabulary that samples draft tokens, for SCHED_DRAFT_SEQS sequences at once;
     * NULL: none. Only this scheduler uses its draft_blocks blocks of KV. */
    struct engine *draft_engine;
    uint32_t draft_blocks;
    struct sched_events events;
    void *events_arg;
    uint64_t (*now_ns)(void); /* NULL: the monotonic clock */
    /* CPU time of the thread that runs steps. NULL: the thread's CPU clock if now_ns is NULL too; with
     * another clock CPU time is unknown. */
    uint64_t (*cpu_ns)(void);
    /* When another thread sets it, the running step ends soon and counts as failed. For callers that will
     * not run another step. NULL: never. */
    const atomic_bool *is_given_up;
};

/* E_INVAL (also: a draft engine that is too small), E_MISMATCH (the pool's blocks are not of the engine's layout,
 * or the draft engine has another vocabulary), E_UNSUPPORTED (it has recurrent state), E_NOMEM. */
int sched_new(const struct sched_opts *opts, struct sched **out);
void sched_free(struct sched *sched); /* frees all sequences without events */

/* Adds a sequence; calls no events. E_INVAL (no tokens, a token beyond the vocabulary, arrives and departs
 * both set), E_CLOSED (draining), E_OVERLOADED (queue full), E_LIMIT (longer than the context or the whole
 * pool), E_CONSTRAINT (the answer so far does not match the grammar), E_NOMEM. When the queue is full, a tenant
 * with fewer waiting sequences than another is still accepted. The next step then ends the newest sequence
 * of the tenant with most (CROWDED). An arriving sequence is never queued: E_OVERLOADED (max_seqs reached,
 * or others wait for blocks) and E_KV_FULL (no blocks) mean "not now". */
int sched_submit(struct sched *sched, const struct seq_spec *spec, struct seq **out);
/* Ends the sequence with on_done(CANCELLED), normally before this returns. If the sequence is in the
 * running step or event, on_done comes before sched_run_step (or the function that called the event)
 * returns. Leased blocks stay pinned until they are unleased. */
void sched_cancel(struct sched *sched, struct seq *seq);

/* Runs one step: plan, engine, apply. Returns the number of tokens fed. 0: no work is possible before a
 * submit, an arrival, or the return of blocks. Negative: the engine's error; the step's sequences are
 * FAILED. */
int sched_run_step(struct sched *sched);
bool sched_has_work(const struct sched *sched); /* a sequence waits, prefills or decodes */

/* ---- arrival ---- */
/* Block table of a sequence. While ARRIVING, the transfer writes ids[*n_reused_out..] (FILLING); the
 * blocks before came from the cache. Valid until the sequence's next event or call. */
const kv_block_id *seq_blocks(const struct seq *seq, uint32_t *n_out, uint32_t *n_reused_out);
/* Blocks of the sequence's recurrent state; *n_out is 0 if the model has none. While ARRIVING the transfer
 * writes them; while HELD they hold the state after the last token. Valid as those of seq_blocks(). */
const kv_block_id *seq_state_blocks(const struct sched *sched, const struct seq *seq, uint32_t *n_out);
/* Table of a group of windowed layers (cache/kv/window.h), by block.  The sequence holds only the blocks from
 * kv_window_kept(n_computed) on.  While ARRIVING the transfer writes those from kv_window_kept(n_tokens) or
 * *n_reused_out on, whichever is later.  While HELD a peer needs all of them.  NULL: no such group.  Valid as those
 * of seq_blocks(). */
const kv_block_id *seq_window_blocks(const struct sched *sched, const struct seq *seq, uint32_t group);
/* Ends ARRIVING: KV of given tokens [0, n_tokens) is present, and no peer writes these blocks any more. With KV of
 * all given tokens and the first token, decode begins. The peer sampled the first token. It counts as one of
 * max_new_tokens, and on_token reports it only if reports_first. The rest is computed here if n_tokens is smaller,
 * if first is NULL or beyond the vocabulary, or if the grammar forbids it. n_tokens is cut to the granted range.
 * With recurrent state or windowed blocks, all tokens are computed here unless all KV is present. E_INVAL: not
 * ARRIVING (nothing changed). */
int sched_arrived(struct sched *sched, struct seq *seq, uint32_t n_tokens, const struct sample_result *first,
                  bool reports_first);
/* ---- departure ---- */
/* Ends HELD after the transfer: the blocks become cached; on_done(DEPARTED) follows. E_INVAL: not HELD. */
int sched_release(struct sched *sched, struct seq *seq);
/* Ends HELD because the peer cannot take the KV: decode here instead. E_INVAL: not HELD. */
int sched_keep(struct sched *sched, struct seq *seq);

/* ---- queries ---- */
enum seq_state seq_state(const struct seq *seq);
const struct seq_spec *seq_spec(const struct seq *seq); /* tokens and n_tokens grow with the answer */
const struct seq_stats *seq_stats(const struct seq *seq);
uint32_t seq_n_computed(const struct seq *seq); /* tokens whose KV is present */
/* In on_token: the embedding of the prompt, [engine info.hidden]; NULL without work.wants_embedding. Valid
 * as long as the sequence. */
const float *seq_embedding(const struct seq *seq);
/* For on_layer: the items of the running step. index starts at 0; false beyond the last. *to_out is the
 * first token that is not fed; draft tokens are not counted. */
bool sched_step_item(const struct sched *sched, uint32_t index, struct seq **seq_out, uint32_t *from_out,
                     uint32_t *to_out);
/* Iterates over all sequences in order of submission: NULL gives the first; returns NULL after the last. A
 * loop that cancels fetches the next sequence first. */
struct seq *sched_next(const struct sched *sched, const struct seq *after);

#endif
