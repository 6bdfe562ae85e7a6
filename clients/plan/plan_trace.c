/* SPDX-License-Identifier: Apache-2.0 */
/* Lengths, rate, and the cached share of prompts, from a trace of requests.
 *
 * A block counts as a hit when its hash occurred before, in a cache without bounds; a real cache hits less. */
#include "clients/bench/trace.h"
#include "clients/plan/plan_job.h"

#include <stdlib.h>

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

/* The part of all blocks whose hash occurred before.  Sorts the hashes. */
static double trace_hit_share(struct trace *trace)
{
    size_t n_different = 0;

    qsort(trace->block_ids, trace->n_block_ids, sizeof(*trace->block_ids), compare_u64);
    for (size_t i = 0; i < trace->n_block_ids; i++)
        n_different += i == 0 || trace->block_ids[i] != trace->block_ids[i - 1];
    return 1 - (double)n_different / (double)trace->n_block_ids;
}

static int trace_work(struct trace *trace, struct fault *fault, struct plan_work *work)
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
    if (work->hit == 0 && trace->n_block_ids > 0)
        work->hit = trace_hit_share(trace);
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

bool plan_trace_read(const char *path, struct plan_work *work)
{
    struct buf text = {0};
    struct trace trace = {0};
    struct fault fault = {0};
    int rc = plan_cli_read(path, &text) ? trace_parse(path, buf_view(&text), &fault, &trace) : E_IO;

    if (rc == 0)
        rc = trace_check(path, &trace, &fault);
    if (rc == 0)
        rc = trace_work(&trace, &fault, work);
    if (fault.code != 0)
        complain(PLAN_NAME, "%s", fault.text);
    trace_fini(&trace);
    buf_fini(&text);
    return rc == 0;
}
