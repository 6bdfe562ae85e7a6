/* SPDX-License-Identifier: Apache-2.0 */
/* A job's way through the cluster: queued, placed, answered, placed again when a worker fails it, ended
 * (job.c draws the states).
 *
 * Both workers of a pair get the request at the same time, the decode worker first, so that it can grant
 * blocks when the prefill worker asks. A dispatch is charged to the workers' ledgers at once. When a
 * worker dies in the middle of an answer, the job continues elsewhere from the tokens it has: sampling
 * depends on (seed, position), so the stream continues with the same tokens.
 *
 * A job without a placement waits in a bounded queue (queue.c), or is refused (refusals.c). */
#include "fleet/router/router_priv.h"
#include "fleet/router/admission_priv.h"
#include "fleet/router/ahead_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "fleet/router/decisions_priv.h"
#include "fleet/router/job_spans_priv.h"
#include "fleet/router/streams_priv.h"
#include "serve/prompt/constraint.h"

_Static_assert(CONSTRAINT_MAX_BYTES == FRAME_MAX_CONSTRAINT, "a SUBMIT holds every constraint");

#define MAX_ATTEMPTS   8
#define TRIED_AGAIN_NS NS_PER_S /* wait in the queue before workers that failed the job are tried again */

void router_job_uncharge(struct job *job, struct job_part *part)
{
    if (part->state != PART_RUNNING)
        return;
    picker_booking_over(job->router->fleet, &part->booking, clock_now_ns());
    part->state = PART_OVER;
}

/* ---- placement ---- */

void router_job_number(struct job *job)
{
    struct router *router = job->router;

    if (job->number != 0)
        hashmap_remove(router->by_number, &job->number);
    job->number = router->next_number++;
    job->prefill = job->decode = (struct job_part){.slot = PICKER_NONE};
}

struct job_part router_part_begin(const struct router *router, uint32_t slot)
{
    return (struct job_part){.state = PART_RUNNING, .slot = slot, .life = router->workers[slot].n_lost};
}

/* Clears the job's list of workers that failed it: when two workers fail at once, the cause is more likely
 * the workers than the request. MAX_ATTEMPTS bounds the attempts. */
static void dispatch_forgive(struct job *job)
{
    if (job_is_in(job, JOB_WAITS) && clock_now_ns() - job->queued_ns > TRIED_AGAIN_NS)
        job->excluded = (struct picker_slots){{0}};
}

int router_job_place(struct job *job)
{
    struct router *router = job->router;
    struct picker_place found;
    const struct picker_choice *choice = &found.choice;
    bool is_owed;
    int rc;

    if (job->chain == CHAIN_MATCHING)
        return E_OVERLOADED;
    rc = router_choose(job, &found);
    is_owed = rc == E_OVERLOADED && job->state != JOB_PAUSED && router_ahead_goes(job, &found, false);
    if (rc == E_OVERLOADED && ((router_job_has_begun(job) && job->state != JOB_PAUSED) || is_owed))
        rc = 0; /* a stream that has begun does not wait for objectives: continue at the least bad worker */
    if (rc < 0) {
        dispatch_forgive(job);
        return rc;
    }
    router_blocks_choose(job, &found);
    router_job_number(job);
    if (hashmap_put(router->by_number, &job->number, job, NULL) < 0)
        return E_NOMEM;
    job->estimate = *choice;
    router_admission_placed(job, is_owed);
    job->layout = router->workers[choice->decode].layout;
    job->decode = router_part_begin(router, choice->decode);
    if (choice->prefill != PICKER_NONE)
        job->prefill = router_part_begin(router, choice->prefill);
    router_decisions_placed(job, &found); /* before the booking, which changes the estimates */
    found.n_hashes = router_chain_booked(job);
    picker_demand_placed(&job->model->roles.demand, job->order.n_tokens, choice->uncached_tokens);
    picker_place_book(&found, &job->prefill.booking, &job->decode.booking);
    metric_add(choice->prefill != PICKER_NONE ? router->m_handed_off : router->m_local, 1);
    metric_add(choice->reads_store ? router->m_store_reads : router->m_reads, choice->read_tokens > 0);
    rc = router_job_send(job);
    if (rc < 0) { /* the decode worker's link is gone, but its loss is not handled yet: exclude it */
        router_decisions_over(job, rc);
        router_job_uncharge(job, &job->prefill);
        router_job_uncharge(job, &job->decode);
        picker_slots_add(&job->excluded, choice->decode);
        return E_OVERLOADED;
    }
    router_streams_keep(job);
    router_queue_remove(job, true);
    router_queue_charge(job, choice->uncached_tokens);
    router_spans_placed(job);
    router_job_enter(job, job_is_in(job, JOB_BEGUN) ? JOB_ANSWERING : JOB_PLACED);
    return 0;
}

/* ---- the backend ---- */

/* True if the later one of two models has at least as many usable workers for its jobs. */
static bool model_is_freer(const struct router *router, const struct router_model *later,
                           const struct router_model *earlier)
{
    uint64_t n = picker_fleet_n_usable(router->fleet, (uint32_t)(later - router->models));
    uint64_t n_earlier = picker_fleet_n_usable(router->fleet, (uint32_t)(earlier - router->models));

    return n * (earlier->n_jobs + 1) >= n_earlier * (later->n_jobs + 1);
}

/* While a fleet changes to another file, two models have one name and share its requests.  A model without usable workers
 * is known too: requests may wait for them. */
static const struct gen_model *backend_model(void *self, const char *name)
{
    struct router *router = self;
    const struct router_model *found = NULL;

    for (uint32_t i = 0; i < router->n_models; i++) {
        const struct router_model *model = &router->models[i];

        if (!model->is_ready || (name != NULL && strcmp(name, model->gen.name) != 0))
            continue;
        if (name == NULL && picker_fleet_n_usable(router->fleet, i) > 0)
            return &model->gen;
        if (found == NULL || model_is_freer(router, model, found))
            found = model;
    }
    return found != NULL ? &found->gen : NULL;
}

static void backend_model_keep(void *self, const struct gen_model *model)
{
    (void)self;
    container_of(model, struct router_model, gen)->n_held++;
}

static void backend_model_drop(void *self, const struct gen_model *model)
{
    (void)self;
    container_of(model, struct router_model, gen)->n_held--;
}

static const struct gen_model *backend_model_at(void *self, size_t index)
{
    struct router *router = self;

    for (uint32_t i = 0; i < router->n_models; i++)
        if (router->models[i].is_ready && index-- == 0)
            return &router->models[i].gen;
    return NULL;
}

bool router_is_returning(const struct router *router)
{
    return router->is_restarted && clock_now_ns() - router->started_ns < router->conf->link_return_ns;
}

/* Until the first model is known, the router cannot say that a name is wrong. A restarted router learns within
 * seconds which models its workers serve, but a client that receives 404 gives up. So after a restart an unknown
 * name is no error before link.return_grace is over.  A model whose worker left before its vocabulary was complete
 * does not come. */
static const char *backend_why_not_yet(void *self, const char *name)
{
    struct router *router = self;
    bool has_ready = false, has_failed = false, is_coming = false;

    for (uint32_t i = 0; i < router->n_models; i++) {
        const struct router_model *model = &router->models[i];

        has_ready |= model->is_ready;
        has_failed |= model->is_failed;
        if (model->is_ready || model->is_failed ||
            (model->build == NULL && !router_model_is_linked(router, model)))
            continue;
        if (name != NULL && strcmp(name, model->gen.name) == 0)
            return "the router is fetching its vocabulary from a worker";
        is_coming = true;
    }
    if (has_ready)
        return router_is_returning(router) ? "the router has restarted, and workers may still come back"
                                           : NULL;
    if (is_coming)
        return "the router is fetching the first vocabulary from a worker";
    return has_failed ? "the router could not read the vocabulary of any worker; its log says why"
                      : "no worker has registered with this router yet";
}

/* The class multiplies the tenant's weight, at the workers too. */
static void job_weigh(struct job *job)
{
    uint32_t weight = job->order.work.weight > 0 ? job->order.work.weight : 1;
    uint64_t product = (uint64_t)weight * router_job_class(job).weight;

    if (router_job_class(job).weight > 1)
        job->order.work.weight = product < FAIR_MAX_WEIGHT ? (uint32_t)product : FAIR_MAX_WEIGHT;
}

int router_job_make(struct router *router, const struct gen_model *model, struct work_order *order,
                    struct job **out)
{
    struct job *job = calloc(1, sizeof(*job));

    if (job == NULL) {
        work_order_fini(order);
        return E_NOMEM;
    }
    job->router = router;
    job->submitted_ns = clock_now_ns();
    job->model = container_of(model, struct router_model, gen);
    job->model->n_jobs++;
    job->order = work_order_move(order);
    gen_handle_init(&job->handle, &router->outbox, &job->order, NULL, NULL);
    job->score_next = job->order.work.score_from;
    job->class_at =
        picker_classes_choose(&router->classes, job->order.work.class_allowed, job->order.work.class_wanted);
    job_weigh(job);
    list_init(&job->all);
    list_init(&job->timed);
    list_init(&job->waiting);
    list_init(&job->seated);
    list_init(&job->place.odd);
    fair_item_init(&job->place.turn);
    fair_item_init(&job->place.seat);
    list_init(&job->unhashed);
    list_init(&job->unsent);
    job->prefill.slot = job->decode.slot = PICKER_NONE;
    if (router_queue_enter(job) < 0 || router_chain_begin(job) < 0) {
        router_job_free(job);
        return E_NOMEM;
    }
    list_push_back(&router->jobs, &job->all);
    *out = job;
    return 0;
}

void router_job_free(struct job *job)
{
    router_roles_ended(job);
    router_streams_over(job);
    router_trace_job(job);
    router_queue_remove(job, false);
    router_queue_exit(job);
    if (job->number != 0)
        hashmap_remove(job->router->by_number, &job->number);
    router_slices_leave(job);
    list_remove(&job->all);
    list_remove(&job->timed);
    list_remove(&job->unhashed);
    list_remove(&job->unsent);
    list_remove(&job->seated);
    job->router->n_freed++;
    job->model->n_jobs--;
    work_order_fini(&job->order);
    gen_handle_fini(&job->handle);
    free(job->hashes);
    free(job);
}

/* The code of a placement that is not tried, because earlier jobs come first.  A job that no worker could hold needs no
 * turn to be refused. */
static int submit_code(const struct job *job)
{
    uint32_t group = (uint32_t)(job->model - job->router->models);
    bool is_large = !picker_fleet_holds(job->router->fleet, group, job->order.n_tokens);

    return is_large && router_size_is_final(job) ? E_LIMIT : E_OVERLOADED;
}

/* True if the job must wait for its turn, or for the hashes of a long prompt that is cached.  Without room in the queue
 * the placement takes the hashes so far: the rest of the prefix is not worth a refusal. */
static bool submit_waits(struct job *job)
{
    const struct router *router = job->router;

    if (job->model->n_queued > 0 || job->model->is_losing || router_pause_is_first(job))
        return true;
    if (job->chain == CHAIN_MATCHING &&
        (router->n_queued >= router->conf->queue_max || !router_class_has_room(job)))
        router_chain_end_match(job);
    return job->chain == CHAIN_MATCHING;
}

static int backend_submit(void *self, const struct gen_start *start, struct gen_handle **out,
                          struct gen_failure *failure_out)
{
    struct router *router = self;
    struct job *job;
    bool must_wait;
    int rc;

    (void)router_chains_work(router); /* because earlier jobs may have the same prefix */
    rc = router_job_make(router, start->model, start->order, &job);
    if (rc < 0) {
        *failure_out = (struct gen_failure){.status = 500, .type = "api_error", .message = "Out of memory"};
        return rc;
    }
    job->handle.events = start->events;
    job->handle.arg = start->arg;
    picker_demand_arrived(&job->model->roles.demand, clock_now_ns(), job->order.n_tokens);
    must_wait = submit_waits(job);
    rc = must_wait ? submit_code(job) : router_job_place(job);
    if (rc == E_OVERLOADED && !job->model->is_losing && router_pause_for(job))
        rc = 0;
    if (rc < 0)
        rc = router_wait_or_refuse(job, rc, failure_out);
    if (rc < 0) {
        if (start->serving_out != NULL)
            router_job_serving(job, start->serving_out);
        router_job_enter(job, JOB_OVER);
        router_job_free(job);
        return rc;
    }
    *out = &job->handle;
    if (must_wait)
        router_place_queued(router); /* places this job next if those before it are placed or fail */
    return 0;
}

static void job_cancel_part(struct job *job, struct job_part *part)
{
    Baton__Cancel cancel = BATON__CANCEL__INIT;

    if (part->state != PART_RUNNING)
        return;
    cancel.request = job->number;
    router_tokens_end(job, &cancel);
    if (!job->handle.is_left && !router_part_is_lost(job, part))
        (void)router_send(job->router, part->slot, FRAME_CANCEL, &cancel.base);
    router_job_uncharge(job, part);
}

/* The job leaves the queue and its workers; state is ENDED, FAILED or OVER. */
static void job_leave(struct job *job, enum job_state state)
{
    router_queue_remove(job, false);
    router_spans_over(job, state == JOB_FAILED ? E_PEER : 0);
    router_job_enter(job, state);
    job_cancel_part(job, &job->prefill);
    job_cancel_part(job, &job->decode);
}

static void backend_cancel(void *self, struct gen_handle *handle, struct gen_serving *serving_out)
{
    struct router *router = self;
    struct job *job = job_of(handle);

    job_leave(job, JOB_OVER); /* first, so that the stats have all of its wait */
    if (serving_out != NULL)
        router_job_serving(job, serving_out);
    router_job_free(job);
    router_place_queued(router);
}

static void backend_pause(void *self, struct gen_handle *handle, bool is_paused)
{
    gen_handle_pause(handle, is_paused);
}

static bool backend_is_ready(void *self, struct buf *detail)
{
    struct router *router = self;
    uint32_t n[PICKER_BOTH + 1] = {0};

    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++) {
        if (router_worker_usable(&router->workers[slot]))
            n[router->workers[slot].role]++;
    }
    if (detail != NULL)
        buf_printf(detail,
                   "prefill workers: %u\ndecode workers: %u\nworkers of both roles: %u\ndraining: %s\n",
                   n[PICKER_PREFILL], n[PICKER_DECODE], n[PICKER_BOTH],
                   router->life != DAEMON_SERVING ? "yes" : "no");
    return n[PICKER_PREFILL] + n[PICKER_DECODE] + n[PICKER_BOTH] > 0 && router->life == DAEMON_SERVING;
}

struct backend router_backend(struct router *router)
{
    static const struct backend_ops ops = {.model = backend_model,
                                           .model_at = backend_model_at,
                                           .model_keep = backend_model_keep,
                                           .model_drop = backend_model_drop,
                                           .why_not_yet = backend_why_not_yet,
                                           .submit = backend_submit,
                                           .resume = router_resume,
                                           .restart = router_streams_restart,
                                           .cancel = backend_cancel,
                                           .pause = backend_pause,
                                           .is_ready = backend_is_ready};

    return (struct backend){.ops = &ops, .self = router};
}

/* ---- ends ---- */

void router_job_fail(struct job *job, int status, const char *type, const char *message, uint32_t retry_s)
{
    struct gen_failure failure = {
        .status = status, .type = type, .message = message, .retry_after_s = retry_s};

    job_leave(job, JOB_FAILED);
    gen_handle_fail(&job->handle, &failure);
}

void router_job_end(struct job *job, enum work_end end)
{
    if (job_is_in(job, JOB_HOLDS))
        router_job_release(job);
    router_admission_ended(job);
    job_leave(job, JOB_ENDED);
    gen_handle_end(&job->handle, end);
    router_place_queued(job->router);
}

/* Called before the front receives the end or the failure. */
static void job_close(struct gen_handle *handle, struct gen_serving *serving_out)
{
    struct job *job = job_of(handle);

    router_job_serving(job, serving_out);
    router_job_enter(job, JOB_OVER);
    router_job_free(job);
}

int router_jobs_open(struct router *router)
{
    list_init(&router->jobs);
    list_init(&router->timed);
    router_pause_open(router);
    return gen_outbox_open(&router->outbox, router->loop, job_close);
}

void router_job_detach(struct job *job)
{
    struct gen_serving serving;

    router_job_serving(job, &serving);
    job_cancel_part(job, &job->prefill);
    job_cancel_part(job, &job->decode);
    job->prefill = job->decode = (struct job_part){.slot = PICKER_NONE}; /* their stats are in the sum now */
    job->sum = serving;
    job->keeps_layout |= router_job_answered(job) > 0 || job->score_next > 1;
}

/* True: too many failed attempts in a row added nothing to the answer.  A long stream may lose any number of workers. */
static bool dispatch_is_futile(struct job *job)
{
    uint32_t answered = router_job_answered(job);

    job->n_futile = answered > job->answered_then ? 1 : job->n_futile + 1;
    job->answered_then = answered;
    return job->n_futile > MAX_ATTEMPTS;
}

void router_job_replace(struct job *job, uint32_t failed_slot, int error)
{
    if (job_is_in(job, JOB_HOLDS))
        router_job_release(job);       /* its held tokens waited for a report of the failed worker */
    if (job_is_in(job, JOB_REPORTS)) { /* only serving stats are missing */
        router_job_end(job, job->end);
        return;
    }
    router_worker_failed(job->router, failed_slot, error);
    router_spans_over(job, E_PEER);
    picker_slots_add(&job->excluded, failed_slot);
    router_job_detach(job);
    job->sum.n_redispatched++;
    if (dispatch_is_futile(job)) {
        router_job_fail(job, 500, "api_error", "The request failed on every worker that tried it", 0);
        return;
    }
    metric_add(job->router->m_redispatched, 1);
    log_warn("job_replaced", LOG_STR("request_id", job->order.work.request_id),
             LOG_STR("worker", job->router->workers[failed_slot].node),
             LOG_U64("answered", job->handle.n_delivered));
    if (router_job_answered(job) == job->order.work.max_new_tokens) {
        router_job_end(job, WORK_END_LENGTH); /* only the final message was missing */
        return;
    }
    router_chain_work(job);
    if (router_job_place(job) < 0)
        router_queue_add(job, true);
}
