/* SPDX-License-Identifier: Apache-2.0 */
/* Counters, gauges and histograms, and their Prometheus text (exposition format 0.0.4).
 *
 * A family is declared once, at start; a series is one set of label values of a family, made when first
 * wanted (bounded: beyond METRIC_MAX_SERIES per family the values become "other").  Everything but new and
 * free may be called from any thread and takes no lock.  Want of memory loses counts, never more. */
#ifndef BASE_METRICS_METRICS_H
#define BASE_METRICS_METRICS_H

#include "base/bytes.h"

enum { METRIC_MAX_SERIES = 256, METRIC_MAX_LABELS = 8 };

struct metrics; /* a registry */
struct metric_family;
struct metric; /* one series; lives as long as the registry */

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

int metrics_new(struct metrics **out);
void metrics_free(struct metrics *metrics);

/* Declares or finds a family (the same name must come with the same kind and labels).  labels: names
 * separated by spaces, "" for none.  help is copied.  NULL for want of memory, which metric_series() takes.
 */
struct metric_family *metric_family(struct metrics *metrics, enum metric_kind kind, const char *name,
                                    const char *help, const char *labels);
/* Bounds are upper ones, finite, ascending, without the infinite last; copied. */
struct metric_family *metric_histogram_family(struct metrics *metrics, const char *name, const char *help,
                                              const char *labels, const double *bounds, unsigned n_bounds);
/* Shows a family under a second name too, with label names of its own (as many).  What is counted is counted
 * once, through the family itself.  Nothing when the family is NULL or there is no memory. */
void metric_family_alias(struct metrics *metrics, struct metric_family *family, const char *name,
                         const char *help, const char *labels);
/* The series with these label values (as many as labels; NULL for none).  Never NULL: on want of memory, a
 * dummy. Searches by value: where it is hot, keep the pointer. */
struct metric *metric_series(struct metric_family *family, const char *const *values);
/* The one series of a counter or gauge without labels, whose family it declares or finds. */
struct metric *metric_single(struct metrics *metrics, enum metric_kind kind, const char *name,
                             const char *help);

void metric_add(struct metric *metric, double by);        /* counters (never less than 0), gauges */
void metric_set(struct metric *metric, double to);        /* gauges */
void metric_observe(struct metric *metric, double value); /* histograms; NaN and infinite ones are left out */
double metric_value(const struct metric *metric);         /* histograms: the sum */
uint64_t metric_count(const struct metric *metric);       /* histograms: how many observations */
/* q in 0..1 from the buckets, by linear interpolation; 0 when empty, the last bound when beyond it. */
double metric_quantile(const struct metric *metric, double q);

/* Appends all families that have series, sorted by name. */
int metrics_render(const struct metrics *metrics, struct buf *out);
/* Sets the process_* gauges (CPU seconds, memory, descriptors, start time) to what the kernel says now. */
void metrics_read_process(struct metrics *metrics);

/* Seconds, after OpenTelemetry's conventions for generation, with room for long prompts and for fast tokens.
 */
extern const double metric_ttft_bounds_s[];
extern const unsigned metric_ttft_n_bounds;
extern const double metric_itl_bounds_s[];
extern const unsigned metric_itl_n_bounds;
#endif
