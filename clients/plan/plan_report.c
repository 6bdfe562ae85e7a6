/* SPDX-License-Identifier: Apache-2.0 */
/* Plans as a table, CSV and JSON. */
#include "clients/plan/plan_job.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

const struct plan_candidate *plan_best(const struct plan_job *job, bool is_aggregated)
{
    for (size_t i = 0; i < job->answer.n; i++)
        if ((job->answer.list[i].decode == SIZE_MAX) == is_aggregated)
            return &job->answer.list[i];
    return NULL;
}

static const struct plan_pool *candidate_pool(const struct plan_job *job, size_t i)
{
    return i == SIZE_MAX ? NULL : &job->pools.list[i];
}

static void pool_name(const struct plan_job *job, size_t i, char *out, size_t cap)
{
    const struct plan_pool *pool = candidate_pool(job, i);
    char layout[32];

    if (pool == NULL) {
        snprintf(out, cap, "-");
        return;
    }
    plan_pool_layout(pool, layout, sizeof(layout));
    snprintf(out, cap, "%s %s", pool->cost.setup.device->id, layout);
}

void plan_verdict(const struct plan_job *job, char *out, size_t cap)
{
    const struct plan_candidate *two = plan_best(job, false), *one = plan_best(job, true);

    if (one == NULL) {
        snprintf(out, cap,
                 "Aggregated serving meets the objectives with no number of workers: split the phases.");
        return;
    }
    if (two == NULL) {
        snprintf(out, cap, "Only aggregated serving meets the objectives: do not split the phases.");
        return;
    }
    double ratio = two->devices / one->devices;
    const char *why = two->bound == BOUND_LINK ? "the link between the pools binds"
                      : job->work.osl > job->work.isl * (1 - job->work.hit)
                          ? "outputs are long beside new prompt tokens, so prompts disturb decoding little"
                          : "the two pools leave more capacity idle than prompts cost decoding";
    if (ratio < 0.97)
        snprintf(
            out, cap,
            "Disaggregation pays: %g devices instead of %g, because prompts do not delay running answers.",
            two->devices, one->devices);
    else
        snprintf(out, cap, "Disaggregation does not pay here: %g devices beside %g aggregated, because %s.",
                 two->devices, one->devices, why);
}

static void print_money(double value)
{
    if (isnan(value))
        printf(" %8s", "-");
    else
        printf(" %8.3f", value);
}

static void plan_report_print_row(const struct plan_job *job, const struct plan_candidate *c)
{
    char p[96], d[96];

    pool_name(job, c->prefill, p, sizeof(p));
    pool_name(job, c->decode, d, sizeof(d));
    printf("%-22s %-22s %5g %5g %6g %5g-%-6g %6.0f %5.0f-%-6.0f %6.1f %5.1f-%-6.1f %5.2f %5.2f %-6s", p,
           c->decode == SIZE_MAX ? "(aggregated)" : d, c->n_prefill, c->n_decode, c->devices, c->low[0],
           c->high[0], c->ttft_s * 1e3, c->low[1] * 1e3, c->high[1] * 1e3, c->itl_s * 1e3, c->low[2] * 1e3,
           c->high[2] * 1e3, c->p.load, c->d.load, plan_bound_name(c->bound));
    print_money(c->dollars_in);
    print_money(c->dollars_out);
    printf(" %8.1f %7.1f", c->tps_device, c->tps_user);
    print_money(c->joules_token);
    putchar('\n');
}

void plan_report_table(const struct plan_job *job)
{
    const struct plan_work *w = &job->work;
    char text[256];

    printf("%s, weights %s, KV %s; %g requests/s of %g tokens in (%.0f %% cached), %g out; TTFT %g s "
           "at p%g, ITL %g ms at p%g\n",
           job->model.name, job->weights, job->kv, w->rate_per_s, w->isl, w->hit * 100, w->osl, w->ttft_s,
           w->ttft_percentile * 100, w->itl_s * 1e3, w->itl_percentile * 100);
    printf("constants %s: held-out error TPOT %.0f %%, TTFT %.0f %%; ranges are 90 %% intervals; %zu "
           "candidates\n\n",
           job->constants.name, job->constants.held_out[PLAN_TPOT] * 100,
           job->constants.held_out[PLAN_TTFT] * 100, job->answer.n_tried);
    printf("%-22s %-22s %5s %5s %6s %-12s %6s %-12s %6s %-12s %5s %5s %-6s %8s %8s %8s %7s %8s\n", "prefill",
           "decode", "P", "D", "device", "   (90 %)", "TTFT", "   ms", "ITL", "   ms", "P use", "D use",
           "bound", "$/M in", "$/M out", "tok/s/d", "tok/s/u", "J/token");
    for (size_t i = 0; i < job->answer.n && i < job->n_shown; i++)
        plan_report_print_row(job, &job->answer.list[i]);
    const struct plan_candidate *one = plan_best(job, true), *two = plan_best(job, false);
    if (one != NULL && (size_t)(one - job->answer.list) >= job->n_shown)
        plan_report_print_row(job, one);
    if (two != NULL && (size_t)(two - job->answer.list) >= job->n_shown)
        plan_report_print_row(job, two);
    plan_verdict(job, text, sizeof(text));
    printf("\n%s\n", text);
    if (two != NULL)
        printf("Continuous ratio of the best split: %.1f : %.1f workers.\n", two->p.workers, two->d.workers);
}

/* ---- CSV and JSON: the same columns ---- */

static const char *const COLUMNS[] = {
    "prefill_workers", "decode_workers",   "devices",           "devices_low",
    "devices_high",    "ttft_ms",          "ttft_low_ms",       "ttft_high_ms",
    "itl_ms",          "itl_low_ms",       "itl_high_ms",       "prefill_load",
    "decode_load",     "link_load",        "transfer_ms",       "prefill_ms",
    "decode_batch",    "dollars_per_m_in", "dollars_per_m_out", "dollars_per_hour",
    "tokens_s_device", "tokens_s_user",    "joules_per_token",  "watts",
    "prefill_exact",   "decode_exact",
};
#define N_COLUMNS (sizeof(COLUMNS) / sizeof(COLUMNS[0]))

static void candidate_numbers(const struct plan_candidate *c, double out[N_COLUMNS])
{
    const double numbers[N_COLUMNS] = {
        c->n_prefill,        c->n_decode,
        c->devices,          c->low[0],
        c->high[0],          c->ttft_s * 1e3,
        c->low[1] * 1e3,     c->high[1] * 1e3,
        c->itl_s * 1e3,      c->low[2] * 1e3,
        c->high[2] * 1e3,    c->p.load,
        c->d.load,           c->link_load,
        c->transfer_s * 1e3, c->p.time_s * 1e3,
        c->d.batch,          c->dollars_in,
        c->dollars_out,      c->dollars_hour,
        c->tps_device,       c->tps_user,
        c->joules_token,     c->watts,
        c->p.workers,        c->decode == SIZE_MAX ? 0 : c->d.workers,
    };

    memcpy(out, numbers, sizeof(numbers));
}

void plan_report_csv(const struct plan_job *job)
{
    printf("mode,prefill,decode,bound");
    for (size_t i = 0; i < N_COLUMNS; i++)
        printf(",%s", COLUMNS[i]);
    putchar('\n');
    for (size_t i = 0; i < job->answer.n && i < job->n_shown; i++) {
        const struct plan_candidate *c = &job->answer.list[i];
        double numbers[N_COLUMNS];
        char p[96], d[96];

        pool_name(job, c->prefill, p, sizeof(p));
        pool_name(job, c->decode, d, sizeof(d));
        printf("%s,%s,%s,%s", c->decode == SIZE_MAX ? "aggregated" : "disaggregated", p, d,
               plan_bound_name(c->bound));
        candidate_numbers(c, numbers);
        for (size_t n = 0; n < N_COLUMNS; n++)
            if (isfinite(numbers[n]))
                printf(",%.6g", numbers[n]);
            else
                putchar(',');
        putchar('\n');
    }
}

static json_t *json_candidate(const struct plan_job *job, const struct plan_candidate *c)
{
    double numbers[N_COLUMNS];
    char p[96], d[96];

    pool_name(job, c->prefill, p, sizeof(p));
    pool_name(job, c->decode, d, sizeof(d));
    json_t *out =
        json_pack("{s:s, s:s, s:s, s:s}", "mode", c->decode == SIZE_MAX ? "aggregated" : "disaggregated",
                  "prefill", p, "decode", d, "bound", plan_bound_name(c->bound));
    candidate_numbers(c, numbers);
    for (size_t n = 0; n < N_COLUMNS; n++)
        json_object_set_new(out, COLUMNS[n], isfinite(numbers[n]) ? json_real(numbers[n]) : json_null());
    return out;
}

void plan_report_json(const struct plan_job *job)
{
    const struct plan_work *w = &job->work;
    const struct plan_candidate *best[2] = {plan_best(job, false), plan_best(job, true)};
    char verdict[256];
    json_t *root = json_object(), *list = json_array(), *refused = json_array();

    plan_verdict(job, verdict, sizeof(verdict));
    json_object_set_new(root, "model", json_string(job->model.name));
    json_object_set_new(root, "constants", json_string(job->constants.name));
    json_object_set_new(root, "work",
                        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "isl", w->isl, "osl", w->osl,
                                  "hit", w->hit, "rate", w->rate_per_s, "ttft_s", w->ttft_s, "itl_s",
                                  w->itl_s, "ttft_percentile", w->ttft_percentile, "itl_percentile",
                                  w->itl_percentile));
    json_object_set_new(root, "verdict", json_string(verdict));
    json_object_set_new(root, "candidates_tried", json_integer((json_int_t)job->answer.n_tried));
    for (size_t i = 0; i < job->answer.n && i < job->n_shown; i++)
        json_array_append_new(list, json_candidate(job, &job->answer.list[i]));
    for (size_t i = 0; i < job->n_devices; i++)
        if (job->refusals[i].code != 0)
            json_array_append_new(refused, json_pack("{s:s, s:s}", "device", job->devices[i].id, "reason",
                                                     job->refusals[i].text));
    json_object_set_new(root, "plans", list);
    json_object_set_new(root, "best_disaggregated",
                        best[0] == NULL ? json_null() : json_candidate(job, best[0]));
    json_object_set_new(root, "best_aggregated",
                        best[1] == NULL ? json_null() : json_candidate(job, best[1]));
    json_object_set_new(root, "refused", refused);
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(root);
}
