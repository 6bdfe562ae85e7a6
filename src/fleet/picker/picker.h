/* SPDX-License-Identifier: Apache-2.0 */
/* Where should a request run? Filter, estimate, choose: no I/O, no clock, no randomness, so that the
 * simulator runs the same code under a virtual clock.
 *
 * The fleet (fleet/picker/fleet.h) holds the state of the workers; the index (fleet/picker/index.h) holds
 * which worker has which blocks. fleet/picker/place.h combines the two with the choice, as the router uses
 * them. A choice is a pair (prefill worker, decode worker) or one worker alone.
 *
 * More than 15 functions: each estimate behind the choice has its own. */
#ifndef FLEET_PICKER_PICKER_H
#define FLEET_PICKER_PICKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/load_rates.h"
#include "base/rate.h"

#define PICKER_MAX_WORKERS 1024 /* a power of two */
#define PICKER_NONE        UINT32_MAX

enum picker_role {
    PICKER_PREFILL,
    PICKER_DECODE,
    PICKER_BOTH /* a decode worker that computes prompts of any length without a surcharge */
};

struct picker_worker {
    bool is_usable;    /* link up, model and KV layout agree, not draining */
    bool can_push;     /* link up and the model agrees: it may serve a prefix fetch */
    bool decodes_only; /* computes no prompts unless no other placement exists */
    bool keeps_role;   /* an older version, whose role cannot change while it runs */
    enum picker_role role;
    uint32_t group;  /* the model, by any numbering: a request goes only to workers of its group */
    uint64_t layout; /* KV layout fingerprint: both workers of a pair must have the same */
    uint64_t host;   /* digest of the host id: equal values mean shared memory */
    uint32_t block_tokens;
    uint32_t blocks_free;  /* as reported, less the blocks dispatched since */
    uint32_t blocks_total; /* 0: unknown, counts as enough for any request */
    uint32_t max_seqs;
    /* its load: the larger of report and ledger */
    uint64_t queued_prefill_tokens;
    uint32_t n_running;          /* sequences on the worker, waiting ones included */
    LOAD_RATES(LOAD_RATE_MEMBER) /* the router replaces some by figures of its own (fleet/router/view.c) */
    double prefill_pair_s; /* added for each token that a prompt token attends to; prefill_tokens_per_s is
                            * then without attention. 0: that rate is of whole prompts */
    uint64_t
        figures_ns; /* when the engine took them; reports may repeat the same figures. 0: with the report */
    uint64_t reported_ns; /* time of this report's figures: its queue shrinks from then on, and later
                           * dispatches add to it. 0: the queue is the larger of report and ledger. Set for
                           * all workers or none */
    uint32_t step_seqs; /* sequences that decode_step_s was measured with; 0: unknown, without decode_row_s */
    uint32_t store;     /* the shared store that it reads, by any numbering from 1; 0: none, or away */
    double store_bytes_per_s; /* of reads from it, all together ... */
    double store_ask_s;       /* ... plus this time for each block asked for */
    uint64_t kv_bytes_per_token;
    uint64_t queued_read_tokens;  /* dispatched to be read from its disk, and not begun yet */
    uint64_t queued_store_tokens; /* the same from the shared store */
    /* Tokens of one request's prompt, by the prefix index: those in memory, those in memory or on disk, and those
     * that its shared store has. 0 in the fleet's rows. */
    uint32_t cached_tokens, stored_tokens, in_store_tokens;
};

struct picker_run { /* a worker that has more of a prompt cached than its memory holds */
    uint32_t slot;
    uint32_t n_blocks; /* leading blocks, each in memory or on its disk */
    bool is_in_store;  /* the shared store has all of them */
};

/* A set of slots; all zero is empty. */
struct picker_slots {
    uint64_t words[PICKER_MAX_WORKERS / 64];
};

/* Which placements are acceptable when none keeps the objectives. */
enum picker_yield {
    PICKER_KEEPS,     /* none: the request waits */
    PICKER_CONSERVES, /* workers where it begins at once and waiting would not help: idle workers, and
                       * workers whose own step exceeds the objective for the time between tokens */
    PICKER_LEAST_BAD  /* any worker where it begins at once; a prefill worker may also decode */
};

struct picker_goals {
    double ttft_slo_s;
    double itl_slo_s;              /* of the request's class, or a lower one while a paused class is placed */
    uint32_t local_prefill_tokens; /* the decode worker computes up to this many uncached tokens itself ... */
    double local_prefill_s; /* ... and more where that takes at most this long, delays to other sequences
                             * included */
    enum picker_yield yield;
    /* Part of itl_slo_s by which estimates must stay below it; negative: by which they may exceed it. */
    double itl_margin;
    double begin_share; /* a first token may be predicted within this part of the limit; 0: all */
};

struct picker_request {
    uint32_t n_tokens; /* > 0 */
    uint32_t max_new_tokens;
    uint32_t answer_tokens; /* expected of the answer (fleet/picker/answers.h); 0: unknown */
    uint32_t group;
    const uint32_t *cached_blocks; /* [PICKER_MAX_WORKERS] leading blocks in memory; NULL: no worker has
                                    * any */
    const struct picker_run *runs; /* [n_runs], each worker once */
    uint32_t n_runs;
    uint64_t now_ns;          /* by the clock of reported_ns */
    uint32_t pushable_blocks; /* leading blocks that some worker could push to any other; 0: none */
    const struct picker_slots *excluded; /* workers that already failed this request; NULL: none */
    /* Part of the answer exists: only workers of this layout, and so of this arithmetic, continue it with
     * the same bits. */
    bool keeps_layout;
    uint64_t layout;
    bool is_alone; /* one worker of either role does both phases */
};

struct picker_choice {
    uint32_t prefill; /* slot, or PICKER_NONE: the decode worker does both */
    uint32_t decode;
    double ttft_s; /* estimates, in seconds */
    double itl_s;
    double alone_s; /* of ttft_s: the prompt's own time on the worker without other work */
    double stretch; /* the prompt takes so many times as long beside the worker's decoding sequences */
    uint32_t uncached_tokens; /* the worker that prefills computes this many ... */
    uint32_t read_tokens;     /* ... after it has read this many from its disk ... */
    bool reads_store;         /* ... or from the shared store */
    double read_s;            /* of alone_s: that reading; 0: none */
    double cost_s;            /* what was compared: the least of the placements that the pass allows */
    bool has_read;            /* cost_s contains a read, which a fetch from an owner may replace afterwards */
    bool pairs_short; /* no worker kept the objectives alone, so prompts that are short count as long */
};

struct picker_fleet;

/* Chooses the placement. No allocation; time grows with the number of workers of the group, not of pairs.
 * Returns 0; E_OVERLOADED: workers exist, but none keeps the objectives as far as goals.yield requires
 * (choice_out still holds the best placement); E_NOT_FOUND: no worker could run the request at all;
 * E_LIMIT: no worker is large enough. */
int picker_pick(const struct picker_fleet *fleet, const struct picker_goals *goals,
                const struct picker_request *request, struct picker_choice *choice_out);

/* The worker's part of what this choice compared, by the same functions: of a prefill worker as half of a pair, of
 * others as half too, or alone if the chosen one is.  The parts of the chosen workers sum up to choice.cost_s.  0: the
 * worker is in no pool.  The fleet, goals and request are those of picker_pick(). */
double picker_cost_s(const struct picker_fleet *fleet, const struct picker_goals *goals,
                     const struct picker_request *request, const struct picker_choice *choice, uint32_t slot);

/* Sets prefill_tokens_per_s and prefill_pair_s from the learned prompt_token_s and prompt_pair_s.  pair_share: the
 * model's relation of the two, for a worker that has not measured the latter. */
void picker_worker_set_prompt_cost(struct picker_worker *worker, const struct rate *pair_share);
/* Learns that relation from a report; nothing without both values. */
void picker_pair_share_learn(struct rate *pair_share, double token_s, double pair_s, uint64_t now_ns);

/* The estimates behind the choice, for tests and the planner. */
double picker_queue_s(const struct picker_worker *worker);
double picker_prefill_s(const struct picker_worker *worker, uint32_t n_tokens);
/* n_tokens of a prompt behind `from` tokens that are cached. */
double picker_prompt_s(const struct picker_worker *worker, uint32_t from, uint32_t n_tokens);
/* Seconds to read n_tokens of a prompt from its disk, after the reads already queued; infinite without a
 * rate. */
double picker_read_s(const struct picker_worker *worker, uint32_t n_tokens);
/* The same for the shared store that it uses, with the time of the question. */
double picker_store_s(const struct picker_worker *worker, uint32_t n_tokens);
double picker_itl_s(const struct picker_worker *worker);
/* The time between tokens with n_running sequences there. */
double picker_itl_at_s(const struct picker_worker *worker, uint32_t n_running);
double picker_transfer_s(const struct picker_worker *to, uint32_t n_tokens);

void picker_slots_add(struct picker_slots *slots, uint32_t slot);
void picker_slots_remove(struct picker_slots *slots, uint32_t slot);
bool picker_slots_has(const struct picker_slots *slots, uint32_t slot);
bool picker_slots_is_empty(const struct picker_slots *slots);

#endif
