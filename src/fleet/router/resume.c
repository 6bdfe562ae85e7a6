/* SPDX-License-Identifier: Apache-2.0 */
/* Continues a stream that another router began, or this router in an earlier life.
 *
 *      the client's request --> RESUMING: RESUME to each worker of its model that keeps tails
 *                                  |            | RESUMED: here
 *                                  |            v
 *                                  |         PLACED at that worker, as if this router had dispatched the job
 *                                  |            | TOKENS: the whole answer so far, then new tokens
 *                                  |            v
 *                                  |         ANSWERING
 *                                  |--no worker has it--> its order, in a store or at workers (streams.c), or 404
 *                                  '--a worker does not reply within RESUME_WAIT_NS, or has it with another file of the
 *                                     model's name and another prompt--> 503: try again
 *
 * The worker's SUBMIT replaces the order that the front made from the client's body, because it has the seed and
 * the first router's prompt.  Of a long prompt it has the first piece only; the later pieces come from the body.
 * Then the job can be placed again like any other.  After a restart some workers are not connected yet; the job
 * waits for them as long as for an unknown model (link.return_grace). */
#include "fleet/router/router_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "compute/order/submit.h"
#include "fleet/router/streams_priv.h"

#define RESUME_WAIT_NS (2 * NS_PER_S)

static const struct gen_failure not_kept = {
    .status = 404,
    .type = "not_found_error",
    .message = "No worker keeps this stream: it is not this key's, the body is not the one that began it, "
               "its time to "
               "come back is over, or its worker is gone",
};

static const struct gen_failure unknown_yet = {
    .status = 503,
    .type = "api_error",
    .message = "A worker does not say whether it keeps this stream; come back again",
    .retry_after_s = 1,
};

static const struct gen_failure stopping = {
    .status = 503,
    .type = "api_error",
    .message = "This router is stopping; come back at another one",
    .retry_after_s = 1,
};

static const struct gen_failure no_memory = {.status = 500, .type = "api_error", .message = "Out of memory"};

bool router_resume_concerns(const struct job *job, const struct router_model *model)
{
    return model == job->model ||
           (model != NULL && model->is_ready && strcmp(model->gen.name, job->model->gen.name) == 0 &&
            tokenizer_vocab_size(model->gen.tokenizer) == tokenizer_vocab_size(job->model->gen.tokenizer));
}

/* True if workers of another file of that name are connected that cannot be asked: the front reads with this file's vocabulary,
 * or the other one is not complete yet.  A request that comes later may be given that file. */
static bool resume_has_unasked_file(const struct job *job)
{
    const struct router *router = job->router;

    for (uint32_t i = 0; i < router->n_models; i++) {
        const struct router_model *model = &router->models[i];

        if (!model->is_failed && strcmp(model->gen.name, job->model->gen.name) == 0 &&
            !router_resume_concerns(job, model) && router_model_is_linked(router, model))
            return true;
    }
    return false;
}

static void resume_ask(struct job *job, uint32_t slot)
{
    const struct router_worker *worker = &job->router->workers[slot];
    Baton__Resume resume = BATON__RESUME__INIT;

    if (worker->link == NULL || !link_is_up(worker->link) || !router_resume_concerns(job, worker->model) ||
        (worker->capabilities & CAPABILITY_RESUMES) == 0)
        return;
    resume.request = job->number;
    resume.request_id = job->order.work.request_id;
    resume.tenant = job->order.work.tenant;
    resume.body_digest.data = job->order.work.resume.body_digest;
    resume.body_digest.len = sizeof(job->order.work.resume.body_digest);
    resume.has_prompt = true;
    job->n_asked += router_send(job->router, slot, FRAME_RESUME, &resume.base) == 0;
}

/* A client gives up at 404: only a reply that will stay the same may cause it. */
static const struct gen_failure *resume_failure(const struct job *job, int rc)
{
    if (rc == E_NOMEM)
        return &no_memory;
    if (rc == E_CLOSED)
        return &stopping;
    if (job->n_asked > 0 || job->is_order_unknown || resume_has_unasked_file(job))
        return &unknown_yet;
    return rc == E_NOT_FOUND || rc == E_MISMATCH || rc == E_PROTO || rc == E_UNSUPPORTED ? &not_kept
                                                                                         : &unknown_yet;
}

int router_resume(void *self, const struct gen_start *start, struct gen_handle **out,
                  struct gen_failure *failure_out)
{
    struct router *router = self;
    struct job *job;
    int rc = router_job_make(router, start->model, start->order, &job);

    *failure_out = no_memory;
    if (rc < 0)
        return rc;
    job->handle.events = start->events;
    job->handle.arg = start->arg;
    job->is_resumed = true;
    router_job_number(job);
    router_job_enter(job, JOB_RESUMING);
    rc = hashmap_put(router->by_number, &job->number, job, NULL);
    for (uint32_t slot = 0; rc == 0 && slot < PICKER_MAX_WORKERS; slot++)
        resume_ask(job, slot);
    if (rc == 0 && job->n_asked == 0 && !router_is_returning(router) && !router_streams_ask(job)) {
        rc = E_NOT_FOUND;
        *failure_out = *resume_failure(job, rc);
    }
    if (rc < 0) {
        router_job_enter(job, JOB_OVER);
        router_job_free(job);
        return rc;
    }
    *out = &job->handle;
    return 0;
}

void router_resume_fail(struct job *job, int rc)
{
    const struct gen_failure *failure = resume_failure(job, rc);

    router_job_fail(job, failure->status, failure->type, failure->message, failure->retry_after_s);
}

/* No worker has it, or a worker is silent: the shared store, or workers, may have its order. */
static void resume_elsewhere(struct job *job)
{
    if (!router_streams_ask(job))
        router_resume_fail(job, E_NOT_FOUND);
}

void router_resume_worker_up(struct job *job, uint32_t slot)
{
    if (job->state == JOB_RESUMING)
        resume_ask(job, slot);
}

void router_resume_tick(struct job *job, uint64_t now_ns)
{
    bool is_unasked = job->n_asked == 0 && job->store_ask == NULL;

    if ((is_unasked || now_ns - job->held_ns > RESUME_WAIT_NS) && !router_is_returning(job->router))
        resume_elsewhere(job);
}

/* ---- the worker's answer ---- */

static void resume_decline(struct router *router, uint32_t slot, uint64_t number, bool keeps_tail)
{
    Baton__Cancel cancel = BATON__CANCEL__INIT;

    cancel.request = number;
    cancel.keeps_tail = keeps_tail;
    (void)router_send(router, slot, FRAME_CANCEL, &cancel.base);
}

/* Unpacks the worker's order.  E_PROTO, E_NOMEM.
 * E_UNSUPPORTED: log probabilities of earlier tokens are lost. */
static int router_resume_unpack(const struct job *job, const Baton__Submit *submit, struct work_order *out)
{
    uint32_t vocab_size = tokenizer_vocab_size(job->model->gen.tokenizer);
    int rc = work_submit_unpack(submit, out);

    if (rc < 0)
        return rc;
    if (out->n_tokens > job->model->gen.context_length ||
        strcmp(out->work.request_id, job->order.work.request_id) != 0 ||
        strcmp(out->work.tenant, job->order.work.tenant) != 0 || out->work.score_from > 0)
        return E_PROTO;
    for (uint32_t i = 0; i < out->n_tokens; i++)
        if (out->tokens[i] >= vocab_size)
            return E_PROTO;
    if (submit->n_tokens_later > 0)
        return 0;
    if (out->work.sample.wants_logprob && out->n_tokens > out->n_prompt)
        return E_UNSUPPORTED;
    out->work.max_new_tokens += out->n_tokens - out->n_prompt;
    return 0;
}

/* Completes an order of which the worker has only the first piece: takes the later pieces from the front's order.
 * E_NOT_FOUND: the two orders have different prompts. */
static int resume_complete_order(struct job *job, const Baton__Resumed *resumed, struct work_order *order)
{
    token_id *piece = order->tokens;

    if (resumed->submit->n_tokens_later == 0)
        return 0;
    if (order->n_prompt != job->order.n_prompt || work_order_hash_prompt(&job->order) != resumed->prompt_hash)
        return E_NOT_FOUND;
    order->work.max_new_tokens += order->n_tokens + resumed->submit->n_tokens_later - order->n_prompt;
    order->tokens = job->order.tokens;
    order->n_tokens = order->n_prompt;
    job->order.tokens = piece; /* freed with the front's order */
    return 1;
}

/* The job is RESUMING, and a worker of another model of its name has the stream.  E_NOMEM. */
static int resume_move(struct job *job, struct router_model *model)
{
    router_queue_exit(job);
    job->model->n_jobs--;
    job->model->n_seated[job->class_at]--;
    job->model = model;
    model->n_jobs++;
    model->n_seated[job->class_at]++;
    return router_queue_enter(job);
}

/* Takes the worker's order.  The first router may have found other cached answers in the prompt; then its
 * hashes differ too.  Of another model the prompt must be the same: then so is the vocabulary, by which the front reads
 * the answer.  E_NOMEM, E_NOT_FOUND. */
static int resume_take_order(struct job *job, struct work_order *order, bool is_completed,
                             struct router_model *model)
{
    size_t n_bytes = order->n_prompt * sizeof(*order->tokens);
    bool is_same = is_completed || (order->n_prompt == job->order.n_prompt &&
                                    memcmp(order->tokens, job->order.tokens, n_bytes) == 0);
    bool is_moved = model != job->model;
    int rc = !is_moved ? 0 : is_same ? resume_move(job, model) : E_NOT_FOUND;

    if (rc < 0) {
        work_order_fini(order);
        return rc;
    }
    work_order_fini(&job->order);
    job->order = work_order_move(order);
    job->handle.cap_tokens = job->order.n_tokens;
    if (is_same && !is_moved)
        return 0;
    list_remove(&job->unhashed);
    free(job->hashes);
    job->hashes = NULL;
    job->n_blocks = job->n_hashes = 0;
    return router_chain_begin(job);
}

int router_resume_take(struct job *job, const Baton__Resumed *resumed, struct router_model *model)
{
    struct work_order order = {0};
    int rc = router_resume_unpack(job, resumed->submit, &order);

    if (rc == 0)
        rc = resume_complete_order(job, resumed, &order);
    if (rc < 0) {
        work_order_fini(&order);
        return rc;
    }
    return resume_take_order(job, &order, rc > 0, model);
}

static int resume_adopt(struct job *job, uint32_t slot, const Baton__Resumed *resumed)
{
    struct router *router = job->router;
    int rc = router_resume_take(job, resumed, router->workers[slot].model);

    if (rc < 0)
        return rc;
    job->decode = router_part_begin(router, slot);
    job->decode.booking =
        (struct picker_booking){.slot = slot, .charge = {.context_tokens = job->order.n_tokens}};
    picker_fleet_charge(router->fleet, slot, &job->decode.booking.charge, clock_now_ns());
    job->handle.ended_unix_s = resumed->ended_unix_s;
    job->layout = router->workers[slot].layout;
    job->keeps_layout = true;
    router->workers[slot].n_dispatched++;
    router_queue_charge(job, 1);
    router_job_enter(job, JOB_PLACED);
    router_streams_keep(job); /* because the first router may have removed it */
    job->is_stored = true;    /* by the first router, if not by this one: this one ends it */
    gen_handle_resume(&job->handle, false);
    return 0;
}

void router_resume_answer(struct router *router, uint32_t slot, const Baton__Resumed *resumed)
{
    struct job *job = hashmap_get(router->by_number, &resumed->request);
    int rc;

    if (job == NULL ||
        job->state != JOB_RESUMING) { /* too late for its client, which may come back, or another
                                                      * worker has the tail too */
        if (resumed->is_here && (job == NULL || job->decode.slot != slot))
            resume_decline(router, slot, resumed->request, job == NULL || job->state == JOB_READMITTING);
        return;
    }
    job->n_asked -= job->n_asked > 0;
    if (!resumed->is_here) {
        if (job->n_asked == 0 && !router_is_returning(router))
            resume_elsewhere(job);
        return;
    }
    rc = resume_adopt(job, slot, resumed);
    if (rc == 0) {
        metric_add(router->m_resumed, 1);
        log_info("stream_resumed", LOG_STR("request_id", job->order.work.request_id),
                 LOG_STR("worker", router->workers[slot].node));
        return;
    }
    log_warn("resume_failed", LOG_STR("request_id", job->order.work.request_id),
             LOG_STR("worker", router->workers[slot].node), LOG_ERR(rc));
    job->is_order_unknown =
        router->workers[slot].model != job->model; /* with that file's prompt it may fit */
    resume_decline(router, slot, resumed->request, job->is_order_unknown);
    job->n_asked = 0; /* this reply decides, not those of other workers */
    router_resume_fail(job, rc);
}
