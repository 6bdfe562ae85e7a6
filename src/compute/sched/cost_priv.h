/* SPDX-License-Identifier: Apache-2.0 */
/* What a step costs, learned from the steps.
 *
 *     seconds = (start + per_row x decode rows + per_prompt x prompt tokens + per_pair x attended pairs) x
 * shape
 *
 * The four coefficients are fitted by least squares over the latest steps, each counted by its relative
 * error. Shape is a correction for the step's size, since kernels work in tiles and the second row of a batch
 * does not cost what the tenth does; it is 1 for sizes not seen yet.  Learning depends on what is observed
 * only, so that a test with a clock of its own gets the same figures each time.  Any one thread; no
 * allocation. */
#ifndef COMPUTE_SCHED_COST_PRIV_H
#define COMPUTE_SCHED_COST_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rate.h"

enum { COST_TERMS = 4, COST_SIZES = 56 };

struct cost_step {     /* what is known of a step before it runs */
    uint32_t n_rows;   /* tokens fed by sequences that decode, guesses included */
    uint32_t n_prompt; /* tokens of prompts */
    double n_pairs;    /* (fed token, token it looks at) of all sequences */
};

struct cost_shape { /* means over the latest steps of one size */
    double inputs[COST_TERMS], seconds;
    uint64_t seen_at; /* number of the last such step; 0: none yet */
};

struct cost_model { /* a zeroed one knows nothing */
    double terms[COST_TERMS];
    double scale[COST_TERMS]; /* of each term's inputs lately, relative to the step's time; 0: never seen */
    double products[COST_TERMS][COST_TERMS], moments[COST_TERMS];
    struct cost_shape shapes[COST_SIZES];
    struct rate_mean error; /* relative, absolute value */
    uint64_t n_seen;
};

/* Pairs of n tokens fed from a position on. */
static inline double cost_pairs(uint32_t position, uint32_t n)
{
    return (double)n * position + 0.5 * n * (n + 1.0);
}

void cost_observe(struct cost_model *model, const struct cost_step *step, double seconds);
/* Seconds; 0 as long as nothing was seen. */
double cost_predict(const struct cost_model *model, const struct cost_step *step);
/* Whether enough was seen to tell what is unusual. */
bool cost_is_settled(const struct cost_model *model);
bool cost_knows_prompts(const struct cost_model *model);
double cost_per_prompt_token(const struct cost_model *model); /* seconds, attention apart */
/* By how much steps take longer than predicted now and then: 1.02 to 1.5. */
double cost_margin(const struct cost_model *model);

#endif
