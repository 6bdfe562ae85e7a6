/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of measurements of engines, their predictions by the arithmetic, fits, and errors of fits. */
#ifndef FLEET_PLAN_MEASURE_H
#define FLEET_PLAN_MEASURE_H

#include "fleet/plan/step.h"

struct plan_books { /* the tables for looking up names */
    struct plan_devices devices;
    struct plan_links links;
    struct plan_models models;
};

struct plan_row {
    char engine[24];
    char model_name[96]; /* as in the file */
    struct plan_model model;
    const struct plan_device *device; /* borrowed from the books */
    char weights[16], kv[16];
    double isl, osl, concurrency, tp, moe_tp, moe_ep;
    double hit;                /* part of the prompt that the prefix cache held */
    bool is_split;             /* one prefill and one decode worker instead of one engine */
    double ms[PLAN_N_TARGETS]; /* measured; NAN: not measured */
    size_t line;
    uint64_t config; /* digest of everything but the results */
    struct plan_cost cost;
};

struct plan_rows { /* after plan_rows_parse() */
    struct plan_row *list;
    size_t n;
    size_t n_refused;     /* rows with an unknown model, device, type or layout */
    struct fault refusal; /* the first of them */
};

struct plan_prediction {
    double ms[PLAN_N_TARGETS];
    double low_ms[PLAN_N_TARGETS], high_ms[PLAN_N_TARGETS]; /* 90 % interval */
    enum plan_known known;
};

/* Reads a table with the columns model, gpu, engine, weights, isl, osl, concurrency, tp, moe_tp, moe_ep, ttft_ms
 * and tpot_ms.  Optional columns: kv (type of the cache), hit (part of the prompt that it held) and mode
 * (aggregated, split).  Rows with an unknown name are counted and left out.  If no row is left, or the text is
 * malformed, the fault names the line. */
int plan_rows_parse(struct bytes text, const struct plan_books *books, struct fault *fault,
                    struct plan_rows *out);
void plan_rows_fini(struct plan_rows *rows);

/* The type of the KV cache that engines use with weights of that type. */
const char *plan_row_kv(const char *engine, const char *weights);
void plan_predict(const struct plan_row *row, const struct plan_constants *constants,
                  struct plan_prediction *out);

/* Fits constants to the rows whose part is not skip (SIZE_MAX: all rows); starts from the given constants.
 * First a coordinate search on mean |ln error| fits the constants, then come the shrunk factors.  E_NOMEM. */
int plan_fit(const struct plan_rows *rows, const size_t *parts, size_t skip,
             struct plan_constants *constants);

enum plan_split { SPLIT_CONFIG, SPLIT_MODEL, SPLIT_DEVICE, SPLIT_ENGINE };

struct plan_error {
    size_t n;
    double mape, bias; /* mean |error| and geometric mean of predicted to measured */
    double median;     /* of |error| */
    double covered;    /* part of the rows inside the interval */
};

/* Predicts each row with a fit that has not seen its part of the split.  out: one for each row.  E_NOMEM. */
int plan_cross(const struct plan_rows *rows, enum plan_split split, const struct plan_constants *start,
               struct plan_prediction *out);
/* Errors of those rows for which take(row, arg) is true (NULL: all). */
struct plan_error plan_error_of(const struct plan_rows *rows, const struct plan_prediction *predictions,
                                enum plan_target target, bool (*take)(const struct plan_row *, const void *),
                                const void *arg);
/* Sets the bands and the held-out errors of constants from cross-validation.  E_NOMEM. */
int plan_fit_bands(const struct plan_rows *rows, struct plan_constants *constants);

#endif
