/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs that wait for a placement, and their order.
 *
 *      submit --no worker now--> its tenant's line in model.turns --placed--> workers
 *                                  |  |
 *                                  |  +--no connected worker suits it--------------------> odd
 *                                  |  +--no connected worker is large enough-------------> 400
 *                                  +--queue full: newest job of the largest tenant ------> pushed out: 529
 *      replace --no worker now-----------------------------------------------------------> odd
 *
 * Tenants take turns in tokens (base/fair.h). The tokens that workers must compute are charged at the
 * placement, the answer at its end, also for jobs that never waited. Each model has its own turns, because
 * each has its own workers.  So a model whose workers are busy or away delays no other model's requests, but for the
 * few turns of the loop in which jobs of a lost worker leave it (slices.c).
 *
 * When a tenant's first request cannot be placed now (a long prompt whose workers are backed up), other
 * tenants' requests pass it, so that no worker idles. The number of such passes is limited, so that a large
 * request is placed in the end (fleet/picker/turn.h).
 *
 * Some jobs are placed although no worker begins them at once (ahead.c).
 *
 * Jobs in odd are tried one by one, before all others: jobs that were placed before, which their tenants have
 * paid for, and jobs that no connected worker suits.
 *
 * queue.max bounds the whole queue, all models together. When it is full, the tenant with most jobs for its
 * weight makes room for one with fewer. The loop's next turn refuses the removed job, because a submit may
 * not call a client back. */
#include "fleet/router/router_priv.h"
#include "fleet/router/admission_priv.h"
#include "fleet/router/ahead_priv.h"
#include "fleet/router/state_priv.h"

#include "base/clock.h"
#include "base/err.h"
#include "cache/prefix/tenant.h"
#include "fleet/picker/turn.h"
#include "fleet/router/spending_priv.h"
#include "serve/access/common_limits.h"

#define MAX_DEBTORS 4096 /* bound on idle tenants that were served more than the waiting ones */

/* ---- accounts ---- */

int router_queue_open(struct router *router)
{
    list_init(&router->queue);
    list_init(&router->turns.odd);
    list_init(&router->turns.pushed_out);
    return fair_new(0, &router->turns.crowd);
}

void router_queue_close(struct router *router)
{
    fair_free(router->turns.crowd);
    router->turns.crowd = NULL;
}

static struct fair *queue_turns(const struct job *job)
{
    return job->model->turns[job->class_at];
}

int router_queue_enter(struct job *job)
{
    struct router_model *model = job->model;
    struct fair **turns = &model->turns[job->class_at];
    int rc = *turns == NULL ? fair_new(MAX_DEBTORS, turns) : 0;

    if (rc == 0 && router_admission_predicts(job->router))
        fair_set_credit(*turns, PICKER_TURN_CREDIT);
    if (rc == 0)
        job->place.flow = fair_hold(*turns, tenant_number(job->order.work.tenant));
    return job->place.flow != NULL ? 0 : E_NOMEM;
}

static void queue_charge_flow(struct job *job, uint64_t n_tokens)
{
    fair_charge(queue_turns(job), job->place.flow, n_tokens, job->order.work.weight);
    router_state_served(job, n_tokens);
}

void router_queue_exit(struct job *job)
{
    if (job->place.flow == NULL)
        return;
    router_ahead_leave(job);
    if (router_job_answered(job) > 0)
        queue_charge_flow(job, router_job_answered(job));
    fair_drop(queue_turns(job), job->place.flow);
    job->place.flow = NULL;
}

void router_queue_charge(struct job *job, uint64_t n_tokens)
{
    if (job->sum.n_redispatched + job->n_pauses == 0) /* otherwise it was charged already */
        queue_charge_flow(job, n_tokens > 0 ? n_tokens : 1);
    if (!job_is_in(job, JOB_BEGUN))
        router_ahead_enter(job);
}

uint32_t router_queue_own(struct router *router, uint64_t tenant)
{
    struct fair_flow *flow = fair_hold(router->turns.crowd, tenant);
    uint32_t own = flow != NULL ? *fair_tally(flow) : 0;

    fair_drop(router->turns.crowd, flow);
    return own;
}

struct queue_waiting router_queue_before(const struct job *job)
{
    const struct picker_classes *classes = &job->router->classes;
    struct queue_waiting sum = {0};

    for (uint32_t i = 0; i < classes->n; i++) {
        if (classes->all[i].priority < classes->all[job->class_at].priority)
            continue;
        sum.n_tokens += job->model->waiting[i].n_tokens;
        sum.n += job->model->waiting[i].n;
    }
    return sum;
}

uint64_t router_queue_credit(const struct job *job)
{
    return fair_credit(queue_turns(job), job->place.flow);
}

/* ---- in and out ---- */

static void queue_count(struct job *job, bool is_more)
{
    struct router *router = job->router;

    job->model->n_queued += is_more ? 1 : UINT32_MAX;
    router->n_queued += is_more ? 1 : UINT32_MAX;
    router->n_queued_of[job->class_at] += is_more ? 1 : UINT32_MAX;
    metric_set(router->m_queued, router->n_queued);
    metric_set(router->turns.m_tenants, fair_n_tenants(router->turns.crowd));
}

/* Adds the job's prompt to the tokens that wait, or subtracts it. */
static void queue_count_tokens(struct job *job, bool is_more)
{
    uint32_t n = job->place.n_tokens;

    if (job->place.crowd_flow == NULL)
        return;
    job->model->waiting[job->class_at].n_tokens += is_more ? n : (uint64_t)0 - n;
    job->model->waiting[job->class_at].n += is_more ? 1 : UINT32_MAX;
    *fair_tally(job->place.crowd_flow) += is_more ? n : 0 - n;
}

static void queue_leave_lines(struct job *job)
{
    struct router *router = job->router;

    queue_count_tokens(job, false);
    fair_leave(queue_turns(job), &job->place.turn);
    fair_leave(router->turns.crowd, &job->place.seat);
    fair_drop(router->turns.crowd, job->place.crowd_flow);
    job->place.crowd_flow = NULL;
}

/* Returns the job's place in the order.  Jobs without a known limit wait by arrival. */
static uint64_t queue_order(const struct job *job)
{
    if (!router_admission_predicts(job->router))
        return job->router->turns.n_enqueued++;
    return picker_turn_order(
        job->submitted_ns, job->limit_s > 0 ? job->limit_s : (double)router_job_class(job).ttft_slo_ns / 1e9,
        job->limit_s > 0 && job->estimate.uncached_tokens < job->order.n_tokens / 2);
}

void router_queue_add(struct job *job, bool is_again)
{
    struct router *router = job->router;

    router_job_enter(job, job_is_in(job, JOB_BEGUN) ? JOB_REQUEUED : JOB_QUEUED);
    job->queued_ns = clock_now_ns();
    if (is_again)
        list_push_front(&router->queue, &job->waiting);
    else
        list_push_back(&router->queue, &job->waiting);
    if (!is_again)
        job->place.crowd_flow = fair_hold(router->turns.crowd, tenant_number(job->order.work.tenant));
    if (job->place.crowd_flow == NULL) {
        list_push_back(&router->turns.odd, &job->place.odd);
    } else {
        uint64_t order = queue_order(job);

        job->place.n_tokens =
            job->estimate.uncached_tokens > 0 ? job->estimate.uncached_tokens : job->order.n_tokens;
        queue_count_tokens(job, true);
        fair_wait(queue_turns(job), job->place.flow, &job->place.turn, order, job->order.work.weight);
        fair_wait(router->turns.crowd, job->place.crowd_flow, &job->place.seat, order,
                  job->order.work.weight);
    }
    queue_count(job, true);
}

void router_queue_remove(struct job *job, bool is_placed)
{
    struct router *router = job->router;

    if (!job_is_in(job, JOB_WAITS | JOB_BIT(PUSHED_OUT)))
        return;
    router_slices_leave_queue(job);
    list_remove(&job->waiting);
    if (job->state == JOB_PUSHED_OUT)
        return;
    list_remove(&job->place.odd);
    queue_leave_lines(job);
    queue_count(job, false);
    metric_observe(is_placed ? router->turns.m_wait_placed : router->turns.m_wait_left,
                   (double)(clock_now_ns() - job->queued_ns) / (double)NS_PER_S);
}

/* ---- a full queue ---- */

static void push_out(struct job *job)
{
    struct router *router = job->router;

    router_queue_remove(job, false);
    router_job_enter(job, JOB_PUSHED_OUT);
    list_push_back(&router->turns.pushed_out, &job->waiting);
    metric_add(router->turns.m_pushed_out, 1);
    if (router->turns.push_turn != NULL)
        ev_timer_start(router->turns.push_turn, 0);
}

bool router_queue_has_room(struct job *job)
{
    struct router *router = job->router;

    if (router->n_queued < router->conf->queue_max)
        return true;
    if (!fair_is_lighter(router->turns.crowd, tenant_number(job->order.work.tenant), job->order.work.weight))
        return false;
    push_out(container_of(fair_heaviest(router->turns.crowd), struct job, place.seat));
    return router->n_queued < router->conf->queue_max;
}

void router_queue_fail_pushed(struct router *router)
{
    while (!list_is_empty(&router->turns.pushed_out)) {
        struct job *job = container_of(router->turns.pushed_out.next, struct job, waiting);

        router_refused(job, REFUSED_PUSHED);
        router_job_fail(job, 529, "overloaded_error",
                        "Overloaded: the queue is full, and most of what waits in it is this tenant's",
                        router_admission_come_back_s(job, REFUSED_PUSHED));
    }
}

/* ---- turns ---- */

/* True if no connected worker of the model could ever run the job,
 * so that other jobs must not wait for it. */
static bool is_odd(const struct job *job, int rc)
{
    return rc == E_LIMIT ||
           (rc == E_NOT_FOUND && (!picker_slots_is_empty(&job->barred) || job->keeps_layout));
}

/* True if no worker holds the job, and none did, here or at another router, that may return. */
static bool queue_is_too_large(const struct job *job, int rc)
{
    return rc == E_LIMIT && job->state == JOB_QUEUED && job->sum.n_redispatched == 0 && !job->is_stored &&
           router_size_is_final(job);
}

static void make_odd(struct job *job)
{
    queue_leave_lines(job);
    list_push_back(&job->router->turns.odd, &job->place.odd);
    metric_set(job->router->turns.m_tenants, fair_n_tenants(job->router->turns.crowd));
}

/* ---- fleet/picker/turn.c's view of a job ---- */

static int turn_try(void *arg, struct fair_item *item)
{
    struct job *job = container_of(item, struct job, place.turn);
    int rc = router_job_place(job);

    return rc == E_OVERLOADED && router_pause_for(job) ? 0 : rc;
}

static bool turn_is_odd(void *arg, struct fair_item *item, int rc)
{
    return is_odd(container_of(item, struct job, place.turn), rc);
}

static void turn_make_odd(void *arg, struct fair_item *item, int rc)
{
    struct job *job = container_of(item, struct job, place.turn);

    if (queue_is_too_large(job, rc)) /* the workers that could hold it left since it was submitted */
        router_refuse_size(job);
    else
        make_odd(job);
}

static uint32_t *turn_passed(void *arg, struct fair_item *item)
{
    return &container_of(item, struct job, place.turn)->place.n_passed;
}

/* Places jobs by class, the highest priority first.  In a class, paused streams come first, unless a request of a
 * higher or equal class waits.  While a request waits for a worker that could begin it soon, lower classes still
 * use workers that it does not use. */
static bool place_next(struct router *router, struct router_model *model)
{
    uint32_t order[PICKER_MAX_CLASSES];
    uint32_t n_usable = picker_fleet_n_usable(router->fleet, (uint32_t)(model - router->models));
    uint32_t max_passed = router_admission_predicts(router) ? picker_turn_max_passed(n_usable) : 0;
    bool is_placed = false, is_above = false; /* is_above: a request of a higher or equal class waits */

    picker_classes_order(&router->classes, order);
    for (uint32_t i = 0; i < router->classes.n && !is_placed; i++) {
        const struct picker_turn turn = {.turns = model->turns[order[i]],
                                         .try_place = turn_try,
                                         .is_odd = turn_is_odd,
                                         .make_odd = turn_make_odd,
                                         .passed = turn_passed,
                                         .max_passed = max_passed};

        is_placed = !is_above && router_pause_go_on(router, model, order[i]);
        if (!is_placed && turn.turns != NULL && fair_n_waiting(turn.turns) > 0)
            is_placed = picker_turn_next(&turn);
        is_above |= turn.turns != NULL && fair_n_waiting(turn.turns) > 0;
    }
    return is_placed;
}

static void queue_try_odd(struct job *job)
{
    if (queue_is_too_large(job, router_job_place(job)))
        router_refuse_size(job);
}

bool router_place_step(struct router *router)
{
    struct router_slices *slices = &router->slices;
    struct list *node;

    if (slices->model == 0) {
        if (slices->odd.next == NULL && !list_is_empty(&router->queue))
            (void)router_chains_work(router);
        node = router_walk_step(&slices->odd, &router->turns.odd);
        if (node != NULL) {
            queue_try_odd(container_of(node, struct job, place.odd));
            return true;
        }
        slices->model = 1;
    }
    for (; slices->model <= router->n_models; slices->model++) {
        struct router_model *model = &router->models[slices->model - 1];

        if ((model->n_queued > 0 || router->pauses.n_paused > 0) && place_next(router, model))
            return true;
    }
    slices->model = 0;
    return false;
}

void router_place_queued(struct router *router)
{
    router_slices_ask(router, SLICE_PLACE);
}
