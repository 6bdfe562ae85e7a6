/* SPDX-License-Identifier: Apache-2.0 */
/* The cost model; see cost.h.
 *
 * Fit. Old steps fade by FADE at each new one. A worker may do the same thing for a long time (one
 * sequence decodes). Its steps then give one equation for four unknowns. So each fit starts from the
 * previous one and moves as little as possible, relative to each term's size. Terms that the steps cannot
 * tell apart keep their proportion, and the cost of prompts is still known when the next prompt comes.
 *
 *     minimise  sum fade^age (1 - terms . x / seconds)^2  +  PULL sum ((terms - before) / size)^2
 *
 * A term never falls below zero: one that would is left out of the fit. A step that took more than three
 * times its prediction (another process used the machine) counts as three times. A step below a third of it
 * (a clock was set) counts as a third: errors are relative, so a step of no time would outweigh a thousand
 * others.
 *
 * Shape. Each size has a mean of seconds / fit. A size that was never seen takes a value between its
 * neighbours'. */
#include "compute/sched/cost.h"

#include <math.h>
#include <string.h>

#define FADE         0.96
#define PULL         0.02
#define SCALE_ALPHA  0.1
#define SHAPE_ALPHA  0.2
#define SHAPE_LIFE   500.0 /* in steps */
#define ERROR_ALPHA  0.05
#define OUTLIER      3.0
#define TAIL         3.0  /* times the mean error; about one step in a hundred exceeds it */
#define TERM_FLOOR   0.03 /* of a step: the least range within which a term may move */
#define SHARE_AT_1ST 0.1  /* of a step: least value of a term when it is first seen */
#define PAIRS        1000.0

enum { SETTLED_AT = 8, EXACT_ROWS = 16, PROMPT_SIZES_AT = 36 };

static void inputs_of(const struct cost_step *step, double x[COST_TERMS])
{
    x[0] = 1;
    x[1] = step->n_rows;
    x[2] = step->n_prompt;
    x[3] = step->n_pairs / PAIRS;
}

/* Quarter octaves from 16 on: 16, 19, 22, 26, 32, ... */
static uint32_t log_size(uint32_t n)
{
    uint32_t octave = 4;

    while (octave < 31 && n >> (octave + 1))
        octave++;
    return (octave - 4) * 4 + (n >> (octave - 2)) - 4;
}

/* Index of a step's size among shapes; decode-only steps and steps with prompts are separate. */
static uint32_t cost_size_of(const struct cost_step *step)
{
    uint32_t n = step->n_rows + step->n_prompt, at;

    if (step->n_prompt > 0) {
        at = n < 16 ? 0 : 1 + log_size(n) / 2;
        return PROMPT_SIZES_AT + at < COST_SIZES ? PROMPT_SIZES_AT + at : COST_SIZES - 1;
    }
    if (n <= EXACT_ROWS)
        return n;
    at = EXACT_ROWS + 1 + log_size(n);
    return at < PROMPT_SIZES_AT ? at : PROMPT_SIZES_AT - 1;
}

static double fit_of(const struct cost_model *model, const double x[COST_TERMS])
{
    double sum = 0;

    for (int i = 0; i < COST_TERMS; i++)
        sum += model->terms[i] * x[i];
    return sum;
}

/* Measured time of a size, relative to the present fit. Older measurements count less: the machine may
 * have changed, and only new steps can show it. */
static double shape_at(const struct cost_model *model, uint32_t at)
{
    const struct cost_shape *shape = &model->shapes[at];
    double fit = fit_of(model, shape->inputs), age = (double)(model->n_seen - shape->seen_at);
    double ratio = fit > 0 ? fmin(fmax(shape->seconds / fit, 1 / OUTLIER), OUTLIER) : 1;

    return 1 + (ratio - 1) * exp(-age / SHAPE_LIFE);
}

static double shape_of(const struct cost_model *model, const struct cost_step *step)
{
    uint32_t first = step->n_prompt > 0 ? PROMPT_SIZES_AT : 0;
    uint32_t end = step->n_prompt > 0 ? COST_SIZES : PROMPT_SIZES_AT;
    uint32_t at = cost_size_of(step), below = at, above = at;

    while (below > first && model->shapes[below].seen_at == 0)
        below--;
    while (above + 1 < end && model->shapes[above].seen_at == 0)
        above++;
    if (model->shapes[below].seen_at == 0)
        return model->shapes[above].seen_at > 0 ? shape_at(model, above) : 1;
    if (model->shapes[above].seen_at == 0 || above == below)
        return shape_at(model, below);

    double share = (double)(at - below) / (above - below);
    return (1 - share) * shape_at(model, below) + share * shape_at(model, above);
}

static void shape_observe(struct cost_shape *shape, const double x[COST_TERMS], double seconds, uint64_t now)
{
    double alpha = shape->seen_at == 0 ? 1 : SHAPE_ALPHA;

    for (int i = 0; i < COST_TERMS; i++)
        shape->inputs[i] += alpha * (x[i] - shape->inputs[i]);
    shape->seconds += alpha * (seconds - shape->seconds);
    shape->seen_at = now;
}

/* A term that appears for the first time gets the part of this step that the other terms do not explain. */
static void cost_meet(struct cost_model *model, const double x[COST_TERMS], double seconds)
{
    double left = seconds - fit_of(model, x);
    int n_new = 0;

    for (int i = 0; i < COST_TERMS; i++)
        n_new += x[i] > 0 && model->scale[i] == 0;
    if (left < SHARE_AT_1ST * seconds)
        left = SHARE_AT_1ST * seconds;
    for (int i = 0; i < COST_TERMS; i++) {
        if (x[i] > 0 && model->scale[i] == 0)
            model->terms[i] = left / n_new / x[i];
        if (x[i] > 0)
            model->scale[i] += (model->scale[i] == 0 ? 1 : SCALE_ALPHA) * (x[i] / seconds - model->scale[i]);
    }
}

/* Solves a x = b in place; a is symmetric and positive definite. */
static void cost_solve(double a[COST_TERMS][COST_TERMS], double b[COST_TERMS])
{
    for (int i = 0; i < COST_TERMS; i++) {
        for (int row = i + 1; row < COST_TERMS; row++) {
            double factor = a[row][i] / a[i][i];

            for (int col = i; col < COST_TERMS; col++)
                a[row][col] -= factor * a[i][col];
            b[row] -= factor * b[i];
        }
    }
    for (int i = COST_TERMS - 1; i >= 0; i--) {
        for (int col = i + 1; col < COST_TERMS; col++)
            b[i] -= a[i][col] * b[col];
        b[i] /= a[i][i];
    }
}

/* Solves for the terms that are not left out; a term that is left out is 0. */
static void cost_solve_for(const struct cost_model *model, const bool is_out[COST_TERMS],
                           double terms[COST_TERMS])
{
    double a[COST_TERMS][COST_TERMS];

    memcpy(a, model->products, sizeof(a));
    memcpy(terms, model->moments, COST_TERMS * sizeof(terms[0]));
    for (int i = 0; i < COST_TERMS; i++) {
        double size = fmax(model->terms[i], TERM_FLOOR / fmax(model->scale[i], 1e-300));
        double pull = PULL / (size * size);

        a[i][i] += pull;
        terms[i] += pull * model->terms[i];
        if (!is_out[i])
            continue;
        for (int j = 0; j < COST_TERMS; j++)
            a[i][j] = a[j][i] = 0;
        a[i][i] = 1;
        terms[i] = 0;
    }
    cost_solve(a, terms);
}

/* A term that comes out negative is 0, and the others are fitted without it.  Otherwise they would keep values that
 * only fit beside the negative one. */
static void cost_refit(struct cost_model *model)
{
    bool is_out[COST_TERMS], is_negative = true;
    double terms[COST_TERMS];

    for (int i = 0; i < COST_TERMS; i++)
        is_out[i] = model->scale[i] == 0;
    for (int round = 0; is_negative && round < COST_TERMS; round++) {
        is_negative = false;
        cost_solve_for(model, is_out, terms);
        for (int i = 0; i < COST_TERMS; i++) {
            is_negative |= terms[i] < 0;
            is_out[i] |= terms[i] < 0;
        }
    }
    for (int i = 0; i < COST_TERMS; i++)
        model->terms[i] = terms[i] > 0 ? terms[i] : 0;
}

void cost_observe(struct cost_model *model, const struct cost_step *step, double seconds)
{
    double x[COST_TERMS], predicted = cost_predict(model, step);

    if (!(seconds > 1e-9))
        seconds = 1e-9;
    if (cost_is_learned(model) && predicted > 0)
        seconds = fmin(fmax(seconds, predicted / OUTLIER), predicted * OUTLIER);
    if (model->n_seen > 0 && predicted > 0)
        rate_observe(&model->error, fmin(fabs(seconds - predicted) / predicted, 1), ERROR_ALPHA);
    inputs_of(step, x);
    cost_meet(model, x, seconds);
    for (int i = 0; i < COST_TERMS; i++) {
        for (int j = 0; j < COST_TERMS; j++)
            model->products[i][j] = FADE * model->products[i][j] + x[i] * x[j] / (seconds * seconds);
        model->moments[i] = FADE * model->moments[i] + x[i] / seconds;
    }
    cost_refit(model);

    shape_observe(&model->shapes[cost_size_of(step)], x, seconds, ++model->n_seen);
}

double cost_predict(const struct cost_model *model, const struct cost_step *step)
{
    double x[COST_TERMS];

    inputs_of(step, x);
    return fit_of(model, x) * shape_of(model, step);
}

bool cost_is_learned(const struct cost_model *model)
{
    return model->n_seen > SETTLED_AT;
}

bool cost_knows_prompts(const struct cost_model *model)
{
    return model->scale[2] > 0;
}

double cost_per_prompt_token(const struct cost_model *model)
{
    return model->terms[2];
}

double cost_per_step(const struct cost_model *model)
{
    return model->terms[0];
}

double cost_margin(const struct cost_model *model)
{
    return fmin(fmax(1 + TAIL * rate_get(&model->error, 0.05), 1.02), 1.5);
}
