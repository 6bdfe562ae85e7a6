/* SPDX-License-Identifier: Apache-2.0 */
/* A cost model of a step, learned from measured steps.
 *
 *    seconds = (start + per_row x decode rows + per_prompt x prompt tokens
 *                     + per_pair x attended pairs) x shape
 *
 * The four coefficients are fitted by least squares over the latest steps, each weighted by its relative
 * error. Shape corrects for the step's size, because kernels work in tiles: the second row of a batch
 * costs less than the tenth. It is 1 for sizes not seen yet. Learning depends only on the observed values,
 * so a test with its own clock gets the same figures each time. Any one thread; no allocation. */
#ifndef COMPUTE_SCHED_COST_H
#define COMPUTE_SCHED_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rate.h"

enum { COST_TERMS = 4, COST_SIZES = 56 };

struct cost_step {     /* known before the step runs */
    uint32_t n_rows;   /* tokens fed by decoding sequences, draft tokens included */
    uint32_t n_prompt; /* prompt tokens */
    double n_pairs;    /* pairs of a fed token and a token that it attends to, over all sequences */
};

struct cost_shape { /* means over the latest steps of one size */
    double inputs[COST_TERMS], seconds;
    uint64_t seen_at; /* n_seen at the last such step; 0: none yet */
};

struct cost_model { /* zeroed: has learned nothing */
    double terms[COST_TERMS];
    double scale[COST_TERMS]; /* recent size of a term's input, relative to the step's time; 0: never seen */
    double products[COST_TERMS][COST_TERMS], moments[COST_TERMS];
    struct cost_shape shapes[COST_SIZES];
    struct rate_mean error; /* mean relative error, absolute value */
    uint64_t n_seen;
};

/* Attended pairs of n tokens fed from position on. */
static inline double cost_pairs(uint32_t position, uint32_t n)
{
    return (double)n * position + 0.5 * n * (n + 1.0);
}

void cost_observe(struct cost_model *model, const struct cost_step *step, double seconds);
/* Seconds; 0 until a step was observed. */
double cost_predict(const struct cost_model *model, const struct cost_step *step);
/* True if enough steps were observed to recognise an unusual one. */
bool cost_is_learned(const struct cost_model *model);
bool cost_knows_prompts(const struct cost_model *model);
double cost_per_prompt_token(const struct cost_model *model); /* seconds, without attention */
double cost_per_step(const struct cost_model *model);         /* seconds, with nothing in it */
/* Factor by which a step may exceed its prediction, about one step in a hundred: 1.02 to 1.5. */
double cost_margin(const struct cost_model *model);

#endif
