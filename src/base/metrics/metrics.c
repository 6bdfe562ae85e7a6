/* SPDX-License-Identifier: Apache-2.0 */
/* The registry: families, series, and updates without locks.
 *
 *     metrics -> family -> family -> NULL
 *                  |-> series -> series -> NULL
 *
 * Both lists only grow, at the head, by compare-and-swap, and a node's next never changes.  So a reader
 * needs no lock, and a writer that loses the race checks only the nodes that are new since.  Nodes are freed
 * only with the registry.
 *
 * A value is an atomic double.  An addition is a compare-and-swap loop; an observation adds to one bucket
 * and to the sum.  A scrape reads them one by one and may see a bucket before the sum has the same
 * observation; the next scrape sees both.
 *
 * The number of series is limited.  Label values can come from outside (a model name, a tenant), and each
 * set costs memory and a line in every scrape for ever.  Beyond the limit all new sets share one series with
 * the values "other". */
#include "base/metrics/metrics.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/str.h"
#include "base/metrics/metrics_priv.h"

static const double ttft_bounds_s[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
                                       0.75,  1,     2.5,  5,    7.5,  10,   20,   40,  80,   160};
const struct metric_bounds metric_ttft_bounds_s = {ttft_bounds_s, ARRAY_LEN(ttft_bounds_s)};
static const double itl_bounds_s[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1,
                                      0.15,  0.2,    0.3,   0.4,  0.5,   0.75, 1,     2.5};
const struct metric_bounds metric_itl_bounds_s = {itl_bounds_s, ARRAY_LEN(itl_bounds_s)};

/* Receives updates when there was no memory for the series. */
static const struct metric_family dummy_family = {.kind = METRIC_GAUGE};
static struct metric dummy = {.family = &dummy_family};

int metrics_new(struct metrics **out)
{
    struct metrics *metrics = calloc(1, sizeof(*metrics));
    if (metrics == NULL)
        return E_NOMEM;
    metrics->names = METRICS_NAMES_BOTH;
    *out = metrics;
    return 0;
}

static void series_free(struct metric *metric)
{
    for (unsigned i = 0; metric->values != NULL && i < metric->family->n_labels; i++)
        free(metric->values[i]);
    free(metric->values);
    free(metric->bucket_count);
    free(metric->exemplars);
    free(metric);
}

static void family_free(struct metric_family *family)
{
    for (struct metric *metric = family->series, *next; metric != NULL; metric = next) {
        next = metric->next;
        series_free(metric);
    }
    for (unsigned i = 0; i < family->n_labels; i++)
        free(family->label_names[i]);
    free(family->name);
    free(family->help);
    free(family->labels);
    free(family->bounds);
    free(family);
}

void metrics_free(struct metrics *metrics)
{
    if (metrics == NULL)
        return;
    for (struct metric_family *family = metrics->families, *next; family != NULL; family = next) {
        next = family->next;
        family_free(family);
    }
    free(metrics);
}

static bool metrics_is_name(const char *name)
{
    for (size_t i = 0; name[i] != '\0'; i++)
        if (!isalpha((unsigned char)name[i]) && strchr("_:", name[i]) == NULL &&
            (i == 0 || !isdigit((unsigned char)name[i])))
            return false;
    return name[0] != '\0';
}

/* Splits "model role" into label_names. */
static int split_labels(struct metric_family *family, const char *labels)
{
    for (const char *at = labels + strspn(labels, " "); *at != '\0'; at += strspn(at, " ")) {
        size_t len_bytes = strcspn(at, " ");

        ASSERT(family->n_labels < METRIC_MAX_LABELS);
        char *name = strndup(at, len_bytes);
        if (name == NULL)
            return E_NOMEM;
        family->label_names[family->n_labels++] = name;
        ASSERT(metrics_is_name(name));
        at += len_bytes;
    }
    return 0;
}

static struct metric_family *family_new(const struct metric_family *like)
{
    struct metric_family *family = calloc(1, sizeof(*family));
    if (family == NULL)
        return NULL;

    family->kind = like->kind;
    family->original = like->original;
    family->name = strdup(like->name);
    family->help = strdup(like->help);
    family->labels = strdup(like->labels);
    family->n_bounds = like->n_bounds;
    family->bounds = calloc(like->n_bounds + 1, sizeof(*family->bounds));
    if (family->name == NULL || family->help == NULL || family->labels == NULL || family->bounds == NULL ||
        split_labels(family, like->labels) != 0) {
        family_free(family);
        return NULL;
    }
    for (unsigned i = 0; i < like->n_bounds; i++)
        family->bounds[i] = like->bounds[i];
    return family;
}

/* Searches from head until stop, which marks the part already searched. */
static struct metric_family *find_family(struct metric_family *head, const struct metric_family *stop,
                                         const struct metric_family *like)
{
    for (struct metric_family *family = head; family != stop; family = family->next) {
        if (strcmp(family->name, like->name) != 0)
            continue;
        ASSERT(family->kind == like->kind && family->original == like->original &&
               strcmp(family->labels, like->labels) == 0);
        return family;
    }
    return NULL;
}

static struct metric_family *metrics_declare(struct metrics *metrics, const struct metric_family *like)
{
    struct metric_family *head = atomic_load(&metrics->families);
    struct metric_family *found = find_family(head, NULL, like);

    ASSERT(metrics_is_name(like->name));
    if (found != NULL)
        return found;
    struct metric_family *family = family_new(like);
    if (family == NULL)
        return NULL;
    family->next = head;
    while (!atomic_compare_exchange_weak(&metrics->families, &head, family)) {
        found = find_family(head, family->next, like);
        if (found != NULL) {
            family_free(family);
            return found;
        }
        family->next = head;
    }
    return family;
}

struct metric_family *metric_family(struct metrics *metrics, enum metric_kind kind, const char *name,
                                    const char *help, const char *labels)
{
    ASSERT(kind != METRIC_HISTOGRAM);
    return metrics_declare(metrics, &(struct metric_family){
                                        .kind = kind,
                                        .name = (char *)name,
                                        .help = (char *)help,
                                        .labels = (char *)labels,
                                    });
}

struct metric_family *metric_histogram_family(struct metrics *metrics, const char *name, const char *help,
                                              const char *labels, struct metric_bounds bounds)
{
    ASSERT(bounds.n > 0);
    for (unsigned i = 0; i < bounds.n; i++)
        ASSERT(isfinite(bounds.upper[i]) && (i == 0 || bounds.upper[i] > bounds.upper[i - 1]));
    return metrics_declare(metrics, &(struct metric_family){
                                        .kind = METRIC_HISTOGRAM,
                                        .name = (char *)name,
                                        .help = (char *)help,
                                        .labels = (char *)labels,
                                        .bounds = (double *)bounds.upper,
                                        .n_bounds = bounds.n,
                                    });
}

void metric_family_alias(struct metrics *metrics, struct metric_family *family, const char *name,
                         const char *help, const char *labels)
{
    struct metric_family *alias;

    if (family == NULL)
        return;
    ASSERT(family->original == NULL);
    alias = metrics_declare(metrics, &(struct metric_family){
                                         .kind = family->kind,
                                         .name = (char *)name,
                                         .help = (char *)help,
                                         .labels = (char *)labels,
                                         .original = family,
                                     });
    ASSERT(alias == NULL || alias->n_labels == family->n_labels);
}

/* A copy with invalid UTF-8 replaced: Prometheus refuses a whole scrape for one bad byte. */
static char *copy_value(const char *value)
{
    struct bytes text = bytes_str(value);
    struct buf copy = {0};

    for (size_t at = 0, len_bytes; at < text.len_bytes; at += len_bytes) {
        uint8_t utf8[4];

        buf_append(&copy, utf8, utf8_put(utf8_next(text, at, &len_bytes), utf8));
    }
    return buf_take_str(&copy);
}

static struct metric *series_new(const struct metric_family *family, const char *const *values)
{
    struct metric *metric = calloc(1, sizeof(*metric));
    if (metric == NULL)
        return NULL;

    metric->family = family;
    metric->values = calloc(family->n_labels + 1, sizeof(*metric->values));
    if (family->kind == METRIC_HISTOGRAM)
        metric->bucket_count = calloc(family->n_bounds + 1, sizeof(*metric->bucket_count));
    bool is_whole =
        metric->values != NULL && (family->kind != METRIC_HISTOGRAM || metric->bucket_count != NULL);
    for (unsigned i = 0; is_whole && i < family->n_labels; i++) {
        metric->values[i] = copy_value(values[i]);
        is_whole = metric->values[i] != NULL;
    }
    if (is_whole)
        return metric;
    series_free(metric);
    return NULL;
}

static struct metric *find_series(struct metric *head, const struct metric *stop, char *const *values)
{
    for (struct metric *metric = head; metric != stop; metric = metric->next) {
        unsigned i = 0;

        while (i < metric->family->n_labels && strcmp(metric->values[i], values[i]) == 0)
            i++;
        if (i == metric->family->n_labels)
            return metric;
    }
    return NULL;
}

/* Adds the new series to the list, or frees it when another thread added the same one first. */
static struct metric *metrics_publish(struct metric_family *family, struct metric *metric,
                                      struct metric *head)
{
    metric->next = head;
    while (!atomic_compare_exchange_weak(&family->series, &head, metric)) {
        struct metric *found = find_series(head, metric->next, metric->values);
        if (found != NULL) {
            atomic_fetch_sub(&family->n_series, 1);
            series_free(metric);
            return found;
        }
        metric->next = head;
    }
    return metric;
}

struct metric *metric_series(struct metric_family *family, const char *const *values)
{
    static const char *const others[METRIC_MAX_LABELS] = {"other", "other", "other", "other",
                                                          "other", "other", "other", "other"};

    if (family == NULL)
        return &dummy;
    ASSERT(family->original == NULL && (family->n_labels == 0 || values != NULL));
    struct metric *head = atomic_load(&family->series);
    struct metric *found = find_series(head, NULL, (char *const *)values);
    if (found != NULL)
        return found;

    if (atomic_fetch_add(&family->n_series, 1) >= METRIC_MAX_SERIES) {
        values = others;
        found = find_series(head, NULL, (char *const *)values);
    }
    struct metric *metric = found == NULL ? series_new(family, values) : NULL;
    if (metric == NULL) {
        atomic_fetch_sub(&family->n_series, 1);
        return found == NULL ? &dummy : found;
    }
    /* The copy may differ from the given text, so search again for the copy. */
    found = find_series(head, NULL, metric->values);
    if (found != NULL) {
        atomic_fetch_sub(&family->n_series, 1);
        series_free(metric);
        return found;
    }
    return metrics_publish(family, metric, head);
}

struct metric *metric_single(struct metrics *metrics, enum metric_kind kind, const char *name,
                             const char *help)
{
    return metric_series(metric_family(metrics, kind, name, help, ""), NULL);
}

static void add_double(_Atomic double *to, double by)
{
    double before = atomic_load_explicit(to, memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(to, &before, before + by, memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
}

void metric_add(struct metric *metric, double by)
{
    ASSERT(metric->family->kind != METRIC_HISTOGRAM);
    if (metric->family->kind == METRIC_COUNTER && !(by >= 0))
        return; /* readers take a counter that falls for a restart */
    add_double(&metric->value, by);
}

void metric_set(struct metric *metric, double to)
{
    ASSERT(metric->family->kind == METRIC_GAUGE);
    atomic_store_explicit(&metric->value, to, memory_order_relaxed);
}

void metric_observe(struct metric *metric, double value)
{
    const struct metric_family *family = metric->family;
    unsigned low = 0, high = family->n_bounds;

    if (metric == &dummy || !isfinite(value))
        return;
    ASSERT(family->kind == METRIC_HISTOGRAM);
    while (low < high) { /* the first bound >= value */
        unsigned middle = (low + high) / 2;

        if (family->bounds[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    atomic_fetch_add_explicit(&metric->bucket_count[low], 1, memory_order_relaxed);
    add_double(&metric->value, value);
}

double metric_value(const struct metric *metric)
{
    return atomic_load_explicit(&metric->value, memory_order_relaxed);
}

uint64_t metric_count(const struct metric *metric)
{
    uint64_t n = 0;

    for (unsigned i = 0; metric->bucket_count != NULL && i <= metric->family->n_bounds; i++)
        n += atomic_load_explicit(&metric->bucket_count[i], memory_order_relaxed);
    return n;
}

double metric_quantile(const struct metric *metric, double q)
{
    const struct metric_family *family = metric->family;
    double rank = q * (double)metric_count(metric), seen = 0;

    if (metric_count(metric) == 0)
        return 0;
    for (unsigned i = 0; i < family->n_bounds; i++) {
        double here = (double)atomic_load_explicit(&metric->bucket_count[i], memory_order_relaxed);

        if (here > 0 && seen + here >= rank) {
            double top = family->bounds[i];
            double bottom = i > 0 ? family->bounds[i - 1] : top < 0 ? top : 0;
            return bottom + (top - bottom) * (rank > seen ? rank - seen : 0) / here;
        }
        seen += here;
    }
    return family->bounds[family->n_bounds - 1];
}
