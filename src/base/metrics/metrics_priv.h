/* SPDX-License-Identifier: Apache-2.0 */
/* What the registry looks like inside, for updating (metrics.c) and showing (render.c). */
#ifndef BASE_METRICS_METRICS_PRIV_H
#define BASE_METRICS_METRICS_PRIV_H

#include "base/metrics/metrics.h"

#include <stdatomic.h>

struct metric {
    struct metric *next; /* never changes once the series can be found */
    const struct metric_family *family;
    char **values;                  /* [n_labels] valid UTF-8 */
    _Atomic double value;           /* histograms: the sum */
    _Atomic uint64_t *bucket_count; /* [n_bounds + 1], not cumulative; NULL unless a histogram */
};

struct metric_family {
    struct metric_family *next; /* never changes once the family can be found */
    enum metric_kind kind;
    char *name;
    char *help;
    char *labels; /* as given, for comparison */
    char *label_names[METRIC_MAX_LABELS];
    unsigned n_labels;
    double *bounds;
    unsigned n_bounds;
    struct metric_family *original; /* whose series are shown under this name; NULL: its own */
    _Atomic(struct metric *) series;
    atomic_uint n_series;
};

struct metrics {
    _Atomic(struct metric_family *) families;
};

#endif
