/* SPDX-License-Identifier: Apache-2.0 */
/* The options of baton-plan calibrate, and its load on an endpoint. */
#ifndef PLAN_CALIBRATE_H
#define PLAN_CALIBRATE_H

#include "clients/plan/plan_cli.h"

struct calibrate_opts {
    const char *file, *constants, *devices, *models, *output, *name;
    /* with an endpoint */
    const char *url, *model, *device, *weights, *kv, *engine, *served, *key, *measured;
    double tp;
    bool is_split, is_help;
    uint64_t time_ns;
};

/* Reads the options; optind is behind them.  Returns EXIT_DONE, or the exit status after an error message. */
int calibrate_options_read(int argc, char **argv, struct calibrate_opts *opts);
/* Measures points until the time is up and appends them to table as rows of baton-plan validate. */
bool calibrate_measure(const struct calibrate_opts *opts, const struct plan_model *model, struct buf *table);

#endif
