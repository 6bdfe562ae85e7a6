/* SPDX-License-Identifier: Apache-2.0 */
/* All samples are kept: a percentile from buckets would be as coarse as its buckets.  A long run of a thousand
 * tokens per second takes fourteen megabytes an hour.  The first percentile sorts them. */
#include "clients/bench/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

void series_fini(struct series *series)
{
    free(series->values);
    *series = (struct series){0};
}

void series_add(struct series *series, double value)
{
    if (series->n == series->cap) {
        size_t cap = series->cap > 0 ? 2 * series->cap : 256;
        float *grown = reallocarray(series->values, cap, sizeof(*grown));

        if (grown == NULL) {
            series->is_bad = true;
            return;
        }
        series->values = grown;
        series->cap = cap;
    }
    series->values[series->n++] = (float)value;
    series->sum += value;
    if (series->n == 1 || (float)value > series->max)
        series->max = (float)value;
}

double series_mean(const struct series *series)
{
    return series->n > 0 ? series->sum / (double)series->n : 0;
}

static int stats_by_value(const void *a, const void *b)
{
    float x = *(const float *)a;
    float y = *(const float *)b;

    return x < y ? -1 : x > y;
}

double series_percentile(struct series *series, double q)
{
    double at;
    size_t below;
    double part;

    if (series->n == 0)
        return 0;
    if (series->n_sorted != series->n)
        qsort(series->values, series->n, sizeof(series->values[0]), stats_by_value);
    series->n_sorted = series->n;
    at = fmin(fmax(q, 0), 1) * (double)(series->n - 1);
    below = (size_t)at;
    part = at - (double)below;
    if (below + 1 >= series->n)
        return series->values[series->n - 1];
    return series->values[below] * (1 - part) + series->values[below + 1] * part;
}

void tally_fini(struct tally *tally)
{
    struct series *all[] = {&tally->ttft,    &tally->itl,      &tally->per_token, &tally->e2e, &tally->queue,
                            &tally->prefill, &tally->transfer, &tally->decode,    &tally->lag};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        series_fini(all[i]);
}

void tally_error(struct tally *tally, const char *type, const char *text)
{
    struct error_kind *kind = tally->errors;
    struct error_kind *end = tally->errors + tally->n_errors;

    while (kind < end && strcmp(kind->type, type) != 0)
        kind++;
    if (kind == end && tally->n_errors == MAX_ERROR_KINDS)
        kind--; /* too many kinds for a report: the last one collects the rest */
    if (kind == end) {
        tally->n_errors++;
        *kind = (struct error_kind){0};
        str_copy(kind->type, sizeof(kind->type), type);
        str_copy(kind->example, sizeof(kind->example), text);
        kind->example[utf8_valid_prefix(bytes_str(kind->example))] = '\0';
    }
    kind->n++;
}
