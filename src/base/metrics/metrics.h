/* SPDX-License-Identifier: Apache-2.0 */
/* Counters, gauges and histograms, and their Prometheus text (exposition format 0.0.4).
 *
 * Declare each family once, at start.  A series is one set of label values of a family, made at its first
 * use.  Beyond METRIC_MAX_SERIES series in a family, all label values become "other".  Any thread may call
 * every function except new and free; none takes a lock.  When memory runs out, counts are lost, and there
 * is no other harm.
 *
 * More than 15 functions: making series, counting in them, and showing them always come together. */
#ifndef BASE_METRICS_METRICS_H
#define BASE_METRICS_METRICS_H

#include "base/bytes.h"
#include "base/check.h"
#include "base/trace_context.h"

enum { METRIC_MAX_SERIES = 256, METRIC_MAX_LABELS = 8 };

struct metrics; /* a registry */
struct metric_family;
struct metric; /* one series; lives as long as the registry */

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

int metrics_new(struct metrics **out);
void metrics_free(struct metrics *metrics);

/* Declares or finds a family; the same name must always have the same kind and labels. labels: names
 * separated by spaces, "" for none.  Copies help.  Returns NULL when memory runs out; metric_series()
 * accepts NULL. */
struct metric_family *metric_family(struct metrics *metrics, enum metric_kind kind, const char *name,
                                    const char *help, const char *labels);
struct metric_bounds {   /* of a histogram's buckets */
    const double *upper; /* [n], finite and ascending, without +Inf */
    unsigned n;
};
#define METRIC_BOUNDS(array) ((struct metric_bounds){array, ARRAY_LEN(array)})

/* Copies the bounds. */
struct metric_family *metric_histogram_family(struct metrics *metrics, const char *name, const char *help,
                                              const char *labels, struct metric_bounds bounds);
/* Shows a family under a second name too, with its own label names (the same number).  Values are counted
 * once, in the family itself.  Does nothing when the family is NULL or memory runs out. */
void metric_family_alias(struct metrics *metrics, struct metric_family *family, const char *name,
                         const char *help, const char *labels);
/* Finds or makes the series with these label values (one for each label; NULL for none).  Never returns
 * NULL: when memory runs out, it returns a dummy.  It searches by value, so keep the pointer on hot
 * paths. */
struct metric *metric_series(struct metric_family *family, const char *const *values);
/* The only series of a counter or gauge without labels; declares or finds its family. */
struct metric *metric_single(struct metrics *metrics, enum metric_kind kind, const char *name,
                             const char *help);

void metric_add(struct metric *metric, double by);        /* counters (by >= 0), gauges */
void metric_set(struct metric *metric, double to);        /* gauges */
void metric_observe(struct metric *metric, double value); /* histograms; ignores NaN and infinity */
double metric_value(const struct metric *metric);         /* histograms: the sum */
uint64_t metric_count(const struct metric *metric);       /* histograms: number of observations */
/* The quantile q in 0..1, interpolated linearly between buckets. 0 when empty; the last bound for values
 * beyond it. */
double metric_quantile(const struct metric *metric, double q);

/* As metric_observe(), and keeps the trace as the exemplar of the bucket. */
void metric_observe_traced(struct metric *metric, double value, const uint8_t trace_id[TRACE_ID_BYTES]);

/* Appends all families that have series, sorted by name. */
int metrics_render(const struct metrics *metrics, struct buf *out);

enum metrics_format { METRICS_PROMETHEUS, METRICS_OPENMETRICS }; /* OpenMetrics 1.0 has exemplars */
/* The format that an Accept header field requests; the content type of a format. */
enum metrics_format metrics_format_wanted(struct bytes accept);
const char *metrics_content_type(enum metrics_format format);
int metrics_render_as(const struct metrics *metrics, enum metrics_format format, struct buf *out);

enum metrics_names { METRICS_NAMES_BATON, METRICS_NAMES_VLLM, METRICS_NAMES_BOTH };
/* Chooses the names in the text: Baton's own, vLLM's (vllm:*), or both (the default). process_* is always in it. */
void metrics_set_names(struct metrics *metrics, enum metrics_names names);
/* Sets the process_* gauges (CPU seconds, memory, descriptors, start time) to the kernel's current
 * values. */
void metrics_read_process(struct metrics *metrics);

/* Histogram bounds in seconds.  They follow OpenTelemetry's conventions for generation, with more room for
 * long prompts and fast tokens. */
extern const struct metric_bounds metric_ttft_bounds_s, metric_itl_bounds_s;
#endif
