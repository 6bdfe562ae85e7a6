/* SPDX-License-Identifier: Apache-2.0 */
/* The report depends on no clock, machine or locale: the same result gives the same bytes. */
#include "clients/sim/report.h"

#include <inttypes.h>

#include "base/check.h"
#include "base/err.h"

static const char *const refusals[] = {
#define X(reason, name) name,
    REFUSAL_TABLE(X)
#undef X
};

static uint64_t n_refused(const struct sim_class *kind)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < REFUSAL_REASONS; i++)
        n += kind->n_refused[i];
    return n;
}

static double share_of(double part, double all)
{
    return all > 0 ? part / all : 0;
}

static double span_s(const struct sim_result *result)
{
    return (double)result->end_ns / 1e9;
}

/* ---- text ---- */

static void put_times(const char *name, const struct sim_hist *hist, double unit, struct buf *out)
{
    buf_printf(out, "  %-10s %10.3f %10.3f %10.3f %10.3f %10.3f %10.3f\n", name, sim_hist_mean_s(hist) * unit,
               sim_hist_quantile_s(hist, 0.5) * unit, sim_hist_quantile_s(hist, 0.9) * unit,
               sim_hist_quantile_s(hist, 0.99) * unit, sim_hist_quantile_s(hist, 0.999) * unit,
               (double)hist->most_ns / 1e9 * unit);
}

static void put_class(const struct sim_cli *cli, const struct sim_result *result, unsigned i, struct buf *out)
{
    const struct sim_class *kind = &result->classes[i];
    double seconds = span_s(result);

    const struct picker_class *class = &cli->sim.classes.all[i < cli->sim.classes.n ? i : 0];

    if (result->n_classes > 1)
        buf_printf(out, "%s %u\n", cli->generate.are_two_tenants ? "tenant" : "class", i);
    buf_printf(out,
               "requests %" PRIu64 ": done %" PRIu64 ", good %" PRIu64 " (%.1f %%), cancelled %" PRIu64
               ", refused %" PRIu64,
               kind->n_arrived, kind->n_done, kind->n_good,
               100 * share_of((double)kind->n_good, (double)kind->n_arrived), kind->n_cancelled,
               n_refused(kind));
    for (unsigned why = 0; why < REFUSAL_REASONS; why++)
        if (kind->n_refused[why] > 0)
            buf_printf(out, " (%s %" PRIu64 ")", refusals[why], kind->n_refused[why]);
    buf_printf(
        out,
        "\ngoodput %.2f requests/s, %.0f tokens/s (TTFT <= %.3f s, ITL <= %.1f ms); answered %.0f tokens/s\n",
        share_of((double)kind->n_good, seconds), share_of((double)kind->good_tokens, seconds),
        (double)class->ttft_slo_ns / 1e9, (double)class->itl_slo_ns / 1e6,
        share_of((double)kind->answer_tokens, seconds));
    buf_printf(out, "  %-10s %10s %10s %10s %10s %10s %10s\n", "", "mean", "p50", "p90", "p99", "p99.9",
               "most");
    put_times("TTFT s", &kind->ttft, 1, out);
    put_times("ITL ms", &kind->itl, 1e3, out);
    put_times("E2E s", &kind->e2e, 1, out);
    if (kind->n_pauses > 0)
        buf_printf(out, "paused for a higher class: %" PRIu64 " times, %.3f s each\n", kind->n_pauses,
                   kind->paused_s / (double)kind->n_pauses);
}

static void put_fleet(const struct sim_cli *cli, const struct sim_result *result, struct buf *out)
{
    double seconds = span_s(result);
    double tokens = (double)(result->cached_tokens + result->pushed_tokens + result->read_tokens +
                             result->computed_tokens);

    buf_printf(out, "busy: prefill %.1f %%, decode %.1f %%, NICs %.1f %%, disks %.1f %%\n",
               100 * share_of(result->prefill_busy_s, result->prefill_worker_s),
               100 * share_of(result->decode_busy_s, result->decode_worker_s),
               100 * share_of(result->nic_busy_s, seconds * sim_n_workers(&cli->sim)),
               100 * share_of(result->disk_busy_s, seconds * sim_n_workers(&cli->sim)));
    buf_printf(
        out,
        "prompt tokens: %.1f %% from memory, %.1f %% pushed by peers, %.1f %% from disk, %.1f %% computed\n",
        100 * share_of((double)result->cached_tokens, tokens),
        100 * share_of((double)result->pushed_tokens, tokens),
        100 * share_of((double)result->read_tokens, tokens),
        100 * share_of((double)result->computed_tokens, tokens));
    buf_printf(out,
               "placed: %" PRIu64 " pairs, %" PRIu64 " on one worker, %" PRIu64 " after the queue; %" PRIu64
               " pushes\n",
               result->n_pairs, result->n_alone, result->n_queued, result->n_pushes);
    buf_printf(out, "moved: %.1f GB handed off, %.1f GB pushed, %.1f GB read\n", result->handed_bytes / 1e9,
               result->pushed_bytes / 1e9, result->read_bytes / 1e9);
    if (cli->sim.has_auto_roles)
        buf_printf(out, "roles: %" PRIu64 " changes\n", result->n_flips);
    if (result->n_crashes > 0)
        buf_printf(out, "crashes: %" PRIu64 "; %" PRIu64 " requests placed again\n", result->n_crashes,
                   result->n_replaced);
}

/* One line of eighth blocks; the largest value is full height. */
static void put_chart_line(const char *name, const char *unit, const double *values, uint32_t n,
                           struct buf *out)
{
    static const char *const bars[] = {" ",      "\u2581", "\u2582", "\u2583", "\u2584",
                                       "\u2585", "\u2586", "\u2587", "\u2588"};
    double most = 0;

    for (uint32_t i = 0; i < n; i++)
        most = values[i] > most ? values[i] : most;
    buf_printf(out, "%-12s ", name);
    for (uint32_t i = 0; i < n; i++)
        buf_append_str(out, bars[most > 0 ? (int)(values[i] / most * 8 + 0.5) : 0]);
    buf_printf(out, " %.4g %s\n", most, unit);
}

enum { MAX_CHART = 400 };

/* Workers for prefill in that time, the mean. */
static double column_prefill(const struct sim_cli *cli, const struct sim_column *column)
{
    return column->n_decisions > 0 ? share_of((double)column->n_prefill, (double)column->n_decisions)
                                   : cli->sim.n_prefill;
}

static void put_chart(const struct sim_cli *cli, const struct sim_result *result, struct buf *out)
{
    double values[7][MAX_CHART], width_s = (double)result->column_ns / 1e9;
    uint32_t n = result->n_columns < MAX_CHART ? result->n_columns : MAX_CHART;

    for (uint32_t i = 0; i < n; i++) {
        const struct sim_column *column = &result->columns[i];

        values[0][i] = (double)column->n_arrived / width_s;
        values[1][i] = (double)column->n_good / width_s;
        values[2][i] = (double)column->n_refused / width_s;
        values[3][i] = share_of(column->ttft_s, (double)column->n_first);
        values[4][i] = 100 * share_of(column->prefill_busy_s, column->prefill_worker_s);
        values[5][i] = 100 * share_of(column->decode_busy_s, column->decode_worker_s);
        values[6][i] = column_prefill(cli, column);
    }
    buf_printf(out, "\nover time, a column is %.3g s; the largest value is at the right\n", width_s);
    put_chart_line("arrivals", "/s", values[0], n, out);
    put_chart_line("good", "/s", values[1], n, out);
    put_chart_line("refused", "/s", values[2], n, out);
    put_chart_line("TTFT mean", "s", values[3], n, out);
    put_chart_line("prefill busy", "%", values[4], n, out);
    put_chart_line("decode busy", "%", values[5], n, out);
    if (cli->sim.has_auto_roles)
        put_chart_line("for prefill", "workers", values[6], n, out);
}

int sim_report_text(const struct sim_cli *cli, const struct sim_result *result, struct buf *out)
{
    buf_printf(out, "policy %s, %u prefill and %u decode workers, ", sim_policy_name(cli->sim.policy),
               cli->sim.n_prefill, cli->sim.n_decode);
    if (cli->sim.n_both > 0)
        buf_printf(out, "%u of both roles, ", cli->sim.n_both);
    buf_printf(out, "%.1f s simulated, seed %" PRIu64 "\n", span_s(result), cli->sim.seed);
    if (result->is_partial)
        buf_printf(out, "partial: stopped before the end of the load, with %u requests under way\n",
                   result->n_under_way);
    for (unsigned i = 0; i < result->n_classes; i++)
        put_class(cli, result, i, out);
    if (cli->generate.are_two_tenants)
        buf_printf(out, "Jain's index of the tokens served: %.3f\n", sim_result_jain(result));
    put_fleet(cli, result, out);
    put_chart(cli, result, out);
    return out->is_bad ? E_NOMEM : 0;
}

/* ---- JSON ---- */

static void json_hist(const char *name, const struct sim_hist *hist, struct buf *out)
{
    buf_printf(out,
               "\"%s\": {\"n\": %" PRIu64 ", \"mean\": %.9g, \"p50\": %.9g, \"p90\": %.9g, \"p95\": %.9g, "
               "\"p99\": %.9g, \"p999\": %.9g, \"max\": %.9g, \"histogram\": [",
               name, hist->n, sim_hist_mean_s(hist), sim_hist_quantile_s(hist, 0.5),
               sim_hist_quantile_s(hist, 0.9), sim_hist_quantile_s(hist, 0.95),
               sim_hist_quantile_s(hist, 0.99), sim_hist_quantile_s(hist, 0.999),
               (double)hist->most_ns / 1e9);
    sim_hist_render(hist, out);
    buf_append_str(out, "]}");
}

static void json_class(const struct sim_result *result, unsigned i, struct buf *out)
{
    const struct sim_class *kind = &result->classes[i];
    double seconds = span_s(result);

    buf_printf(out,
               "{\"class\": %u, \"arrived\": %" PRIu64 ", \"done\": %" PRIu64 ", \"good\": %" PRIu64
               ", \"cancelled\": %" PRIu64 ", \"refused\": {",
               i, kind->n_arrived, kind->n_done, kind->n_good, kind->n_cancelled);
    for (unsigned why = 0; why < REFUSAL_REASONS; why++)
        buf_printf(out, "%s\"%s\": %" PRIu64, why ? ", " : "", refusals[why], kind->n_refused[why]);
    buf_printf(out,
               "}, \"prompt_tokens\": %" PRIu64 ", \"answer_tokens\": %" PRIu64
               ", \"goodput_requests_per_s\": %.9g, \"goodput_tokens_per_s\": %.9g,\n   ",
               kind->prompt_tokens, kind->answer_tokens, share_of((double)kind->n_good, seconds),
               share_of((double)kind->good_tokens, seconds));
    if (result->n_classes > 1)
        buf_printf(out, "\"pauses\": %" PRIu64 ", \"paused_s\": %.9g, ", kind->n_pauses, kind->paused_s);
    json_hist("ttft_s", &kind->ttft, out);
    buf_append_str(out, ",\n   ");
    json_hist("itl_s", &kind->itl, out);
    buf_append_str(out, ",\n   ");
    json_hist("e2e_s", &kind->e2e, out);
    buf_append_str(out, "}");
}

static void json_fleet(const struct sim_cli *cli, const struct sim_result *result, struct buf *out)
{
    double seconds = span_s(result);

    buf_printf(out,
               " \"utilisation\": {\"prefill\": %.9g, \"decode\": %.9g, \"nic\": %.9g, \"disk\": %.9g},\n",
               share_of(result->prefill_busy_s, result->prefill_worker_s),
               share_of(result->decode_busy_s, result->decode_worker_s),
               share_of(result->nic_busy_s, seconds * sim_n_workers(&cli->sim)),
               share_of(result->disk_busy_s, seconds * sim_n_workers(&cli->sim)));
    buf_printf(out,
               " \"prompt_tokens\": {\"cached\": %" PRIu64 ", \"pushed\": %" PRIu64 ", \"read\": %" PRIu64
               ", \"computed\": %" PRIu64 "},\n",
               result->cached_tokens, result->pushed_tokens, result->read_tokens, result->computed_tokens);
    buf_printf(out, " \"bytes\": {\"handed_off\": %.0f, \"pushed\": %.0f, \"read\": %.0f},\n",
               result->handed_bytes, result->pushed_bytes, result->read_bytes);
    buf_printf(out,
               " \"placed\": {\"pairs\": %" PRIu64 ", \"alone\": %" PRIu64 ", \"queued\": %" PRIu64
               ", \"pushes\": %" PRIu64 ", \"again\": %" PRIu64 "},\n \"crashes\": %" PRIu64
               ", \"role_changes\": %" PRIu64 ",\n",
               result->n_pairs, result->n_alone, result->n_queued, result->n_pushes, result->n_replaced,
               result->n_crashes, result->n_flips);
}

static void json_timeline(const struct sim_cli *cli, const struct sim_result *result, struct buf *out)
{
    buf_printf(out, " \"timeline\": {\"column_s\": %.9g, \"columns\": [", (double)result->column_ns / 1e9);
    for (uint32_t i = 0; i < result->n_columns; i++) {
        const struct sim_column *column = &result->columns[i];

        buf_printf(out,
                   "%s\n  {\"arrived\": %" PRIu64 ", \"done\": %" PRIu64 ", \"good\": %" PRIu64
                   ", \"refused\": %" PRIu64
                   ", \"ttft_mean_s\": %.9g, \"prefill_busy_s\": %.9g, \"decode_busy_s\": %.9g, "
                   "\"prefill_workers\": %.9g, \"role_changes\": %" PRIu64
                   ", \"wanted_prefill\": %.9g, \"wanted_decode\": %.9g}",
                   i ? "," : "", column->n_arrived, column->n_done, column->n_good, column->n_refused,
                   share_of(column->ttft_s, (double)column->n_first), column->prefill_busy_s,
                   column->decode_busy_s, column_prefill(cli, column), column->n_flips,
                   share_of((double)column->wanted_prefill, (double)column->n_wanted),
                   share_of((double)column->wanted_decode, (double)column->n_wanted));
    }
    buf_append_str(out, "]}\n");
}

int sim_report_json(const struct sim_cli *cli, const struct sim_result *result, struct buf *out)
{
    buf_printf(out,
               "{\"policy\": \"%s\", \"prefill_workers\": %u, \"decode_workers\": %u, \"both_workers\": %u, "
               "\"seed\": %" PRIu64 ", \"simulated_s\": %.9g, \"steps\": %" PRIu64 ",\n ",
               sim_policy_name(cli->sim.policy), cli->sim.n_prefill, cli->sim.n_decode, cli->sim.n_both,
               cli->sim.seed, span_s(result), result->n_steps);
    if (result->is_partial)
        buf_printf(out, "\"partial\": true, \"under_way\": %u, ", result->n_under_way);
    buf_append_str(out, "\"classes\": [");
    for (unsigned i = 0; i < result->n_classes; i++) {
        buf_append_str(out, i ? ",\n  " : "\n  ");
        json_class(result, i, out);
    }
    buf_append_str(out, "],\n");
    if (cli->generate.are_two_tenants)
        buf_printf(out, " \"jain\": %.9g,\n", sim_result_jain(result));
    json_fleet(cli, result, out);
    json_timeline(cli, result, out);
    buf_append_str(out, "}\n");
    return out->is_bad ? E_NOMEM : 0;
}
