/* SPDX-License-Identifier: Apache-2.0 */
/* The load of a calibration: points over prompt length, answer length, concurrency and reuse.
 *
 * The order visits the corners first.  So a load that ends early has still measured short and long prompts,
 * one and many sequences. */
#include "clients/plan/calibrate.h"

#include <stdio.h>

#include "base/clock.h"
#include "clients/plan/load.h"

static const struct {
    double isl, osl;
    unsigned concurrency;
    double hit;
} POINTS[] = {
    {128, 32, 1, 0},  {1024, 32, 1, 0},  {128, 32, 8, 0},    {1024, 32, 8, 0},   {512, 64, 2, 0},
    {512, 32, 4, 0},  {2048, 32, 1, 0},  {256, 64, 16, 0},   {1024, 32, 2, 0.5}, {128, 64, 4, 0},
    {2048, 32, 4, 0}, {512, 32, 1, 0.9}, {256, 32, 1, 0},    {512, 32, 16, 0},   {4096, 32, 1, 0},
    {128, 128, 2, 0}, {1024, 64, 4, 0},  {256, 32, 8, 0},    {2048, 32, 2, 0.5}, {64, 64, 1, 0},
    {64, 64, 8, 0},   {4096, 32, 2, 0},  {1536, 32, 8, 0.5}, {8192, 32, 1, 0},
};

static void measure_put(const struct calibrate_opts *opts, const struct plan_model *model,
                        const struct load_point *point, struct buf *table)
{
    buf_printf(table, "%s\t%s\t%s\t%s\t%.1f\t%.1f\t%u\t%g\t%g\t1\t%.3f\t%.4f\t%s\t%g\t%s\n", model->name,
               opts->device, opts->engine, opts->weights, point->prompt_tokens, point->answer_tokens,
               point->concurrency, opts->tp, opts->tp, point->ttft_ms, point->tpot_ms, opts->kv, point->hit,
               opts->is_split ? "split" : "aggregated");
}

bool calibrate_measure(const struct calibrate_opts *opts, const struct plan_model *model, struct buf *table)
{
    const struct load_opts load_opts = {.url = opts->url,
                                        .model = opts->served,
                                        .key = opts->key,
                                        .timeout_ns = opts->time_ns + 60 * NS_PER_S};
    struct load *load = NULL;
    struct fault fault = {0};
    uint64_t began_ns = clock_now_ns();
    bool is_good = load_open(&load_opts, &fault, &load) == 0;

    buf_printf(table, "model\tgpu\tengine\tweights\tisl\tosl\tconcurrency\ttp\tmoe_tp\tmoe_ep\tttft_ms\ttpot_"
                      "ms\tkv\thit\tmode\n");
    for (size_t i = 0; is_good && i < sizeof(POINTS) / sizeof(POINTS[0]); i++) {
        struct load_point point = {.prompt_tokens = POINTS[i].isl,
                                   .answer_tokens = POINTS[i].osl,
                                   .concurrency = POINTS[i].concurrency,
                                   .n_requests = POINTS[i].concurrency * 2 + 1,
                                   .hit = POINTS[i].hit};

        if (clock_now_ns() - began_ns > opts->time_ns)
            break;
        if (point.prompt_tokens + point.answer_tokens > model->max_context && model->max_context > 0)
            continue;
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
