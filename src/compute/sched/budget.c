/* SPDX-License-Identifier: Apache-2.0 */
/* See budget.h.  Hot path: no allocation, no log, no system call. */
#include "compute/sched/budget.h"

#include "base/clock.h"

#define LEAST_TOKENS 8
#define CHUNKS_TRIED 64
#define ALIGN_SHARE  8 /* 1/8 of a measured chunk may be cut so that it ends on a block boundary */

static bool budget_fits(const struct sched_budget *budget, uint32_t n, double goal_s)
{
    return budget->step_s(budget->arg, n) <= goal_s;
}

/* Returns the largest number of prompt tokens, at most n_most, with which the step is expected to end within
 * goal_s; n_least if none fits. Cost may grow unevenly with size, so it tries sizes from above in strides, then
 * bisects one stride. */
static uint32_t budget_largest(const struct sched_budget *budget, uint32_t n_least, uint32_t n_most,
                               double goal_s)
{
    uint32_t by = 1 + n_most / CHUNKS_TRIED, too_many = n_most + 1, n = n_most;

    if (n_least >= n_most)
        return n_most;
    while (n > n_least && !budget_fits(budget, n, goal_s)) {
        too_many = n;
        n = n > n_least + by ? n - by : n_least;
    }
    while (too_many - n > 1) {
        uint32_t middle = n + (too_many - n) / 2;

        if (budget_fits(budget, middle, goal_s))
            n = middle;
        else
            too_many = middle;
    }
    return n;
}

/* Prompts never starve: their part of a step is at least a fixed share of the time for decoding. */
static uint32_t budget_least(const struct sched_budget *budget)
{
    double n = budget->per_token_s > 0 ? SCHED_LEAST_SHARE * budget->decode_s / budget->per_token_s : 0;

    return n > UINT32_MAX / 2 ? UINT32_MAX / 2 : n > LEAST_TOKENS ? (uint32_t)n : LEAST_TOKENS;
}

uint32_t sched_budget_tokens(const struct sched_budget *budget)
{
    uint32_t room = budget->max_batch_tokens - budget->n_rows, chunk = room;
    uint64_t goal_ns = budget->max_step_ns, itl_ns = budget->itl_ns;

    if (budget->n_rows > 0 && budget->chunk_tokens < room)
        chunk = budget->chunk_tokens;
    if (budget->n_rows > 0 && itl_ns > 0 && (goal_ns == 0 || itl_ns < goal_ns))
        goal_ns = itl_ns;
    if (goal_ns == 0)
        return chunk;
    if (!budget->knows_prompts)
        return budget->chunk_tokens < chunk ? budget->chunk_tokens : chunk;
    return budget_largest(budget, budget_least(budget), chunk,
                          (double)goal_ns / (double)NS_PER_S / budget->margin);
}

uint32_t sched_budget_chunk(uint32_t budget_tokens, uint32_t n_left, uint32_t position, uint32_t block_tokens,
                            bool has_objective)
{
    uint32_t past_boundary, most_past;

    if (n_left <= budget_tokens)
        return n_left;
    past_boundary = (position + budget_tokens) % block_tokens;
    most_past = has_objective ? budget_tokens / ALIGN_SHARE : budget_tokens;
    return past_boundary < budget_tokens && past_boundary <= most_past ? budget_tokens - past_boundary
                                                                       : budget_tokens;
}
