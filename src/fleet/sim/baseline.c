/* SPDX-License-Identifier: Apache-2.0 */
/* Policies to compare the picker with.  Unlike a router, they know the workers' queues and caches exactly and
 * at once, and the true time of a prompt. */
#include "base/err.h"
#include "fleet/sim/sim_priv.h"

#define BALANCE_THRESHOLD 1.3 /* of Mooncake's Algorithm 1 */

double sim_worker_queue_s(const struct sim *sim, const struct sim_worker *worker)
{
    uint32_t at = worker->prompts.head;
    double seconds = 0;

    for (uint32_t i = 0; i < worker->prompts.n; i++, at = sim_job_at(sim, at)->next) {
        const struct sim_job *job = sim_job_at(sim, at);

        seconds += sim_times_prefill_s(worker->times, job->n_given - job->n_left, job->n_left,
                                       sim->opts->batch_tokens);
        if (job->began_ns > 0)
            seconds -= (double)(sim_hosts_now(sim, worker) - worker->run_began_ns) / 1e9;
    }
    return seconds > 0 ? seconds : 0;
}

static double baseline_prefill_s(const struct sim *sim, const struct sim_worker *worker,
                                 const struct sim_job *job, uint32_t n_blocks)
{
    uint64_t cached = (uint64_t)n_blocks * sim->opts->block_tokens;
    uint32_t p = cached < job->n_given ? (uint32_t)cached : job->n_given - 1;

    return sim_times_prefill_s(worker->times, p, job->n_given - p, sim->opts->batch_tokens);
}

struct best {
    double cost;
    uint32_t slot, owner;
};

static void baseline_offer(struct best *best, uint32_t slot, double cost, uint32_t owner)
{
    if (best->slot == PICKER_NONE || cost < best->cost)
        *best = (struct best){cost, slot, owner};
}

/* Least time to the first token; is_global: also with another worker's blocks pushed first. */
static struct best baseline_cached(struct sim *sim, const struct sim_job *job, bool is_global)
{
    struct best best = {.slot = PICKER_NONE};
    uint32_t held[PICKER_MAX_WORKERS], most = 0;

    for (uint32_t i = 0; i < sim->n_workers; i++) {
        held[i] = sim_cache_held(&sim->workers[i], &job->request);
        if (sim->workers[i].role == PICKER_PREFILL && (most == 0 || held[i] > held[most]))
            most = i;
    }
    for (uint32_t i = 0; i < sim->n_workers; i++) {
        const struct sim_worker *worker = &sim->workers[i];
        double queue_s, push_s = 0;

        if (worker->role != PICKER_PREFILL || !worker->is_up)
            continue;
        queue_s = sim_worker_queue_s(sim, worker);
        if (is_global && held[most] > BALANCE_THRESHOLD * held[i] && sim->opts->nic_bytes_per_s > 0)
            push_s = (held[most] - held[i]) * (double)sim->opts->block_tokens *
                     sim->opts->kv_bytes_per_token / sim->opts->nic_bytes_per_s;
        if (push_s > 0)
            baseline_offer(&best, i, push_s + queue_s + baseline_prefill_s(sim, worker, job, held[most]),
                           most);
        else
            baseline_offer(&best, i, queue_s + baseline_prefill_s(sim, worker, job, held[i]), PICKER_NONE);
    }
    return best;
}

static struct best baseline_least(struct sim *sim, enum picker_role role)
{
    struct best best = {.slot = PICKER_NONE};

    for (uint32_t i = 0; i < sim->n_workers; i++)
        if (sim->workers[i].role == role && sim->workers[i].is_up)
            baseline_offer(&best, i, sim->workers[i].n_running, PICKER_NONE);
    return best;
}

/* The n-th prefill worker that is up. */
static struct best baseline_nth(struct sim *sim, uint64_t n)
{
    uint32_t up[PICKER_MAX_WORKERS], n_up = 0;

    for (uint32_t i = 0; i < sim->n_workers; i++)
        if (sim->workers[i].role == PICKER_PREFILL && sim->workers[i].is_up)
            up[n_up++] = i;
    return (struct best){.slot = n_up > 0 ? up[n % n_up] : PICKER_NONE, .owner = PICKER_NONE};
}

int sim_baseline_choose(struct sim *sim, struct sim_job *job, struct picker_choice *out,
                        struct picker_owner *owner_out)
{
    struct best prefill = {.slot = PICKER_NONE}, decode = baseline_least(sim, PICKER_DECODE);

    switch (sim->opts->policy) {
    case SIM_OURS:
        break;
    case SIM_RANDOM:
        prefill = baseline_nth(sim, rng_below(&sim->rng, PICKER_MAX_WORKERS * UINT64_C(3628800)));
        break;
    case SIM_ROUND_ROBIN:
        prefill = baseline_nth(sim, sim->next_slot++);
        break;
    case SIM_LOAD:
        prefill = baseline_least(sim, PICKER_PREFILL);
        break;
    case SIM_CACHE_AWARE:
    case SIM_GLOBAL:
        prefill = baseline_cached(sim, job, sim->opts->policy == SIM_GLOBAL);
        break;
    }
    if (prefill.slot == PICKER_NONE || decode.slot == PICKER_NONE)
        return E_NOT_FOUND;
    *out = (struct picker_choice){.prefill = prefill.slot, .decode = decode.slot};
    owner_out->slot = prefill.owner;
    return 0;
}
