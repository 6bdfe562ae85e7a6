/* SPDX-License-Identifier: Apache-2.0 */
/* Fits constants to measurements, and measures a fit on rows that it has not seen.
 *
 * The search multiplies one constant at a time by a step and keeps changes that lower the mean |ln error|. When no
 * change helps, it halves the step.  The mean of absolute logarithms is robust, because one bad row adds only its
 * distance.  Then come the factors, level by level, from engines to single triples.  Each factor is the mean
 * residual of the levels before it, times n / (n + FIT_SHRINK), so a few rows change little. */
#include "fleet/plan/measure.h"

#include "base/err.h"
#include "base/str.h"

#include <math.h>
#include <stdlib.h>

#define FIT_SHRINK 6   /* rows that weigh as much as the expectation of no difference */
#define FIT_CLIP   0.8 /* largest error that a row counts with */
#define FIT_ROUNDS 60
#define FIT_FOLDS  10
#define FIT_MODELS 3      /* least number of models that allow conclusions about others */
#define FIT_PULL   0.0015 /* cost of ln 2 away from the start value, in mean |ln error| */

struct fit {
    const struct plan_rows *rows;
    const size_t *parts;
    size_t skip;
    enum plan_target target;
    bool has_both; /* the error of both targets counts */
    const struct plan_constants *start;
};

static bool fit_takes(const struct fit *fit, size_t i)
{
    return (fit->parts == NULL || fit->parts[i] != fit->skip) && !isnan(fit->rows->list[i].ms[fit->target]);
}

static double fit_off(const struct plan_row *row, const struct plan_prediction *prediction,
                      enum plan_target target)
{
    return fmin(fabs(log(prediction->ms[target] / row->ms[target])), 2);
}

static double fit_loss(const struct fit *fit, const struct plan_constants *constants)
{
    double sum = 0, pull = 0;
    size_t n = 0;

    for (size_t i = 0; i < fit->rows->n; i++) {
        const struct plan_row *row = &fit->rows->list[i];
        struct plan_prediction prediction;

        if (!fit_takes(fit, i))
            continue;
        plan_predict(row, constants, &prediction);
        sum += fit_off(row, &prediction, fit->target);
        if (fit->has_both && !isnan(row->ms[PLAN_TTFT]))
            sum += fit_off(row, &prediction, PLAN_TTFT);
        n++;
    }
    for (int i = 0; i < PC_N; i++)
        pull += fabs(log2(constants->at[i] / fit->start->at[i]));
    return sum / (double)(n == 0 ? 1 : n) + FIT_PULL * pull;
}

/* Tries a constant up and down; returns whether it stays changed. */
static bool fit_move(const struct fit *fit, struct plan_constants *constants, int i, double by, double *loss)
{
    double was = constants->at[i];

    for (int direction = 0; direction < 2; direction++) {
        double value = direction == 0 ? was * by : was / by;

        constants->at[i] = fmin(fmax(value, plan_constant_low((enum plan_constant)i)),
                                plan_constant_high((enum plan_constant)i));
        double now = fit_loss(fit, constants);
        if (now < *loss - 1e-6) {
            *loss = now;
            return true;
        }
    }
    constants->at[i] = was;
    return false;
}

static void fit_search(const struct fit *fit, struct plan_constants *constants, int from, int to)
{
    double loss = fit_loss(fit, constants), by = 1.5;

    for (int round = 0; round < FIT_ROUNDS && by > 1.01; round++) {
        bool has_moved = false;

        for (int i = from; i < to; i++)
            has_moved |= fit_move(fit, constants, i, by, &loss);
        if (!has_moved)
            by = sqrt(by);
    }
}

/* ---- factors ---- */

static const bool LEVELS[][3] = {
    {true, false, false}, {true, false, true}, {true, true, false}, {true, true, true}};
#define N_LEVELS (sizeof(LEVELS) / sizeof(LEVELS[0]))

static struct plan_factor factor_of(const struct plan_row *row, const bool level[3])
{
    struct plan_factor factor = {.n = 0};

    str_copy(factor.engine, sizeof(factor.engine), level[0] ? row->engine : "*");
    str_copy(factor.model, sizeof(factor.model), level[1] ? row->model.name : "*");
    str_copy(factor.device, sizeof(factor.device), level[2] ? row->device->id : "*");
    return factor;
}

static bool factor_is_same(const struct plan_factor *a, const struct plan_factor *b)
{
    return strcmp(a->engine, b->engine) == 0 && strcmp(a->model, b->model) == 0 &&
           strcmp(a->device, b->device) == 0;
}

static void factor_measure(const struct fit *fit, const struct plan_constants *constants, const bool level[3],
                           struct plan_factor *factor)
{
    for (int t = 0; t < PLAN_N_TARGETS; t++) {
        double sum = 0, n = 0;

        for (size_t i = 0; i < fit->rows->n; i++) {
            const struct plan_row *row = &fit->rows->list[i];
            struct plan_factor mine = factor_of(row, level);
            struct plan_prediction p;

            if ((fit->parts != NULL && fit->parts[i] == fit->skip) || isnan(row->ms[t]) ||
                !factor_is_same(&mine, factor))
                continue;
            plan_predict(row, constants, &p);
            sum += fmin(fmax(log(row->ms[t] / p.ms[t]), -FIT_CLIP), FIT_CLIP);
            n++;
        }
        factor->log_ratio[t] = n == 0 ? 0 : sum / (n + FIT_SHRINK);
        factor->n = fmax(factor->n, n);
    }
}

static int fit_level(const struct fit *fit, struct plan_constants *constants, const bool level[3])
{
    struct plan_constants found = {.factors = NULL};
    int rc = 0;

    for (size_t i = 0; i < fit->rows->n && rc == 0; i++) {
        struct plan_factor mine = factor_of(&fit->rows->list[i], level);
        bool is_new = fit->parts == NULL || fit->parts[i] != fit->skip;

        for (size_t j = 0; j < found.n_factors; j++)
            is_new &= !factor_is_same(&found.factors[j], &mine);
        if (!is_new)
            continue;
        factor_measure(fit, constants, level, &mine); /* with the levels before this one only */
        rc = plan_constants_add_factor(&found, &mine);
    }
    for (size_t j = 0; j < found.n_factors && rc == 0; j++)
        rc = plan_constants_add_factor(constants, &found.factors[j]);
    plan_constants_fini(&found);
    return rc;
}

static bool fit_has_split(const struct plan_rows *rows)
{
    for (size_t i = 0; i < rows->n; i++)
        if (rows->list[i].is_split)
            return true;
    return false;
}

int plan_fit(const struct plan_rows *rows, const size_t *parts, size_t skip, struct plan_constants *constants)
{
    struct plan_constants start = *constants;
    struct fit fit = {rows, parts, skip, PLAN_TPOT, false, &start};

    plan_constants_fini(constants);
    if (fit_has_split(
            rows)) { /* decode rows do not show prompts there, and each phase depends on the other */
        fit.has_both = true;
        fit_search(&fit, constants, 0, PC_N);
    } else {
        fit_search(&fit, constants, 0, PC_T0);
        fit.target = PLAN_TTFT;
        fit_search(&fit, constants, PC_T0, PC_N);
    }
    for (size_t i = 0; i < N_LEVELS; i++) {
        int rc = fit_level(&fit, constants, LEVELS[i]);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* ---- rows that a fit has not seen ---- */

static size_t split_part(const struct plan_rows *rows, size_t i, enum plan_split split)
{
    const struct plan_row *row = &rows->list[i];

    switch (split) {
    case SPLIT_CONFIG:
        return row->config % FIT_FOLDS;
    case SPLIT_MODEL:
        return str_digest(row->model.name);
    case SPLIT_DEVICE:
        return str_digest(row->device->id);
    case SPLIT_ENGINE:
        return str_digest(row->engine);
    }
    return 0;
}

int plan_cross(const struct plan_rows *rows, enum plan_split split, const struct plan_constants *start,
               struct plan_prediction *out)
{
    size_t *parts = calloc(rows->n, sizeof(*parts));
    bool *is_done = calloc(rows->n, sizeof(*is_done));
    int rc = parts == NULL || is_done == NULL ? E_NOMEM : 0;

    for (size_t i = 0; i < rows->n && rc == 0; i++)
        parts[i] = split_part(rows, i, split);
    for (size_t i = 0; i < rows->n && rc == 0; i++) {
        if (is_done[i])
            continue;
        struct plan_constants fitted;
        rc = plan_constants_copy(start, &fitted);
        if (rc == 0)
            rc = plan_fit(rows, parts, parts[i], &fitted);
        for (size_t j = i; j < rows->n && rc == 0; j++)
            if (parts[j] == parts[i]) {
                plan_predict(&rows->list[j], &fitted, &out[j]);
                is_done[j] = true;
            }
        plan_constants_fini(&fitted);
    }
    free(parts);
    free(is_done);
    return rc;
}

static int error_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

struct plan_error plan_error_of(const struct plan_rows *rows, const struct plan_prediction *predictions,
                                enum plan_target target, bool (*take)(const struct plan_row *, const void *),
                                const void *arg)
{
    struct plan_error error = {0};
    double *all = malloc((rows->n + 1) * sizeof(*all));

    for (size_t i = 0; i < rows->n; i++) {
        const struct plan_row *row = &rows->list[i];
        double measured = row->ms[target], predicted = predictions[i].ms[target];

        if (isnan(measured) || (take != NULL && !take(row, arg)))
            continue;
        double off = fabs(predicted - measured) / measured;
        if (all != NULL)
            all[error.n] = off;
        error.n++;
        error.mape += off;
        error.bias += log(predicted / measured);
        error.covered +=
            measured >= predictions[i].low_ms[target] && measured <= predictions[i].high_ms[target];
    }
    double n = (double)(error.n == 0 ? 1 : error.n);
    error.mape /= n;
    error.bias = exp(error.bias / n);
    error.covered /= n;
    if (all != NULL && error.n > 0) {
        qsort(all, error.n, sizeof(*all), error_compare);
        error.median = all[error.n / 2];
    }
    free(all);
    return error;
}

/* The 5 % and 95 % points of the residuals of one kind of knowledge; too few rows change nothing. */
static void bands_of(const struct plan_rows *rows, const struct plan_prediction *p, enum plan_target target,
                     int known, double band[2])
{
    double *all = malloc((rows->n + 1) * sizeof(*all));
    size_t n = 0;

    for (size_t i = 0; i < rows->n && all != NULL; i++)
        if (!isnan(rows->list[i].ms[target]) && (known < 0 || (int)p[i].known == known))
            all[n++] = log(rows->list[i].ms[target] / p[i].ms[target]);
    if (all != NULL && n >= 20) {
        qsort(all, n, sizeof(*all), error_compare);
        band[0] = all[(size_t)(0.05 * (double)(n - 1))];
        band[1] = all[(size_t)ceil(0.95 * (double)(n - 1))];
    }
    free(all);
}

static size_t fit_n_models(const struct plan_rows *rows)
{
    size_t n = 0;

    for (size_t i = 0; i < rows->n; i++) {
        bool is_new = true;

        for (size_t j = 0; j < i && is_new; j++)
            is_new = strcmp(rows->list[j].model.name, rows->list[i].model.name) != 0;
        n += is_new;
    }
    return n;
}

int plan_fit_bands(const struct plan_rows *rows, struct plan_constants *constants)
{
    struct plan_prediction *seen = calloc(rows->n, sizeof(*seen)), *unseen = calloc(rows->n, sizeof(*unseen));
    int rc = seen == NULL || unseen == NULL ? E_NOMEM : plan_cross(rows, SPLIT_CONFIG, constants, seen);

    if (rc == 0)
        rc = plan_cross(rows, SPLIT_MODEL, constants, unseen);
    for (int t = 0; t < PLAN_N_TARGETS && rc == 0; t++) {
        bands_of(rows, seen, (enum plan_target)t, -1, constants->band[t][KNOWN_ALL]);
        if (fit_n_models(rows) >= FIT_MODELS) /* with fewer, a fit without one model has no data */
            bands_of(rows, unseen, (enum plan_target)t, -1, constants->band[t][KNOWN_LITTLE]);
        constants->band[t][KNOWN_LITTLE][0] =
            fmin(constants->band[t][KNOWN_LITTLE][0], constants->band[t][KNOWN_ALL][0]);
        constants->band[t][KNOWN_LITTLE][1] =
            fmax(constants->band[t][KNOWN_LITTLE][1], constants->band[t][KNOWN_ALL][1]);
        for (int side = 0; side < 2; side++) /* not in the data: the mean of the two */
            constants->band[t][KNOWN_PARTS][side] =
                (constants->band[t][KNOWN_ALL][side] + constants->band[t][KNOWN_LITTLE][side]) / 2;
        constants->held_out[t] = plan_error_of(rows, seen, (enum plan_target)t, NULL, NULL).mape;
    }
    free(seen);
    free(unseen);
    return rc;
}
