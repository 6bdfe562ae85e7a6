/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that go ahead to workers of the simulated fleet.  fleet/picker/ahead.h has the rule; this file gathers its
 * inputs, as fleet/router/ahead.c does. */
#include "base/err.h"
#include "fleet/sim/queue_priv.h"

static struct picker_ahead_entry sim_ahead_entry(const struct sim *sim, const struct sim_job *job)
{
    return (struct picker_ahead_entry){.decode = job->ahead_slots[1],
                                       .reads = job->ahead_slots[0],
                                       .max_seqs = sim->workers[job->ahead_slots[1]].row.max_seqs,
                                       .n_own = &fair_tally(job->flow)[SIM_TALLY_AHEAD]};
}

void sim_ahead_enter(struct sim *sim, struct sim_job *job)
{
    struct picker_ahead_entry entry;

    if (job->is_ahead)
        return;
    job->is_ahead = true;
    job->ahead_slots[0] = job->prefill != SIM_NONE ? job->prefill : job->decode;
    job->ahead_slots[1] = job->decode;
    entry = sim_ahead_entry(sim, job);
    picker_ahead_enter(&job->router->ahead, &job->router->lines, &entry);
}

void sim_ahead_leave(struct sim *sim, struct sim_job *job)
{
    struct picker_ahead_entry entry;

    if (!job->is_ahead)
        return;
    job->is_ahead = false;
    entry = sim_ahead_entry(sim, job);
    picker_ahead_leave(&job->router->ahead, &job->router->lines, &entry);
    if (sim->n_routers > 1 && job->router->n_queued > 0) /* another goes ahead once the router hears of it */
        sim_add(sim, SIM_TURN, sim->now_ns + sim->opts->latency_ns, 0, 0);
}

static struct picker_ahead_turn sim_ahead_turn(const struct sim *sim, const struct sim_job *job)
{
    const struct sim_router *router = job->router;
    struct picker_service_view service = {0};
    double itl_part = 1 - picker_lateness_margin(&router->itl_late);

    if (sim->n_routers > 1)
        sim_routers_service(sim, job, &service);
    return (struct picker_ahead_turn){.fleet = router->fleet,
                                      .lines = &router->lines,
                                      .choice = &sim->place.choice,
                                      .ahead = router->ahead,
                                      .n_own = fair_tally(job->flow)[SIM_TALLY_AHEAD],
                                      .service = service,
                                      .ttft_slo_s = (double)sim_job_class(sim, job)->ttft_slo_ns / 1e9,
                                      .itl_slo_s = itl_part * (double)sim_pause_itl_ns(sim, job) / 1e9,
                                      .waited_s = (double)(sim->now_ns - job->request.at_ns) / 1e9,
                                      .margin = picker_lateness_margin(&router->late),
                                      .local_prefill = &router->local_prefill,
                                      .n_routers = sim->n_routers,
                                      .is_refused_early = sim->opts->refuses_early,
                                      .has_waited = job->state == SIM_QUEUED};
}

/* Chooses among the other workers. */
static int sim_ahead_choose_other(struct sim *sim, struct sim_job *job)
{
    struct picker_goals goals;

    if (!sim_front_choose_prepare(sim, job, &goals))
        return E_NOMEM;
    sim->place.request.excluded = &sim->excluded;
    return picker_place_choose(&sim->place, &goals);
}

bool sim_ahead_goes(struct sim *sim, struct sim_job *job, bool is_judged)
{
    struct picker_ahead_turn turn = sim_ahead_turn(sim, job);
    struct picker_choice first;
    int rc;

    if (sim->opts->policy != SIM_OURS)
        return false;
    turn.is_judged = is_judged;
    turn.before_tokens = is_judged ? fair_tally(job->flow)[SIM_TALLY_TOKENS] : 0;
    if (picker_ahead_goes(&turn))
        return true;
    sim->excluded = (struct picker_slots){{0}};
    if (!picker_ahead_other(&turn, &sim->excluded))
        return false;
    first = sim->place.choice;
    rc = sim_ahead_choose_other(sim, job);
    if (rc == 0 || (rc == E_OVERLOADED && picker_ahead_goes(&turn)))
        return true;
    sim->place.choice = first;
    return false;
}
