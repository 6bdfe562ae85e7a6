/* SPDX-License-Identifier: Apache-2.0 */
/* A run's figures for people and for programs. */
#ifndef CLIENTS_BENCH_REPORT_H
#define CLIENTS_BENCH_REPORT_H

#include "base/bytes.h"
#include "clients/bench/options.h"
#include "clients/bench/stats.h"

struct report {
    const struct bench_opts *opts;
    const char *model;
    struct tally *tally; /* percentiles sort it */
    bool is_interrupted;
};

int report_put_table(const struct report *report, struct buf *out);
int report_put_json(const struct report *report, struct buf *out);

#endif
