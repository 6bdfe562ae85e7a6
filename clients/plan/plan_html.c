/* SPDX-License-Identifier: Apache-2.0 */
/* One page for a browser: the table and three charts as inline SVG.  No script, no outside file; the charts
 * scale to the width of a phone. */
#include "clients/plan/plan_job.h"

#include "clients/plan/svg.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define HTML_ROWS   12
#define SWEEP_STEPS 13

static void html_text(FILE *file, const char *text)
{
    for (; *text != '\0'; text++)
        switch (*text) {
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        case '&':
            fputs("&amp;", file);
            break;
        case '"':
            fputs("&quot;", file);
            break;
        default:
            fputc(*text, file);
        }
}

static void html_head(FILE *file, const struct plan_job *job)
{
    const struct plan_work *w = &job->work;

    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Plan: ",
          file);
    html_text(file, job->model.name);
    fputs("</title>\n<style>\n"
          ":root{color-scheme:light dark}\n"
          "body{font:16px/1.45 system-ui,sans-serif;margin:0 auto;max-width:60rem;padding:1rem}\n"
          "h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}\n"
          ".scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem;white-space:nowrap}\n"
          "td,th{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #8884}\n"
          "td:first-child,td:nth-child(2),th:first-child,th:nth-child(2){text-align:left}\n"
          ".range{opacity:.65;font-size:.8em}svg{width:100%;height:auto;font:12px system-ui,sans-serif}\n"
          "svg "
          "text{fill:currentColor}.axis{stroke:currentColor;opacity:.5;fill:none}.grid{stroke:currentColor;"
          "opacity:.12}\n"
          ".band{fill:#3b7dd8;opacity:.2}.line{stroke:#3b7dd8;stroke-width:2.5;fill:none}\n"
          ".two{fill:#3b7dd8}.one{fill:#d8843b}.bar{stroke:#8888;stroke-width:1}.best{stroke:currentColor;"
          "stroke-width:2}\n"
          "@media(max-width:40rem){svg{font-size:19px;overflow:visible}td,th{padding:.25rem .35rem}}\n"
          "</style></head><body>\n<h1>",
          file);
    html_text(file, job->model.name);
    fprintf(file,
            "</h1>\n<p>%g requests a second, %g tokens in (%.0f&nbsp;%% cached), %g out. First token within "
            "%g&nbsp;s (p%g), %g&nbsp;ms between tokens (p%g). Weights ",
            w->rate_per_s, w->isl, w->hit * 100, w->osl, w->ttft_s, w->ttft_percentile * 100, w->itl_s * 1e3,
            w->itl_percentile * 100);
    html_text(file, job->weights);
    fprintf(file, ", KV ");
    html_text(file, job->kv);
    fprintf(file, ". Constants ");
    html_text(file, job->constants.name);
    fprintf(file,
            ": error on unseen measurements %.0f&nbsp;%% (time per token). Ranges are 90&nbsp;%% "
            "intervals.</p>\n",
            job->constants.held_out[PLAN_TPOT] * 100);
}

static void html_pool(FILE *file, const struct plan_job *job, size_t i)
{
    char layout[32];

    if (i == SIZE_MAX) {
        fputs("<td>(aggregated)</td>", file);
        return;
    }
    plan_pool_layout(&job->pools.list[i], layout, sizeof(layout));
    fputs("<td>", file);
    html_text(file, job->pools.list[i].cost.setup.device->id);
    fprintf(file, " %s</td>", layout);
}

static void html_number(FILE *file, int digits, double value)
{
    fputs("<td>", file);
    if (isfinite(value))
        fprintf(file, "%.*f", digits, value);
    else
        fputs("&ndash;", file);
    fputs("</td>", file);
}

static void html_ranged(FILE *file, double value, double low, double high)
{
    fprintf(file, "<td>%.4g", value);
    if (isfinite(high) && low > 0)
        fprintf(file, " <span class=\"range\">%.3g&ndash;%.3g</span>", low, high);
    fputs("</td>", file);
}

static void html_row(FILE *file, const struct plan_job *job, const struct plan_candidate *c)
{
    fputs("<tr>", file);
    html_pool(file, job, c->prefill);
    html_pool(file, job, c->decode);
    html_number(file, 0, c->n_prefill);
    html_number(file, 0, c->n_decode);
    html_ranged(file, c->devices, c->low[0], c->high[0]);
    html_ranged(file, c->ttft_s * 1e3, c->low[1] * 1e3, c->high[1] * 1e3);
    html_ranged(file, c->itl_s * 1e3, c->low[2] * 1e3, c->high[2] * 1e3);
    fprintf(file, "<td>%s</td>", plan_bound_name(c->bound));
    html_number(file, 3, c->dollars_in);
    html_number(file, 3, c->dollars_out);
    html_number(file, 0, c->tps_device);
    html_number(file, 0, c->tps_user);
    html_number(file, 2, c->joules_token);
    fputs("</tr>\n", file);
}

static void html_table(FILE *file, const struct plan_job *job)
{
    fputs(
        "<div class=\"scroll\"><table><tr><th>prefill</th><th>decode</th><th>P</th><th>D</th><th>devices</th>"
        "<th>TTFT ms</th><th>ITL ms</th><th>bound</th><th>$/M in</th><th>$/M out</th><th>tok/s/device</th>"
        "<th>tok/s/user</th><th>J/token</th></tr>\n",
        file);
    for (size_t i = 0; i < job->answer.n && i < HTML_ROWS; i++)
        html_row(file, job, &job->answer.list[i]);
    fputs("</table></div>\n", file);
    for (size_t i = 0; i < job->n_devices; i++)
        if (job->refusals[i].code != 0) {
            fputs("<p>Refused: ", file);
            html_text(file, job->refusals[i].text);
            fputs("</p>\n", file);
        }
}

/* The requests per second that meet the objectives, for each split of the best plan's devices. */
static void html_goodput(FILE *file, const struct plan_job *job)
{
    const struct plan_candidate *c = plan_best(job, false);
    struct svg_point points[256];
    size_t n = 0;

    if (c == NULL)
        return;
    double p = job->pools.list[c->prefill].devices, d = job->pools.list[c->decode].devices;
    double most = floor((c->devices - d) / p), step = fmax(1, ceil(most / 200)), top = 0;
    double low = c->itl_s / c->high[2], high = c->itl_s / c->low[2];
    for (double prefill = 1; prefill <= most && n < 256; prefill += step) {
        double decode = floor((c->devices - prefill * p) / d);
        double goodput = fmin(prefill * c->p.rate, decode * c->d.rate);

        points[n++] = (struct svg_point){prefill, goodput, goodput * low, goodput * high, false};
        top = fmax(top, goodput * high);
    }
    if (n < 2)
        return;
    fprintf(file, "<h2>Goodput against the split of %g devices</h2>\n", c->devices);
    const struct svg_chart chart = {.title = "Goodput against prefill workers",
                                    .x_name = "prefill workers (the other devices decode)",
                                    .y_name = "requests/s",
                                    .x_low = points[0].x,
                                    .x_high = points[n - 1].x,
                                    .y_high = top};
    svg_open(file, &chart);
    svg_band(file, &chart, points, n);
    svg_close(file);
}

/* The cheapest plan at each time between tokens. */
static void html_cost(FILE *file, const struct plan_job *job)
{
    struct svg_point points[SWEEP_STEPS];
    bool is_priced = !isnan(job->answer.list[0].dollars_hour);
    size_t n = 0;
    double top = 0;

    for (int i = 0; i < SWEEP_STEPS; i++) {
        struct plan_work work = job->work;
        struct plan_answer answer;

        work.itl_s *= pow(2, (i - SWEEP_STEPS / 2) / 3.0);
        if (plan_search(job->pools.list, job->pools.n, &work, 1, &answer) != 0)
            continue;
        const struct plan_candidate *c = &answer.list[0];
        double unit =
            is_priced ? c->dollars_hour / (work.rate_per_s * work.osl * 3600) * 1e6 / c->devices : 1;
        points[n++] = (struct svg_point){work.itl_s * 1e3, c->devices * unit, c->low[0] * unit,
                                         (isfinite(c->high[0]) ? c->high[0] : 2 * c->devices) * unit, false};
        top = fmax(top, points[n - 1].high);
        plan_answer_fini(&answer);
    }
    if (n < 2)
        return;
    fputs("<h2>Cost against the objective</h2>\n", file);
    const struct svg_chart chart = {.title = "Cost against the time between tokens",
                                    .x_name = "time between tokens, ms",
                                    .y_name =
                                        is_priced ? "$ per million output tokens, all devices" : "devices",
                                    .x_low = points[0].x,
                                    .x_high = points[n - 1].x,
                                    .y_high = top};
    svg_open(file, &chart);
    svg_band(file, &chart, points, n);
    svg_close(file);
}

static void html_pareto(FILE *file, const struct plan_job *job)
{
    struct svg_chart chart = {.title = "Throughput of a device against speed of a user",
                              .x_name = "tokens/s of a user",
                              .y_name = "tokens/s of a device"};
    size_t n = job->answer.n < 400 ? job->answer.n : 400;

    for (size_t i = 0; i < n; i++) {
        chart.x_high = fmax(chart.x_high, job->answer.list[i].tps_user * 1.1);
        chart.y_high = fmax(chart.y_high, job->answer.list[i].tps_device * 1.3);
    }
    fputs("<h2>Tokens a second: of a device, of a user</h2>\n", file);
    svg_open(file, &chart);
    for (size_t i = n; i-- > 0;) {
        const struct plan_candidate *c = &job->answer.list[i];
        bool has_band = i < job->n_shown && isfinite(c->high[0]);
        struct svg_point point = {.x = c->tps_user,
                                  .y = c->tps_device,
                                  .low = has_band ? c->tps_device * c->devices / c->high[0] : c->tps_device,
                                  .high = has_band ? c->tps_device * c->devices / c->low[0] : c->tps_device,
                                  .is_best = i == 0};
        svg_dot(file, &chart, &point, c->decode == SIZE_MAX ? "one" : "two");
    }
    svg_close(file);
    fputs("<p><svg style=\"width:1em;height:1em\" viewBox=\"0 0 10 10\"><circle class=\"two\" cx=\"5\" "
          "cy=\"5\" "
          "r=\"4\"/></svg> split &nbsp; <svg style=\"width:1em;height:1em\" viewBox=\"0 0 10 10\"><circle "
          "class=\"one\" cx=\"5\" cy=\"5\" r=\"4\"/></svg> aggregated &nbsp; outlined: the first plan; bars: "
          "90&nbsp;% "
          "intervals of the plans in the table</p>\n",
          file);
}

bool plan_html(const struct plan_job *job, const char *path)
{
    FILE *file = fopen(path, "we");
    char verdict[256];

    if (file == NULL) {
        complain(PLAN_NAME, "%s: %s", path, strerror(errno));
        return false;
    }
    html_head(file, job);
    plan_verdict(job, verdict, sizeof(verdict));
    fputs("<p><strong>", file);
    html_text(file, verdict);
    fputs("</strong></p>\n", file);
    html_table(file, job);
    html_goodput(file, job);
    html_cost(file, job);
    html_pareto(file, job);
    fputs("<p>Computed by baton-plan " PACKAGE_VERSION
          "; <code>--explain</code> prints every term.</p>\n</body></html>\n",
          file);
    bool is_good = ferror(file) == 0;
    is_good = fclose(file) == 0 && is_good;
    if (!is_good)
        complain(PLAN_NAME, "%s: cannot write: %s", path, strerror(errno));
    return is_good;
}
