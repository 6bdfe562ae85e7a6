/* SPDX-License-Identifier: Apache-2.0 */
/* The Prometheus text of a registry, exposition format 0.0.4, and the same as OpenMetrics 1.0.
 *
 *     # HELP baton_ttft_seconds Time to first token.
 *     # TYPE baton_ttft_seconds histogram
 *     baton_ttft_seconds_bucket{model="m",le="0.1"} 12
 *     baton_ttft_seconds_bucket{model="m",le="+Inf"} 14
 *     baton_ttft_seconds_sum{model="m"} 3.25
 *     baton_ttft_seconds_count{model="m"} 14
 *
 * The lists have the newest node first.  The text sorts families by name and series by label values, so that
 * two scrapes can be compared line by line.  An alias shows the series of its original family under its own
 * name and label names.  A histogram's count is the sum of the buckets just written, so the two always
 * agree, even if observations arrive meanwhile. */
#include "base/metrics/metrics_priv.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static void metrics_render_put_escaped(struct buf *out, const char *text, bool is_label)
{
    for (; *text != '\0'; text++) {
        if (*text == '\n')
            buf_append_str(out, "\\n");
        else if (*text == '\\')
            buf_append_str(out, "\\\\");
        else if (*text == '"' && is_label)
            buf_append_str(out, "\\\"");
        else
            buf_append_byte(out, (uint8_t)*text);
    }
}

static void metrics_render_put_number(struct buf *out, double value)
{
    if (isnan(value))
        buf_append_str(out, "NaN");
    else if (isinf(value))
        buf_append_str(out, value > 0 ? "+Inf" : "-Inf");
    else if (value == floor(value) && fabs(value) < 0x1p53)
        buf_printf(out, "%.0f", value);
    else
        buf_printf(out, "%.15g", value);
}

/* Writes name, suffix, {labels,le="..."} and a blank. bound NULL: no le. */
static void metrics_render_put_head(struct buf *out, const struct metric_family *family,
                                    const struct metric *metric, const char *suffix, const double *bound)
{
    const char *separator = "{";

    buf_append_str(out, family->name);
    buf_append_str(out, suffix);
    for (unsigned i = 0; i < family->n_labels; i++, separator = ",") {
        buf_printf(out, "%s%s=\"", separator, family->label_names[i]);
        metrics_render_put_escaped(out, metric->values[i], true);
        buf_append_byte(out, '"');
    }
    if (bound != NULL) {
        buf_printf(out, "%sle=\"", separator);
        metrics_render_put_number(out, *bound);
        buf_append_byte(out, '"');
        separator = ",";
    }
    buf_append_str(out, *separator == ',' ? "} " : " ");
}

static void put_histogram(struct buf *out, const struct metric_family *family, const struct metric *metric,
                          enum metrics_format format)
{
    unsigned n_bounds = metric->family->n_bounds;
    uint64_t n = 0;

    for (unsigned i = 0; i <= n_bounds; i++) {
        double bound = i < n_bounds ? metric->family->bounds[i] : INFINITY;

        n += atomic_load_explicit(&metric->bucket_count[i], memory_order_relaxed);
        metrics_render_put_head(out, family, metric, "_bucket", &bound);
        buf_printf(out, "%" PRIu64, n);
        if (format == METRICS_OPENMETRICS)
            metrics_put_exemplar(out, metric, i);
        buf_append_byte(out, '\n');
    }
    metrics_render_put_head(out, family, metric, "_sum", NULL);
    metrics_render_put_number(out, metric_value(metric));
    buf_append_byte(out, '\n');
    metrics_render_put_head(out, family, metric, "_count", NULL);
    buf_printf(out, "%" PRIu64 "\n", n);
}

static int compare_series(const void *a, const void *b)
{
    const struct metric *one = *(struct metric *const *)a, *two = *(struct metric *const *)b;
    int order = 0;

    for (unsigned i = 0; i < one->family->n_labels && order == 0; i++)
        order = strcmp(one->values[i], two->values[i]);
    return order;
}

/* Writes HELP and TYPE. In OpenMetrics the name of a counter's family lacks _total.  OpenMetrics has no type for a
 * counter whose own name lacks _total. */
static void metrics_render_put_type(struct buf *out, const struct metric_family *family,
                                    enum metrics_format format)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    const char *kind = kinds[family->kind];
    size_t len = strlen(family->name), suffix = strlen("_total");
    bool is_total = bytes_ends_with(bytes_str(family->name), "_total");

    if (format == METRICS_OPENMETRICS && family->kind == METRIC_COUNTER) {
        len -= is_total ? suffix : 0;
        kind = is_total ? kind : "unknown";
    }
    buf_printf(out, "# HELP %.*s ", (int)len, family->name);
    metrics_render_put_escaped(out, family->help, format == METRICS_OPENMETRICS);
    buf_printf(out, "\n# TYPE %.*s %s\n", (int)len, family->name, kind);
}

static int put_family(struct buf *out, const struct metric_family *family, enum metrics_format format)
{
    const struct metric_family *original = family->original == NULL ? family : family->original;
    struct metric *head = atomic_load(&original->series);
    size_t n = 0;

    for (struct metric *metric = head; metric != NULL; metric = metric->next)
        n++;
    if (n == 0)
        return 0;
    struct metric **sorted = calloc(n, sizeof(struct metric *));
    if (sorted == NULL)
        return E_NOMEM;
    n = 0;
    for (struct metric *metric = head; metric != NULL; metric = metric->next)
        sorted[n++] = metric;
    qsort(sorted, n, sizeof(struct metric *), compare_series);

    metrics_render_put_type(out, family, format);
    for (size_t i = 0; i < n; i++) {
        if (family->kind == METRIC_HISTOGRAM) {
            put_histogram(out, family, sorted[i], format);
            continue;
        }
        metrics_render_put_head(out, family, sorted[i], "", NULL);
        metrics_render_put_number(out, metric_value(sorted[i]));
        buf_append_byte(out, '\n');
    }
    free(sorted);
    return 0;
}

static int compare_families(const void *a, const void *b)
{
    const struct metric_family *one = *(struct metric_family *const *)a,
                               *two = *(struct metric_family *const *)b;

    return strcmp(one->name, two->name);
}

static bool metrics_render_is_shown(const struct metrics *metrics, const char *name)
{
    if (strncmp(name, "vllm:", 5) == 0)
        return metrics->names != METRICS_NAMES_BATON;
    return metrics->names != METRICS_NAMES_VLLM || strncmp(name, "baton_", 6) != 0;
}

void metrics_set_names(struct metrics *metrics, enum metrics_names names)
{
    metrics->names = names;
}

enum metrics_format metrics_format_wanted(struct bytes accept)
{
    return bytes_find(accept, bytes_str("application/openmetrics-text"), 0) != SIZE_MAX ? METRICS_OPENMETRICS
                                                                                        : METRICS_PROMETHEUS;
}

const char *metrics_content_type(enum metrics_format format)
{
    return format == METRICS_OPENMETRICS ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                         : "text/plain; version=0.0.4; charset=utf-8";
}

int metrics_render(const struct metrics *metrics, struct buf *out)
{
    return metrics_render_as(metrics, METRICS_PROMETHEUS, out);
}

int metrics_render_as(const struct metrics *metrics, enum metrics_format format, struct buf *out)
{
    struct metric_family *head = atomic_load(&metrics->families);
    size_t n = 0;
    int rc = 0;

    for (struct metric_family *family = head; family != NULL; family = family->next)
        n++;
    struct metric_family **sorted = calloc(n + 1, sizeof(struct metric_family *));
    if (sorted == NULL)
        return E_NOMEM;
    n = 0;
    for (struct metric_family *family = head; family != NULL; family = family->next)
        sorted[n++] = family;
    qsort(sorted, n, sizeof(struct metric_family *), compare_families);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (metrics_render_is_shown(metrics, sorted[i]->name))
            rc = put_family(out, sorted[i], format);
    free(sorted);
    if (format == METRICS_OPENMETRICS)
        buf_append_str(out, "# EOF\n");
    return out->is_bad ? E_NOMEM : rc;
}
