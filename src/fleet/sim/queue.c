/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of a simulated router: a line for each class, in which tenants take turns (base/fair.h).  Requests of
 * a higher priority are tried first.  The rules are those of fleet/router/queue.c; fleet/picker/turn.c has the order
 * within a class. */
#include "base/clock.h"
#include "base/err.h"
#include "fleet/picker/turn.h"
#include "fleet/sim/queue_priv.h"

#define EXPIRE_EACH_NS (20 * NS_PER_MS)

struct fair *sim_queue_turns(const struct sim_job *job)
{
    return job->router->turns[job->class_at];
}

/* ---- in and out ---- */

void sim_queue_leave(struct sim_job *job)
{
    if (job->state != SIM_QUEUED)
        return;
    fair_leave(sim_queue_turns(job), &job->turn);
    sim_deadlines_remove(&job->router->deadlines, job);
    fair_tally(job->flow)[SIM_TALLY_TOKENS] -= job->waiting_tokens;
    job->router->waiting_tokens[job->class_at] -= job->waiting_tokens;
    job->router->n_queued--;
    job->router->n_queued_of[job->class_at]--;
}

bool sim_queue_hold_flow(struct sim *sim, struct sim_job *job)
{
    if (job->flow == NULL)
        job->flow = fair_hold(sim_queue_turns(job), job->request.tenant);
    if (job->flow == NULL)
        sim->rc = E_NOMEM;
    return job->flow != NULL;
}

static uint64_t sim_queue_order(const struct sim *sim, const struct sim_job *job)
{
    if (job->is_again || !sim->opts->refuses_early)
        return job->is_again ? 0 : sim->agenda.n_added;
    return picker_turn_order(job->request.at_ns, job->limit_s,
                             job->waiting_tokens < job->request.prompt_tokens / 2);
}

void sim_queue_watch(struct sim *sim)
{
    if (!sim->is_expiring)
        sim_add(sim, SIM_EXPIRE, sim->now_ns + EXPIRE_EACH_NS, 0, 0);
    sim->is_expiring = true;
}

void sim_queue_add(struct sim *sim, struct sim_job *job)
{
    if (!sim_queue_hold_flow(sim, job))
        return;
    fair_tally(job->flow)[SIM_TALLY_TOKENS] += job->waiting_tokens;
    job->router->waiting_tokens[job->class_at] += job->waiting_tokens;
    job->state = SIM_QUEUED;
    job->queued_ns = sim->now_ns > 0 ? sim->now_ns : 1;
    fair_wait(sim_queue_turns(job), job->flow, &job->turn, sim_queue_order(sim, job),
              sim_job_class(sim, job)->weight);
    job->router->n_queued++;
    job->router->n_queued_of[job->class_at]++;
    job->queue_number = sim->result->n_queued++;
    if (!job->is_again && sim_deadlines_add(sim, &job->router->deadlines, job) < 0)
        sim->rc = E_NOMEM;
    sim_queue_watch(sim);
}

static bool sim_queue_push_out(struct sim *sim, const struct sim_job *job)
{
    struct fair *turns = sim_queue_turns(job);

    if (!fair_is_lighter(turns, job->request.tenant, sim_job_class(sim, job)->weight))
        return false;
    sim_front_refuse(sim, container_of(fair_heaviest(turns), struct sim_job, turn), REFUSED_PUSHED);
    return true;
}

bool sim_queue_share_is_used(const struct sim *sim, const struct sim_job *job)
{
    double share = sim_job_class(sim, job)->share;

    return share < 1 && job->router->n_queued_of[job->class_at] >= share * sim->opts->queue_max;
}

bool sim_queue_has_room(struct sim *sim, const struct sim_job *job)
{
    if (sim_queue_share_is_used(sim, job))
        return false;
    return job->router->n_queued < sim->opts->queue_max || sim_queue_push_out(sim, job);
}

/* ---- turns ---- */

static int sim_queue_try_item(void *arg, struct fair_item *item)
{
    struct sim_job *job = container_of(item, struct sim_job, turn);
    int rc = sim_front_try(arg, job);

    return rc == E_OVERLOADED && sim_pause_for(arg, job) ? 0 : rc;
}

static uint32_t *sim_queue_passed(void *arg, struct fair_item *item)
{
    (void)arg;
    return &container_of(item, struct sim_job, turn)->n_passed;
}

/* Places one request or one paused stream.  A paused stream comes before new requests of its own class, unless a
 * request of a higher class waits. */
static bool sim_queue_place_next(struct sim *sim, struct sim_router *router)
{
    bool is_placed = false, is_above = false; /* is_above: a request of a higher or equal class waits */

    for (uint32_t i = 0; i < sim->classes.n && !is_placed; i++) {
        uint32_t at = sim->class_order[i];
        const struct picker_turn turn = {
            .turns = router->turns[at],
            .arg = sim,
            .try_place = sim_queue_try_item,
            .passed = sim_queue_passed,
            .max_passed = sim->opts->refuses_early ? picker_turn_max_passed(sim->n_workers) : 0};

        is_placed = !is_above && sim_pause_go_on(sim, router, at);
        if (!is_placed && router->n_queued_of[at] > 0)
            is_placed = picker_turn_next(&turn);
        is_above |= router->n_queued_of[at] > 0;
    }
    return is_placed;
}

static void sim_queue_turn_one(struct sim *sim, struct sim_router *router)
{
    if (router->n_queued + router->pauses.n_paused == 0 || router->is_turning)
        return;
    router->is_turning = true;
    while (router->n_queued + router->pauses.n_paused > 0 && sim->rc == 0 &&
           sim_queue_place_next(sim, router))
        ;
    router->is_turning = false;
}

void sim_queue_turn(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->n_routers; i++)
        sim_queue_turn_one(sim, &sim->routers[i]);
}

/* ---- waits that are too long ---- */

static void sim_queue_refuse_late(struct sim *sim, struct sim_router *router)
{
    struct sim_job **late;
    uint32_t n = sim_deadlines_take_late(sim, &router->deadlines, &late);

    for (uint32_t i = 0; i < n; i++)
        sim_front_refuse(sim, late[i], sim_admit_is_late(sim, late[i]) ? REFUSED_LATE : REFUSED_TIMEOUT);
}

void sim_queue_expire(struct sim *sim)
{
    uint32_t n_left = 0;

    sim->is_expiring = false;
    sim_queue_turn(sim);
    for (uint32_t i = 0; i < sim->n_routers; i++) {
        sim_queue_refuse_late(sim, &sim->routers[i]);
        sim_pause_tick(sim, &sim->routers[i]);
        n_left += sim->routers[i].n_queued + sim->routers[i].pauses.n_paused;
    }
    if (n_left > 0)
        sim_queue_watch(sim);
}
