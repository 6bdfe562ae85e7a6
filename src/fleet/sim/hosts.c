/* SPDX-License-Identifier: Apache-2.0 */
/* The cores of a host, shared by the workers that stand on it.
 *
 * A busy worker wants one core, and a part of another for what its tokens cost outside of the step: messages, the router,
 * the client.  A new request wants one for what it costs before its prompt.  If the cores do not suffice, all busy workers get the same part of what they want.  This changes when a run
 * begins or ends.
 *
 *    clock   |----full speed----|--------two thirds: 3 on 2 cores--------|--full speed--|
 *    host    |------------------|--------------------------|--------------|
 *
 * A long step sees that mean.  A short one meets the time slices of the operating system: most steps run through, and
 * some wait while another has the core: as long as the others want for each slice of computing, but not less than half a
 * slice, for the core comes back with a tick of the clock.  These are means of an exponential distribution.  Waits are so
 * many that the mean of the gaps between tokens is the same.  All this also holds where steps have all cores and tokens want
 * more.
 *
 * Where several cores compute, each is slower by sim_opts.core_drag, since they share caches and memory.
 *
 * Steps also vary for reasons that are not modelled (sim_opts.step_noise): the time of each is drawn, with or without hosts. */
#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "fleet/sim/queue_priv.h"

#define CORE        UINT64_C(1000000) /* of demand */
#define MOST_DEMAND (1000 * CORE)
#define TWO_PI      6.283185307179586
#define LEAST_WAIT  0.5 /* slices, on average */
#define MANY_WAITS  16  /* more in a step together have about their mean */

/* What busy workers want of each core; 1: what there is, or less. */
static double hosts_busy(const struct sim *sim, uint64_t demand)
{
    return fmax(1, (double)demand / (double)(sim->opts->host_cores * CORE));
}

/* By how much the cores slow each other with so many busy workers; 1: not at all. */
static double hosts_drag(const struct sim *sim, uint32_t n_busy)
{
    uint32_t n_cores = sim->opts->host_cores, n = n_busy < n_cores ? n_busy : n_cores;

    return n > 1 ? 1 + sim->opts->core_drag * (n - 1) / (n_cores - 1) : 1;
}

static double host_speed(const struct sim *sim, const struct sim_host *host)
{
    return 1 / (hosts_busy(sim, host->demand) * hosts_drag(sim, host->n_busy));
}

static double host_now(const struct sim *sim, const struct sim_host *host)
{
    return host->at_ns + (double)(sim->now_ns - host->since_ns) * host_speed(sim, host);
}

static struct sim_host *hosts_at(const struct sim *sim, const struct sim_worker *worker)
{
    return &sim->hosts[sim_hosts_of(sim, worker->slot)];
}

int sim_hosts_open(struct sim *sim)
{
    uint32_t each = sim->opts->host_workers > 0 ? sim->opts->host_workers : sim->n_workers;

    if (sim->opts->host_cores == 0)
        return 0;
    sim->n_hosts = (sim->n_workers + each - 1) / each;
    sim->hosts = calloc(sim->n_hosts, sizeof(*sim->hosts));
    return sim->hosts != NULL ? 0 : E_NOMEM;
}

void sim_hosts_close(struct sim *sim)
{
    for (uint32_t i = 0; sim->hosts != NULL && i < sim->n_hosts; i++)
        sim_agenda_fini(&sim->hosts[i].ends);
    free(sim->hosts);
}

/* Workers are dealt out, so that each host gets some of each role. */
uint32_t sim_hosts_of(const struct sim *sim, uint32_t slot)
{
    return sim->hosts != NULL ? slot % sim->n_hosts : slot;
}

uint64_t sim_hosts_now(const struct sim *sim, const struct sim_worker *worker)
{
    return sim->hosts != NULL ? (uint64_t)host_now(sim, hosts_at(sim, worker)) : sim->now_ns;
}

double sim_hosts_stretch(const struct sim *sim, const struct sim_worker *worker)
{
    const struct sim_host *host = sim->hosts != NULL ? hosts_at(sim, worker) : NULL;

    return host != NULL ? hosts_busy(sim, host->demand + CORE) * hosts_drag(sim, host->n_busy + 1) : 1;
}

double sim_hosts_noise(struct sim *sim, double n_steps)
{
    double cv = sim->opts->step_noise, log_variance, normal;

    if (cv <= 0)
        return 1;
    log_variance = log1p(cv * cv / n_steps);
    normal = sqrt(-2 * log(1 - rng_unit(&sim->rng))) * cos(TWO_PI * rng_unit(&sim->rng)); /* Box and Muller */
    return exp(sqrt(log_variance) * normal - log_variance / 2);
}

/* ---- gaps between tokens ---- */

struct gaps { /* equal ones, of each decoding sequence */
    uint32_t n;
    double gap_ns;
    double step_ns; /* on an idle host */
    double busy;    /* wanted of each core; 1: no step fills the last one */
};

/* Steps end so long after those before: a gap of each sequence but n_fresh of each class. */
static void hosts_add_steps(struct sim *sim, const struct sim_worker *worker, uint64_t n_steps, double ns,
                            const uint32_t *n_fresh)
{
    for (unsigned i = 0; i < SIM_MAX_CLASSES; i++)
        sim_hist_add(&sim->result->classes[i].itl, (uint64_t)ns,
                     (worker->n_by_kind[i] - n_fresh[i]) * n_steps);
}

/* So many waits for others, together. */
static double hosts_waits(struct sim *sim, uint64_t n_waits, double mean_ns)
{
    double ns = 0;

    if (n_waits > MANY_WAITS)
        return (double)n_waits * mean_ns;
    for (uint64_t i = 0; i < n_waits; i++)
        ns -= mean_ns * log(1 - rng_unit(&sim->rng));
    return ns;
}

/* The whole ones of what has come together, with some more. */
static uint64_t hosts_take(double *sum, double more)
{
    uint64_t n = (uint64_t)(*sum += more);

    *sum -= (double)n;
    return n;
}

/* The gap between two tokens at the client, whose steps end so far apart.  A token that waits for a core on its way is late;
 * those that follow it come with it. */
static double hosts_deliver(struct sim *sim, struct sim_worker *worker, double ns, double busy)
{
    struct sim_host_run *run = &worker->host;
    double before_ns = run->late_ns, slice_ns = (double)sim->opts->slice_ns;

    run->late_ns = fmax(before_ns - ns, 0);
    if (busy > 1)
        run->late_ns +=
            hosts_waits(sim, hosts_take(&run->delays, (busy - 1) * ns / slice_ns), LEAST_WAIT * slice_ns);
    return ns + run->late_ns - before_ns;
}

/* Adds them for all sequences but n_fresh of each class. */
static void hosts_add_gaps(struct sim *sim, struct sim_worker *worker, const struct gaps *gaps,
                           const uint32_t *n_fresh)
{
    bool has_waits = gaps->busy > 1 && sim->opts->slice_ns > 0;
    double runs_ns =
        has_waits ? fmin(fmax(gaps->gap_ns / gaps->busy, gaps->step_ns), gaps->gap_ns) : gaps->gap_ns;
    double wait_ns = (double)sim->opts->slice_ns * fmax(LEAST_WAIT, gaps->busy - 1);
    double n_waits = has_waits ? (gaps->gap_ns - runs_ns) / wait_ns : 0;
    bool is_drawn =
        sim->opts->step_noise <= 0 || worker->run_steps == 1; /* the time of one step is drawn already */

    if (!has_waits && is_drawn && worker->host.late_ns == 0) {
        hosts_add_steps(sim, worker, gaps->n, runs_ns, n_fresh);
        return;
    }
    for (uint32_t i = 0; i < gaps->n; i++) {
        double ns = is_drawn ? runs_ns : runs_ns * sim_hosts_noise(sim, 1);

        ns += hosts_waits(sim, hosts_take(&worker->host.waits, n_waits), wait_ns);
        ns = hosts_deliver(sim, worker, ns, has_waits ? gaps->busy : 1);
        hosts_add_steps(sim, worker, 1, ns, n_fresh);
    }
}

void sim_hosts_count_run(struct sim *sim, struct sim_worker *worker, double step_ns)
{
    uint64_t first_end_ns = worker->run_began_ns + (uint64_t)(sim_worker_run_s(worker, 1) * 1e9);
    struct gaps gaps = {.n = 1, .gap_ns = step_ns, .step_ns = step_ns, .busy = 1};
    uint32_t n_fresh[SIM_MAX_CLASSES] = {0};

    sim_hosts_count_fresh(sim, worker, first_end_ns, n_fresh);
    hosts_add_gaps(sim, worker, &gaps, n_fresh);
    gaps.n = worker->run_steps - 1;
    hosts_add_gaps(sim, worker, &gaps, (const uint32_t[SIM_MAX_CLASSES]){0});
}

void sim_hosts_count_fresh(struct sim *sim, struct sim_worker *worker, uint64_t end_ns, uint32_t *n_fresh)
{
    for (uint32_t i = 0; i < worker->n_fresh; i++) {
        const struct sim_job *job = sim_job_at(sim, worker->fresh[i]);

        n_fresh[job->request.kind]++;
        sim_hist_add(&sim->result->classes[job->request.kind].itl,
                     end_ns > job->latest_ns ? end_ns - job->latest_ns : 0, 1);
    }
    worker->n_fresh = 0;
}

/* When the run's n-th step ended, by the clock, if the host's speed has not changed since. */
static double hosts_step_end_ns(const struct sim *sim, const struct sim_host *host,
                                const struct sim_worker *worker, uint32_t n)
{
    double past_ns = host_now(sim, host) - (double)worker->run_began_ns - sim_worker_run_s(worker, n) * 1e9;

    if (past_ns < 0 || n == worker->run_steps) /* the last step may have packed prompts */
        past_ns = 0;
    return fmax((double)sim->now_ns - past_ns / host_speed(sim, host), (double)worker->host.counted_ns);
}

/* Counts the gaps of the run's steps up to the n-th.  Since the latest count the host's speed has not changed. */
static void hosts_count(struct sim *sim, const struct sim_host *host, struct sim_worker *worker, uint32_t n)
{
    struct sim_host_run *run = &worker->host;
    uint32_t first = run->n_counted + 1;
    struct gaps gaps = {.n = 1,
                        .busy = host->n_busy < sim->opts->host_cores ? 1 : hosts_busy(sim, host->demand)};
    uint32_t n_fresh[SIM_MAX_CLASSES] = {0};
    double first_ns, last_ns, first_s;

    if (n < first || worker->run_rows == 0)
        return;
    first_s = sim_worker_run_s(worker, first);
    first_ns = hosts_step_end_ns(sim, host, worker, first);
    last_ns = hosts_step_end_ns(sim, host, worker, n);
    if (first == 1)
        sim_hosts_count_fresh(sim, worker, (uint64_t)first_ns, n_fresh);
    gaps.gap_ns = first_ns - (double)run->counted_ns;
    gaps.step_ns = (first_s - sim_worker_run_s(worker, first - 1)) * 1e9;
    hosts_add_gaps(sim, worker, &gaps, n_fresh);
    if (n > first) {
        gaps.n = n - first;
        gaps.gap_ns = (last_ns - first_ns) / gaps.n;
        gaps.step_ns = (sim_worker_run_s(worker, n) - first_s) * 1e9 / gaps.n;
        hosts_add_gaps(sim, worker, &gaps, (const uint32_t[SIM_MAX_CLASSES]){0});
    }
    run->n_counted = n;
    run->counted_ns = (uint64_t)last_ns;
}

/* ---- the host's speed ---- */

/* The demand changes now: what happened before had the old speed. */
static void hosts_pass(struct sim *sim, struct sim_host *host, uint64_t demand)
{
    bool is_slowed =
        sim->opts->core_drag > 0 || hosts_busy(sim, host->demand > demand ? host->demand : demand) > 1;
    uint64_t n;

    if (sim->now_ns > host->since_ns && is_slowed)
        for (uint32_t slot = (uint32_t)(host - sim->hosts); slot < sim->n_workers; slot += sim->n_hosts) {
            struct sim_worker *worker = &sim->workers[slot];

            if (!worker->is_busy || worker->run_rows == 0 || worker->host.demand == 0)
                continue;
            n = sim_worker_steps_now(sim, worker) - worker->n_steps;
            if (n == worker->run_steps && worker->run_pack_s > 0)
                n--; /* the last step still computes packed prompts */
            hosts_count(sim, host, worker, (uint32_t)n);
        }
    host->at_ns = host_now(sim, host);
    host->since_ns = sim->now_ns;
}

static void hosts_arm(struct sim *sim, struct sim_host *host)
{
    struct sim_agenda *ends = &host->ends;
    uint64_t next_ns = sim->now_ns;
    double left_ns;

    while (ends->n > 0 && sim->workers[ends->heap[0].what].stamp != ends->heap[0].stamp)
        sim_agenda_take(ends);
    if (ends->n == 0) {
        host->stamp += host->is_armed;
        host->is_armed = false;
        return;
    }
    left_ns = (double)ends->heap[0].at_ns - host_now(sim, host);
    if (left_ns > 0)
        next_ns += (uint64_t)ceil(left_ns / host_speed(sim, host));
    if (host->is_armed && host->next_ns == next_ns)
        return;
    host->next_ns = next_ns;
    host->is_armed = true;
    sim_add(sim, SIM_HOST, next_ns, (uint32_t)(host - sim->hosts), ++host->stamp);
}

void sim_hosts_begin(struct sim *sim, struct sim_worker *worker)
{
    struct sim_host_run *run = &worker->host;
    double part =
        worker->run_rows * (double)sim->opts->token_cpu_ns / (sim_worker_run_s(worker, 1) * 1e9 + 1);
    struct sim_host *host;

    run->began_ns = run->counted_ns = sim->now_ns;
    run->n_counted = 0;
    if (sim->hosts == NULL)
        return;
    host = hosts_at(sim, worker);
    run->demand = CORE + (uint64_t)fmin(part * (double)CORE, (double)MOST_DEMAND);
    hosts_pass(sim, host, host->demand + run->demand);
    host->demand += run->demand;
    host->n_busy++;
}

static void hosts_want(struct sim *sim, uint32_t i, uint64_t demand)
{
    hosts_pass(sim, &sim->hosts[i], demand);
    sim->hosts[i].demand = demand;
    hosts_arm(sim, &sim->hosts[i]);
}

void sim_hosts_request(struct sim *sim)
{
    uint32_t i;

    if (sim->hosts == NULL || sim->opts->request_cpu_ns == 0)
        return;
    i = (uint32_t)(sim->n_arrivals % sim->n_hosts);
    hosts_want(sim, i, sim->hosts[i].demand + CORE);
    sim_add(sim, SIM_CORE, sim->now_ns + sim->opts->request_cpu_ns, i, 0);
}

void sim_hosts_request_done(struct sim *sim, uint32_t host)
{
    hosts_want(sim, host, sim->hosts[host].demand - CORE);
}

void sim_hosts_set_end(struct sim *sim, const struct sim_worker *worker, uint64_t end_ns)
{
    struct sim_event end = {.at_ns = end_ns, .what = worker->slot, .stamp = worker->stamp};

    if (sim->hosts == NULL) {
        sim_add(sim, SIM_STEPS, end_ns, worker->slot, worker->stamp);
        return;
    }
    if (sim_agenda_add(&hosts_at(sim, worker)->ends, end) < 0)
        sim->rc = E_NOMEM;
    hosts_arm(sim, hosts_at(sim, worker));
}

void sim_hosts_lose(struct sim *sim, struct sim_worker *worker)
{
    struct sim_host *host;

    if (sim->hosts == NULL || worker->host.demand == 0)
        return;
    host = hosts_at(sim, worker);
    hosts_pass(sim, host, host->demand - worker->host.demand);
    host->demand -= worker->host.demand;
    host->n_busy--;
    worker->host.demand = 0;
    hosts_arm(sim, host);
}

void sim_hosts_end(struct sim *sim, struct sim_worker *worker)
{
    uint64_t host_ns, run_ns = sim->now_ns - worker->host.began_ns;

    if (sim->hosts == NULL)
        return;
    host_ns = sim_hosts_now(sim, worker) - worker->run_began_ns;
    worker->host.stretch = host_ns > 0 ? (double)run_ns / (double)host_ns : 1;
    hosts_count(sim, hosts_at(sim, worker), worker, worker->run_steps);
    sim_hosts_lose(sim, worker);
}

void sim_hosts_due(struct sim *sim, uint32_t i, uint32_t stamp)
{
    struct sim_host *host = &sim->hosts[i];
    struct sim_event end;

    if (stamp != host->stamp || !host->is_armed)
        return;
    host->is_armed = false;
    end = sim_agenda_take(&host->ends); /* not stale: hosts_arm() looks when a stamp changes */
    hosts_pass(sim, host, host->demand);
    host->at_ns = fmax(host->at_ns, (double)end.at_ns);
    sim_worker_steps_end(sim, &sim->workers[end.what]);
    hosts_arm(sim, host);
}
