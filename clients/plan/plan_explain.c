/* SPDX-License-Identifier: Apache-2.0 */
/* baton-plan plan --explain: the terms of the best plan, with the numbers that go into them. */
#include "clients/plan/plan_job.h"

#include <math.h>
#include <stdio.h>

static void explain_device(const struct plan_cost *cost)
{
    const struct plan_device *d = cost->setup.device;

    for (int f = 0; f < DEV_N_FIELDS; f++) {
        char text[24];

        if (isnan(d->at[f]))
            continue;
        plan_cli_si(d->at[f], "", text, sizeof(text));
        printf("    %-18s %10s  %s\n", plan_device_field_name((enum plan_device_field)f), text,
               d->sources[f] == NULL ? "the command line" : d->sources[f]);
    }
}

static void explain_terms(const struct plan_terms *terms)
{
    for (int i = 0; i < TERM_N; i++)
        if (terms->s[i] > 0)
            printf("    %-28s %10.3f ms  %5.1f %%\n", plan_term_name((enum plan_term)i), terms->s[i] * 1e3,
                   100 * terms->s[i] / terms->total_s);
    printf("    %-28s %10.3f ms\n", "together", terms->total_s * 1e3);
}

static void explain_pool(const struct plan_pool *pool, const char *role)
{
    const struct plan_cost *cost = &pool->cost;
    char layout[32];

    plan_pool_layout(pool, layout, sizeof(layout));
    printf("\n%s worker: %s %s, %g devices\n", role, cost->setup.device->id, layout, pool->devices);
    explain_device(cost);
    printf("    weights a device   %10.3f GB of %.3f GB\n", cost->weight_bytes / 1e9,
           cost->memory_bytes / 1e9);
    printf("    KV a token         %10.0f bytes a device\n", cost->kv_bytes_token);
    printf("    rates used         %.4g FLOPS (projections), %.4g FLOPS (attention), %.4g B/s (memory)\n",
           cost->peak_main, cost->peak_attention, cost->memory_rate);
    if (cost->setup.factor != 1)
        printf("    factor of what is known of engine, model and device: %.3f\n", cost->setup.factor);
}

static void explain_prefill(const struct plan_job *job, const struct plan_candidate *c)
{
    const struct plan_work *w = &job->work;
    const struct plan_pool *pool = &job->pools.list[c->prefill];
    double new_tokens = fmax(1, w->isl * (1 - w->hit)), cached = w->isl - new_tokens;
    struct plan_load load = {
        .new_tokens = new_tokens, .attention = new_tokens * (cached + new_tokens / 2), .n_finished = 1};
    struct plan_terms terms;

    explain_pool(pool, "Prefill");
    printf("  a prompt: n = %.0f new on p = %.0f cached tokens, S = n (p + n / 2) = %.4g\n", new_tokens,
           cached, load.attention);
    plan_cost_step(&pool->cost, &load, &terms);
    explain_terms(&terms);
    printf("  queue: load %.3f, E[t] %.1f ms, E[t^2] %.4g s^2, wait at p%g %.1f ms, longer prompts %.1f ms\n",
           c->p.load, c->p.time_s * 1e3, c->p.second, w->ttft_percentile * 100, c->p.wait_s * 1e3,
           c->p.spread_s * 1e3);
    printf("  workers: %.4g requests/s / %.4g a worker = %.2f\n", w->rate_per_s, c->p.rate, c->p.workers);
    double kv = plan_cost_kv_bytes(&pool->cost, w->isl);
    printf("  transfer: %.4g MB a prompt, %.1f ms beside computing%s; link at %.2f of what it carries\n",
           kv / 1e6, c->transfer_s * 1e3, w->is_layerwise ? " (layer by layer)" : "", c->link_load);
    /* Reuse or recompute: the time to fetch the cached part against the time to compute it. */
    double host = pool->cost.setup.device->at[DEV_HOST_RATE] * pool->devices, back = kv * w->hit / host;
    double again = plan_cost_prefill(&pool->cost, w->isl, 0) - terms.total_s;
    if (w->hit > 0 && !isnan(host))
        printf("  tiers: the cached part from host memory takes %.1f ms, computing it %.1f ms: %s\n",
               back * 1e3, again * 1e3, back < again ? "reuse" : "recompute");
}

static void explain_decode(const struct plan_job *job, const struct plan_candidate *c)
{
    const struct plan_work *w = &job->work;
    const struct plan_pool *pool = &job->pools.list[c->decode];
    double lanes = pool->lanes * pool->cost.setup.pp;
    struct plan_load load = {.batch = c->d.batch / lanes, .context = w->isl + plan_work_held_answer(w) / 2};
    struct plan_terms terms;

    explain_pool(pool, "Decode");
    printf("  a step: B = %.1f sequences%s of C = %.0f tokens; memory has room for %.1f\n", load.batch,
           lanes > 1 ? " in each part" : "", load.context,
           plan_cost_room(&pool->cost, w->isl + plan_work_held_answer(w), w->reserve));
    plan_cost_step(&pool->cost, &load, &terms);
    explain_terms(&terms);
    printf("  workers: %.4g requests/s / (%.1f slots / (%g steps x %.2f ms + %.0f ms before them)) = %.2f; "
           "bound: %s\n",
           w->rate_per_s, c->d.slots, w->osl, c->d.time_s * 1e3, c->d.held_s * 1e3, c->d.workers,
           plan_bound_name(c->d.bound));
}

void plan_explain(const struct plan_job *job)
{
    const struct plan_candidate *c = &job->answer.list[0];

    printf("\nThe first plan, term by term\n");
    if (c->decode == SIZE_MAX) {
        explain_pool(&job->pools.list[c->prefill], "Aggregated");
        printf("  TPOT = t_decode + (B - 1) / OSL x mix x (t_mixed - t_decode) = %.2f ms at B = %.1f\n",
               c->itl_s * 1e3, c->d.batch);
        printf("  workers: %.2f; bound: %s\n", c->d.workers, plan_bound_name(c->bound));
    } else {
        explain_prefill(job, c);
        explain_decode(job, c);
    }
    const struct plan_constants *k = job->pools.list[c->prefill].cost.setup.constants;
    printf("\nconstants %s (%s)\n", k->name, k->source);
    for (int i = 0; i < PC_N; i++)
        printf("    %-14s %10.4g  %s\n", plan_constant_name((enum plan_constant)i), k->at[i],
               plan_constant_text((enum plan_constant)i));
}
