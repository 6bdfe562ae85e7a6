/* SPDX-License-Identifier: Apache-2.0 */
/* Several routers over the same workers.  Each has its own fleet, index, queue and ledger; requests come to them in
 * turn.  The routers learn of each other's work from the workers: of load with the next report, of cached blocks
 * with block events, which come at once.  Ten times a second each tells the others its margins and the service of its
 * tenants, as fleet/router/state.c does. */
#include "base/clock.h"
#include "base/err.h"
#include "fleet/picker/turn.h"
#include "fleet/sim/queue_priv.h"

#define SHARE_EACH_NS (100 * NS_PER_MS)
#define INDEX_LIFE_NS (24 * UINT64_C(3600) * 1000000000)

int sim_routers_open(struct sim *sim)
{
    int rc = 0;

    sim->n_routers = sim->opts->n_routers > 0 ? sim->opts->n_routers : 1;
    for (uint32_t i = 0; rc == 0 && i < sim->n_routers; i++) {
        struct sim_router *router = &sim->routers[i];

        rc = picker_fleet_new((uint32_t)sim->opts->seed + i, &router->fleet);
        if (rc == 0)
            rc = picker_index_new(sim->opts->index_entries, INDEX_LIFE_NS, &router->index);
        for (uint32_t at = 0; rc == 0 && at < sim->classes.n; at++) {
            rc = fair_new(SIM_MAX_DEBTORS, &router->turns[at]);
            if (rc == 0)
                fair_set_credit(router->turns[at], PICKER_TURN_CREDIT);
        }
        sim_pause_open(router);
    }
    return rc;
}

void sim_routers_close(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->n_routers; i++) {
        for (uint32_t at = 0; at < sim->classes.n; at++)
            fair_free(sim->routers[i].turns[at]);
        sim_deadlines_fini(&sim->routers[i].deadlines);
        picker_index_free(sim->routers[i].index);
        picker_fleet_free(sim->routers[i].fleet);
    }
}

int sim_routers_report(struct sim *sim, uint32_t slot)
{
    int rc = 0;

    for (uint32_t i = 0; i < sim->n_routers && rc == 0; i++)
        rc = picker_fleet_set(sim->routers[i].fleet, slot, &sim->workers[slot].row);
    return rc;
}

/* A worker that takes a prompt from one router reports to the others at once (worker/loop/notices.c). */
void sim_routers_placed(struct sim *sim, const struct sim_job *job)
{
    uint64_t at_ns = sim->now_ns + sim->opts->report_delay_ns + sim->opts->latency_ns + LOAD_NOTICE_NS;

    if (sim->n_routers < 2)
        return;
    sim_add(sim, SIM_REPORT, at_ns, job->decode, 1);
    if (job->prefill != SIM_NONE)
        sim_add(sim, SIM_REPORT, at_ns, job->prefill, 1);
}

struct sim_router *sim_routers_next(struct sim *sim, const struct sim_request *request)
{
    uint32_t own = request->routers & ((1u << sim->n_routers) - 1), at;

    if (own == 0)
        return &sim->routers[sim->next_router++ % sim->n_routers];
    at = sim->n_of_kind[request->kind]++ % (uint32_t)__builtin_popcount(own);
    while (at-- > 0)
        own &= own - 1;
    return &sim->routers[__builtin_ctz(own)];
}

/* ---- margins and service of other routers ---- */

static struct picker_served_key routers_key(const struct sim_job *job)
{
    return (struct picker_served_key){.class_of = job->class_at, .tenant = job->request.tenant};
}

void sim_routers_served(struct sim *sim, const struct sim_job *job, uint32_t n_tokens)
{
    const struct picker_served_key key = routers_key(job);
    uint32_t weight = sim_job_class(sim, job)->weight;

    if (sim->n_routers < 2)
        return;
    picker_served_note(&job->router->served, &key, n_tokens, weight);
    picker_service_add(&job->router->service, &key, picker_served_milli(n_tokens, weight), sim->now_ns);
}

void sim_routers_service(const struct sim *sim, const struct sim_job *job, struct picker_service_view *out)
{
    const struct picker_served_key key = routers_key(job);

    picker_service_view(&job->router->service, &key, sim->now_ns, out);
}

/* The routers' ticks are spread over the time between two of one router. */
void sim_routers_share_begin(struct sim *sim)
{
    if (sim->n_routers < 2 || sim->is_sharing)
        return;
    sim->is_sharing = true;
    sim_add(sim, SIM_SHARE, sim->now_ns + SHARE_EACH_NS / sim->n_routers, 0, 0);
}

static void routers_publish(const struct sim *sim, const struct sim_router *from, struct sim_router *to)
{
    for (uint32_t i = 0; i < from->served.n; i++) {
        const struct picker_served_row *row = &from->served.rows[i];

        picker_served_charge(to->turns[row->key.class_of], row->key.tenant, row->n_milli);
        picker_service_add(&to->service, &row->key, row->n_milli, sim->now_ns);
    }
    if (from->late.n_seen + from->itl_late.n_seen == from->n_margins_sent)
        return;
    to->itl_late.least = PICKER_ITL_LEAST;
    picker_lateness_join(&to->late, from->late.moved);
    picker_lateness_join(&to->itl_late, from->itl_late.moved);
    picker_lateness_approach(&to->late, picker_lateness_margin(&from->late));
    picker_lateness_approach(&to->itl_late, picker_lateness_margin(&from->itl_late));
}

void sim_routers_share(struct sim *sim, uint32_t at)
{
    struct sim_router *from = &sim->routers[at];

    for (uint32_t i = 0; i < sim->n_routers; i++)
        if (i != at)
            routers_publish(sim, from, &sim->routers[i]);
    from->n_margins_sent = from->late.n_seen + from->itl_late.n_seen;
    picker_lateness_take(&from->late);
    picker_lateness_take(&from->itl_late);
    from->served.n = 0;
    sim->is_sharing = sim->n_under_way > 0;
    if (sim->is_sharing)
        sim_add(sim, SIM_SHARE, sim->now_ns + SHARE_EACH_NS / sim->n_routers, (at + 1) % sim->n_routers, 0);
}

/* ---- block events ---- */

void sim_routers_stored(struct sim *sim, uint32_t slot, const struct sim_request *request)
{
    if (sim->n_routers < 2) /* the one router has learned them at the placement */
        return;
    for (uint32_t block = 0; block < request->n_blocks; block++) {
        struct block_hash hash = sim_block_hash(sim_block_id(request, block));

        for (uint32_t i = 0; i < sim->n_routers; i++)
            picker_index_learn(sim->routers[i].index, slot, &hash, 1, sim->now_ns);
    }
}

void sim_routers_evicted(struct sim *sim, uint32_t slot, const struct block_hash *hashes, size_t n)
{
    for (uint32_t i = 0; i < sim->n_routers; i++)
        picker_index_unlearn(sim->routers[i].index, slot, hashes, 0, n);
}

void sim_routers_moved(struct sim *sim, uint32_t slot, const struct block_hash *hashes, size_t n)
{
    for (uint32_t i = 0; i < sim->n_routers; i++)
        picker_index_learn_on_disk(sim->routers[i].index, slot, hashes, n, sim->now_ns);
}

void sim_routers_forget(struct sim *sim, uint32_t slot)
{
    for (uint32_t i = 0; i < sim->n_routers; i++)
        picker_index_forget(sim->routers[i].index, slot);
}
