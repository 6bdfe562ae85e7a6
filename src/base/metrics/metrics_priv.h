/* SPDX-License-Identifier: Apache-2.0 */
/* The structs of the registry, shared by metrics.c (updates) and render.c (text). */
#ifndef BASE_METRICS_METRICS_PRIV_H
#define BASE_METRICS_METRICS_PRIV_H

#include "base/metrics/metrics.h"

#include <stdatomic.h>

enum { EXEMPLAR_WORDS = 4 }; /* trace id in two, value, wall time in ns */

struct exemplar {       /* exemplar.c */
    atomic_uint number; /* odd: it is being written; 0: none */
    _Atomic uint64_t words[EXEMPLAR_WORDS];
};

struct metric {
    struct metric *next; /* constant after the series is published */
    const struct metric_family *family;
    char **values;                        /* [n_labels] valid UTF-8 */
    _Atomic double value;                 /* histograms: the sum */
    _Atomic uint64_t *bucket_count;       /* [n_bounds + 1], not cumulative; NULL unless a histogram */
    _Atomic(struct exemplar *) exemplars; /* [n_bounds + 1]; NULL: none yet */
};

struct metric_family {
    struct metric_family *next; /* constant after the family is published */
    enum metric_kind kind;
    char *name;
    char *help;
    char *labels; /* as the caller gave them, for comparison */
    char *label_names[METRIC_MAX_LABELS];
    unsigned n_labels;
    double *bounds;
    unsigned n_bounds;
    struct metric_family *original; /* the family whose series an alias shows; NULL: not an alias */
    _Atomic(struct metric *) series;
    atomic_uint n_series;
};

struct metrics {
    _Atomic(struct metric_family *) families;
    enum metrics_names names;
};

/* Appends the exemplar of a bucket, if it has one, after the bucket's value. */
void metrics_put_exemplar(struct buf *out, const struct metric *metric, unsigned bucket);

#endif
