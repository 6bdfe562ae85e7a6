/* SPDX-License-Identifier: Apache-2.0 */
/* One worker in one part of a placement: what it costs, whether it keeps the objectives in this pass, and whether it is
 * the best so far. */
#ifndef FLEET_PICKER_PICK_ROW_PRIV_H
#define FLEET_PICKER_PICK_ROW_PRIV_H

#include "fleet/picker/pick_priv.h"

enum what {
    PREFILL_HALVES,   /* prefill workers, for pairs */
    DECODE_HALVES,    /* decode workers, for pairs; alone if nearly all of the prompt is there, which needs
                       * no pair */
    ALONE_BY_OVERFLOW /* any worker that would compute more than a little of the prompt, alone */
};

/* The prompt's time, once for each sequence that it delays. */
static inline int64_t held_up_ns(int64_t own_ns, uint32_t n_running)
{
    return own_ns * (n_running < PICK_MAX_RUNNING ? n_running : PICK_MAX_RUNNING);
}

/* What a quick prompt costs the sequences beside it: its time once, so that a busy worker is chosen only if it is faster
 * by more than its learned speed may be wrong, and a cached prompt still goes where its blocks are. */
static inline int64_t quick_delay_ns(int64_t own_ns, uint32_t n_running)
{
    return n_running > 0 ? own_ns : 0;
}

static inline bool is_local(const struct scan *scan, uint32_t n, int64_t own_ns, uint32_t n_running)
{
    return n <= scan->local_tokens || own_ns + held_up_ns(own_ns, n_running) <= scan->local_ns;
}

/* True if the n tokens that a worker lacks are few or quick enough to be computed where the request decodes. */
static inline bool is_short(const struct scan *scan, uint32_t n, double prefill_ns, float pair_ns,
                            uint32_t n_running)
{
    return is_local(scan, n, pick_compute_ns(scan, n, prefill_ns, pair_ns), n_running);
}

static inline void take_side(const struct pick_row *row, int64_t cost_ns, uint32_t n_read, struct side *best)
{
    *best = (struct side){cost_ns, row->n_running, row, n_read};
}

/* Blocks for the uncached tokens, the answer and one more: (n + answer) / block_tokens + 1 <= free. */
static inline bool picker_pick_has_room(const struct scan *scan, const struct pick_row *row, uint32_t n)
{
    return (uint64_t)n + scan->answer_tokens < row->free_tokens ||
           (scan->pass > KEEPING && row->n_running == 0);
}

static inline bool picker_pick_is_allowed(const struct scan *scan, const struct pick_row *row)
{
    return scan->excluded == NULL || !picker_slots_has(scan->excluded, row->slot);
}

/* The prompt and one more token would fit in an empty pool. */
static inline bool is_large(const struct scan *scan, const struct pick_row *row)
{
    return row->total_tokens > scan->n_tokens;
}

/* Keeps the objective, or breaks it in a way that the ends of running sequences would not mend. */
static inline bool keeps_itl(const struct scan *scan, const struct pick_row *row)
{
    if (row->itl_ns <= scan->itl_slo_ns || scan->pass == LEAST_BAD)
        return true;
    return scan->pass == CONSERVING && (row->n_running == 0 || itl_alone_ns(scan, row) > scan->itl_slo_ns);
}

/* Also requires a seat. A worker without a free seat would compute the arriving prompt a second time, so the
 * request waits in the router's queue. */
static inline bool keeps_decode(const struct scan *scan, const struct pick_row *row, uint32_t n)
{
    return keeps_itl(scan, row) && row->has_seat && picker_pick_has_room(scan, row, n);
}

static inline void try_alone(const struct scan *scan, const struct pick_row *row, struct need need,
                             struct side *best)
{
    int64_t own_ns = pick_compute_ns(scan, need.n, row->prefill_ns, row->pair_ns);
    bool is_quick = is_local(scan, need.n, own_ns, row->n_running);

    int64_t alone_ns = need.read_ns + own_ns + row->itl_ns;
    int64_t ttft_ns =
                need.read_ns + queue_ns(scan, row->queue_ns) + beside_ns(scan, row, own_ns) + row->itl_ns,
            cost_ns = ttft_ns + scan->answer_tokens * row->itl_ns;

    if (is_quick)
        cost_ns += quick_delay_ns(own_ns, row->n_running);
    else
        cost_ns += held_up_ns(own_ns, row->n_running) + (row->is_both ? 0 : overflow_ns(scan, own_ns));
    if (is_first(row, row->n_running, cost_ns, best) &&
        (scan->pass == ANY ||
         (!row->decodes_only && (is_quick || leaves_half(scan, row)) &&
          keeps_decode(scan, row, need.n_missing) && ttft_ns <= limit_ns(scan, alone_ns))))
        take_side(row, cost_ns, need.n_read, best);
}

static inline void try_prefill(const struct scan *scan, const struct pick_row *row,
                               const struct pick_brief *brief, struct need need, struct side *best)
{
    int64_t alone_ns =
        need.read_ns + (need.n_read > 0 ? pick_compute_ns(scan, need.n, row->prefill_ns, row->pair_ns)
                                        : lack_ns(scan, brief, need.n));
    int64_t cost_ns = queue_ns(scan, row->queue_ns) + alone_ns;

    if (is_first(row, row->n_running, cost_ns, best) &&
        (scan->pass == ANY ||
         (cost_ns <= limit_ns(scan, alone_ns) && picker_pick_has_room(scan, row, need.n_missing))))
        take_side(row, cost_ns, need.n_read, best);
}

/* The extra cost of handing a short prompt over. */
static inline int64_t handoff_ns(int64_t itl_ns)
{
    return HANDOFF_NS + HANDOFF_STEPS * itl_ns;
}

static inline void try_decode(const struct scan *scan, const struct pick_row *row, uint32_t n,
                              int64_t extra_ns, struct side *best)
{
    int64_t cost_ns = pick_ns(n * row->transfer_ns) + scan->answer_tokens * row->itl_ns + extra_ns;

    if (is_first(row, row->n_running, cost_ns, best) && (scan->pass == ANY || keeps_decode(scan, row, n)))
        take_side(row, cost_ns, 0, best);
}

static inline __attribute__((always_inline)) void try_row(const struct scan *scan,
                                                          const struct pick_pool *pool, uint32_t at,
                                                          enum what what, struct side sides[2])
{
    const struct pick_row *row = &pool->rows[at];
    struct side *lone = &sides[0], *half = &sides[1];
    bool is_quick;
    uint32_t n;

    if (!is_large(scan, row))
        return;
    n = pick_uncached(scan, row->slot, row->block_tokens);
    if (what == PREFILL_HALVES) {
        try_prefill(scan, row, &pool->briefs[at], (struct need){.n_missing = n, .n = n}, half);
        return;
    }
    is_quick = is_short(scan, n, row->prefill_ns, row->pair_ns, row->n_running);
    if (is_quick == (what == DECODE_HALVES))
        try_alone(scan, row, (struct need){.n_missing = n, .n = n}, lone);
    if (what == DECODE_HALVES && (!is_quick || queue_ns(scan, row->queue_ns) > 0))
        try_decode(scan, row, n, is_quick ? handoff_ns(row->itl_ns) : 0, half);
}

#endif
