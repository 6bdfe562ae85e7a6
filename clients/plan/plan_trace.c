/* SPDX-License-Identifier: Apache-2.0 */
/* Lengths, rate, and the cached share of prompts, from a trace of requests.
 *
 * A block counts as a hit when its hash occurred before, in a cache without bounds; a real cache hits less. */
#include "clients/plan/plan_job.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"

static int compare_f64(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void trace_lengths(double *list, size_t n, double *mean_out, double *p90_out)
{
    double sum = 0;

    qsort(list, n, sizeof(*list), compare_f64);
    for (size_t i = 0; i < n; i++)
        sum += list[i];
    *mean_out = sum / (double)n;
    double p90 = list[n * 9 / 10];
    *p90_out = p90 < *mean_out ? *mean_out : p90 > 5 * *mean_out ? 5 * *mean_out : p90;
}

/* The part of all blocks whose hash occurred before.  E_NOMEM. */
static int trace_hit_share(const struct trace *trace, double *share_out)
{
    size_t n = trace->n_block_ids, n_different = 0;
    uint64_t *sorted = reallocarray(NULL, n, sizeof(*sorted));

    if (sorted == NULL)
        return E_NOMEM;
    memcpy(sorted, trace->block_ids, n * sizeof(*sorted));
    qsort(sorted, n, sizeof(*sorted), compare_u64);
    for (size_t i = 0; i < n; i++)
        n_different += i == 0 || sorted[i] != sorted[i - 1];
    free(sorted);
    *share_out = 1 - (double)n_different / (double)n;
    return 0;
}

static int trace_work(const struct trace *trace, struct fault *fault, struct plan_work *work)
{
    size_t n = trace->n_entries;
    uint64_t last_ns = trace->entries[n - 1].at_ns; /* since the first */
    double *lengths = reallocarray(NULL, n, 2 * sizeof(*lengths));

    if (lengths == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        lengths[i] = trace->entries[i].prompt_tokens;
        lengths[n + i] = trace->entries[i].answer_tokens;
    }
    trace_lengths(lengths, n, &work->isl, &work->isl_p90);
    trace_lengths(lengths + n, n, &work->osl, &work->osl_p90);
    free(lengths);
    if (work->rate_per_s == 0 && last_ns > 0)
        work->rate_per_s = (double)n / ((double)last_ns / (double)NS_PER_S);
    if (work->hit == 0 && trace->n_block_ids > 0 && trace_hit_share(trace, &work->hit) < 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    return 0;
}

static int trace_check(const char *path, const struct trace *trace, struct fault *fault)
{
    for (size_t i = 0; i < trace->n_entries; i++)
        if (trace->entries[i].prompt_tokens == 0 || trace->entries[i].answer_tokens == 0)
            return fault_set(fault, E_FORMAT, "%s: request %zu by time has no prompt or no answer tokens",
                             path, i + 1);
    return 0;
}

bool plan_trace_read(const char *path, struct trace *out, struct plan_work *work)
{
    struct fault fault = {0};
    int rc = trace_load(path, &fault, out);

    if (rc == 0)
        rc = trace_check(path, out, &fault);
    if (rc == 0)
        rc = trace_work(out, &fault, work);
    if (rc != 0)
        complain(PLAN_NAME, "%s", fault.text);
    return rc == 0;
}
