/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that go ahead: a worker gets them before it can begin them.
 *
 *     placed --router_ahead_enter()--> waits at its worker --the worker begins it, or it ends--> router_ahead_leave()
 *
 * This does not undo the order of queue.c, because the workers' schedulers take turns too:
 *
 * - A tenant with nothing waiting at a worker begins there at once.  So its request is placed even if other tenants'
 *   backlog breaks the objectives: one at a time, while the worker has a seat.
 * - Where sequences of other routers fill a worker's seats, each router keeps a few jobs waiting there.  Then the worker
 *   gives the next seat, by tenant and weight, and its turns are common to all routers.  Without them the seat would go
 *   to the router that hears of it first.  They are a few, because several sequences may end in one step, and the next
 *   job comes a message later.
 * - Where other routers' sequences break the objectives before the seats are full, and are more than this router's, one job
 *   for each worker goes ahead.  Those routers take the time that becomes free, so a job that waits here may wait for ever.
 * - Where a tenant had less service than tenants of other routers, a few of its jobs for each worker go ahead: the workers'
 *   turns favour it, whatever this router's queue predicts.
 *
 * Under admission by prediction the jobs of the second and the third are those whose turn was predicted to come in time. */
#include "fleet/router/ahead_priv.h"

#include "base/err.h"
#include "fleet/picker/turn.h"
#include "fleet/router/admission_priv.h"
#include "fleet/router/spending_priv.h"
#include "serve/access/common_limits.h"

enum {
    SEATS_PER_AHEAD = 8, /* a job goes ahead for each of so many seats, and one more */
    AHEAD_BEHIND = 4,    /* jobs for each worker in the mean, of tenants behind those of other routers ... */
    LEAST_BEHIND =
        PICKER_TURN_CREDIT / 4 /* ... by so many tokens; equal tenants are behind by less now and then */
};

static uint32_t ahead_most(uint32_t max_seqs)
{
    return 1 + max_seqs / SEATS_PER_AHEAD;
}

/* True if other routers use these workers too. */
static bool ahead_has_others(const struct router *router)
{
    const struct common_limits *common = router_spending_common(router);

    return common != NULL && common_limits_is_shared(common);
}

static void ahead_count(struct router *router, uint32_t slot, bool is_more)
{
    struct router_worker *worker = &router->workers[slot];

    worker->n_ahead += is_more ? 1 : UINT32_MAX;
    if (worker->n_ahead >= ahead_most(worker->max_seqs))
        picker_slots_add(&router->turns.full_lines, slot);
    else
        picker_slots_remove(&router->turns.full_lines, slot);
}

void router_ahead_enter(struct job *job)
{
    if (job->place.is_ahead)
        return;
    job->place.is_ahead = true;
    job->place.ahead_slot = job->decode.slot;
    if (job->decode.slot != PICKER_NONE)
        ahead_count(job->router, job->decode.slot, true);
    job->model->n_ahead++;
    job->model->n_ahead_tenants += ++*fair_tally(job->place.flow) == 1;
}

void router_ahead_leave(struct job *job)
{
    struct router *router = job->router;

    if (!job->place.is_ahead)
        return;
    job->place.is_ahead = false;
    if (job->place.ahead_slot != PICKER_NONE)
        ahead_count(router, job->place.ahead_slot, false);
    job->model->n_ahead--;
    job->model->n_ahead_tenants -= --*fair_tally(job->place.flow) == 0;
    if (job->model->n_queued > 0 && ahead_has_others(router) && router->turn != NULL) {
        router->places_soon = true; /* another goes ahead */
        router_turn_soon(router);
    }
}

static bool ahead_is_crowded_out(const struct job *job, uint32_t n_own, uint32_t n_others)
{
    const struct router *router = job->router;
    uint32_t n_usable = picker_fleet_n_usable(router->fleet, (uint32_t)(job->model - router->models));

    return n_others > n_own && job->model->n_ahead < n_usable && *fair_tally(job->place.flow) == 0;
}

/* True if the job goes ahead because of other routers' sequences at the worker. */
static bool ahead_is_common(const struct job *job, uint32_t slot, const struct picker_worker *worker)
{
    const struct router *router = job->router;
    uint32_t n_own = picker_fleet_ledger(router->fleet, slot)->n_seqs, n_others = worker->n_running - n_own;

    if (!ahead_has_others(router) || n_others == 0 ||
        (router_admission_predicts(router) && !job_is_in(job, JOB_WAITS)))
        return false;
    if (worker->max_seqs > 0 && worker->n_running >= worker->max_seqs)
        return !picker_slots_has(&router->turns.full_lines, slot);
    return ahead_is_crowded_out(job, n_own, n_others);
}

/* True if tenants of other routers had more service than the job's, so that the workers' turns favour it. */
static bool ahead_is_behind(const struct job *job, uint32_t n_others)
{
    const struct router *router = job->router;
    uint32_t n_usable = picker_fleet_n_usable(router->fleet, (uint32_t)(job->model - router->models));

    return n_others > 0 && ahead_has_others(router) && job->model->n_ahead < AHEAD_BEHIND * n_usable &&
           router_queue_credit(job) >= LEAST_BEHIND;
}

static bool ahead_is_owed(const struct job *job, const struct picker_choice *choice)
{
    struct picker_worker worker;

    bool is_first;

    picker_fleet_row(job->router->fleet, choice->decode, &worker);
    is_first = *fair_tally(job->place.flow) == 0 && job->model->n_ahead > 0 &&
               (worker.max_seqs == 0 || worker.n_running < worker.max_seqs);
    return (is_first || ahead_is_common(job, choice->decode, &worker) ||
            ahead_is_behind(job, worker.n_running -
                                     picker_fleet_ledger(job->router->fleet, choice->decode)->n_seqs)) &&
           router_admission_is_owed(job, choice);
}

/* Chooses among the workers where not enough jobs wait.  The chosen one of several full workers is often the same. */
static int ahead_choose_other(struct job *job, struct picker_place *place_out)
{
    const struct picker_slots failed = job->excluded;
    int rc;

    for (size_t i = 0; i < ARRAY_LEN(failed.words); i++)
        job->excluded.words[i] |= job->router->turns.full_lines.words[i];
    rc = router_choose(job, place_out);
    job->excluded = failed;
    return rc;
}

bool router_ahead_goes(struct job *job, struct picker_place *place)
{
    const struct router *router = job->router;
    struct picker_place other;
    int rc;

    if (ahead_is_owed(job, &place->choice))
        return true;
    if (!picker_slots_has(&router->turns.full_lines, place->choice.decode) || !ahead_has_others(router))
        return false;
    rc = ahead_choose_other(job, &other);
    if (rc != 0 && (rc != E_OVERLOADED || !ahead_is_owed(job, &other.choice)))
        return false;
    *place = other;
    return true;
}
