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
 * is only noted.  What the backend does for it is in choices.c: an answer, or several, each a choice.
 *
 * request_enter is the only place that changes the state; request_end the only way out. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "front/front_priv.h"

const struct backend *request_backend(const struct request *request)
{
    return &request->front->opts.backend;
}

void request_enter(struct request *request, enum request_state state)
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
    request->dialect = &output_messages;
    request->who = *who;
    request->received_ns = http_exchange_began_ns(exchange);
    request->wants_proof = bytes_is(http_exchange_field(exchange, "baton-proof"), "stream");
    ids_make("req_", request->id);
    ids_make(request->dialect->id_prefix, request->message_id);
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
    while (atomic_load(&request->is_working))
        clock_sleep_ns(NS_PER_MS);
    if (request->model != NULL && request_backend(request)->ops->model_drop != NULL)
        request_backend(request)->ops->model_drop(request_backend(request)->self, request->model);
    list_remove(&request->node);
    front->n_running--;
    ev_timer_free(request->ping);
    choices_fini(request);
    buf_fini(&request->out);
    prompt_fini(&request->prompt);
    replay_fini(&request->replay);
    gen_request_fini(&request->gen);
    buf_fini(&request->body);
    free(request);
}

/* The last state; says so and, unless a job in the pool or a caller still needs it, frees the request. */
static void request_end(struct request *request, enum request_state state)
{
    ev_timer_stop(request->ping);
    request->last_ns = clock_now_ns();
    request_enter(request, state);
    report_end(request);
    if (!request->is_in_pool && !request->is_held)
        request_free(request);
}

void request_fail(struct request *request, const struct api_error *error)
{
    choices_withdraw(request);
    request->status = error->status;
    request->reason = error->type;
    output_error(request, error);
    request_end(request, REQUEST_FAILED);
}

void request_fail_no_memory(struct request *request)
{
    struct api_error error;

    api_fail(&error, 503, "out of memory");
    request_fail(request, &error);
}

void request_finish(struct request *request)
{
    request->status = 200;
    request->reason = api_stop_reason(request->choices[0].stop);
    request->last_ns = clock_now_ns();
    output_end(request);
    request_end(request, REQUEST_DONE);
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
    choices_withdraw(request);
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
    choices_pause(request, is_paused);
}

/* ---- work, on the loop or in the pool ---- */

static void parse_work(void *arg)
{
    struct request *request = arg;

    if (!atomic_load(&request->is_abandoned))
        request->work_rc =
            api_parse_request(buf_view(&request->body), request->call, &request->gen, &request->error);
    if (request->work_rc == 0 && request->front->memory != NULL && !atomic_load(&request->is_abandoned))
        replay_read(&request->gen, &request->replay); /* without it nothing is found, and that is all */
    buf_fini(&request->body);
    atomic_store(&request->is_working, false);
}

static void tokenise_work(void *arg)
{
    struct request *request = arg;

    if (!atomic_load(&request->is_abandoned))
        request->work_rc =
            prompt_make(request->model, &request->gen, &request->replay, &request->prompt, &request->error);
    atomic_store(&request->is_working, false);
}

static void parse_done(void *arg);
static void tokenise_done(void *arg);

static void run(struct request *request, bool is_long, ev_call work, ev_call done)
{
    struct api_error error;

    atomic_store(&request->is_working, true);
    if (!is_long || request->front->opts.jobs == NULL) {
        work(request);
        done(request);
        return;
    }
    request->is_in_pool = true;
    if (ev_jobs_submit(request->front->opts.jobs, request->front->opts.loop, work, done, request) == 0)
        return;
    request->is_in_pool = false;
    atomic_store(&request->is_working, false);
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
    bool is_long;

    http_exchange_take_body(request->exchange, &request->body);
    is_long = request->body.len_bytes > request->front->opts.inline_bytes;
    run(request, is_long, parse_work, parse_done);
}

/* A rough measure of how long tokenising will take. */
static bool is_long_prompt(const struct request *request)
{
    return request->gen.arena.used_bytes > request->front->opts.inline_bytes;
}

static void parse_done(void *arg)
{
    struct request *request = arg;
    const struct backend *backend = request_backend(request);
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
    if (request->model == NULL) {
        api_fail(&error, 404, "model: %.*s", (int)request->gen.model.len_bytes,
                 (const char *)request->gen.model.data);
        request_fail(request, &error);
        return;
    }
    if (backend->ops->model_keep != NULL)
        backend->ops->model_keep(backend->self, request->model);
    report_model(request);
    if (request->front->memory != NULL)
        replay_find(&request->replay, request->front->memory, request->who.tenant,
                    request->model->fingerprint, request->call != API_COUNT_TOKENS);
    run(request, is_long_prompt(request), tokenise_work, tokenise_done);
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
    } else {
        choices_submit(request);
    }
}
