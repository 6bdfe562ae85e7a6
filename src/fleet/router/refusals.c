/* SPDX-License-Identifier: Apache-2.0 */
/* When a job is refused, at arrival or after it has waited, and with which status and text.
 *
 *     no worker takes it now --> router_wait_or_refuse --> the queue --> placed (queue.c)
 *                                    |                         |
 *                                 refused                      +--> router_expire_queued --> refused
 *
 * The queue is bounded, and so is the time in it. With queue.refuse = predicted, a job waits until its first token would
 * miss the limit of its class (admission.c).  queue.timeout bounds all other waits of jobs that have not begun: those
 * with queue.refuse = timeout, of jobs whose limit is not known yet, and while no worker is ready.  A job that
 * has begun waits as long as any worker could continue it, and queue.resume_timeout after that. A full queue may
 * push out jobs of the tenant that has most in it (queue.c). */
#include "fleet/router/admission_priv.h"
#include "fleet/router/router_priv.h"

#include "base/clock.h"
#include "base/err.h"

static const struct gen_failure overloaded = {
    .status = 529,
    .type = "overloaded_error",
    .message = "Overloaded: all workers are busy, and as many requests wait as may",
};

static const struct gen_failure too_late = {
    .status = 529,
    .type = "overloaded_error",
    .message = "Overloaded: the first token is predicted to come later than the objective allows",
};

static const struct gen_failure share_used = {
    .status = 429,
    .type = "rate_limit_error",
    .message = "As many requests of this class wait as its share of the queue allows",
};

static const struct gen_failure deserted = {
    .status = 503,
    .type = "api_error",
    .message = "No worker that serves this model is ready",
    .retry_after_s = 1,
};

static const struct gen_failure too_large = {
    .status = 400,
    .type = "invalid_request_error",
    .message = "The prompt does not fit the workers' KV memory; a larger kv.memory would hold it",
};

/* True if the workers of its model are away, not busy. */
static bool is_deserted(const struct job *job)
{
    const struct router *router = job->router;

    return job->model->was_served &&
           picker_fleet_n_usable(router->fleet, (uint32_t)(job->model - router->models)) == 0;
}

/* ---- at arrival ---- */

/* Describes the failure if no connected worker has a capability that the job needs.
 * The text names the first one. */
static struct gen_failure not_known(uint64_t lacks)
{
#define X(name, number, text)                                                                                \
    if (lacks & CAPABILITY_##name)                                                                           \
        return (struct gen_failure){.status = 503,                                                           \
                                    .type = "api_error",                                                     \
                                    .message = "no worker of this model knows " text                         \
                                               ": they are of an older version"};
    CAPABILITY_LIST(X)
#undef X
    return overloaded;
}

static int job_turn_away(struct job *job, enum refusal_reason reason, int rc)
{
    router_refused(job, reason);
    return rc;
}

bool router_size_is_final(const struct job *job)
{
    const struct router_model *model = job->model;
    const struct router *router = job->router;

    return !router_is_returning(router) && !model->is_losing &&
           (model->lost_tokens <= job->order.n_tokens ||
            clock_now_ns() - model->lost_ns >= router->conf->link_return_ns);
}

void router_refuse_size(struct job *job)
{
    router_refused(job, REFUSED_SIZE);
    router_job_fail(job, too_large.status, too_large.type, too_large.message, 0);
}

int router_wait_or_refuse(struct job *job, int rc, struct gen_failure *failure_out)
{
    struct router *router = job->router;
    uint64_t lacks = router_job_lacks(job);

    if (lacks != 0) {
        *failure_out = not_known(lacks);
        return job_turn_away(job, REFUSED_OTHER, E_UNSUPPORTED);
    }
    if (rc == E_LIMIT && router_size_is_final(job)) {
        *failure_out = too_large;
        return job_turn_away(job, REFUSED_SIZE, E_LIMIT);
    }
    *failure_out = too_late;
    if (!job->awaits_pause && !router_admission_takes(job, &failure_out->retry_after_s))
        return router_admission_last_resort(job) ? 0 : job_turn_away(job, REFUSED_PREDICTED, E_OVERLOADED);
    if (!router_class_has_room(job)) {
        *failure_out = share_used;
        failure_out->retry_after_s = router_admission_come_back_s(job, REFUSED_SHARE);
        return job_turn_away(job, REFUSED_SHARE, E_OVERLOADED);
    }
    if (router->life != DAEMON_DRAINING && router_queue_has_room(job)) {
        router_queue_add(job, false);
        return 0;
    }
    if (is_deserted(job)) {
        *failure_out = deserted;
        return job_turn_away(job, REFUSED_DESERTED, E_OVERLOADED);
    }
    *failure_out = overloaded;
    failure_out->retry_after_s = router_admission_come_back_s(job, REFUSED_FULL);
    return job_turn_away(job, REFUSED_FULL, E_OVERLOADED);
}

/* ---- after a wait ---- */

/* True if a job that has begun may give up, because no worker could continue it for too long.
 * why_out: the picker's code. */
static bool is_forsaken(struct job *job, uint64_t now_ns, int *why_out)
{
    uint64_t most_ns = job->router->conf->queue_resume_ns;
    struct picker_place place;

    *why_out = router_choose(job, &place);
    if (*why_out == 0 || *why_out == E_OVERLOADED) {
        if (job->state == JOB_FORSAKEN)
            router_job_enter(job, JOB_REQUEUED);
        return false;
    }
    if (job->state != JOB_FORSAKEN)
        router_job_enter(job, JOB_FORSAKEN);
    return most_ns > 0 && now_ns > job->forsaken_ns && now_ns - job->forsaken_ns > most_ns;
}

static void job_give_up(struct job *job, int why)
{
    if (job_is_in(job, JOB_BEGUN) && why == E_LIMIT) {
        router_job_end(job, WORK_END_CONTEXT); /* its tokens so far fill the largest worker */
        return;
    }
    if (!job_is_in(job, JOB_BEGUN) && is_deserted(job)) {
        router_refused(job, REFUSED_DESERTED);
        router_job_fail(job, deserted.status, deserted.type, deserted.message, deserted.retry_after_s);
        return;
    }
    router_refused(job, REFUSED_TIMEOUT);
    router_job_fail(job, overloaded.status, overloaded.type,
                    job_is_in(job, JOB_BEGUN)
                        ? "Overloaded: no worker is left that could go on with this answer"
                        : "Overloaded: waited for a worker until the queue's time limit",
                    router_admission_come_back_s(job, REFUSED_TIMEOUT));
}

/* Refuses a waiting job whose first token would come too late, unless an idle worker begins it. */
static bool job_miss(struct job *job, uint64_t now_ns)
{
    uint32_t retry_s = 0;

    if (router_job_has_begun(job) || is_deserted(job))
        return false;
    if (job->limit_s <= 0 ? router_admission_takes(job, &retry_s) : !router_admission_is_late(job, now_ns))
        return false;
    if (!router_admission_last_resort(job)) {
        router_refused(job, REFUSED_LATE);
        if (retry_s == 0)
            retry_s = router_admission_come_back_s(job, REFUSED_LATE);
        router_job_fail(job, too_late.status, too_late.type, too_late.message, retry_s);
    }
    return true;
}

/* True if a job that has not begun here has waited for queue.timeout.  If it has a limit, that is for want of a ready
 * worker only.  A resumed one waits only if no worker can run it, for queue.resume_timeout. */
static bool is_timed_out(const struct job *job, uint64_t now_ns)
{
    uint64_t from_ns = job->queued_ns, resume_ns = job->router->conf->queue_resume_ns;

    if (job->is_resumed)
        return resume_ns > 0 && now_ns - from_ns > resume_ns;
    if (router_admission_bounds(job)) {
        if (!is_deserted(job))
            return false;
        from_ns = from_ns > job->model->usable_ns ? from_ns : job->model->usable_ns;
    }
    return now_ns - from_ns > job->router->conf->queue_timeout_ns;
}

static void job_expire(struct job *job, uint64_t now_ns)
{
    int why = E_OVERLOADED;
    bool is_over;

    if (!is_deserted(job))
        job->model->usable_ns = now_ns;
    if (job_miss(job, now_ns))
        return;
    is_over = job_is_in(job, JOB_BEGUN) ? is_forsaken(job, now_ns, &why) : is_timed_out(job, now_ns);
    if (is_over)
        job_give_up(job, why);
}

bool router_expire_step(struct router *router)
{
    struct list *node = router_walk_step(&router->slices.queue, &router->queue);

    if (node != NULL)
        job_expire(container_of(node, struct job, waiting), clock_now_ns());
    return node != NULL;
}

void router_expire_queued(struct router *router)
{
    router_slices_ask(router, SLICE_EXPIRE);
}
