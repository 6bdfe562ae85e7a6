/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's turns of tenants, as compute/sched/queue.c and plan.c have them: the waiting prompt or sequence whose
 * tenant was served least for its weight is next.  Prompts are charged as they are computed, answers at their end (the
 * scheduler charges them token by token).
 *
 * A job that is alone in its worker's two lines needs no turn, and nothing that is served while no other job waits makes a
 * debt.  So a job enters the turns with the second one. */
#include "base/err.h"
#include "fleet/sim/queue_priv.h"

static void turns_enter(struct sim *sim, struct sim_worker *worker, struct sim_job *job)
{
    if (fair_item_waits(&job->line_turn))
        return;
    job->line_flow = fair_hold(worker->turns, job->request.tenant);
    if (job->line_flow == NULL) {
        sim->rc = E_NOMEM;
        return;
    }
    fair_wait(worker->turns, job->line_flow, &job->line_turn, worker->n_entered++,
              sim_job_class(sim, job)->weight);
}

static void turns_enter_line(struct sim *sim, struct sim_worker *worker, const struct sim_line *line)
{
    uint32_t at = line->head;

    for (uint32_t i = 0; i < line->n && sim->rc == 0; i++, at = sim_job_at(sim, at)->next)
        turns_enter(sim, worker, sim_job_at(sim, at));
}

void sim_turns_enter(struct sim *sim, struct sim_worker *worker, struct sim_job *job)
{
    if (!sim->has_turns || worker->prompts.n + worker->joins.n == 0)
        return;
    if (worker->turns == NULL && fair_new(SIM_MAX_DEBTORS, &worker->turns) < 0) {
        sim->rc = E_NOMEM;
        return;
    }
    if (fair_n_waiting(worker->turns) < worker->prompts.n + worker->joins.n) {
        turns_enter_line(sim, worker, &worker->prompts);
        turns_enter_line(sim, worker, &worker->joins);
    }
    turns_enter(sim, worker, job);
}

void sim_turns_leave(struct sim_worker *worker, struct sim_job *job)
{
    if (!fair_item_waits(&job->line_turn))
        return;
    fair_leave(worker->turns, &job->line_turn);
    fair_drop(worker->turns, job->line_flow);
    job->line_flow = NULL;
}

void sim_turns_clear(struct sim_worker *worker)
{
    struct fair_item *item;

    while (worker->turns != NULL && (item = fair_first(worker->turns)) != NULL)
        sim_turns_leave(worker, container_of(item, struct sim_job, line_turn));
}

void sim_turns_charge(const struct sim *sim, struct sim_worker *worker, const struct sim_job *job,
                      uint32_t n_tokens)
{
    struct fair_flow *flow;

    if (worker->turns == NULL || n_tokens == 0 || fair_n_waiting(worker->turns) == 0)
        return;
    flow = fair_hold(worker->turns, job->request.tenant);
    if (flow == NULL)
        return;
    fair_charge(worker->turns, flow, n_tokens, sim_job_class(sim, job)->weight);
    fair_drop(worker->turns, flow);
}

/* ---- the order ---- */

static uint32_t turns_of_line(struct sim_worker *worker, struct fair_item *item, bool is_prompt)
{
    for (; item != NULL; item = fair_next(worker->turns, item)) {
        const struct sim_job *job = container_of(item, struct sim_job, line_turn);

        if ((job->state != SIM_WAITING) == is_prompt)
            return job->number;
    }
    return SIM_NONE;
}

uint32_t sim_turns_first(struct sim_worker *worker, const struct sim_line *line)
{
    if (line->n == 0)
        return SIM_NONE;
    if (line->n == 1 || worker->turns == NULL)
        return line->head;
    return turns_of_line(worker, fair_first(worker->turns), line == &worker->prompts);
}

uint32_t sim_turns_next(const struct sim *sim, struct sim_worker *worker, const struct sim_line *line,
                        uint32_t at)
{
    const struct sim_job *job = sim_job_at(sim, at);

    if (line->n < 2)
        return SIM_NONE;
    if (worker->turns == NULL)
        return job->next;
    return turns_of_line(worker, fair_next(worker->turns, &job->line_turn), line == &worker->prompts);
}
