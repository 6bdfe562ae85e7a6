/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of requests (Mooncake's JSON lines): lengths, rate, and the cached share of prompts.
 *
 * A block counts as a hit when its hash occurred before, in a cache without bounds; a real cache hits less. */
#include "clients/plan/plan_job.h"

#include "text/json/json.h"

#include <stdio.h>
#include <stdlib.h>

#define TRACE_MAX 10000000

struct trace {
    double *in, *out; /* tokens of each request */
    size_t n, cap;
    double first_ms, last_ms;
    uint64_t *seen; /* hashes, sorted at the end */
    size_t n_seen, cap_seen;
};

static bool trace_push(void *list, size_t *n, size_t *cap, const void *item)
{
    char **data = list;

    if (*n == *cap) {
        size_t more = *cap == 0 ? 1024 : *cap * 2;
        char *bigger = more > TRACE_MAX ? NULL : realloc(*data, more * 8);
        if (bigger == NULL)
            return false;
        *data = bigger;
        *cap = more;
    }
    memcpy(*data + (*n)++ * 8, item, 8);
    return true;
}

static bool trace_line(struct trace *trace, struct bytes line, struct fault *fault)
{
    json_t *root, *hash;
    size_t i, n = trace->n, cap = trace->cap;

    if (api_json_load(line, fault, &root) != 0)
        return false;
    double in = json_number_value(json_object_get(root, "input_length"));
    double out = json_number_value(json_object_get(root, "output_length"));
    double at = json_number_value(json_object_get(root, "timestamp"));
    bool is_good = in >= 1 && out >= 1 && at >= 0;
    if (!is_good)
        fault_set(fault, -1, "expected timestamp, input_length and output_length");
    is_good = is_good && trace_push(&trace->in, &n, &cap, &in);
    n = trace->n;
    cap = trace->cap;
    is_good = is_good && trace_push(&trace->out, &n, &cap, &out);
    trace->n = n;
    trace->cap = cap;
    json_array_foreach(json_object_get(root, "hash_ids"), i, hash)
    {
        uint64_t id = (uint64_t)json_integer_value(hash);
        is_good = is_good && trace_push(&trace->seen, &trace->n_seen, &trace->cap_seen, &id);
    }
    if (trace->n == 1 || at < trace->first_ms)
        trace->first_ms = at;
    if (at > trace->last_ms)
        trace->last_ms = at;
    json_decref(root);
    return is_good;
}

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

static void trace_work(struct trace *trace, struct plan_work *work)
{
    size_t n_different = 0;

    trace_lengths(trace->in, trace->n, &work->isl, &work->isl_p90);
    trace_lengths(trace->out, trace->n, &work->osl, &work->osl_p90);
    if (work->rate_per_s == 0 && trace->last_ms > trace->first_ms)
        work->rate_per_s = (double)trace->n / ((trace->last_ms - trace->first_ms) / 1e3);
    if (work->hit > 0 || trace->n_seen == 0)
        return;
    qsort(trace->seen, trace->n_seen, sizeof(*trace->seen), compare_u64);
    for (size_t i = 0; i < trace->n_seen; i++)
        n_different += i == 0 || trace->seen[i] != trace->seen[i - 1];
    work->hit = 1 - (double)n_different / (double)trace->n_seen;
}

bool plan_trace_read(const char *path, struct plan_work *work)
{
    struct buf text = {0};
    struct trace trace = {0};
    struct fault fault = {0};
    bool is_good = plan_cli_read(path, &text);
    size_t n_line = 0;

    for (size_t at = 0; is_good && at < text.len_bytes;) {
        const uint8_t *end = memchr(text.data + at, '\n', text.len_bytes - at);
        size_t len = end == NULL ? text.len_bytes - at : (size_t)(end - text.data) - at;

        n_line++;
        if (len > 1 && !trace_line(&trace, bytes_of(text.data + at, len), &fault)) {
            complain(PLAN_NAME, "%s: line %zu: %s", path, n_line, fault.text);
            is_good = false;
        }
        at += len + 1;
    }
    if (is_good && trace.n == 0) {
        complain(PLAN_NAME, "%s: no requests", path);
        is_good = false;
    }
    if (is_good)
        trace_work(&trace, work);
    free(trace.in);
    free(trace.out);
    free(trace.seen);
    buf_fini(&text);
    return is_good;
}
