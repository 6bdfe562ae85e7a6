/* SPDX-License-Identifier: Apache-2.0 */
/* See prompt_cost.h. */
#include "compute/sched/prompt_cost.h"

#include "compute/sched/cost.h"

#define ALPHA      0.25
#define DEEP       1024.0 /* attended tokens per token, from which on a chunk shows the cost of a pair */
#define TOKENS_MIN 0.1    /* of a chunk: least part that its tokens cost, for any cost of its pairs */
#define PAIRS_MIN  0.01   /* of a deep chunk: least part that its pairs cost */

static double part_left(double seconds, double other_s, double least)
{
    return seconds - other_s > least * seconds ? seconds - other_s : least * seconds;
}

void prompt_cost_learn(struct prompt_cost *cost, const struct prompt_cost_sample *sample, uint64_t now_ns)
{
    double tokens_s = rate_level(&cost->token_s) * sample->n_tokens,
           pairs_s = rate_level(&cost->pair_s) * sample->n_pairs;

    /* a deep chunk that takes less than its tokens are thought to cost shows that this is too much */
    if (sample->n_pairs < DEEP * sample->n_tokens || tokens_s <= 0 || sample->seconds < tokens_s)
        rate_learn(&cost->token_s, part_left(sample->seconds, pairs_s, TOKENS_MIN) / sample->n_tokens, ALPHA,
                   sample->weight, now_ns);
    else
        rate_learn(&cost->pair_s, part_left(sample->seconds, tokens_s, PAIRS_MIN) / sample->n_pairs, ALPHA,
                   sample->weight, now_ns);
}

double prompt_cost_s(const struct prompt_cost *cost, uint32_t from, uint32_t n_tokens)
{
    return rate_level(&cost->token_s) * n_tokens + rate_level(&cost->pair_s) * cost_pairs(from, n_tokens);
}
