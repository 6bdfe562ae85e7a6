/* SPDX-License-Identifier: Apache-2.0 */
/* The options of baton-plan calibrate, and its load on an endpoint. */
#ifndef PLAN_CALIBRATE_H
#define PLAN_CALIBRATE_H

#include "clients/plan/plan_cli.h"

struct calibrate_opts {
    const char *file, *constants, *devices, *models, *output, *name;
    /* with an endpoint */
    const char *url, *model, *device, *weights, *kv, *engine, *served, *key, *measured;
    const char *points; /* text of calibrate_points_parse(); NULL: the built-in points */
    double tp;
    bool is_split, is_help;
    uint64_t time_ns;
};

/* Reads the options; optind is behind them.  Returns EXIT_DONE, or the exit status after an error message. */
int calibrate_options_read(int argc, char **argv, struct calibrate_opts *opts);
#define CALIBRATE_POINTS_MAX 64

struct calibrate_point {
    double isl, osl, hit; /* tokens of prompt and answer; part of the prompt that is cached, in [0, 1) */
    unsigned concurrency; /* requests at once */
};

/* Reads "ISL:OSL:CONCURRENCY[:HIT],..." into points[CALIBRATE_POINTS_MAX] and their number into *n_out.
 * E_FORMAT, E_RANGE or E_LIMIT, with the fault. */
int calibrate_points_parse(const char *text, struct fault *fault, struct calibrate_point *points,
                           size_t *n_out);
/* Measures points until the time is up and appends them to table as rows of baton-plan validate. */
bool calibrate_measure(const struct calibrate_opts *opts, const struct plan_model *model, struct buf *table);

#endif
