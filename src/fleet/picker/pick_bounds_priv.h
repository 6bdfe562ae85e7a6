/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds that reject most workers of a pool, a group at once, without the cost of the prompt on each.
 *
 * A brief holds what a worker costs; the brief of a group holds the least of each value. So the same comparison
 * rejects a worker or a group. Most workers have few blocks of a prompt: none, or the first ones, which many prompts
 * share. struct warm lists the others, which are tried one by one. For a group the prompt counts as cached as far as
 * for any worker that is not listed. */
#ifndef FLEET_PICKER_PICK_BOUNDS_PRIV_H
#define FLEET_PICKER_PICK_BOUNDS_PRIV_H

#include "fleet/picker/pick_row_priv.h"

/* ---- workers that have more than a few blocks ---- */

/* Adds a worker. If the list is full, the bound rises to the mean of the listed, which drops those below it. */
static inline void warm_add(struct warm *warm, const uint32_t *cached_blocks, uint32_t slot)
{
    uint64_t sum = 0;
    uint32_t n = 0, most = 0;

    for (uint32_t i = 0; warm->n == WARM_MAX && i < warm->n; i++) {
        sum += cached_blocks[warm->slots[i]];
        most = cached_blocks[warm->slots[i]] > most ? cached_blocks[warm->slots[i]] : most;
    }
    if (warm->n == WARM_MAX) {
        warm->few_blocks = warm->n_raised++ < WARM_RAISES ? (uint32_t)(sum / warm->n) : most;
        for (uint32_t i = 0; i < warm->n; i++)
            if (cached_blocks[warm->slots[i]] > warm->few_blocks)
                warm->slots[n++] = warm->slots[i];
        warm->n = n;
    }
    if (cached_blocks[slot] > warm->few_blocks)
        warm->slots[warm->n++] = (uint16_t)slot;
}

static inline void warm_list(struct warm *warm, const uint32_t *cached_blocks)
{
    warm->n = warm->few_blocks = warm->n_raised = 0;
    for (uint32_t from = 0; from < PICKER_MAX_WORKERS; from += PICK_GROUP) {
        uint32_t any = 0;

        for (uint32_t i = 0; i < PICK_GROUP; i++)
            any |= cached_blocks[from + i];
        for (uint32_t i = 0; any > 0 && i < PICK_GROUP; i++)
            if (cached_blocks[from + i] > warm->few_blocks)
                warm_add(warm, cached_blocks, from + i);
    }
}

/* The least number of tokens that a worker lacks if it is not listed and its blocks are at most this long. */
static inline uint32_t few_lacks(const struct scan *scan, uint32_t most_block_tokens)
{
    uint64_t cached = (uint64_t)scan->warm->few_blocks * most_block_tokens;

    return cached < scan->n_tokens ? scan->n_tokens - (uint32_t)cached : 1;
}

/* ---- one worker that does both phases: "lone" ---- */

#define PICK_NEVER_NS (INT64_MAX / 4) /* such a worker is not tried */
#define LEAST_ROUNDED (1 - 1e-9)      /* keeps a bound below a sum that was rounded in another order */

/* True if decoding sequences of a worker with this time between tokens lengthen its prompts by beside_ns()'s factor.
 * Beyond that its steps may break the objective anyway, and then they lengthen nothing. */
static inline bool is_stretched(const struct scan *scan, int64_t itl_ns)
{
    return scan->share_1024 != WHOLE_SHARE &&
           scan->step_slo_ns - itl_ns >= scan->step_slo_ns / LEAST_LEFT_DIVISOR;
}

/* The least of these factors in the pool. */
static inline double least_stretch(const struct scan *scan, const struct pick_pool *pool)
{
    int64_t left_ns = scan->step_slo_ns - pool->least_itl_ns;

    return is_stretched(scan, pool->least_itl_ns) && left_ns > 0
               ? (double)scan->step_slo_ns / (double)left_ns * LEAST_ROUNDED
               : 1;
}

/* The least cost of n tokens that take own_ns, without the worker's queue and the answer. */
static inline int64_t lone_prompt_ns(const struct scan *scan, const struct pick_pool *pool, uint32_t n,
                                     int64_t own_ns, uint32_t n_running, double stretch, enum what what)
{
    int64_t ns = n_running > 0 && what == DECODE_HALVES ? (int64_t)((double)own_ns * stretch) : own_ns;

    ns = ns < PICK_MAX_NS ? ns : PICK_MAX_NS;
    if (what == ALONE_BY_OVERFLOW)
        return ns + held_up_ns(own_ns, n_running) + (pool->has_both ? 0 : overflow_ns(scan, own_ns));
    return is_local(scan, n, own_ns, n_running) ? ns + quick_delay_ns(own_ns, n_running) : PICK_NEVER_NS;
}

static inline int64_t lone_rest_ns(const struct scan *scan, int64_t queued_ns, int64_t fixed_ns)
{
    return queue_ns(scan, queued_ns) + (scan->answer_tokens + INT64_C(1)) * fixed_ns;
}

static inline int64_t brief_lone_ns(const struct scan *scan, const struct pick_pool *pool,
                                    const struct pick_brief *brief, double stretch, enum what what)
{
    uint32_t n = pick_uncached(scan, brief->slot, brief->block_tokens);
    int64_t own_ns = pick_compute_ns(scan, n, brief->prefill_ns, brief->pair_ns);

    return lone_prompt_ns(scan, pool, n, own_ns, brief->n_running, stretch, what) +
           lone_rest_ns(scan, brief->queue_ns, brief->fixed_ns);
}

/* ---- halves of pairs ---- */

/* The cost of a decode worker as half of a pair for a prompt that is short for it.  It has the cost of a hand-off, and
 * without a queue such a worker needs no pair. */
static inline int64_t short_half_ns(const struct scan *scan, int64_t half_ns, int64_t fixed_ns,
                                    int64_t queued_ns)
{
    return queue_ns(scan, queued_ns) > 0 ? half_ns + handoff_ns(fixed_ns) : PICK_NEVER_NS;
}

static inline int64_t prefill_half_ns(const struct scan *scan, const struct pick_brief *brief, uint32_t n)
{
    return lack_ns(scan, brief, n) + queue_ns(scan, brief->fixed_ns);
}

/* The least cost of the worker; a decode worker's is larger if the prompt is short for it. */
static inline int64_t brief_half_ns(const struct scan *scan, const struct pick_brief *brief, enum what what)
{
    uint32_t n = pick_uncached(scan, brief->slot, brief->block_tokens);

    return what == PREFILL_HALVES ? prefill_half_ns(scan, brief, n)
                                  : pick_ns(n * brief->rate_ns) + scan->answer_tokens * brief->fixed_ns;
}

static inline int64_t brief_short_half_ns(const struct scan *scan, const struct pick_brief *brief)
{
    uint32_t n = pick_uncached(scan, brief->slot, brief->block_tokens);
    int64_t half_ns = brief_half_ns(scan, brief, DECODE_HALVES);

    return is_short(scan, n, brief->prefill_ns, brief->pair_ns, brief->n_running)
               ? short_half_ns(scan, half_ns, brief->fixed_ns, brief->queue_ns)
               : half_ns;
}

/* ---- groups of workers that may decode ---- */

struct group_bounds {
    int64_t prompt_ns[PICK_LOADS]; /* lone_prompt_ns() of its workers, by load */
    int64_t lone_ns, half_ns;
    double stretch; /* of its prompts beside sequences */
};

/* A prompt counts as short for a kind if its slowest worker would compute all of it quickly enough. */
static inline void bound_half(const struct scan *scan, const struct pick_group *group,
                              const struct pick_kind *kind, uint32_t load, struct group_bounds *out)
{
    int64_t ns = scan->answer_tokens * kind->fixed_ns;
    uint32_t n_running = load < PICK_LOADS - 1 ? load : group->most_running;

    if (is_short(scan, scan->n_tokens, kind->most_prefill_ns, kind->most_pair_ns, n_running))
        ns = short_half_ns(scan, ns, kind->fixed_ns, group->most_queue_ns);
    out->half_ns = ns < out->half_ns ? ns : out->half_ns;
}

static inline __attribute__((always_inline)) void bound_group(const struct scan *scan,
                                                              const struct pick_pool *pool,
                                                              const struct pick_group *group, double stretch,
                                                              enum what what, struct group_bounds *out)
{
    uint32_t n = few_lacks(scan, group->least.block_tokens);

    *out = (struct group_bounds){.lone_ns = PICK_NEVER_NS,
                                 .half_ns = PICK_NEVER_NS,
                                 .stretch = is_stretched(scan, group->most_fixed_ns) ? stretch : 1};
    for (uint32_t load = 0; load < PICK_LOADS; load++)
        out->prompt_ns[load] = PICK_NEVER_NS;
    for (uint32_t i = 0; i < PICK_KINDS; i++) {
        const struct pick_kind *kind = &group->kinds[i];
        uint32_t load = i % PICK_LOADS;
        int64_t own_ns, ns;

        if (kind->fixed_ns == PICK_NONE_NS)
            continue;
        own_ns = pick_compute_ns(scan, n, kind->prefill_ns, kind->pair_ns);
        own_ns = lone_prompt_ns(scan, pool, n, own_ns, load, out->stretch, what);
        ns = own_ns + lone_rest_ns(scan, group->least.queue_ns, kind->fixed_ns);
        out->prompt_ns[load] = own_ns < out->prompt_ns[load] ? own_ns : out->prompt_ns[load];
        out->lone_ns = ns < out->lone_ns ? ns : out->lone_ns;
        if (what == DECODE_HALVES)
            bound_half(scan, group, kind, load, out);
    }
    if (what == DECODE_HALVES && out->half_ns < PICK_NEVER_NS)
        out->half_ns += pick_ns(n * group->least.rate_ns);
}

#endif
