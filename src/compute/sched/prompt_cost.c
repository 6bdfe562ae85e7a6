/* SPDX-License-Identifier: Apache-2.0 */
/* See prompt_cost.h. */
#include "compute/sched/prompt_cost.h"

#include <math.h>

#include "base/clock.h"
#include "compute/sched/cost.h"

#define ALPHA      0.25
#define DEEP       1024.0 /* attended tokens per token, from which on a chunk shows the cost of a pair */
#define TOKENS_MIN 0.1    /* of a chunk: least part that its tokens cost, for any cost of its pairs */
#define PAIRS_MIN  0.01   /* of a deep chunk: least part that its pairs cost */
#define USUAL      1.5    /* times the least cost: chunks of different sizes, and noise */
#define HOPE_NS    (20 * NS_PER_S)  /* without samples: time until a higher cost has moved half-way there */
#define DOUBLES_NS (600 * NS_PER_S) /* the least cost doubles, so that a slower machine is found out */

static double part_left(double seconds, double other_s, double least)
{
    return seconds - other_s > least * seconds ? seconds - other_s : least * seconds;
}

double prompt_cost_hope(const struct prompt_cost *cost, uint64_t now_ns)
{
    return rate_hope_less(&cost->token_s, USUAL * cost->least_s, HOPE_NS, now_ns);
}

/* A sample that is nearer to the hope than to the level proves it right, as far as it counts. */
static void prompt_cost_learn_token(struct prompt_cost *cost, double token_s, double weight, uint64_t now_ns)
{
    double hope = prompt_cost_hope(cost, now_ns), level = rate_level(&cost->token_s);

    if (token_s > 0 && token_s * token_s < hope * level)
        cost->token_s.level *= pow(hope / level, weight);
    rate_learn(&cost->token_s, token_s, ALPHA, weight, now_ns);
    level = rate_level(&cost->token_s);
    if (cost->least_s > 0 && now_ns > cost->least_ns)
        cost->least_s *= exp2((double)(now_ns - cost->least_ns) / DOUBLES_NS);
    if (cost->least_s <= 0 || level < cost->least_s)
        cost->least_s = level;
    cost->least_ns = now_ns;
}

void prompt_cost_learn(struct prompt_cost *cost, const struct prompt_cost_sample *sample, uint64_t now_ns)
{
    double tokens_s = rate_level(&cost->token_s) * sample->n_tokens,
           pairs_s = rate_level(&cost->pair_s) * sample->n_pairs;

    /* a deep chunk that takes less than its tokens are thought to cost shows that this is too much */
    if (sample->n_pairs < DEEP * sample->n_tokens || tokens_s <= 0 || sample->seconds < tokens_s)
        prompt_cost_learn_token(cost, part_left(sample->seconds, pairs_s, TOKENS_MIN) / sample->n_tokens,
                                sample->weight, now_ns);
    else
        rate_learn(&cost->pair_s, part_left(sample->seconds, tokens_s, PAIRS_MIN) / sample->n_pairs, ALPHA,
                   sample->weight, now_ns);
}

double prompt_cost_s(const struct prompt_cost *cost, uint32_t from, uint32_t n_tokens)
{
    return rate_level(&cost->token_s) * n_tokens + rate_level(&cost->pair_s) * cost_pairs(from, n_tokens);
}
