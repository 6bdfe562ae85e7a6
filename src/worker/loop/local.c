/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's own endpoint: the front's backend on top of this worker's engine thread, so that curl works
 * against any daemon. */
#include "worker/loop/worker_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/hashmap.h"
#include "base/str.h"
#include "serve/prompt/scores.h"

struct gen_handle { /* a local job */
    struct worker *worker;
    uint64_t number;
    uint32_t n_prompt;
    uint32_t n_delivered;
    bool is_paused;
    struct gen_events events;
    void *arg;
    token_id *held; /* tokens held while the client is paused */
    uint32_t n_held, cap_held;
    struct sample_result *held_draws; /* [cap_held], if wanted */
    bool wants_logprob;
    struct scores scores; /* held while the client is paused */
    bool has_ended;
    enum gen_end end;
    struct gen_proof proof;
    uint64_t submitted_ns, first_token_ns;
};

static void job_free(struct gen_handle *job)
{
    hashmap_remove(job->worker->local_jobs, &job->number);
    free(job->held);
    free(job->held_draws);
    scores_fini(&job->scores);
    free(job);
}

/* ---- backend ---- */

static const struct gen_model *local_model(void *self, const char *name)
{
    struct worker *worker = self;

    return name == NULL || strcmp(name, worker->model.name) == 0 ? &worker->model : NULL;
}

static const struct gen_model *local_model_at(void *self, size_t index)
{
    struct worker *worker = self;

    return index == 0 ? &worker->model : NULL;
}

static int send_submit(struct worker *worker, struct gen_handle *job, struct work_order *order)
{
    struct command *command = command_new(COMMAND_SUBMIT, ORIGIN_LOCAL);

    if (command == NULL)
        return E_NOMEM;
    command->as.submit = (struct task_spec){.key.request = job->number,
                                            .origin = ORIGIN_LOCAL,
                                            .mode = TASK_LOCAL,
                                            .peer = PEER_NONE,
                                            .holder = PEER_NONE,
                                            .order = work_order_move(order)};
    return worker_engine_send(worker->engine, command);
}

static int local_submit(void *self, const struct gen_model *model, struct work_order *order,
                        const struct gen_events *events, void *arg, struct gen_handle **out,
                        struct gen_failure *failure_out)
{
    struct worker *worker = self;
    struct gen_handle *job = calloc(1, sizeof(*job));
    int rc = E_NOMEM;

    if (job != NULL) {
        job->worker = worker;
        job->number = ++worker->next_local;
        job->n_prompt = order->n_tokens;
        job->wants_logprob = order->work.sample.wants_logprob;
        job->events = *events;
        job->arg = arg;
        job->submitted_ns = clock_now_ns();
        rc = hashmap_put(worker->local_jobs, &job->number, job, NULL);
        if (rc == 0)
            rc = send_submit(worker, job, order);
    }
    work_order_fini(order);
    if (rc < 0) {
        if (job != NULL)
            job_free(job);
        *failure_out = (struct gen_failure){
            .status = 529, .type = "overloaded_error", .message = "Overloaded", .retry_after_s = 1};
        return rc;
    }
    *out = job;
    return 0;
}

static void local_cancel(void *self, struct gen_handle *job, struct gen_proof *proof_out)
{
    struct worker *worker = self;
    struct command *command = command_new(COMMAND_CANCEL, ORIGIN_LOCAL);

    if (proof_out != NULL) {
        *proof_out = job->proof;
        proof_out->prompt_tokens = job->n_prompt;
        proof_out->drawn_tokens = job->n_delivered;
        proof_out->total_ns = clock_now_ns() - job->submitted_ns;
        proof_out->ttft_ns = job->first_token_ns ? job->first_token_ns - job->submitted_ns : 0;
        str_copy(proof_out->decode_worker, sizeof(proof_out->decode_worker), worker->conf->node);
    }
    if (command != NULL) {
        command->key.request = job->number;
        (void)worker_engine_send(worker->engine, command);
    }
    job_free(job);
}

/* Delivers prompt logprobs. False: the callback cancelled the job. */
static bool deliver_scores(struct gen_handle *job, const struct sample_result *scores, uint32_t n)
{
    struct worker *worker = job->worker;
    uint64_t number = job->number;

    if (n == 0)
        return true;
    job->events.on_tokens(job->arg,
                          &(struct gen_tokens){.draws = scores, .n = n, .is_prompt_logprobs = true});
    return hashmap_get(worker->local_jobs, &number) == job;
}

static void deliver(struct gen_handle *job)
{
    struct worker *worker = job->worker;
    uint64_t number = job->number;
    uint32_t n_scores = job->scores.n;

    if (job->is_paused)
        return;
    job->scores.n = 0;
    if (!deliver_scores(job, job->scores.held, n_scores))
        return;
    if (job->n_held > 0) {
        uint32_t n = job->n_held;

        if (job->first_token_ns == 0)
            job->first_token_ns = clock_now_ns();
        job->n_held = 0;
        job->n_delivered += n;
        job->events.on_tokens(job->arg,
                              &(struct gen_tokens){.ids = job->held, .n = n, .draws = job->held_draws});
        if (hashmap_get(worker->local_jobs, &number) != job)
            return; /* the callback cancelled it */
    }
    if (job->scores.has_stop) {
        job->scores.has_stop = false;
        if (!deliver_scores(job, &job->scores.stop, 1))
            return;
    }
    if (job->has_ended) {
        struct gen_events events = job->events;
        void *arg = job->arg;
        struct gen_proof proof = job->proof;
        enum gen_end end = job->end;

        proof.prompt_tokens = job->n_prompt;
        proof.drawn_tokens = job->n_delivered;
        proof.total_ns = clock_now_ns() - job->submitted_ns;
        proof.ttft_ns = job->first_token_ns ? job->first_token_ns - job->submitted_ns : 0;
        str_copy(proof.decode_worker, sizeof(proof.decode_worker), worker->conf->node);
        job_free(job);
        events.on_end(arg, end, &proof);
    }
}

static void local_pause(void *self, struct gen_handle *job, bool is_paused)
{
    job->is_paused = is_paused;
    deliver(job);
}

static bool local_is_ready(void *self, struct buf *detail)
{
    struct worker *worker = self;
    uint32_t n_up = 0;

    for (uint32_t i = 0; i < worker->n_routers; i++)
        n_up += worker_router_is_up(&worker->routers[i]);
    if (detail != NULL) {
        buf_printf(detail, "model: %s\nrouters: %u of %u\n",
                   worker->load.is_unfit ? WORKER_SPOILT_TEXT : "ok", n_up, worker->n_routers);
        for (uint32_t i = 0; i < worker->n_routers; i++)
            buf_printf(detail, "router %s: %s\n", worker->routers[i].address,
                       worker_router_why(&worker->routers[i]));
        buf_printf(detail, "draining: %s\n", worker->life != DAEMON_SERVING ? "yes" : "no");
    }
    return worker->life == DAEMON_SERVING && !worker->load.is_unfit && (n_up > 0 || worker->n_routers == 0);
}

struct backend worker_backend(struct worker *worker)
{
    static const struct backend_ops ops = {.model = local_model,
                                           .model_at = local_model_at,
                                           .submit = local_submit,
                                           .cancel = local_cancel,
                                           .pause = local_pause,
                                           .is_ready = local_is_ready};

    return (struct backend){.ops = &ops, .self = worker};
}

/* ---- reports of the engine thread ---- */

static void fail(struct gen_handle *job, int error, const char *text)
{
    struct gen_failure failure = {.status = 529,
                                  .type = "overloaded_error",
                                  .message = "Overloaded: the worker cannot take this request now",
                                  .retry_after_s = 1};
    struct gen_events events = job->events;
    void *arg = job->arg;

    if (error == E_LIMIT)
        failure = (struct gen_failure){.status = 400,
                                       .type = "invalid_request_error",
                                       .message = "The prompt does not fit the worker's KV memory; "
                                                  "a larger kv.memory would hold it"};
    else if (error == E_CLOSED)
        failure = (struct gen_failure){
            .status = 503, .type = "api_error", .message = "The worker is draining", .retry_after_s = 1};
    else if (error == E_FORMAT)
        failure = (struct gen_failure){.status = 400, .type = "invalid_request_error", .message = text};
    else if (error == E_CONSTRAINT || error == E_NUMERICS)
        failure = (struct gen_failure){.status = 500, .type = "api_error", .message = text};
    else if (error != E_OVERLOADED && error != E_KV_FULL)
        failure = (struct gen_failure){.status = 500, .type = "api_error", .message = "The engine failed"};
    job_free(job);
    events.on_failure(arg, &failure);
}

static bool grow_held(struct gen_handle *job, uint32_t cap)
{
    token_id *grown = realloc(job->held, cap * sizeof(*grown));

    if (grown == NULL)
        return false;
    job->held = grown;
    if (job->wants_logprob) {
        struct sample_result *draws = realloc(job->held_draws, cap * sizeof(*draws));

        if (draws == NULL)
            return false;
        job->held_draws = draws;
    }
    job->cap_held = cap;
    return true;
}

/* draws: NULL if not wanted, or without memory for them. */
static void hold(struct gen_handle *job, const token_id *ids, const struct sample_result *draws, uint32_t n)
{
    if (job->n_held + n > job->cap_held && !grow_held(job, (job->n_held + n) * 2))
        return;
    memcpy(job->held + job->n_held, ids, n * sizeof(*ids));
    for (uint32_t i = 0; job->wants_logprob && i < n; i++)
        job->held_draws[job->n_held + i] = draws ? draws[i] : (struct sample_result){.id = ids[i]};
    job->n_held += n;
}

static void take_proof(struct gen_handle *job, const struct answer *answer)
{
    const struct seq_stats *stats = &answer->stats;

    job->proof.computed_tokens = stats->n_computed;
    job->proof.reused_tokens = stats->n_reused;
    job->proof.transferred_tokens = stats->n_transferred;
    job->proof.transfer_ns = answer->transfer_ns;
    job->proof.exposed_ns = answer->exposed_ns;
    str_copy(job->proof.transport, sizeof(job->proof.transport), answer->transport);
    job->proof.n_preempted = stats->n_preempted;
    job->proof.drafted_tokens = stats->n_drafted;
    job->proof.accepted_tokens = stats->n_accepted;
    job->proof.queue_ns = stats->queue_ns;
    job->proof.prefill_ns = stats->prefill_ns;
    job->proof.decode_ns = stats->decode_ns;
}

static void on_answer(struct worker *worker, const struct report *report, const struct answer *answer)
{
    struct gen_handle *job = hashmap_get(worker->local_jobs, &answer->request);
    uint64_t number = answer->request;

    if (job == NULL)
        return;
    if (answer->has_proof)
        take_proof(job, answer);
    if (answer->is_accepted) {
        job->events.on_accepted(job->arg, answer->cached_tokens);
        job = hashmap_get(worker->local_jobs, &number);
        if (job == NULL)
            return;
    }
    if (answer->is_prompt_logprobs && answer->n_draws == 0) {
        fail(job, E_NOMEM, "");
        return;
    }
    if (answer->is_prompt_logprobs && answer->first_index >= job->n_prompt) {
        job->scores.stop = report->draws[answer->draws_at];
        job->scores.has_stop = true;
    } else if (answer->is_prompt_logprobs) {
        if (scores_add(&job->scores, report->draws + answer->draws_at, answer->n_draws) < 0) {
            fail(job, E_NOMEM, "");
            return;
        }
    } else if (answer->n_ids > 0)
        hold(job, report->ids + answer->ids_at, answer->n_draws > 0 ? report->draws + answer->draws_at : NULL,
             answer->n_ids);
    if (answer->finish == BATON__FINISH__FINISH_FAILED) {
        fail(job, answer->error, answer->error_text != NULL ? answer->error_text : err_text(answer->error));
        return;
    }
    if (answer->finish != BATON__FINISH__FINISH_NONE) {
        job->has_ended = true;
        job->end = answer->finish == BATON__FINISH__FINISH_LENGTH    ? GEN_END_LENGTH
                   : answer->finish == BATON__FINISH__FINISH_CONTEXT ? GEN_END_CONTEXT
                                                                     : GEN_END_STOP_TOKEN;
    }
    deliver(job);
}

void worker_local_answers(struct worker *worker, const struct report *report)
{
    for (uint32_t i = 0; i < report->n_answers; i++)
        on_answer(worker, report, &report->answers[i]);
}
