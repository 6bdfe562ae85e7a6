/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds that reject most workers of a pool by their briefs, without the cost of the prompt on each. */
#ifndef FLEET_PICKER_PICK_FEW_PRIV_H
#define FLEET_PICKER_PICK_FEW_PRIV_H

#include "fleet/picker/pick_priv.h"

#define FEW_DIVISOR 8  /* up to an eighth of a prompt is "little" */
#define FEW_STEPS   16 /* bounds by the number of cached blocks */

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

/* True if the n tokens that a worker lacks are few or quick enough to be computed where the request decodes. */
static inline bool is_short(const struct scan *scan, uint32_t n, double prefill_ns, float pair_ns,
                            uint32_t n_running)
{
    int64_t own_ns = pick_compute_ns(scan, n, prefill_ns, pair_ns);

    return n <= scan->local_tokens || own_ns + held_up_ns(own_ns, n_running) <= scan->local_ns;
}

/* Most workers have few blocks of a prompt, perhaps only the first block, which many prompts share. For a
 * pool's workers with at most few_blocks, the tokens cost at least alone_ns on one worker. As half of a pair,
 * they cost at least least_ns[c >> shift] on a worker with c blocks. Workers that are as fast as the fastest and
 * have no more than the best so far are rejected by that alone. */
struct few {
    uint32_t few_blocks, shift;
    int64_t least_ns[FEW_STEPS], alone_ns;
    bool may_alone;       /* one of them might compute the rest quickly enough to do it alone */
    int64_t sure_running; /* the fastest ones do so with up to this many sequences, for any cached part */
    double prefill_ns;    /* of the fastest */
    float pair_ns;
    bool is_long; /* more than local_prefill_tokens */
};

/* The most sequences beside which the fastest workers of the pool compute the whole prompt quickly; -1: none. */
static inline int64_t sure_running(const struct scan *scan, const struct pick_pool *pool)
{
    int64_t own_ns = pick_compute_ns(scan, scan->n_tokens, pool->least_prefill_ns, pool->least_pair_ns);

    if (scan->n_tokens <= scan->local_tokens || own_ns == 0)
        return INT64_MAX;
    own_ns = scan->local_ns / own_ns - 1;
    return own_ns < PICK_MAX_RUNNING ? own_ns : PICK_MAX_RUNNING;
}

/* The least number of tokens that a worker of the pool lacks if it has at most this many blocks. */
static inline uint32_t few_lacks(const struct scan *scan, const struct pick_pool *pool, uint32_t n_blocks)
{
    uint64_t cached = (uint64_t)n_blocks * pool->most_block_tokens;

    return cached < scan->n_tokens ? scan->n_tokens - (uint32_t)cached : 1;
}

/* Fills least_ns, with no more steps than the pool has workers. */
static inline void know_least(const struct scan *scan, const struct pick_pool *pool, enum what what,
                              struct few *few)
{
    const struct pick_brief fastest = {.prefill_ns = pool->least_prefill_ns,
                                       .pair_ns = pool->least_pair_ns,
                                       .push_ns = pool->least_push_ns,
                                       .block_tokens = pool->most_block_tokens};
    uint32_t most_steps = pool->n < FEW_STEPS ? pool->n : FEW_STEPS;

    while (few->few_blocks >> few->shift > 0 && few->few_blocks >> few->shift >= most_steps)
        few->shift++;
    for (uint32_t step = 0; step <= few->few_blocks >> few->shift; step++) {
        uint64_t most_blocks = ((step + UINT64_C(1)) << few->shift) - 1;
        uint32_t n =
            few_lacks(scan, pool, most_blocks < few->few_blocks ? (uint32_t)most_blocks : few->few_blocks);

        few->least_ns[step] =
            what == PREFILL_HALVES ? lack_ns(scan, &fastest, n) : pick_ns(n * pool->least_rate_ns);
    }
}

static inline struct few know_few(const struct scan *scan, const struct pick_pool *pool, enum what what)
{
    uint32_t few_blocks = scan->is_cold ? 0 : 1 + scan->n_tokens / FEW_DIVISOR / pool->most_block_tokens;
    uint32_t n = few_lacks(scan, pool, few_blocks);
    struct few few = {.few_blocks = few_blocks,
                      .alone_ns = pick_compute_ns(scan, n, pool->least_prefill_ns, pool->least_pair_ns),
                      .is_long = n > scan->local_tokens};

    few.may_alone =
        what == DECODE_HALVES && is_short(scan, n, pool->least_prefill_ns, pool->least_pair_ns, 0);
    few.prefill_ns = pool->least_prefill_ns;
    few.pair_ns = pool->least_pair_ns;
    few.sure_running = sure_running(scan, pool);
    if (what != ALONE_BY_OVERFLOW)
        know_least(scan, pool, what, &few);
    return few;
}

/* True if one of the few could compute the rest quickly enough beside this many sequences. */
static inline bool few_are_short(const struct scan *scan, const struct few *few, uint32_t n_running)
{
    return few->may_alone &&
           (!few->is_long || few->alone_ns + held_up_ns(few->alone_ns, n_running) <= scan->local_ns);
}

/* True if values that do not depend on its cache show that the worker cannot be the best. */
static inline bool is_behind(const struct scan *scan, const struct pick_brief *brief, const struct few *few,
                             enum what what, const struct side sides[2])
{
    int64_t times = what == PREFILL_HALVES ? 1 : scan->answer_tokens;
    int64_t fixed_ns = what == PREFILL_HALVES ? queue_ns(scan, brief->fixed_ns) : brief->fixed_ns;

    bool is_sure = what == DECODE_HALVES && brief->n_running <= few->sure_running &&
                   brief->prefill_ns == few->prefill_ns && brief->pair_ns == few->pair_ns &&
                   queue_ns(scan, brief->queue_ns) == 0;

    uint32_t n_blocks = scan->cached_blocks[brief->slot];

    return n_blocks <= few->few_blocks &&
           (is_sure || !is_first(scan, brief->slot, brief->n_running,
                                 few->least_ns[n_blocks >> few->shift] + times * fixed_ns, &sides[1])) &&
           (!few_are_short(scan, few, brief->n_running) ||
            !is_first(scan, brief->slot, brief->n_running, few->alone_ns + (times + 1) * fixed_ns,
                      &sides[0]));
}

#endif
