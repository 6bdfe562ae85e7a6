/* SPDX-License-Identifier: Apache-2.0 */
/* Where should a request run?  Filter, estimate, choose: no I/O, no clock, no randomness, so that the
 * simulator runs the same code under a virtual clock.
 *
 * What is known of the workers is kept in a fleet (fleet/picker/fleet.h), who holds which blocks in an index
 * (fleet/picker/index.h); fleet/picker/place.h puts the three together as the router uses them.  A choice is
 * a pair (prefill worker, decode worker) or one worker alone. */
#ifndef FLEET_PICKER_PICKER_H
#define FLEET_PICKER_PICKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PICKER_MAX_WORKERS 1024 /* a power of two */
#define PICKER_NONE        UINT32_MAX

enum picker_role { PICKER_PREFILL, PICKER_DECODE };

struct picker_worker {
    bool is_usable; /* link up, model and KV layout agree, not draining */
    bool can_push;  /* link up and the model agrees: may be asked for what it has cached */
    enum picker_role role;
    uint32_t group;  /* the model, by any numbering: a request goes to workers of its own group only */
    uint64_t layout; /* KV layout fingerprint: a pair must agree */
    uint64_t host;   /* digest of the host id: equal means shared memory */
    uint32_t block_tokens;
    uint32_t blocks_free;  /* as reported, less what was dispatched since */
    uint32_t blocks_total; /* 0: unknown, taken as enough for anything */
    uint32_t max_seqs;
    /* what it is doing: the larger of report and ledger */
    uint64_t queued_prefill_tokens;
    uint32_t n_running; /* sequences there, waiting ones included */
    /* how fast it is: learned */
    double prefill_tokens_per_s;
    double decode_step_s;
    double transfer_bytes_per_s;
    double push_bytes_per_s; /* of what it asked for */
    double read_bytes_per_s; /* of its disk, all reads together; 0: it reads nothing back */
    uint64_t kv_bytes_per_token;
    uint64_t queued_read_tokens; /* dispatched there to be read from its disk, and not begun yet */
    /* Of ONE request's prompt, per the prefix index: in its memory, and there or on its disk.  A fleet's rows
     * have 0. */
    uint32_t cached_tokens, stored_tokens;
};

struct picker_run { /* a worker that has more of a prompt than lies in its memory */
    uint32_t slot;
    uint32_t n_blocks; /* leading ones, each in memory or on its disk */
};

/* A set of slots; zeroed: empty. */
struct picker_slots {
    uint64_t words[PICKER_MAX_WORKERS / 64];
};

/* What counts as a placement when none keeps the objectives. */
enum picker_yield {
    PICKER_KEEPS,     /* nothing: the request waits */
    PICKER_CONSERVES, /* where it begins at once and waiting would not help: workers that idle, or whose step
                         alone breaks the objective for the time between tokens */
    PICKER_LEAST_BAD  /* wherever it begins at once; a prefill worker may do it all */
};

struct picker_goals {
    double ttft_slo_s;
    double itl_slo_s;
    uint32_t local_prefill_tokens; /* up to so many uncached tokens the decode worker computes itself ... */
    double local_prefill_s; /* ... and more where that takes so long at most, all it holds up counted */
    enum picker_yield yield;
    uint32_t order; /* in which equals are taken; 0: by slot.  Routers that have different ones do not all
                       run to the same worker */
};

struct picker_request {
    uint32_t n_tokens; /* > 0 */
    uint32_t max_new_tokens;
    uint32_t group;
    const uint32_t *cached_blocks; /* [PICKER_MAX_WORKERS] leading blocks in memory; NULL: nobody has any */
    const struct picker_run *runs; /* [n_runs], each worker once */
    uint32_t n_runs;
    const struct picker_slots *excluded; /* workers that failed this request already; NULL: none */
    /* A part of the answer exists: only workers of this layout, hence of this arithmetic, would go on with
     * the same bits. */
    bool keeps_layout;
    uint64_t layout;
    bool is_alone; /* one worker does it all, of either role */
};

struct picker_choice {
    uint32_t prefill; /* slot, or PICKER_NONE: the decode worker does both */
    uint32_t decode;
    double ttft_s; /* estimates */
    double itl_s;
    uint32_t uncached_tokens; /* to be computed by whoever prefills ... */
    uint32_t read_tokens;     /* ... after it has read so many from its disk */
};

struct picker_fleet;

/* 0; E_OVERLOADED: workers exist but none keeps the objectives, as far as the goals insist on them
 * (choice_out holds the best anyway);
 * E_NOT_FOUND: no worker could run it at all; E_LIMIT: none is large enough.  Time grows with the number of
 * workers of the group, not of pairs; no allocation. */
int picker_pick(const struct picker_fleet *fleet, const struct picker_goals *goals,
                const struct picker_request *request, struct picker_choice *choice_out);

/* The estimates behind it, for tests and the planner. */
double picker_queue_s(const struct picker_worker *worker);
double picker_prefill_s(const struct picker_worker *worker, uint32_t n_tokens);
/* To read so many tokens of a prompt from its disk, after those that are queued; infinite without a rate. */
double picker_read_s(const struct picker_worker *worker, uint32_t n_tokens);
double picker_itl_s(const struct picker_worker *worker);
/* What the time between tokens would be there if nothing else ran, as long as it has a seat. */
int64_t picker_itl_alone_ns(int64_t itl_ns, uint32_t n_running);
double picker_transfer_s(const struct picker_worker *to, uint32_t n_tokens);

void picker_slots_add(struct picker_slots *slots, uint32_t slot);
void picker_slots_remove(struct picker_slots *slots, uint32_t slot);
bool picker_slots_has(const struct picker_slots *slots, uint32_t slot);
bool picker_slots_is_empty(const struct picker_slots *slots);

#endif
