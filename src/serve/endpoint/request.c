/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a request.
 *
 *     RECEIVED ──parsed, tokenised──> TOKENISED ──submitted──> PLACED ──accepted──> PREFILLING
 *        │                               │ counted: DONE          │                      │ token
 *        │ malformed, too long           │ refused                │ failed               v
 *        └──────────────> FAILED <───────┴────────────────────────┴───────────────── STREAMING ──> DONE
 *
 *     and from every state, when the client goes away: CANCELLED
 *
 * The front's loop does all work but three functions: two run on a job thread if the body is large
 * (request_work.c), one if a whole answer is long (output_render_work).  A running job owns the request.  If the client
 * disconnects meanwhile, the loop sets a flag and waits.  Each answer of the request is a choice: see choices.c.
 *
 * Only request_enter changes the state, and only request_end ends a request. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/event/work.h"
#include "serve/endpoint/admit_priv.h"
#include "serve/endpoint/output_priv.h"
#include "serve/endpoint/responses_priv.h"
#include "serve/prompt/constraint.h"

#define GZIP_WORK       8 /* estimated work of a gzip body, per byte */
#define MODEL_POLL_NS   UINT64_C(50000000)
#define MAX_LOOP_ANSWER (32u << 10) /* bytes of an answer that the loop renders itself */

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

size_t request_n_prompts(const struct request *request)
{
    return request->more_prompts != NULL ? request->gen.n_prompts : 1;
}

struct prompt *request_prompt(struct request *request, size_t index)
{
    return index == 0 ? &request->prompt : &request->more_prompts[index - 1];
}

/* ---- birth and end ---- */

static void request_take_model(struct request *request);
static void begin_tokenising(struct request *request);

/* Sends a ping, or looks again for the model, or its public beginnings, that the request waits for.  While the
 * client has bytes to read, it needs no ping. */
static void on_ping(void *arg)
{
    struct request *request = arg;
    uint64_t ping_ns = request->front->opts.ping_ns;
    uint64_t now = clock_now_ns();

    if (request->state == REQUEST_RECEIVED) {
        if (request->model == NULL)
            request_take_model(request);
        else
            begin_tokenising(request);
        return;
    }
    if (now - request->event_ns >= ping_ns) {
        if (request->is_paused)
            request->event_ns = now;
        else
            output_ping(request);
        now = request->event_ns;
    }
    ev_timer_start(request->ping, request->event_ns + ping_ns - now);
}

/* Ignores a name that is too long for a class. */
void request_take_class(struct bytes name, char out[32])
{
    if (name.len_bytes == 0 || name.len_bytes >= 32)
        return;
    memcpy(out, name.data, name.len_bytes);
    out[name.len_bytes] = '\0';
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
    request->dialect = call == API_CHAT          ? &output_chat
                       : call == API_COMPLETIONS ? &output_completions
                       : call == API_EMBEDDINGS  ? &output_embeddings
                       : call == API_RESPONSES   ? &output_responses
                                                 : &output_messages;
    request->created_unix_s = clock_unix_ns() / NS_PER_S;
    request->who = *who;
    request->received_ns = http_exchange_began_ns(exchange);
    request_take_class(http_exchange_field(exchange, "baton-class"), request->class_wanted);
    request->wants_serving = bytes_is(http_exchange_field(exchange, "baton-proof"), "stream");
    ids_make("req_", request->id);
    ids_make(request->dialect->id_prefix, request->message_id);
    request_trace_begin(request, http_exchange_field(exchange, "traceparent"));
    if (front->opts.keeps_streams && api_call_generates(call))
        resume_read_head(request);
    memcpy(request->peer, http_exchange_peer(exchange), strlen(http_exchange_peer(exchange)) + 1);
    list_push_back(&front->requests, &request->node);
    front->n_running++;
    request_enter(request, REQUEST_RECEIVED);
    *out = request;
    return 0;
}

static void request_give_back(struct request *request)
{
    struct remains remains = {.gen = request->gen,
                              .replay = request->replay,
                              .body = request->body,
                              .prompt = request->prompt,
                              .more_prompts = request->more_prompts,
                              .n_more = request_n_prompts(request) - 1,
                              .stops = request->stops};

    remains_give_back(&remains, request->front->opts.jobs, request->front->opts.loop);
}

void request_free(struct request *request)
{
    struct front *front = request->front;

    atomic_store(&request->is_abandoned, true);
    if (fair_queue_withdraw(&request->job))
        atomic_store(&request->is_working, false);
    while (atomic_load(&request->is_working))
        clock_sleep_ns(NS_PER_MS);
    if (request->model != NULL && request_backend(request)->ops->model_drop != NULL)
        request_backend(request)->ops->model_drop(request_backend(request)->self, request->model);
    admit_settle(request);
    list_remove(&request->node);
    front->n_running--;
    ev_timer_free(request->ping);
    choices_fini(request);
    request_leave_thread(request);
    request_give_back(request);
    remains_give_back(&(struct remains){.body = request->rendered}, front->opts.jobs, front->opts.loop);
    remains_give_back(&(struct remains){.body = request->kept}, front->opts.jobs, front->opts.loop);
    responses_forget_recalled(&request->recalled);
    output_drop(request);
    free(request);
}

/* Stops the request's wait for its model. */
static void request_stops_waiting(struct request *request)
{
    request->front->n_awaiting -= request->awaits_model;
    request->awaits_model = false;
}

static void request_end(struct request *request, enum request_state state)
{
    request_stops_waiting(request);
    ev_timer_stop(request->ping);
    request->last_ns = clock_now_ns();
    request_enter(request, state);
    report_end(request);
    admit_settle(request);
    if (!request->is_in_fair_queue || request->job.is_waiting)
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

/* Ends the request here without an error, because another router continues its stream. */
static void request_leave(struct request *request)
{
    choices_leave(request);
    request->resume.has_moved = true;
    request->status = 200;
    request->reason = "left";
    http_reply_end(request->exchange);
    request->exchange = NULL;
    request_end(request, REQUEST_CANCELLED);
}

void request_abandon(struct request *request)
{
    struct api_error error;

    if (request->state >= REQUEST_DONE)
        return;
    atomic_store(&request->is_abandoned, true);
    if (request->resume.is_kept && request->is_stream && request->exchange != NULL) {
        request_leave(request);
        return;
    }
    api_fail(&error, 503, "the server is shutting down");
    request_fail(request, &error);
}

void request_pause(struct request *request, bool is_paused)
{
    choices_pause(request, is_paused);
}

/* ---- steps, on the loop or in the pool ---- */

static void parse_done(void *arg);
static void tokenise_done(void *arg);

/* Returns a size that sends work of any real size to the pool. */
static size_t never_inline(const struct request *request, size_t size_bytes)
{
    return size_bytes + request->front->opts.inline_bytes + 1;
}

/* Hands work to the job threads.  E_FULL, E_LIMIT, E_NOMEM: they do not take it. */
static int request_hand_over(struct request *request, const struct fair_queue_job *job)
{
    int rc;

    atomic_store(&request->is_working, true);
    request->is_in_fair_queue = true;
    request->job = *job;
    request->job.owner = limits_tenant(request->lease.account);
    request->job.arg = request;
    rc = fair_queue_submit(request->front->fair_queue, &request->job);
    if (rc == 0)
        return 0;
    request->is_in_fair_queue = false;
    atomic_store(&request->is_working, false);
    return rc;
}

/* Runs work on a job thread if size_bytes,
 * a rough measure of its time, exceeds inline_bytes; otherwise here. */
static void request_run(struct request *request, size_t size_bytes, ev_call work, ev_call done)
{
    struct api_error error;
    int rc;

    if (size_bytes <= request->front->opts.inline_bytes || request->front->fair_queue == NULL) {
        atomic_store(&request->is_working, true);
        ev_work_name(work == request_parse_work ? "parse" : "tokenise");
        work(request);
        done(request);
        return;
    }
    rc = request_hand_over(request,
                           &(struct fair_queue_job){.size_bytes = size_bytes, .work = work, .done = done});
    if (rc == 0)
        return;
    if (rc == E_LIMIT)
        api_fail(&error, 429, "too many large requests of this tenant wait already");
    else
        api_fail(&error, 529, "Overloaded");
    request_fail(request, &error);
}

/* Called when the pool returns the request.  False: the request ended meanwhile and is now freed. */
static bool is_back(struct request *request)
{
    request->is_in_fair_queue = false;
    if (request->state < REQUEST_DONE)
        return true;
    request_free(request);
    return false;
}

static void request_send_end(struct request *request)
{
    request->last_ns = clock_now_ns();
    output_end(request);
    request_end(request, REQUEST_DONE);
}

static void render_done(void *arg)
{
    ev_work_name("rendered");
    if (is_back(arg))
        request_send_end(arg);
}

void request_finish(struct request *request)
{
    size_t n = output_whole_bytes(request);
    const struct fair_queue_job job = {
        .size_bytes = n, .is_exempt = true, .work = output_render_work, .done = render_done};

    request->status = 200;
    request->reason = api_stop_reason(request->choices[0].stop);
    if (n <= MAX_LOOP_ANSWER || request->front->fair_queue == NULL || request_hand_over(request, &job) < 0)
        request_send_end(request);
}

void request_begin(struct request *request)
{
    size_t n;

    http_exchange_take_body(request->exchange, &request->body);
    n = request->body.len_bytes;
    if (request->is_gzip) /* its decoded size is unknown, so never decode on the loop */
        n = never_inline(request, n * GZIP_WORK);
    request_run(request, n, request_parse_work, parse_done);
}

/* NULL: not found; the error gives the reason. */
static const struct gen_model *request_find_model(const struct request *request, struct api_error *error)
{
    const struct backend *backend = request_backend(request);
    struct bytes wanted = request->gen.model;
    const struct gen_model *found = NULL;
    char name[sizeof(request->model->name)];
    bool is_name = wanted.len_bytes < sizeof(name) &&
                   (wanted.len_bytes == 0 || memchr(wanted.data, '\0', wanted.len_bytes) == NULL);
    const char *asked = wanted.len_bytes > 0 ? name : NULL; /* NULL: the request names no model */

    if (is_name) {
        if (wanted.len_bytes > 0)
            memcpy(name, wanted.data, wanted.len_bytes);
        name[wanted.len_bytes] = '\0';
        found = backend->ops->model(backend->self, asked);
    }
    if (found != NULL || (is_name && reply_not_yet(request->front, asked, error)))
        return found;
    api_fail(error, 404, "model: %.*s", (int)wanted.len_bytes, (const char *)wanted.data);
    if (api_call_is_openai(request->call))
        error->code = "model_not_found";
    return NULL;
}

/* Parses the body again with the conversation's history, or fails the request. */
static void continue_conversation(struct request *request)
{
    bool is_response = request->gen.response != NULL;
    struct api_error error;
    size_t n;

    if ((is_response ? responses_recall(request, &error) : request_take_thread(request, &error)) < 0) {
        request_fail(request, &error);
        return;
    }
    n = is_response ? request->recalled.n_bytes : kept_text_view(request->history).len_bytes;
    struct remains remains = {.gen = request->gen};

    remains_give_back(&remains, request->front->opts.jobs, request->front->opts.loop);
    memset(&request->gen, 0, sizeof(request->gen));
    request_run(request, request->body.len_bytes + n, request_parse_work, parse_done);
}

static void begin_tokenising(struct request *request)
{
    struct public_prefix *prefix = api_call_generates(request->call) ? request->front->public_prefix : NULL;
    enum public_prefix_state state =
        prefix == NULL ? PUBLIC_PREFIX_READY : public_prefix_state(prefix, request->model);
    size_t n = request->gen.arena.used_bytes;

    if (state == PUBLIC_PREFIX_RENDERING) {
        ev_timer_start(request->ping, MODEL_POLL_NS);
        return;
    }
    if (state == PUBLIC_PREFIX_NONE) /* this request renders them */
        n = never_inline(request, n);
    for (uint32_t i = 0; i < request->shared.n_fetched; i++)
        n += request->shared.fetched[i].len_bytes;
    if (constraint_has_schemas(&request->gen)) /* a pattern of few bytes may take long to compile */
        n = never_inline(request, n);
    request_run(request, n, request_tokenise_work, tokenise_done);
}

static void parse_done(void *arg)
{
    struct request *request = arg;

    ev_work_name("parsed");
    if (!is_back(request))
        return;
    if (request->work_rc == 0 && request->gen.thread != GEN_THREAD_NONE &&
        request->front->conversations == NULL)
        request->work_rc = api_refuse_thread(&request->error);
    if (request->work_rc < 0) {
        request_fail(request, &request->error);
        return;
    }
    if (request->history == NULL) /* otherwise the look-up of the conversation set the owner */
        replay_owner(request->who.tenant, request->gen.cache_salt, request->owner);
    if (request_awaits_conversation(request)) {
        if (!shared_fetch_conversation(request, continue_conversation))
            continue_conversation(request);
        return;
    }
    responses_forget_recalled(&request->recalled);
    admit_bound_answer(request);
    request_take_model(request);
}

/* Refuses embeddings from a model that writes text, text from an embedding model, and conversations without a chat
 * template. */
static int request_check_kind(const struct request *request, struct api_error *error)
{
    bool is_embedding_model = tokenizer_is_embedding_model(request->model->tokenizer);

    if (!is_embedding_model && request->gen.n_messages > 0 &&
        !chat_format_has_template(request->model->chat)) {
        api_fail(error, 400, "model: %s has no chat template; it answers /v1/completions only",
                 request->model->name);
        error->code = "chat_unsupported";
        return E_UNSUPPORTED;
    }
    if (!api_call_generates(request->call) || is_embedding_model == api_call_embeds(request->call))
        return 0;
    if (is_embedding_model) {
        api_fail(error, 400, "model: %s is an embedding model; it answers /v1/embeddings only",
                 request->model->name);
        error->code = "embeddings_only";
    } else {
        api_fail(error, 404, "model: %s is no embedding model; it computes no embeddings",
                 request->model->name);
        error->code = "embeddings_unsupported";
    }
    return E_UNSUPPORTED;
}

/* True if the request waits for its model: the backend does not know it yet, and there is time left. */
static bool request_awaits_model(struct request *request, const struct api_error *error)
{
    struct front *front = request->front;
    uint64_t waited_ns = clock_now_ns() - request->received_ns;

    if (error->status != 503 || front->state == FRONT_DRAINING ||
        waited_ns >= front->opts.bounds.model_wait_ns ||
        (!request->awaits_model && front->n_awaiting >= front->opts.bounds.max_model_waits))
        return false;
    front->n_awaiting += !request->awaits_model;
    request->awaits_model = true;
    ev_timer_start(request->ping, MODEL_POLL_NS);
    return true;
}

/* Checks the limits of a request that came before they were known.  False: it waits for them, or it was refused. */
static bool request_admit_late(struct request *request)
{
    struct api_error error;

    if (admit_is_early(request)) {
        api_fail(&error, 503, "The limits of this API key are not known yet");
        if (request_awaits_model(request, &error))
            return false;
    }
    if (admit_late(request, &error) == 0)
        return true;
    request_fail(request, &error);
    return false;
}

static void request_take_model(struct request *request)
{
    const struct backend *backend = request_backend(request);
    const struct gen_model *model;
    struct api_error error;

    model = request_find_model(request, &error);
    if (model == NULL ? request_awaits_model(request, &error) : !request_admit_late(request))
        return;
    request->model = model;
    if (request->model == NULL && request->awaits_model && error.status == 404) /* clients give up at 404 */
        api_fail(&error, 503, "The model %.*s cannot be served yet: no worker came back with it",
                 (int)request->gen.model.len_bytes, (const char *)request->gen.model.data);
    if (request->model != NULL &&
        (admit_model(request, request->model->name, &error) < 0 || request_check_kind(request, &error) < 0))
        request->model = NULL;
    if (request->model == NULL) {
        request_fail(request, &error);
        return;
    }
    request_stops_waiting(request);
    if (backend->ops->model_keep != NULL)
        backend->ops->model_keep(backend->self, request->model);
    report_model(request);
    responses_report(request);
    if (!shared_fetch_answers(request, begin_tokenising))
        begin_tokenising(request);
}

/* Answers a request that needs no backend. */
static void finish_counted(struct request *request)
{
    request->status = 200;
    request->reason = "counted";
    if (request->call == API_COUNT_TOKENS || request->call == API_INPUT_TOKENS)
        output_count(request);
    else
        output_body(request);
    request_end(request, REQUEST_DONE);
}

static void fail_too_long(struct request *request, size_t n)
{
    struct api_error error;
    uint32_t room = request->model->context_length;

    /* Agents match this wording to know that they must shorten the conversation. */
    if (api_call_is_openai(request->call)) {
        api_fail(&error, 400, "This model's maximum context length is %u tokens. Your prompt has %zu tokens.",
                 room, n);
        error.code = "context_length_exceeded";
    } else {
        api_fail(&error, 400, "prompt is too long: %zu tokens > %u maximum", n, room);
    }
    request_fail(request, &error);
}

static void tokenise_done(void *arg)
{
    struct request *request = arg;
    struct api_error error;

    ev_work_name("tokenised");
    if (!is_back(request))
        return;
    if (request->work_rc == E_AGAIN) { /* another request renders the public beginnings */
        ev_timer_start(request->ping, MODEL_POLL_NS);
        return;
    }
    if (request->work_rc < 0) {
        request_fail(request, &request->error);
        return;
    }
    request->tokenised_ns = clock_now_ns();
    request_enter(request, REQUEST_TOKENISED);
    request->serving.prompt_tokens = (uint32_t)request->prompt.ids.n;
    if (!api_call_generates(request->call)) {
        finish_counted(request);
        return;
    }
    for (size_t i = 0; i < request_n_prompts(request); i++) {
        size_t n = request_prompt(request, i)->ids.n;

        if (n >= request->model->context_length) {
            fail_too_long(request, n);
            return;
        }
    }
    if (resume_begin(request, &error) < 0 || admit_reserve(request, &error) < 0)
        request_fail(request, &error);
    else
        choices_submit(request);
}
