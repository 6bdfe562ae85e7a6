/* SPDX-License-Identifier: Apache-2.0 */
/* The number of prompt tokens in a step: the scheduler's rule, without its sequences.
 *
 *    step    | decoding sequences: one token each, drafts | prompt tokens: the budget              |
 *    seconds |<------------- decode_s ------------------->|<- at most what the objective leaves -->|
 *
 * plan.c calls it with the learned cost model of the worker, and the simulator (fleet/sim) with the step times of
 * its workers.  So equal values give equal decisions.
 *
 * Pure; any thread; no allocation. */
#ifndef COMPUTE_SCHED_BUDGET_H
#define COMPUTE_SCHED_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#define SCHED_LEAST_SHARE 0.25 /* least time for prompts, as a part of the time for decoding */

struct sched_budget {
    uint32_t n_rows;           /* tokens that decoding sequences feed; 0: none decodes */
    uint32_t max_batch_tokens; /* of a step, more than n_rows */
    uint32_t chunk_tokens;     /* most prompt tokens beside decoding sequences */
    uint64_t itl_ns;           /* objective for the time between two tokens; 0: none */
    uint64_t max_step_ns;      /* bound of any step; 0: none */
    bool knows_prompts;        /* step_s() knows what prompt tokens cost */
    double decode_s;           /* the step without prompt tokens */
    double per_token_s;        /* one prompt token, without attention */
    double margin;             /* factor by which a step may exceed its prediction */
    /* Predicted seconds of the step with the next n tokens of the prompts. */
    double (*step_s)(const void *arg, uint32_t n);
    const void *arg;
};

/* Returns the prompt tokens of the step, of all prompts together: the largest number that is predicted to keep the
 * objective.  Prompts get at least SCHED_LEAST_SHARE of the time for decoding, so that they make progress. */
uint32_t sched_budget_tokens(const struct sched_budget *budget);
/* Returns the part of the budget for a prompt with n_left tokens behind `position`.  A chunk that does not end its
 * prompt stops at a block boundary if it reaches one.  With has_objective it does so only if that cuts little. */
uint32_t sched_budget_chunk(uint32_t budget_tokens, uint32_t n_left, uint32_t position, uint32_t block_tokens,
                            bool has_objective);

#endif
