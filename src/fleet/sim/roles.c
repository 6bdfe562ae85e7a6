/* SPDX-License-Identifier: Apache-2.0 */
/* The router's own policy (fleet/picker/roles.h) changes roles with the load.  A worker keeps its cache, its
 * prompts and its sequences.  Only placements after the message use its new role. */
#include "base/clock.h"
#include "fleet/sim/queue_priv.h"

static void roles_book_busy(struct sim *sim, struct sim_worker *worker)
{
    struct sim_result *result = sim->result;
    bool is_prefill = worker->role == PICKER_PREFILL;

    sim_worker_book(sim, worker);
    sim_column_add_time(sim, worker->role_since_ns,
                        is_prefill ? offsetof(struct sim_column, prefill_worker_s)
                                   : offsetof(struct sim_column, decode_worker_s));
    *(is_prefill ? &result->prefill_busy_s : &result->decode_busy_s) += (double)worker->busy_ns / 1e9;
    *(is_prefill ? &result->prefill_worker_s : &result->decode_worker_s) +=
        (double)(sim->now_ns - worker->role_since_ns) / 1e9;
    worker->busy_ns = 0;
    worker->role_since_ns = sim->now_ns;
}

void sim_roles_end(struct sim *sim, struct sim_worker *worker)
{
    roles_book_busy(sim, worker);
}

void sim_roles_row(const struct sim *sim, struct sim_worker *worker)
{
    worker->row.role = worker->role;
    worker->row.decodes_only = sim->opts->decodes_only && worker->role == PICKER_DECODE;
    worker->row.max_seqs = worker->role == PICKER_PREFILL ? 0 : sim->opts->max_seqs;
}

static void sim_roles_flip(struct sim *sim, uint32_t slot, enum picker_role to)
{
    struct sim_worker *worker = &sim->workers[slot];

    roles_book_busy(sim, worker);
    worker->role = to;
    sim_roles_row(sim, worker);
    sim_front_report(sim, slot);
    for (uint32_t i = 0; i < sim->n_routers; i++) /* the report has the role's age */
        picker_roles_changed(&sim->routers[i].roles, sim->now_ns);
    sim->result->n_flips++;
    sim_column(sim)->n_flips++;
    sim_queue_turn(sim);
}

static void roles_decide(struct sim *sim, struct sim_router *router)
{
    const struct sim_opts *opts = sim->opts;
    const struct picker_roles_opts policy = {.ttft_slo_s = (double)opts->ttft_slo_ns / 1e9,
                                             .itl_slo_s = (double)opts->itl_slo_ns / 1e9,
                                             .least = opts->roles_least,
                                             .short_tokens = opts->local_prefill_tokens,
                                             .only_shows = !opts->has_auto_roles,
                                             .period_ns = opts->roles_period_ns};
    struct sim_column *column = sim_column(sim);
    struct picker_roles_plan plan;

    if (sim->now_ns < router->roles_ns)
        return;
    router->roles_ns = sim->now_ns + NS_PER_S;
    picker_roles_decide(&router->roles, &policy, router->fleet, sim->now_ns, &plan);
    column->n_decisions++;
    column->n_prefill += plan.n_prefill;
    if (plan.wanted_decode > 0) {
        column->n_wanted++;
        column->wanted_prefill += plan.wanted_prefill;
        column->wanted_decode += plan.wanted_decode;
    }
    if (plan.flip != PICKER_NONE)
        sim_roles_flip(sim, plan.flip, plan.to);
}

void sim_roles_tick(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->n_routers; i++)
        roles_decide(sim, &sim->routers[i]);
}
