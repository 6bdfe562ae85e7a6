/* SPDX-License-Identifier: Apache-2.0 */
/* Both reports have the same content.  Shares of requests refer to all counted requests that ended; a failed
 * request kept no objective.  Shares of answers refer to whole answers.  The server's own figures refer to
 * answers with serving stats. */
#include "clients/bench/report.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/str.h"

struct figure {
    const char *label; /* in the table */
    const char *name;  /* in JSON */
    struct series *series;
};

enum { N_FIGURES = 9 };

static void list_figures(struct tally *tally, struct figure out[N_FIGURES])
{
    const struct figure all[N_FIGURES] = {
        {"TTFT", "ttft_ms", &tally->ttft},
        {"ITL", "itl_ms", &tally->itl},
        {"per token", "time_per_token_ms", &tally->per_token},
        {"E2E", "e2e_ms", &tally->e2e},
        {"  queue", "queue_ms", &tally->queue},
        {"  prefill", "prefill_ms", &tally->prefill},
        {"  transfer", "transfer_ms", &tally->transfer},
        {"  decode", "decode_ms", &tally->decode},
        {"sent late", "lag_ms", &tally->lag},
    };

    for (size_t i = 0; i < N_FIGURES; i++)
        out[i] = all[i];
}

static double report_share(uint64_t part, uint64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : 0;
}

static double report_seconds_of(const struct tally *tally)
{
    return tally->ended_ns > tally->began_ns ? (double)(tally->ended_ns - tally->began_ns) / 1e9 : 0;
}

static double per_s(const struct tally *tally, uint64_t count)
{
    double seconds = report_seconds_of(tally);

    return seconds > 0 ? (double)count / seconds : 0;
}

/* ---- table ---- */

static void report_put_load(const struct bench_opts *opts, struct buf *out)
{
    switch (opts->load) {
    case BENCH_CLOSED:
        buf_printf(out, "%u requests under way", opts->concurrency);
        break;
    case BENCH_POISSON:
        buf_printf(out, "Poisson, %g requests/s", opts->rate_per_s);
        break;
    case BENCH_TRACE:
        buf_printf(out, "%s, %g times as fast", opts->trace_path, opts->speed);
        break;
    }
}

static void put_lengths(const struct bench_opts *opts, struct buf *out)
{
    if (opts->load == BENCH_TRACE) {
        buf_append_str(out, "lengths    the trace's");
        if (opts->prompt.high > 0)
            buf_printf(out, ", prompts at most %u", opts->prompt.high);
        if (opts->answer.high > 0)
            buf_printf(out, ", answers at most %u", opts->answer.high);
    } else {
        buf_printf(out, "lengths    prompts %u to %u tokens, answers at most %u to %u", opts->prompt.low,
                   opts->prompt.high, opts->answer.low, opts->answer.high);
    }
    if (opts->shared_prefix_tokens > 0)
        buf_printf(out, "; the first %u of each prompt shared", opts->shared_prefix_tokens);
    buf_printf(out, "; seed %" PRIu64 "\n", opts->seed);
}

static void put_counts(const struct tally *tally, struct buf *out)
{
    buf_printf(out, "requests   %" PRIu64 " whole, %" PRIu64 " failed", tally->n_whole, tally->n_failed);
    if (tally->n_cut > 0)
        buf_printf(out, ", %" PRIu64 " broken off", tally->n_cut);
    if (tally->n_warmup > 0)
        buf_printf(out, " (and %" PRIu64 " to warm up)", tally->n_warmup);
    buf_printf(out, " in %.2f s\n", report_seconds_of(tally));
    buf_printf(out, "throughput %.2f requests/s, %.1f prompt tokens/s, %.1f answer tokens/s\n\n",
               per_s(tally, tally->n_whole), per_s(tally, tally->prompt_tokens),
               per_s(tally, tally->answer_tokens));
}

static void put_figures(struct tally *tally, struct buf *out)
{
    struct figure figures[N_FIGURES];

    list_figures(tally, figures);
    buf_printf(out, "%-10s %10s %10s %10s %10s %10s\n", "ms", "mean", "p50", "p90", "p99", "max");
    for (size_t i = 0; i < N_FIGURES; i++) {
        struct series *series = figures[i].series;

        if (series->n > 0)
            buf_printf(out, "%-10s %10.2f %10.2f %10.2f %10.2f %10.2f\n", figures[i].label,
                       series_mean(series), series_percentile(series, 0.5), series_percentile(series, 0.9),
                       series_percentile(series, 0.99), (double)series->max);
    }
    buf_append_str(out, "\n");
}

static void put_shares(const struct bench_opts *opts, const struct tally *tally, struct buf *out)
{
    uint64_t n = tally->n_whole + tally->n_failed;
    char ttft[24];
    char itl[24];

    str_from_duration(opts->ttft_slo_ns, ttft);
    str_from_duration(opts->itl_slo_ns, itl);
    buf_printf(out,
               "objectives TTFT <= %s and %s per token: %.1f %% of requests kept both (%.1f %%, %.1f %%); "
               "%.2f good requests/s\n",
               ttft, itl, 100 * report_share(tally->n_both_kept, n),
               100 * report_share(tally->n_ttft_kept, n), 100 * report_share(tally->n_itl_kept, n),
               per_s(tally, tally->n_both_kept));
    if (tally->n_served > 0)
        buf_printf(out,
                   "handed off %.1f %% of answers (%" PRIu64 " of %" PRIu64 "); %" PRIu64
                   " redispatched, %" PRIu64 " preempted\n",
                   100 * report_share(tally->n_handed_off, tally->n_served), tally->n_handed_off,
                   tally->n_served, tally->n_redispatched, tally->n_preempted);
    buf_printf(out, "prompts    %" PRIu64 " tokens: %.1f %% reused from caches", tally->prompt_tokens,
               100 * report_share(tally->reused_tokens, tally->prompt_tokens));
    if (tally->n_served > 0)
        buf_printf(out, ", %" PRIu64 " computed, %" PRIu64 " transferred", tally->computed_tokens,
                   tally->transferred_tokens);
    buf_printf(out, "\nanswers    %" PRIu64 " tokens\n", tally->answer_tokens);
}

int report_put_table(const struct report *report, struct buf *out)
{
    struct tally *tally = report->tally;

    buf_printf(out, "%s, model %s%s\nload       ", report->opts->url, report->model,
               report->is_interrupted ? " (interrupted)" : "");
    report_put_load(report->opts, out);
    buf_append_str(out, "\n");
    put_lengths(report->opts, out);
    put_counts(tally, out);
    put_figures(tally, out);
    put_shares(report->opts, tally, out);
    for (size_t i = 0; i < tally->n_errors; i++)
        buf_printf(out, "error      %" PRIu64 " x %s: %s\n", tally->errors[i].n, tally->errors[i].type,
                   tally->errors[i].example);
    return out->is_bad ? E_NOMEM : 0;
}

/* ---- JSON ---- */

static json_t *json_of_load(const struct bench_opts *opts)
{
    static const char *const kinds[] = {
        [BENCH_CLOSED] = "closed", [BENCH_POISSON] = "poisson", [BENCH_TRACE] = "trace"};
    json_t *load =
        json_pack("{s:s, s:I, s:I, s:[I,I], s:[I,I]}", "kind", kinds[opts->load], "seed",
                  (json_int_t)opts->seed, "shared_prefix_tokens", (json_int_t)opts->shared_prefix_tokens,
                  "prompt_tokens", (json_int_t)opts->prompt.low, (json_int_t)opts->prompt.high,
                  "answer_tokens", (json_int_t)opts->answer.low, (json_int_t)opts->answer.high);

    if (opts->load == BENCH_CLOSED)
        json_object_set_new(load, "concurrency", json_integer(opts->concurrency));
    if (opts->load == BENCH_POISSON)
        json_object_set_new(load, "rate_per_s", json_real(opts->rate_per_s));
    if (opts->load == BENCH_TRACE) {
        json_object_set_new(load, "trace", json_string(opts->trace_path));
        json_object_set_new(load, "speed", json_real(opts->speed));
    }
    return load;
}

static json_t *json_of_series(struct series *series)
{
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "n", (json_int_t)series->n, "mean",
                     series_mean(series), "p50", series_percentile(series, 0.5), "p90",
                     series_percentile(series, 0.9), "p99", series_percentile(series, 0.99), "max",
                     (double)series->max);
}

static json_t *json_of_counts(const struct report *report)
{
    const struct tally *tally = report->tally;

    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:b, s:f}", "sent", (json_int_t)tally->n_sent, "whole",
                     (json_int_t)tally->n_whole, "failed", (json_int_t)tally->n_failed, "broken_off",
                     (json_int_t)tally->n_cut, "warmup", (json_int_t)tally->n_warmup, "interrupted",
                     report->is_interrupted, "seconds", report_seconds_of(tally));
}

static json_t *json_of_server(const struct tally *tally)
{
    return json_pack("{s:I, s:f, s:f, s:I, s:I}", "with_serving_stats", (json_int_t)tally->n_served,
                     "handed_off_share", report_share(tally->n_handed_off, tally->n_served), "reused_share",
                     report_share(tally->reused_tokens, tally->prompt_tokens), "redispatched",
                     (json_int_t)tally->n_redispatched, "preempted", (json_int_t)tally->n_preempted);
}

static json_t *json_of_tokens(const struct tally *tally)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "prompt", (json_int_t)tally->prompt_tokens, "computed",
                     (json_int_t)tally->computed_tokens, "reused", (json_int_t)tally->reused_tokens,
                     "transferred", (json_int_t)tally->transferred_tokens, "answer",
                     (json_int_t)tally->answer_tokens);
}

static json_t *json_of_objectives(const struct bench_opts *opts, const struct tally *tally)
{
    uint64_t n = tally->n_whole + tally->n_failed;

    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "ttft_ms", (double)opts->ttft_slo_ns / 1e6, "itl_ms",
                     (double)opts->itl_slo_ns / 1e6, "kept_share", report_share(tally->n_both_kept, n),
                     "ttft_kept_share", report_share(tally->n_ttft_kept, n), "itl_kept_share",
                     report_share(tally->n_itl_kept, n), "good_requests_per_s",
                     per_s(tally, tally->n_both_kept));
}

int report_put_json(const struct report *report, struct buf *out)
{
    struct tally *tally = report->tally;
    struct figure figures[N_FIGURES];
    json_t *errors = json_object();
    json_t *root;
    char *text;

    for (size_t i = 0; i < tally->n_errors; i++)
        json_object_set_new(errors, tally->errors[i].type, json_integer((json_int_t)tally->errors[i].n));
    root = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:{s:f, s:f, s:f}}", "version", PACKAGE_VERSION, "url",
                     report->opts->url, "model", report->model, "load", json_of_load(report->opts),
                     "requests", json_of_counts(report), "errors", errors, "throughput", "requests_per_s",
                     per_s(tally, tally->n_whole), "prompt_tokens_per_s", per_s(tally, tally->prompt_tokens),
                     "answer_tokens_per_s", per_s(tally, tally->answer_tokens));
    list_figures(tally, figures);
    for (size_t i = 0; i < N_FIGURES; i++)
        json_object_set_new(root, figures[i].name, json_of_series(figures[i].series));
    json_object_set_new(root, "objectives", json_of_objectives(report->opts, tally));
    json_object_set_new(root, "server", json_of_server(tally));
    json_object_set_new(root, "tokens", json_of_tokens(tally));
    text = root != NULL ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(root);
    if (text == NULL)
        return E_NOMEM;
    buf_append_str(out, text);
    free(text);
    return buf_append_str(out, "\n");
}
