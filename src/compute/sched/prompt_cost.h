/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of prompt tokens, split into a part per token and a part per attended pair.
 *
 *    seconds = token_s x tokens + pair_s x pairs
 *
 * cost.h fits all terms of a step for the next step.  These two are for long predictions: a router
 * multiplies them by a whole prompt.  So a term is learned only from chunks that show it: token_s from
 * chunks that attend to few tokens, pair_s from chunks that attend to many (unless token_s is found too high).
 *
 * A router gives few prompts to a worker that was slow for a while, because of other work on its machine, so the worker
 * would hardly ever learn that it is fast again.  Therefore the reported cost (prompt_cost_hope()) moves towards the
 * least cost of late while no prompts come.  Pure; any one thread. */
#ifndef COMPUTE_SCHED_PROMPT_COST_H
#define COMPUTE_SCHED_PROMPT_COST_H

#include "base/rate.h"

struct prompt_cost { /* zeroed: has learned nothing */
    struct rate token_s, pair_s;
    double least_s;    /* the least token_s; grows while token_s is above it; 0: none yet */
    uint64_t least_ns; /* time of the latest sample, by which it grew */
};

struct prompt_cost_sample { /* one chunk of a prompt, or several */
    uint32_t n_tokens;      /* at least one */
    double n_pairs;         /* tokens that these attended to, in all */
    double seconds;
    double weight; /* 0..1, as in rate_learn() */
};

void prompt_cost_learn(struct prompt_cost *cost, const struct prompt_cost_sample *sample, uint64_t now_ns);
/* token_s as a router should expect it: below the level if that is far above the least cost, and no sample has come for
 * seconds.  0 until a chunk was observed. */
double prompt_cost_hope(const struct prompt_cost *cost, uint64_t now_ns);
/* Seconds for n tokens behind `from` tokens; 0 until a chunk was observed. */
double prompt_cost_s(const struct prompt_cost *cost, uint32_t from, uint32_t n_tokens);

#endif
