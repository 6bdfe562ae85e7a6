/* SPDX-License-Identifier: Apache-2.0 */
/* Admission of the simulated router. Like fleet/router/admission.c, it calls fleet/picker/admit.h, but
 * without clients and links.
 *
 * A run may spare one request: it admits it with any prediction.  So an oracle can check for each refusal
 * whether the request would have missed its objectives (sim_opts.spared). */
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "fleet/sim/queue_priv.h"

#define FOLLOW_STEPS 32

void sim_admit_goals(const struct sim *sim, const struct sim_job *job, struct picker_goals *goals)
{
    if (!sim->opts->refuses_early)
        return;
    goals->itl_margin = picker_lateness_margin(&job->router->itl_late);
    if (!job->is_again)
        goals->begin_share = picker_begin_share(&job->router->late);
}

uint32_t sim_admit_answer(const struct sim_job *job)
{
    uint32_t expected =
        picker_answers_expect(&job->router->answers[job->class_at], job->request.answer_tokens);

    return expected > job->n_answered ? expected - job->n_answered : 1;
}

static bool admit_is_idle(const struct sim_job *job, const struct picker_choice *choice)
{
    struct picker_worker row;
    bool is_idle;

    picker_fleet_row(job->router->fleet, choice->decode, &row);
    is_idle = row.n_running == 0;
    if (choice->prefill != PICKER_NONE) {
        picker_fleet_row(job->router->fleet, choice->prefill, &row);
        is_idle &= row.n_running == 0;
    }
    return is_idle;
}

/* Tenants with waiting requests; of several classes, a tenant counts once for each. */
static uint32_t admit_n_tenants(const struct sim *sim, const struct sim_router *router)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < sim->classes.n; i++)
        n += fair_n_tenants(router->turns[i]);
    return n;
}

/* The waiting requests of the job's own and of higher classes. */
static uint64_t admit_before(const struct sim *sim, const struct sim_job *job, uint32_t *n_out)
{
    uint64_t n_tokens = 0;

    for (uint32_t i = 0; i < sim->classes.n; i++) {
        if (sim->classes.all[i].priority < sim_job_class(sim, job)->priority)
            continue;
        n_tokens += job->router->waiting_tokens[i];
        *n_out += job->router->n_queued_of[i];
    }
    return n_tokens;
}

/* Tells the ledgers how far the answers at the worker are, as routers learn it from the tokens. */
static void admit_follow(struct sim *sim, struct sim_worker *worker)
{
    for (uint32_t i = 0; i < worker->n_seats; i++) {
        struct sim_job *job = sim_job_at(sim, worker->seats[i].job);
        const struct picker_written written = {
            .n_tokens = sim_worker_answered_now(sim, worker, job),
            .expected =
                picker_answers_expect(&job->router->answers[job->class_at], job->request.answer_tokens),
            .most = job->request.answer_tokens};

        picker_booking_wrote(job->router->fleet, &job->booked[1], &written);
    }
}

/* The routers follow an answer in steps of many tokens. */
static void admit_follow_all(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->n_workers; i++) {
        struct sim_worker *worker = &sim->workers[i];
        uint64_t n_steps = worker->n_seats > 0 ? sim_worker_steps_now(sim, worker) : 0;

        if (worker->n_seats == 0 || n_steps - worker->followed_steps < FOLLOW_STEPS)
            continue;
        worker->followed_steps = n_steps;
        admit_follow(sim, worker);
    }
}

static void admit_predict(const struct sim *sim, const struct sim_job *job,
                          const struct picker_choice *choice, struct picker_verdict *out)
{
    const struct picker_class *class = sim_job_class(sim, job);
    struct picker_outlook_opts what = {.local_prefill = &job->router->local_prefill,
                                       .n_routers = sim->n_routers,
                                       .itl_slo_s = (double)sim_pause_itl_ns(sim, job) / 1e9 *
                                                    (1 - picker_lateness_margin(&job->router->itl_late)),
                                       .answer_tokens = sim_admit_answer(job),
                                       .context_tokens = job->n_given + sim_admit_answer(job)};
    struct picker_wait wait = {.queue_s = choice->ttft_s - choice->alone_s,
                               .alone_s = choice->alone_s,
                               .ttft_slo_s = (double)class->ttft_slo_ns / 1e9,
                               .waited_s = (double)(sim->now_ns - job->request.at_ns) / 1e9,
                               .margin = picker_lateness_margin(&job->router->late)};
    struct picker_outlook outlook;
    uint32_t own = job->flow != NULL ? fair_tally(job->flow)[SIM_TALLY_TOKENS] : 0, n = 0;
    uint64_t all = admit_before(sim, job, &n);

    wait.ahead_tokens =
        picker_turn_ahead(own, all, admit_n_tenants(sim, job->router) + (own == 0),
                          job->flow != NULL ? fair_credit(sim_queue_turns(job), job->flow) : 0);
    if (all > 0)
        wait.n_ahead = (uint32_t)(n * (double)wait.ahead_tokens / (double)all);
    picker_outlook(job->router->fleet, &what, &outlook);
    picker_admit(&wait, &outlook, out);
}

bool sim_admit_takes(struct sim *sim, struct sim_job *job, int rc)
{
    const struct picker_choice *choice = &sim->place.choice;
    struct picker_verdict verdict;

    if (!sim->opts->refuses_early || job->is_again || sim->opts->policy != SIM_OURS)
        return true;
    if ((rc != 0 && rc != E_OVERLOADED) || (rc == 0 && admit_is_idle(job, choice)))
        return true;
    admit_follow_all(sim);
    admit_predict(sim, job, choice, &verdict);
    job->alone_s = choice->alone_s;
    job->waiting_tokens = choice->uncached_tokens;
    job->limit_s = verdict.limit_s;
    job->predicted_s = verdict.ttft_s;
    return verdict.is_in_time || job->is_spared || sim_ahead_goes(sim, job, true);
}

bool sim_admit_bounds(const struct sim *sim, const struct sim_job *job)
{
    return sim->opts->refuses_early && job->limit_s > 0 && !job->is_again && !job->is_spared;
}

bool sim_admit_is_late(const struct sim *sim, const struct sim_job *job)
{
    double waited_s = (double)(sim->now_ns - job->request.at_ns) / 1e9;

    return sim_admit_bounds(sim, job) && waited_s + job->alone_s > job->limit_s;
}

void sim_admit_placed(const struct sim *sim, struct sim_job *job, const struct picker_choice *choice,
                      bool is_owed)
{
    if (job->is_again)
        return;
    if (job->limit_s > 0) {
        picker_local_prefill_learn(&job->router->local_prefill, choice->uncached_tokens,
                                   choice->prefill == PICKER_NONE);
    } else {
        job->limit_s = picker_limit_s((double)sim_job_class(sim, job)->ttft_slo_ns / 1e9, choice->alone_s);
        job->predicted_s = choice->ttft_s + (double)(sim->now_ns - job->request.at_ns) / 1e9;
    }
    if (is_owed)
        job->predicted_s = 0;
}

void sim_admit_first_token(struct sim_job *job, uint64_t received_ns)
{
    struct picker_worker row;

    if (job->decode != SIM_NONE) {
        picker_fleet_row(job->router->fleet, job->decode, &row);
        job->first_itl_s = picker_itl_s(&row);
    }
    if (job->predicted_s > 0 && !job->is_spared)
        picker_lateness_learn(&job->router->late, job->predicted_s,
                              (double)(received_ns - job->request.at_ns) / 1e9, job->limit_s);
}

void sim_admit_ended(struct sim *sim, const struct sim_job *job, double itl_s)
{
    struct picker_worker row;

    picker_answers_learn(&job->router->answers[job->class_at], job->request.answer_tokens);
    if (job->request.answer_tokens < PICKER_ITL_TOKENS || job->decode == SIM_NONE || job->past.n > 0)
        return;
    picker_fleet_row(job->router->fleet, job->decode, &row);
    job->router->itl_late.least = PICKER_ITL_LEAST;
    picker_lateness_learn_itl(&job->router->itl_late, (job->first_itl_s + picker_itl_s(&row)) / 2, itl_s,
                              (double)sim_job_class(sim, job)->itl_slo_ns / 1e9);
}

void sim_admit_charge(struct sim *sim, const struct sim_job *job, uint32_t n_tokens)
{
    n_tokens = n_tokens > 0 ? n_tokens : 1;
    fair_charge(sim_queue_turns(job), job->flow, n_tokens, sim_job_class(sim, job)->weight);
    sim_routers_served(sim, job, n_tokens);
}

void sim_admit_note_refusal(struct sim *sim, const struct sim_job *job)
{
    struct sim_result *result = sim->result;

    if (result->refused == NULL || result->n_refused >= sim->opts->max_refused)
        return;
    result->refused[result->n_refused++] = job->arrival;
}
