/* SPDX-License-Identifier: Apache-2.0 */
/* Where should a request run?  Filter, estimate, choose: no I/O, no clock, no memory of its own, so that the
 * simulator runs the same code under a virtual clock.
 *
 * The world is a snapshot: one row per worker with what it last reported and what this router has dispatched
 * to it since.  A choice is a pair (prefill worker, decode worker) or one worker alone. */
#ifndef PICKER_PICKER_H
#define PICKER_PICKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PICKER_MAX_WORKERS 64
#define PICKER_NONE        UINT32_MAX

enum picker_role { PICKER_PREFILL, PICKER_DECODE };

struct picker_worker {
    bool is_usable; /* link up, model and KV layout agree, not draining */
    bool can_push;  /* link up and the model agrees: may be asked for what it has cached */
    enum picker_role role;
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
    uint64_t kv_bytes_per_token;
    uint32_t cached_tokens; /* of THIS request's prompt, per the prefix index */
};

struct picker_world {
    const struct picker_worker *workers; /* [n], index = slot */
    uint32_t n;
    double ttft_slo_s;
    double itl_slo_s;
    uint32_t local_prefill_tokens; /* up to so many uncached tokens the decode worker computes itself */
};

struct picker_request {
    uint32_t n_tokens;
    uint32_t max_new_tokens;
    uint64_t excluded; /* bit per slot: workers that failed this request already */
    /* A part of the answer exists: only workers of this layout, hence of this arithmetic, would go on with
     * the same bits. */
    bool keeps_layout;
    uint64_t layout;
};

struct picker_choice {
    uint32_t prefill; /* slot, or PICKER_NONE: the decode worker does both */
    uint32_t decode;
    double ttft_s; /* estimates */
    double itl_s;
    uint32_t uncached_tokens; /* to be computed by whoever prefills */
};

/* 0; E_OVERLOADED: workers exist but none can keep the objectives (choice_out holds the best anyway);
 * E_NOT_FOUND: no worker could run it at all; E_LIMIT: none is large enough. */
int picker_pick(const struct picker_world *world, const struct picker_request *request,
                struct picker_choice *choice_out);

/* The estimates behind it, for tests and the planner. */
double picker_queue_s(const struct picker_worker *worker);
double picker_prefill_s(const struct picker_worker *worker, uint32_t n_tokens);
double picker_itl_s(const struct picker_worker *worker);
double picker_transfer_s(const struct picker_worker *to, uint32_t n_tokens);

#endif
