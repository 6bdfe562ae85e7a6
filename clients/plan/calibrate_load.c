/* SPDX-License-Identifier: Apache-2.0 */
/* The load of a calibration: points over prompt length, answer length, concurrency and reuse.
 *
 * The order visits the corners first.  So a load that ends early has still measured short and long prompts,
 * one and many sequences. */
#include "clients/plan/calibrate.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "clients/plan/load.h"

static const struct calibrate_point POINTS[] = {
    {128, 32, 0, 1},  {1024, 32, 0, 1},  {128, 32, 0, 8},    {1024, 32, 0, 8},   {512, 64, 0, 2},
    {512, 32, 0, 4},  {2048, 32, 0, 1},  {256, 64, 0, 16},   {1024, 32, 0.5, 2}, {128, 64, 0, 4},
    {2048, 32, 0, 4}, {512, 32, 0.9, 1}, {256, 32, 0, 1},    {512, 32, 0, 16},   {4096, 32, 0, 1},
    {128, 128, 0, 2}, {1024, 64, 0, 4},  {256, 32, 0, 8},    {2048, 32, 0.5, 2}, {64, 64, 0, 1},
    {64, 64, 0, 8},   {4096, 32, 0, 2},  {1536, 32, 0.5, 8}, {8192, 32, 0, 1},
};

static void measure_put(const struct calibrate_opts *opts, const struct plan_model *model,
                        const struct load_point *point, struct buf *table)
{
    buf_printf(table, "%s\t%s\t%s\t%s\t%.1f\t%.1f\t%u\t%g\t%g\t1\t%.3f\t%.4f\t%s\t%g\t%s\n", model->name,
               opts->device, opts->engine, opts->weights, point->prompt_tokens, point->answer_tokens,
               point->concurrency, opts->tp, opts->tp, point->ttft_ms, point->tpot_ms, opts->kv, point->hit,
               opts->is_split ? "split" : "aggregated");
}

/* Reads one point and moves *text behind it and its comma. */
static int point_parse(const char **text, struct fault *fault, struct calibrate_point *point)
{
    const char *end = strchrnul(*text, ',');
    char item[64];
    int at = 0, at_hit = 0;

    snprintf(item, sizeof(item), "%.*s", (int)(end - *text), *text);
    point->hit = 0;
    if (sscanf(item, "%lf:%lf:%u%n:%lf%n", &point->isl, &point->osl, &point->concurrency, &at, &point->hit,
               &at_hit) < 3 ||
        item[at_hit > at ? at_hit : at] != '\0')
        return fault_set(fault, E_FORMAT, "\"%s\" is not ISL:OSL:CONCURRENCY[:HIT]", item);
    if (!(point->isl >= 1 && point->isl <= 1e7) || !(point->osl >= 4 && point->osl <= 1e6) ||
        point->concurrency < 1 || point->concurrency > 1024 || !(point->hit >= 0 && point->hit < 1))
        return fault_set(
            fault, E_RANGE,
            "\"%s\": wanted are 1 to 1e7 tokens in, 4 to 1e6 out, 1 to 1024 at once, hit below 1", item);
    *text = *end == ',' ? end + 1 : end;
    return 0;
}

int calibrate_points_parse(const char *text, struct fault *fault, struct calibrate_point *points,
                           size_t *n_out)
{
    int rc = 0;

    *n_out = 0;
    do {
        if (*n_out == CALIBRATE_POINTS_MAX)
            return fault_set(fault, E_LIMIT, "more than %d points", CALIBRATE_POINTS_MAX);
        rc = point_parse(&text, fault, &points[*n_out]);
        *n_out += rc == 0;
    } while (rc == 0 && text[-1] == ',');
    return rc;
}

/* The points of opts; the built-in ones without. */
static bool points_choose(const struct calibrate_opts *opts, struct calibrate_point *points, size_t *n_out)
{
    struct fault fault;

    if (opts->points == NULL) {
        memcpy(points, POINTS, sizeof(POINTS));
        *n_out = ARRAY_LEN(POINTS);
        return true;
    }
    if (calibrate_points_parse(opts->points, &fault, points, n_out) == 0)
        return true;
    complain(PLAN_NAME, "--points: %s", fault.text);
    return false;
}

bool calibrate_measure(const struct calibrate_opts *opts, const struct plan_model *model, struct buf *table)
{
    const struct load_opts load_opts = {.url = opts->url,
                                        .model = opts->served,
                                        .key = opts->key,
                                        .timeout_ns = opts->time_ns + 60 * NS_PER_S};
    struct load *load = NULL;
    struct fault fault = {0};
    struct calibrate_point points[CALIBRATE_POINTS_MAX];
    size_t n;
    uint64_t began_ns = clock_now_ns();

    if (!points_choose(opts, points, &n))
        return false;
    bool is_good = load_open(&load_opts, &fault, &load) == 0;

    buf_printf(table, "model\tgpu\tengine\tweights\tisl\tosl\tconcurrency\ttp\tmoe_tp\tmoe_ep\tttft_ms\ttpot_"
                      "ms\tkv\thit\tmode\n");
    for (size_t i = 0; is_good && i < n; i++) {
        struct load_point point = {.prompt_tokens = points[i].isl,
                                   .answer_tokens = points[i].osl,
                                   .concurrency = points[i].concurrency,
                                   .n_requests = points[i].concurrency * 2 + 1,
                                   .hit = points[i].hit};

        if (clock_now_ns() - began_ns > opts->time_ns)
            break;
        if (point.prompt_tokens + point.answer_tokens > model->max_context && model->max_context > 0) {
            fprintf(stderr, "%5.0f in, %3.0f out: left out, the model has %.0f positions\n",
                    point.prompt_tokens, point.answer_tokens, model->max_context);
            continue;
        }
        is_good = load_measure(load, &point, &fault) == 0;
        if (!is_good)
            break;
        fprintf(stderr, "%5.0f in, %3.0f out, %2u at once, %2.0f %% cached: TTFT %8.1f ms, TPOT %7.2f ms\n",
                point.prompt_tokens, point.answer_tokens, point.concurrency, point.hit * 100, point.ttft_ms,
                point.tpot_ms);
        if (point.tpot_ms > 0 && point.answer_tokens >= 4)
            measure_put(opts, model, &point, table);
    }
    load_close(load);
    if (!is_good)
        complain(PLAN_NAME, "%s: %s", opts->url, fault.text);
    return is_good;
}
