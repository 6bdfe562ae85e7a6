/* SPDX-License-Identifier: Apache-2.0 */
/* Exemplars: for each bucket of a histogram, the trace of a recent observation.
 *
 * A writer makes the number odd, stores four words, and makes the number even again.  A writer that finds it odd
 * drops its exemplar.  A reader that sees an odd number, or a change during its read, shows no exemplar.  The array
 * is allocated with the first exemplar of its series, because most histograms never have one. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/metrics/metrics_priv.h"

static struct exemplar *exemplars_of(struct metric *metric)
{
    struct exemplar *found = atomic_load_explicit(&metric->exemplars, memory_order_acquire);
    struct exemplar *fresh;

    if (found != NULL)
        return found;
    fresh = calloc(metric->family->n_bounds + (size_t)1, sizeof(*fresh));
    if (fresh == NULL)
        return NULL;
    if (atomic_compare_exchange_strong(&metric->exemplars, &found, fresh))
        return fresh;
    free(fresh);
    return found;
}

void metric_observe_traced(struct metric *metric, double value, const uint8_t trace_id[TRACE_ID_BYTES])
{
    struct exemplar *exemplars, *at;
    unsigned bucket = 0, number;
    uint64_t words[EXEMPLAR_WORDS];

    metric_observe(metric, value);
    if (metric->family->kind != METRIC_HISTOGRAM || !isfinite(value))
        return;
    exemplars = exemplars_of(metric);
    if (exemplars == NULL)
        return;
    while (bucket < metric->family->n_bounds && value > metric->family->bounds[bucket])
        bucket++;
    at = &exemplars[bucket];
    memcpy(words, trace_id, TRACE_ID_BYTES);
    memcpy(&words[2], &value, sizeof(value));
    words[3] = clock_unix_ns();
    number = atomic_load_explicit(&at->number, memory_order_relaxed);
    if (number % 2 != 0 || !atomic_compare_exchange_strong(&at->number, &number, number + 1))
        return;
    for (unsigned i = 0; i < EXEMPLAR_WORDS; i++)
        atomic_store_explicit(&at->words[i], words[i], memory_order_relaxed);
    atomic_store_explicit(&at->number, number + 2, memory_order_release);
}

void metrics_put_exemplar(struct buf *out, const struct metric *metric, unsigned bucket)
{
    struct exemplar *exemplars = atomic_load_explicit(&metric->exemplars, memory_order_acquire);
    uint64_t words[EXEMPLAR_WORDS];
    char trace_id[2 * TRACE_ID_BYTES + 1];
    unsigned number;
    double value;

    if (exemplars == NULL)
        return;
    number = atomic_load_explicit(&exemplars[bucket].number, memory_order_acquire);
    for (unsigned i = 0; i < EXEMPLAR_WORDS; i++)
        words[i] = atomic_load_explicit(&exemplars[bucket].words[i], memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    if (number == 0 || number % 2 != 0 || number != atomic_load(&exemplars[bucket].number))
        return;
    hex_encode(words, TRACE_ID_BYTES, trace_id);
    memcpy(&value, &words[2], sizeof(value));
    buf_printf(out, " # {trace_id=\"%s\"} %.9g %" PRIu64 ".%03u", trace_id, value, words[3] / NS_PER_S,
               (unsigned)(words[3] % NS_PER_S / NS_PER_MS));
}
