/* SPDX-License-Identifier: Apache-2.0 */
/* The choice's state, its order among equal costs, and the cost of a prompt on one worker. */
#ifndef FLEET_PICKER_PICK_PRIV_H
#define FLEET_PICKER_PICK_PRIV_H

#include "fleet/picker/fleet_priv.h"

#define PUSH_NS             INT64_C(2000000) /* the messages of a push */
#define HANDOFF_NS          INT64_C(2000000) /* the messages of a hand-off ... */
#define HANDOFF_STEPS       2                /* ... which the decode worker reads between steps */
#define COPY_DIVISOR        8 /* part of the time saved by a push: a second replica takes room */
#define OVERFLOW_DIVISOR    2 /* of the TTFT objective */
#define COMING_DIVISOR      2 /* of the prompt's own time */
#define WHOLE_SHARE         1024
#define LEAST_LEFT_DIVISOR  20 /* a prompt gets at least this part of a step */
#define LEAST_SLACK_DIVISOR 4  /* of the prompt's own time, which it may take longer with any share */

enum pass { KEEPING, CONSERVING, LEAST_BAD, ANY };

struct side { /* one worker's term */
    int64_t cost_ns;
    uint64_t n_running;
    const struct pick_row *row; /* NULL: no candidate */
    uint32_t n_read;            /* tokens from its disk */
};

struct need {           /* one worker's work for the prompt before its first token */
    uint32_t n_missing; /* tokens that need blocks: read or computed */
    uint32_t n_read, n; /* ... and computed */
    int64_t read_ns;
};

struct candidate {
    int64_t cost_ns;
    uint64_t n_running;
    const struct pick_row *prefill, *decode; /* decode NULL: no candidate */
    uint32_t n_read;                         /* by the worker that computes */
};

#define WARM_MAX    64
#define WARM_RAISES 8 /* then the bound rises to the most of the listed */

struct warm {            /* the workers that have more than a few blocks of the prompt */
    uint32_t few_blocks; /* no other worker has more */
    uint32_t n, n_raised;
    uint16_t slots[WARM_MAX];
};

struct scan {
    const struct picker_fleet *fleet;
    const struct picker_request *request;
    uint32_t n_tokens;
    int64_t ttft_slo_ns, itl_slo_ns, local_ns, now_ns;
    int64_t
        step_slo_ns; /* a worker's bound on a step with a prompt's chunk: the objective without its margin */
    int64_t share_1024; /* of the TTFT limit */
    uint32_t local_tokens, answer_tokens;
    const uint32_t *cached_blocks;
    const struct picker_slots *excluded; /* NULL: none */
    struct candidate best;
    bool has_any, pairs_short; /* as in struct picker_choice */
    const struct warm *warm;
    bool has_prefill; /* the decode workers under consideration have prefill workers to pair with */
    enum pass pass;
};

/* ---- the order ---- */

/* True if a side of this cost is the best of the pool so far. Nearly all are not; for most of them the cost alone
 * decides. */
static inline bool is_first(const struct pick_row *row, uint32_t n_running, int64_t cost_ns,
                            const struct side *best)
{
    if (cost_ns != best->cost_ns || best->row == NULL)
        return cost_ns < best->cost_ns;
    if (n_running != best->n_running)
        return n_running < best->n_running;
    return row < best->row;
}

/* ---- the cost of a prompt ---- */

static inline uint32_t pick_uncached(const struct scan *scan, uint32_t slot, uint32_t block_tokens)
{
    uint32_t n_tokens = scan->n_tokens;
    uint64_t cached = (uint64_t)scan->cached_blocks[slot] * block_tokens;

    return cached < n_tokens ? n_tokens - (uint32_t)cached : 1;
}

static inline int64_t queue_ns(const struct scan *scan, int64_t reported_ns)
{
    int64_t left_ns = reported_ns - scan->now_ns;

    return left_ns < 0 ? 0 : left_ns < PICK_MAX_NS ? left_ns : PICK_MAX_NS;
}

/* Time to compute the last n tokens of the prompt. */
static inline int64_t pick_compute_ns(const struct scan *scan, uint32_t n, double prefill_ns, float pair_ns)
{
    double from = scan->n_tokens - n;

    return pick_ns(n * prefill_ns + (double)pair_ns * n * (from + 0.5 * n));
}

/* Time until a prefill worker that lacks n tokens has computed them; with a push of the blocks that another
 * worker has, if that is less. It grows with n and with the brief's times. */
static inline int64_t lack_ns(const struct scan *scan, const struct pick_brief *brief, uint32_t n)
{
    int64_t own_ns = pick_compute_ns(scan, n, brief->prefill_ns, brief->pair_ns), pushed_ns;
    uint64_t pushable = (uint64_t)scan->request->pushable_blocks * brief->block_tokens;
    uint32_t left;

    if (brief->push_ns <= 0 || pushable <= scan->n_tokens - n)
        return own_ns;
    left = pushable < scan->n_tokens ? scan->n_tokens - (uint32_t)pushable : 1;
    pushed_ns = PUSH_NS + pick_ns((n - left) * (double)brief->push_ns) +
                pick_compute_ns(scan, left, brief->prefill_ns, brief->pair_ns);
    pushed_ns += own_ns > pushed_ns ? (own_ns - pushed_ns) / COPY_DIVISOR : 0;
    return pushed_ns < own_ns ? pushed_ns : own_ns;
}

/* ---- the limits of a prompt's cost ---- */

static inline int64_t limit_ns(const struct scan *scan, int64_t alone_ns)
{
    int64_t most_ns =
        UNLOADED_SLACK * alone_ns > scan->ttft_slo_ns ? UNLOADED_SLACK * alone_ns : scan->ttft_slo_ns;

    most_ns = most_ns * scan->share_1024 / WHOLE_SHARE;
    alone_ns += alone_ns / LEAST_SLACK_DIVISOR;
    return most_ns > alone_ns ? most_ns : alone_ns;
}

/* The delay of requests that arrive on a decode worker during the prompt; it grows with the prompt. */
static inline int64_t overflow_ns(const struct scan *scan, int64_t own_ns)
{
    return scan->ttft_slo_ns / OVERFLOW_DIVISOR + own_ns / COMING_DIVISOR;
}

/* The time between tokens if no other sequence ran there. */
static inline int64_t itl_alone_ns(const struct scan *scan, const struct pick_row *row)
{
    struct picker_worker worker;

    picker_fleet_row(scan->fleet, row->slot, &worker);
    return pick_ns(picker_itl_at_s(&worker, 0) * 1e9);
}

/* Beside decoding sequences a prompt gets the part of the objective that they leave in each step.  This matters
 * under admission control, which fills a worker up to the objective. */
static inline int64_t beside_ns(const struct scan *scan, const struct pick_row *row, int64_t ns)
{
    int64_t left_ns = scan->step_slo_ns - row->itl_ns;

    if (row->n_running == 0 || scan->share_1024 == WHOLE_SHARE)
        return ns;
    if (left_ns < scan->step_slo_ns / LEAST_LEFT_DIVISOR && itl_alone_ns(scan, row) > scan->step_slo_ns)
        return ns; /* its steps break the objective anyway, so another bound limits them */
    if (left_ns < scan->step_slo_ns / LEAST_LEFT_DIVISOR)
        return ns < PICK_MAX_NS / LEAST_LEFT_DIVISOR ? ns * LEAST_LEFT_DIVISOR : PICK_MAX_NS;
    return pick_ns((double)ns * (double)scan->step_slo_ns / (double)left_ns);
}

/* With admission control a prompt overflows only to decode workers that leave half of each step and a quarter of
 * their seats free.  More sequences will come during its computation, and each one keeps its seat longer, because the
 * prompt lengthens the steps.  A worker without free seats would take no hand-offs, and the prefill workers would
 * idle. */
static inline bool leaves_half(const struct scan *scan, const struct pick_row *row)
{
    return scan->share_1024 == WHOLE_SHARE || row->n_running == 0 ||
           (row->itl_ns <= scan->step_slo_ns / 2 && (row->has_many || !scan->has_prefill)) ||
           itl_alone_ns(scan, row) > scan->step_slo_ns;
}

#endif
