/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a request.
 *
 *     RECEIVED ──parsed, tokenised──> TOKENISED ──submitted──> PLACED ──accepted──> PREFILLING
 *        │                               │ counted: DONE          │                      │ token
 *        │ malformed, too long           │ refused                │ failed               v
 *        └──────────────> FAILED <───────┴────────────────────────┴───────────────── STREAMING ──> DONE
 *
 *     and from everywhere, when the client goes away: CANCELLED
 *
 * Everything happens on the front's loop except the two pieces of work (parse_work, tokenise_work), which run
 * in the job pool when the body is large.  While one does, the request belongs to it, and a client's leaving
 * is only noted.
 *
 * request_enter is the only place that changes the state; request_end the only way out. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/rng.h"
#include "front/admit.h"
#include "front/unzip.h"

#define GZIP_WORK          8                  /* what a byte of gzip may well become */
#define MAX_UNZIPPED_BYTES ((size_t)32 << 20) /* when no other bound on bodies was given */

static const struct gen_events events;

static const struct backend *backend_of(const struct request *request)
{
    return &request->front->opts.backend;
}

static void request_enter(struct request *request, enum request_state state)
{
    enum request_state from = request->state;

    request->state = state;
    report_state(request, from);
}

/* ---- birth and end ---- */

static void on_ping(void *arg)
{
    struct request *request = arg;
    uint64_t ping_ns = request->front->opts.ping_ns;
    uint64_t now = clock_now_ns();

    if (now - request->event_ns >= ping_ns) {
        output_ping(request);
        now = request->event_ns;
    }
    ev_timer_start(request->ping, request->event_ns + ping_ns - now);
}

int request_new(struct front *front, struct http_exchange *exchange, enum api_call call,
                const struct auth_key *who, struct request **out)
{
    struct request *request;

    if (front->n_running >= front->opts.max_requests)
        return E_OVERLOADED;
    request = calloc(1, sizeof(*request));
    if (request == NULL)
        return E_NOMEM;
    if (ev_timer_new(front->opts.loop, on_ping, request, &request->ping) < 0) {
        free(request);
        return E_NOMEM;
    }
    request->front = front;
    request->exchange = exchange;
    request->call = call;
    request->who = *who;
    request->received_ns = http_exchange_began_ns(exchange);
    request->wants_proof = bytes_is(http_exchange_field(exchange, "baton-proof"), "stream");
    ids_make("req_", request->id);
    ids_make("msg_", request->message_id);
    ids_trace(http_exchange_field(exchange, "traceparent"), request->trace_id);
    memcpy(request->peer, http_exchange_peer(exchange), strlen(http_exchange_peer(exchange)) + 1);
    list_push_back(&front->requests, &request->node);
    front->n_running++;
    request_enter(request, REQUEST_RECEIVED);
    *out = request;
    return 0;
}

void request_free(struct request *request)
{
    struct front *front = request->front;

    atomic_store(&request->is_abandoned, true);
    if (pool_withdraw(&request->job))
        atomic_store(&request->is_working, false);
    while (atomic_load(&request->is_working))
        clock_sleep_ns(NS_PER_MS);
    if (request->model != NULL && backend_of(request)->ops->model_drop != NULL)
        backend_of(request)->ops->model_drop(backend_of(request)->self, request->model);
    admit_settle(request);
    list_remove(&request->node);
    front->n_running--;
    ev_timer_free(request->ping);
    answer_free(request->answer);
    output_fini(request);
    prompt_fini(&request->prompt);
    gen_request_fini(&request->gen);
    buf_fini(&request->body);
    free(request);
}

/* The last state; says so and, unless a job in the pool still needs it, frees the request. */
static void request_end(struct request *request, enum request_state state)
{
    ev_timer_stop(request->ping);
    request->last_ns = clock_now_ns();
    request_enter(request, state);
    report_end(request);
    admit_settle(request);
    if (!request->is_in_pool || request->job.is_waiting)
        request_free(request);
}

/* Takes it away from the backend, if that has it. */
static void withdraw(struct request *request)
{
    struct gen_handle *handle = request->handle;

    request->handle = NULL;
    if (handle != NULL)
        backend_of(request)->ops->cancel(backend_of(request)->self, handle, &request->proof);
}

static void request_fail(struct request *request, const struct api_error *error)
{
    withdraw(request);
    request->status = error->status;
    request->reason = error->type;
    output_error(request, error);
    request_end(request, REQUEST_FAILED);
}

static void fail_no_memory(struct request *request)
{
    struct api_error error;

    api_fail(&error, 503, "out of memory");
    request_fail(request, &error);
}

void request_refused(struct request *request, const struct api_error *error)
{
    request_fail(request, error);
}

void request_abort(struct request *request, enum http_abort why)
{
    request->exchange = NULL;
    request->status = 499;
    request->reason = why == HTTP_ABORT_SLOW_READER ? "slow_reader"
                      : why == HTTP_ABORT_SERVER    ? "server_shutdown"
                                                    : "client_abort";
    atomic_store(&request->is_abandoned, true);
    withdraw(request);
    request_end(request, REQUEST_CANCELLED);
}

void request_abandon(struct request *request)
{
    struct api_error error;

    if (request->state >= REQUEST_DONE)
        return;
    api_fail(&error, 503, "the server is shutting down");
    atomic_store(&request->is_abandoned, true);
    request_fail(request, &error);
}

void request_pause(struct request *request, bool is_paused)
{
    if (request->handle != NULL)
        backend_of(request)->ops->pause(backend_of(request)->self, request->handle, is_paused);
}

/* ---- work, on the loop or in the pool ---- */

/* The body as it was before its coding. */
static int unpack(struct request *request)
{
    size_t max_bytes = request->front->opts.limits.max_body_bytes;
    struct buf plain = {0};
    int rc;

    if (!request->is_gzip)
        return 0;
    rc = unzip_body(buf_view(&request->body), max_bytes > 0 ? max_bytes : MAX_UNZIPPED_BYTES, &plain);
    buf_fini(&request->body);
    request->body = plain;
    if (rc == E_NOMEM) {
        api_fail(&request->error, 503, "out of memory");
    } else if (rc == E_RANGE) {
        api_fail(&request->error, 413, "the decoded request body is too large");
        request->error.code = "request_body_too_large_after_decoding";
    } else if (rc < 0) {
        api_fail(&request->error, 400, "the request body is not valid gzip");
        request->error.code = "request_body_encoding_invalid";
    }
    return rc;
}

static void parse_work(void *arg)
{
    struct request *request = arg;

    if (!atomic_load(&request->is_abandoned))
        request->work_rc = unpack(request);
    if (!atomic_load(&request->is_abandoned) && request->work_rc == 0)
        request->work_rc =
            api_parse_request(buf_view(&request->body), request->call, &request->gen, &request->error);
    buf_fini(&request->body);
    atomic_store(&request->is_working, false);
}

static void tokenise_work(void *arg)
{
    struct request *request = arg;

    if (!atomic_load(&request->is_abandoned))
        request->work_rc = prompt_make(request->model, &request->gen, &request->prompt, &request->error);
    atomic_store(&request->is_working, false);
}

static void parse_done(void *arg);
static void tokenise_done(void *arg);

/* size_bytes: a rough measure of how long it takes; more than inline_bytes goes to the pool. */
static void run(struct request *request, size_t size_bytes, ev_call work, ev_call done)
{
    struct api_error error;
    int rc;

    atomic_store(&request->is_working, true);
    if (size_bytes <= request->front->opts.inline_bytes || request->front->pool == NULL) {
        work(request);
        done(request);
        return;
    }
    request->is_in_pool = true;
    request->job = (struct pool_job){.owner = limits_tenant(request->lease.account),
                                     .size_bytes = size_bytes,
                                     .work = work,
                                     .done = done,
                                     .arg = request};
    rc = pool_submit(request->front->pool, &request->job);
    if (rc == 0)
        return;
    request->is_in_pool = false;
    atomic_store(&request->is_working, false);
    if (rc == E_LIMIT)
        api_fail(&error, 429, "too many large requests of this tenant wait already");
    else
        api_fail(&error, 529, "Overloaded");
    request_fail(request, &error);
}

/* Back from the pool: false when the request ended meanwhile (and is gone now). */
static bool is_back(struct request *request)
{
    request->is_in_pool = false;
    if (request->state < REQUEST_DONE)
        return true;
    request_free(request);
    return false;
}

void request_begin(struct request *request)
{
    http_exchange_take_body(request->exchange, &request->body);
    run(request, request->body.len_bytes * (request->is_gzip ? GZIP_WORK : 1), parse_work, parse_done);
}

static void parse_done(void *arg)
{
    struct request *request = arg;
    const struct backend *backend = backend_of(request);
    struct api_error error;
    char name[sizeof(request->model->name)];

    if (!is_back(request))
        return;
    if (request->work_rc < 0) {
        request_fail(request, &request->error);
        return;
    }
    if (request->gen.model.len_bytes < sizeof(name) &&
        memchr(request->gen.model.data, '\0', request->gen.model.len_bytes) == NULL) {
        memcpy(name, request->gen.model.data, request->gen.model.len_bytes);
        name[request->gen.model.len_bytes] = '\0';
        request->model = backend->ops->model(backend->self, name);
    }
    if (request->model != NULL && admit_model(request, request->model->name, &error) < 0) {
        request->model = NULL;
        request_fail(request, &error);
        return;
    }
    if (request->model == NULL) {
        api_fail(&error, 404, "model: %.*s", (int)request->gen.model.len_bytes,
                 (const char *)request->gen.model.data);
        request_fail(request, &error);
        return;
    }
    if (backend->ops->model_keep != NULL)
        backend->ops->model_keep(backend->self, request->model);
    report_model(request);
    run(request, request->gen.arena.used_bytes, tokenise_work, tokenise_done);
}

/* ---- handing on ---- */

static int make_job(struct request *request, struct gen_job *job)
{
    const struct gen_request *gen = &request->gen;
    uint32_t n = (uint32_t)request->prompt.ids.n;
    uint32_t room = request->model->context_length - n;
    double temperature =
        isnan(gen->temperature) ? request->front->opts.default_temperature : gen->temperature;

    memset(job, 0, sizeof(*job));
    memcpy(job->request_id, request->id, sizeof(request->id));
    memcpy(job->tenant, request->who.tenant, sizeof(job->tenant));
    job->tokens = malloc((size_t)n * sizeof(*job->tokens));
    if (job->tokens == NULL)
        return E_NOMEM;
    memcpy(job->tokens, request->prompt.ids.ids, (size_t)n * sizeof(*job->tokens));
    job->n_tokens = n;
    request->is_clamped = gen->max_tokens > room;
    job->max_new_tokens = request->is_clamped ? room : gen->max_tokens;
    if (job->max_new_tokens == 0)
        job->max_new_tokens = 1; /* to compute the prompt only, one token is drawn and thrown away */
    job->sample = (struct sample_opts){.temperature = (float)temperature,
                                       .top_p = (float)gen->top_p,
                                       .min_p = (float)gen->min_p,
                                       .top_k = gen->top_k,
                                       .seed = gen->seed};
    if (!gen->has_seed)
        rng_system(&job->sample.seed, sizeof(job->sample.seed));
    return 0;
}

static void submit(struct request *request)
{
    const struct backend *backend = backend_of(request);
    const struct answer_sink *sink = request->gen.is_stream ? &output_stream_sink : &output_whole_sink;
    struct gen_failure failure = {
        .status = 503, .type = "api_error", .message = "the request could not be placed"};
    struct api_error error;
    struct gen_job job;

    if (answer_new(request->model->tokenizer, &request->gen, sink, request, &request->answer) < 0 ||
        make_job(request, &job) < 0) {
        fail_no_memory(request);
        return;
    }
    request->submitted_ns = clock_now_ns();
    if (backend->ops->submit(backend->self, request->model, &job, &events, request, &request->handle,
                             &failure) < 0) {
        request->handle = NULL;
        api_fail(&error, failure.status, "%s", failure.message);
        error.type = failure.type;
        error.retry_after_s = failure.retry_after_s;
        request_fail(request, &error);
        return;
    }
    request_enter(request, REQUEST_PLACED);
}

static void tokenise_done(void *arg)
{
    struct request *request = arg;
    struct api_error error;
    size_t n;

    if (!is_back(request))
        return;
    if (request->work_rc < 0) {
        request_fail(request, &request->error);
        return;
    }
    request->tokenised_ns = clock_now_ns();
    request_enter(request, REQUEST_TOKENISED);
    n = request->prompt.ids.n;
    request->proof.prompt_tokens = (uint32_t)n;
    if (request->call == API_COUNT_TOKENS) {
        request->status = 200;
        request->reason = "counted";
        output_count(request);
        request_end(request, REQUEST_DONE);
    } else if (n >= request->model->context_length) {
        /* Agents read these words to decide that the conversation must be made shorter. */
        api_fail(&error, 400, "prompt is too long: %zu tokens > %u maximum", n,
                 request->model->context_length);
        request_fail(request, &error);
    } else if (admit_reserve(request, &error) < 0) {
        request_fail(request, &error);
    } else {
        submit(request);
    }
}

/* ---- what the backend says ---- */

static void on_accepted(void *arg, uint32_t cached_tokens)
{
    struct request *request = arg;

    if (request->state != REQUEST_PLACED)
        return;
    prompt_account(&request->prompt, cached_tokens, request->model->block_tokens, &request->usage);
    request_enter(request, REQUEST_PREFILLING);
    if (!request->gen.is_stream)
        return;
    request->status = 200;
    output_begin_stream(request);
    ev_timer_start(request->ping, request->front->opts.ping_ns);
}

/* The answer is complete. */
static void finish(struct request *request, enum gen_stop why, struct bytes stop_sequence)
{
    request->status = 200;
    request->reason = api_stop_reason(why);
    request->last_ns = clock_now_ns();
    request->usage.output_tokens = request->n_output;
    request->proof.prompt_tokens = (uint32_t)request->prompt.ids.n;
    request->proof.drawn_tokens = request->n_output;
    request->proof.ttft_ns = request->first_ns > 0 ? request->first_ns - request->received_ns : 0;
    request->proof.total_ns = request->last_ns - request->received_ns;
    output_end(request, why, stop_sequence);
    request_end(request, REQUEST_DONE);
}

/* An end that the answer's text brought about. */
static void finish_early(struct request *request)
{
    enum gen_stop why = answer_stop(request->answer);

    withdraw(request);
    finish(request, why,
           why == GEN_STOP_SEQUENCE ? request->gen.stop_sequences[answer_stop_index(request->answer)]
                                    : bytes_of(NULL, 0));
}

static void on_tokens(void *arg, const struct gen_tokens *tokens)
{
    struct request *request = arg;
    uint64_t now = clock_now_ns();
    int rc;

    on_accepted(request, 0); /* a backend that forgot to say so */
    if (request->gen.max_tokens == 0) {
        withdraw(request);
        finish(request, GEN_STOP_MAX_TOKENS, bytes_of(NULL, 0));
        return;
    }
    report_tokens(request, now, tokens->n);
    if (request->state == REQUEST_PREFILLING) {
        request->first_ns = now;
        request_enter(request, REQUEST_STREAMING);
    }
    request->last_ns = now;
    request->n_output += (uint32_t)tokens->n;
    rc = answer_push(request->answer, tokens->ids, tokens->n);
    output_flush(request);
    if (rc < 0)
        fail_no_memory(request);
    else if (rc == 1)
        finish_early(request);
}

static void on_end(void *arg, enum gen_end end, const struct gen_proof *proof)
{
    struct request *request = arg;
    enum gen_stop why = GEN_STOP_END_TURN;

    request->handle = NULL;
    request->proof = *proof;
    on_accepted(request, 0);
    if (end == GEN_END_CONTEXT || (end == GEN_END_LENGTH && request->is_clamped))
        why = GEN_STOP_CONTEXT;
    else if (end == GEN_END_LENGTH)
        why = GEN_STOP_MAX_TOKENS;
    if (request->gen.max_tokens == 0)
        why = GEN_STOP_MAX_TOKENS;
    if (answer_finish(request->answer, why) < 0) {
        fail_no_memory(request);
        return;
    }
    output_flush(request);
    if (answer_stop(request->answer) == GEN_STOP_SEQUENCE)
        finish_early(request);
    else
        finish(request, answer_stop(request->answer), bytes_of(NULL, 0));
}

static void on_failure(void *arg, const struct gen_failure *failure)
{
    struct request *request = arg;
    struct api_error error;

    request->handle = NULL;
    api_fail(&error, failure->status, "%s", failure->message);
    error.type = failure->type;
    error.retry_after_s = failure->retry_after_s;
    request_fail(request, &error);
}

static const struct gen_events events = {on_accepted, on_tokens, on_end, on_failure};
