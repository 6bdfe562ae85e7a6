/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's own endpoint:
 * the front's backend on this worker's engine thread, so that curl works with any daemon. */
#include "worker/loop/worker_priv.h"
#include "worker/loop/discovery_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hashmap.h"
#include "base/str.h"
#include "compute/order/submit.h"

struct local_job {
    struct gen_handle handle;
    struct work_order order; /* only the answer's tokens, because the engine thread has the prompt */
    struct worker *worker;
    uint64_t number;
    uint32_t n_prompt;
    struct gen_serving serving;
};

static struct local_job *local_job_of(struct gen_handle *handle)
{
    return container_of(handle, struct local_job, handle);
}

static void local_job_free(struct local_job *job)
{
    hashmap_remove(job->worker->local_jobs, &job->number);
    gen_handle_fini(&job->handle);
    work_order_fini(&job->order);
    free(job);
}

static void local_job_serving(const struct local_job *job, struct gen_serving *out)
{
    *out = job->serving;
    out->prompt_tokens = job->n_prompt;
    gen_handle_serving(&job->handle, out);
    str_copy(out->decode_worker, sizeof(out->decode_worker), job->worker->conf->node);
}

static void local_job_close(struct gen_handle *handle, struct gen_serving *serving_out)
{
    struct local_job *job = local_job_of(handle);

    local_job_serving(job, serving_out);
    local_job_free(job);
}

int worker_local_open(struct worker *worker)
{
    int rc = hashmap_new(sizeof(uint64_t), &worker->local_jobs);

    return rc < 0 ? rc : gen_outbox_open(&worker->local_outbox, worker->loop, local_job_close);
}

void worker_local_close(struct worker *worker)
{
    gen_outbox_close(&worker->local_outbox);
    hashmap_free(worker->local_jobs);
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

static int send_submit(struct worker *worker, struct local_job *job, struct work_order *order)
{
    struct command *command = command_new(COMMAND_SUBMIT, ORIGIN_LOCAL);

    if (command == NULL)
        return E_NOMEM;
    command->as.submit = (struct task_spec){.key.request = job->number,
                                            .origin = ORIGIN_LOCAL,
                                            .mode = TASK_LOCAL,
                                            .peer = PEER_NONE,
                                            .owner = PEER_NONE,
                                            .order = work_order_move(order)};
    return worker_engine_send(worker->engine, command);
}

static int local_submit(void *self, const struct gen_start *start, struct gen_handle **out,
                        struct gen_failure *failure_out)
{
    struct worker *worker = self;
    struct work_order *order = start->order;
    struct local_job *job = calloc(1, sizeof(*job));
    int rc = E_NOMEM;

    if (job != NULL) {
        job->worker = worker;
        job->number = ++worker->next_local;
        job->n_prompt = order->n_tokens;
        job->order.work.sample.wants_logprob = order->work.sample.wants_logprob;
        job->order.work.wants_embedding = order->work.wants_embedding;
        gen_handle_init(&job->handle, &worker->local_outbox, &job->order, start->events, start->arg);
        rc = hashmap_put(worker->local_jobs, &job->number, job, NULL);
        if (rc == 0)
            rc = send_submit(worker, job, order);
    }
    work_order_fini(order);
    if (rc < 0) {
        if (job != NULL)
            local_job_free(job);
        *failure_out = (struct gen_failure){
            .status = 529, .type = "overloaded_error", .message = "Overloaded", .retry_after_s = 1};
        return rc;
    }
    *out = &job->handle;
    return 0;
}

static void local_cancel(void *self, struct gen_handle *handle, struct gen_serving *serving_out)
{
    struct worker *worker = self;
    struct local_job *job = local_job_of(handle);
    struct command *command = command_new(COMMAND_CANCEL, ORIGIN_LOCAL);

    if (serving_out != NULL)
        local_job_serving(job, serving_out);
    if (command != NULL) {
        command->key.request = job->number;
        (void)worker_engine_send(worker->engine, command);
    }
    local_job_free(job);
}

static void local_pause(void *self, struct gen_handle *handle, bool is_paused)
{
    gen_handle_pause(handle, is_paused);
}

static bool local_is_ready(void *self, struct buf *detail)
{
    struct worker *worker = self;
    uint32_t n_up = 0, n = 0;

    for (uint32_t i = 0; i < worker->n_routers; i++) {
        n += worker->routers[i].link != NULL;
        n_up += worker_router_is_up(&worker->routers[i]);
    }
    if (detail != NULL) {
        buf_printf(detail, "model: %s\nrouters: %u of %u\n",
                   worker->load.is_unfit ? WORKER_SPOILT_TEXT : "ok", n_up, n);
        for (uint32_t i = 0; i < worker->n_routers; i++)
            if (worker->routers[i].link != NULL)
                buf_printf(detail, "router %s: %s\n", worker->routers[i].address,
                           worker_router_why(&worker->routers[i]));
        buf_printf(detail, "draining: %s\n", worker->life != DAEMON_SERVING ? "yes" : "no");
    }
    return worker->life == DAEMON_SERVING && !worker->load.is_unfit &&
           (n_up > 0 || (n == 0 && !worker_discovery_finds_routers(worker)));
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

static void local_job_fail(struct local_job *job, int error, const char *text)
{
    struct gen_failure failure = {.status = 529,
                                  .type = "overloaded_error",
                                  .message = "Overloaded: the worker cannot take this request now",
                                  .retry_after_s = 1};

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
    gen_handle_fail(&job->handle, &failure);
}

/* Copies the report's sampling results, which exist if the request wants them and memory sufficed. */
static int local_job_hold(struct local_job *job, const struct report *report,
                          const struct task_answer *answer)
{
    const token_id *ids = report->ids + answer->ids_at;

    if (job->order.work.wants_embedding && answer->n_ids > 0 &&
        gen_handle_embedding(&job->handle, report->embeddings + answer->embedding_at, answer->n_embedding) <
            0)
        return E_NOMEM;
    for (uint32_t i = 0; i < answer->n_ids; i++) {
        if (job->order.work.sample.wants_logprob) {
            struct sample_result *draw = gen_handle_draw(&job->handle);

            if (draw == NULL)
                return E_NOMEM;
            *draw = answer->n_draws > 0 ? report->draws[answer->draws_at + i]
                                        : (struct sample_result){.id = ids[i]};
        }
        if (gen_handle_token(&job->handle, ids[i]) < 0)
            return E_NOMEM;
    }
    return 0;
}

static int local_job_hold_scores(struct local_job *job, const struct report *report,
                                 const struct task_answer *answer)
{
    if (answer->n_draws == 0)
        return E_NOMEM;
    if (answer->first_index < job->n_prompt)
        return gen_handle_scores(&job->handle, report->draws + answer->draws_at, answer->n_draws);
    gen_handle_stop_score(&job->handle, &report->draws[answer->draws_at]);
    return 0;
}

static void local_job_take_serving(struct local_job *job, const struct task_answer *answer)
{
    Baton__Serving serving;

    worker_answer_serving(answer, &serving);
#define TAKE(type, member, field) job->serving.member = serving.field;
    GEN_SERVING_COUNTS(TAKE)
    GEN_SERVING_TIMES(TAKE)
#undef TAKE
    str_copy(job->serving.transport, sizeof(job->serving.transport), answer->figures.transport);
}

static void local_job_end(struct local_job *job, Baton__Finish finish)
{
    enum work_end end = WORK_END_STOP_TOKEN;

    (void)work_end_of(finish, &end);
    gen_handle_end(&job->handle, end);
}

static void local_job_on_answer(struct worker *worker, const struct report *report,
                                const struct task_answer *answer)
{
    struct local_job *job = hashmap_get(worker->local_jobs, &answer->request);

    if (job == NULL || job->handle.outcome != GEN_RUNNING)
        return;
    if (answer->has_serving)
        local_job_take_serving(job, answer);
    if (answer->is_accepted)
        gen_handle_accept(&job->handle, answer->cached_tokens);
    if ((answer->is_prompt_logprobs ? local_job_hold_scores(job, report, answer)
                                    : local_job_hold(job, report, answer)) < 0)
        local_job_fail(job, E_NOMEM, "");
    else if (answer->finish == BATON__FINISH__FINISH_FAILED)
        local_job_fail(job, answer->error,
                       answer->error_text != NULL ? answer->error_text : err_text(answer->error));
    else if (answer->finish != BATON__FINISH__FINISH_NONE)
        local_job_end(job, answer->finish);
}

void worker_local_answers(struct worker *worker, const struct report *report)
{
    gen_outbox_begin(&worker->local_outbox);
    for (uint32_t i = 0; i < report->n_answers; i++)
        local_job_on_answer(worker, report, &report->answers[i]);
    gen_outbox_flush(&worker->local_outbox);
}
