/* SPDX-License-Identifier: Apache-2.0 */
/* The endpoint: the routes, the key check, and answers that need no request of their own.
 *
 *     head ──route──> 404, 405 ──key──> 401 ──coding──> 400 ──> body ──> request_begin, or answered here
 *
 * The key check comes before the body, so a client without a key cannot make the server read a body.
 * Probes need no key and reveal nothing confidential. */
#include "serve/access/sign.h"
#include "serve/endpoint/front.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "serve/endpoint/admit_priv.h"
#include "serve/endpoint/console_priv.h"
#include "serve/endpoint/responses_priv.h"
#include "serve/endpoint/cancels_priv.h"

#define MAX_LISTED_MODELS   1000
#define MAX_LOGGED_REFUSALS 10 /* per second */
#define MAX_LOGIN_SOURCES   65536

/* ---- routes ---- */

typedef void (*route_call)(struct front *front, struct http_exchange *exchange);

struct route {
    const char *path;
    bool is_prefix; /* the path may continue after the prefix */
    bool is_post;   /* POST only; false: GET and HEAD, or what the call allows */
    enum { OPEN, KEYED, METRICS, CONSOLE } access;
    route_call call; /* NULL: the route makes a request object */
    enum api_call api;
};

static void show_root(struct front *front, struct http_exchange *exchange)
{
    reply_body(exchange, 200, "text/plain; charset=utf-8", bytes_str("baton\n"));
}

static void show_live(struct front *front, struct http_exchange *exchange)
{
    reply_body(exchange, 200, "text/plain; charset=utf-8", bytes_str("ok\n"));
}

static bool is_ready(struct front *front, struct buf *detail)
{
    const struct backend *backend = &front->opts.backend;

    if (front->state != FRONT_SERVING) {
        if (detail != NULL)
            buf_append_str(detail, "draining: yes\n");
        return false;
    }
    return backend->ops->is_ready(backend->self, detail);
}

static void refuse_unready(struct front *front, struct http_exchange *exchange)
{
    struct api_error error;

    api_fail(&error, 503, front->state != FRONT_SERVING ? "the server is draining" : "not ready");
    reply_error(exchange, &error, NULL, NULL);
}

static void show_ready(struct front *front, struct http_exchange *exchange)
{
    struct auth_key who;
    struct api_error error;
    struct buf detail = {0};
    char flag[8];
    bool is_verbose = http_query_get(http_exchange_query(exchange), "verbose", flag, sizeof(flag)) &&
                      admit_key(front, exchange, &who, &error) == 0;
    bool is_up = is_ready(front, is_verbose ? &detail : NULL);

    if (is_verbose)
        reply_body(exchange, is_up ? 200 : 503, "text/plain; charset=utf-8", buf_view(&detail));
    else if (is_up)
        reply_body(exchange, 200, "text/plain; charset=utf-8", bytes_str("ok\n"));
    else
        refuse_unready(front, exchange);
    buf_fini(&detail);
}

static void show_health(struct front *front, struct http_exchange *exchange)
{
    if (is_ready(front, NULL))
        reply_body(exchange, 200, "application/json", bytes_str("{\"status\":\"ok\"}"));
    else
        refuse_unready(front, exchange);
}

static void show_metrics(struct front *front, struct http_exchange *exchange)
{
    enum metrics_format format = metrics_format_wanted(http_exchange_field(exchange, "accept"));
    struct buf text = {0};

    metrics_read_process(front->opts.metrics);
    metrics_render_as(front->opts.metrics, format, &text);
    reply_body(exchange, 200, metrics_content_type(format), buf_view(&text));
    buf_fini(&text);
}

static struct api_model front_describe(const struct front *front, const struct gen_model *model)
{
    return (struct api_model){.name = model->name,
                              .context_length = model->context_length,
                              .created_unix_s = model->created_unix_s > 0 ? model->created_unix_s
                                                                          : front->opts.created_unix_s};
}

static int parse_page(struct http_exchange *exchange, char after[256], char before[256],
                      struct api_page *page, struct api_error *error)
{
    struct bytes query = http_exchange_query(exchange);
    char text[16];
    uint64_t limit = 20;

    *page = (struct api_page){.limit = 20};
    if (http_query_get(query, "limit", text, sizeof(text)) &&
        (str_to_u64(bytes_str(text), &limit) < 0 || limit < 1 || limit > 1000))
        return api_fail(error, 400, "limit: Input should be between 1 and 1000");
    page->limit = (uint32_t)limit;
    if (http_query_get(query, "after_id", after, 256) && after[0] != '\0')
        page->after = after;
    if (http_query_get(query, "before_id", before, 256) && before[0] != '\0')
        page->before = before;
    return 0;
}

/* Sends 200 with JSON and the rate-limit fields of the key. */
static void reply_limited(struct http_exchange *exchange, const struct auth_key *who, struct bytes body)
{
    struct http_fields fields = {0};
    char id[IDS_BYTES];

    ids_make("req_", id);
    admit_put_fields_of(exchange, who, &fields);
    reply_json(exchange, id, &fields, body);
    http_fields_fini(&fields);
}

static void list_models(struct front *front, struct http_exchange *exchange)
{
    const struct backend *backend = &front->opts.backend;
    struct api_model *models = calloc(MAX_LISTED_MODELS, sizeof(*models));
    const struct gen_model *model;
    char after[256];
    char before[256];
    struct api_error error;
    struct api_page page;
    struct buf body = {0};
    struct auth_key who;
    size_t n = 0;

    if (admit_key(front, exchange, &who, &error) < 0 ||
        parse_page(exchange, after, before, &page, &error) < 0 ||
        (backend->ops->model_at(backend->self, 0) == NULL && reply_not_yet(front, NULL, &error))) {
        reply_error(exchange, &error, NULL, NULL);
    } else {
        /* The models stay valid between these calls, because one turn of the loop makes all of them. */
        for (size_t i = 0; models != NULL && n < MAX_LISTED_MODELS &&
                           (model = backend->ops->model_at(backend->self, i)) != NULL;
             i++)
            if (limits_allow_model(who.account, model->name))
                models[n++] = front_describe(front, model);
        api_put_models(&body, models, n, &page);
        reply_limited(exchange, &who, buf_view(&body));
    }
    buf_fini(&body);
    free(models);
}

static void show_model(struct front *front, struct http_exchange *exchange)
{
    const struct backend *backend = &front->opts.backend;
    const size_t skip = strlen("/v1/models/");
    struct bytes path = http_exchange_path(exchange);
    const struct gen_model *model = NULL;
    struct buf body = {0};
    struct api_error error;
    struct auth_key who;
    char name[256];
    int n = http_percent_decode(bytes_of(path.data + skip, path.len_bytes - skip), name, sizeof(name) - 1);

    if (admit_key(front, exchange, &who, &error) < 0) {
        reply_error(exchange, &error, NULL, NULL);
        return;
    }
    if (n > 0) {
        name[n] = '\0';
        model = limits_allow_model(who.account, name) ? backend->ops->model(backend->self, name) : NULL;
    }
    if (model == NULL) {
        if (n <= 0 || !reply_not_yet(front, name, &error))
            api_fail(&error, 404, "model: %s", n > 0 ? name : "");
        reply_error(exchange, &error, NULL, NULL);
        return;
    }
    const struct api_model described = front_describe(front, model);

    api_put_model(&body, &described);
    reply_limited(exchange, &who, buf_view(&body));
    buf_fini(&body);
}

static void front_show_console(struct front *front, struct http_exchange *exchange)
{
    console_reply(exchange);
}

#define RESPONSES "/v1/responses/"

static const struct route routes[] = {
#define X(name, route, ...) {route, false, true, KEYED, NULL, API_##name},
    API_CALL_TABLE(X)
#undef X
        {RESPONSES, true, false, KEYED, responses_serve, 0},
    {"/v1/models", false, false, KEYED, list_models, 0},
    {"/v1/models/", true, false, KEYED, show_model, 0},
    {"/livez", false, false, OPEN, show_live, 0},
    {"/readyz", false, false, OPEN, show_ready, 0},
    {"/health", false, false, OPEN, show_health, 0},
    {"/metrics", false, false, METRICS, show_metrics, 0},
    {"/console", false, false, CONSOLE, front_show_console, 0},
    {"/console/", true, false, CONSOLE, front_show_console, 0},
    {"/api/hello", false, false, OPEN, show_root, 0},
    {"/", false, false, OPEN, show_root, 0},
};

static const struct route *find_route(const struct http_exchange *exchange)
{
    struct bytes path = http_exchange_path(exchange);

    for (size_t i = 0; i < ARRAY_LEN(routes); i++)
        if (routes[i].is_prefix
                ? bytes_starts_with(path, routes[i].path) && path.len_bytes > strlen(routes[i].path)
                : bytes_is(path, routes[i].path))
            return &routes[i];
    return NULL;
}

/* ---- the server's calls ---- */

static void endpoint_front_refuse(struct front *front, struct http_exchange *exchange,
                                  const struct api_error *error, const char *allow)
{
    struct bytes path = http_exchange_path(exchange);
    uint64_t now_s = clock_now_ns() / NS_PER_S;
    char text[128];

    /* Any client can cause these lines, so only a few per second are logged. */
    if (now_s != front->refusals_s) {
        front->refusals_s = now_s;
        front->n_refusals = 0;
    }
    if (front->n_refusals++ < MAX_LOGGED_REFUSALS) {
        snprintf(text, sizeof(text), "%.*s", (int)path.len_bytes,
                 path.data == NULL ? "" : (const char *)path.data);
        log_info("refused", LOG_STR("peer", http_exchange_peer(exchange)),
                 LOG_U64("status", (uint64_t)error->status), LOG_STR("path", text),
                 LOG_STR("reason", error->message));
    }
    reply_error(exchange, error, NULL, allow);
}

static bool front_is_word(struct bytes text, const char *word)
{
    return text.len_bytes == strlen(word) && strncasecmp((const char *)text.data, word, text.len_bytes) == 0;
}

static void begin_request(struct front *front, struct http_exchange *exchange, const struct route *route,
                          const struct auth_key *who)
{
    struct bytes coding = http_exchange_field(exchange, "content-encoding");
    bool is_gzip = front_is_word(coding, "gzip") || front_is_word(coding, "x-gzip");
    struct request *request;
    struct api_error error;
    int rc;

    if (coding.len_bytes > 0 && !is_gzip && !front_is_word(coding, "identity")) {
        api_fail(&error, 400, "content-encoding: only gzip and identity are decoded by this server");
        error.code = "request_body_encoding_unsupported";
        endpoint_front_refuse(front, exchange, &error, NULL);
        return;
    }
    rc = request_new(front, exchange, route->api, who, &request);
    if (rc < 0) {
        api_fail(&error, rc == E_OVERLOADED ? 529 : 503, rc == E_OVERLOADED ? "Overloaded" : "out of memory");
        endpoint_front_refuse(front, exchange, &error, NULL);
        return;
    }
    request->is_gzip = is_gzip;
    http_exchange_set_user(exchange, request);
    if (admit_begin(request, &error) < 0) {
        request_refused(request, &error);
        http_exchange_set_user(exchange, NULL);
    }
}

static bool front_allows(const struct route *route, const struct http_exchange *exchange)
{
    enum http_method method = http_exchange_method(exchange);

    if (route->call == responses_serve)
        return responses_allow(method, http_exchange_path(exchange));
    return route->is_post ? method == HTTP_POST : method == HTTP_GET || method == HTTP_HEAD;
}

static void front_on_head(void *arg, struct http_exchange *exchange)
{
    struct front *front = arg;
    const struct route *route = find_route(exchange);
    struct auth_key who = {0};
    struct api_error error;
    bool needs_key;

    if (route == NULL || (route->access == METRICS && !front->opts.has_metrics) ||
        (route->access == CONSOLE &&
         !(front->opts.has_console && console_has(http_exchange_path(exchange))))) {
        api_fail(&error, 404, "there is nothing at this path");
        endpoint_front_refuse(front, exchange, &error, NULL);
        return;
    }
    if (!front_allows(route, exchange)) {
        api_fail(&error, 405, "the method is not allowed here");
        endpoint_front_refuse(front, exchange, &error,
                              route->call == responses_serve ? "GET, HEAD, DELETE, POST"
                              : route->is_post               ? "POST"
                                                             : "GET, HEAD");
        return;
    }
    needs_key = route->access == KEYED || (route->access == METRICS && !front->opts.has_open_metrics);
    if (needs_key && admit_key(front, exchange, &who, &error) < 0) {
        endpoint_front_refuse(front, exchange, &error, NULL);
        return;
    }
    if (needs_key)
        http_exchange_prove(exchange);
    if (route->call == NULL)
        begin_request(front, exchange, route, &who);
}

static void front_on_request(void *arg, struct http_exchange *exchange)
{
    struct request *request = http_exchange_user(exchange);

    if (request != NULL)
        request_begin(request);
    else
        find_route(exchange)->call(arg, exchange);
}

static void front_on_refused(void *arg, struct http_exchange *exchange, int status, const char *why)
{
    struct request *request = http_exchange_user(exchange);
    struct front *front = arg;
    struct api_error error;

    api_fail(&error, status, "%s", why);
    if (request != NULL)
        request_refused(request, &error);
    else
        endpoint_front_refuse(front, exchange, &error, NULL);
}

static void front_on_abort(void *arg, struct http_exchange *exchange, enum http_abort why)
{
    struct request *request = http_exchange_user(exchange);

    if (request != NULL)
        request_abort(request, why);
    else
        shared_abort(arg, exchange), cancels_abort(arg, exchange), responses_abort(arg, exchange);
}

static void front_on_pause(void *arg, struct http_exchange *exchange, bool is_paused)
{
    struct request *request = http_exchange_user(exchange);

    if (request != NULL)
        request_pause(request, is_paused);
}

static void add_id(void *arg, struct http_fields *fields)
{
    char id[IDS_BYTES];

    ids_make("req_", id);
    http_fields_add_str(fields, "request-id", id);
}

static const struct http_handler handler = {front_on_head, front_on_request, front_on_refused, front_on_abort,
                                            front_on_pause};

/* ---- the front ---- */

void front_opts_init(struct front_opts *opts)
{
    memset(opts, 0, sizeof(*opts));
    opts->has_metrics = true;
    opts->ping_ns = 9 * NS_PER_S; /* clients are promised a ping every 10 s */
    opts->max_requests = 4096;
    opts->failed_logins_per_min = 30;
    opts->max_waiting = 4096;
    opts->max_waiting_bytes = UINT64_C(1) << 30;
    opts->inline_bytes = 8 << 10;
    opts->replay_bytes = 64 << 20;
    opts->conversation_bytes = 64 << 20;
    opts->default_temperature = 1;
    opts->created_unix_s = clock_unix_ns() / NS_PER_S;
}

static int open_server(struct front *front)
{
    struct http_server_opts opts = {.loop = front->opts.loop,
                                    .limits = front->opts.limits,
                                    .handler = &handler,
                                    .handler_arg = front,
                                    .metrics = front->opts.metrics,
                                    .port = "http",
                                    .port_metrics = front->opts.metrics,
                                    .tls = front->opts.tls,
                                    .has_h2c = front->opts.has_h2c,
                                    .congestion = front->opts.congestion,
                                    .origins = front->opts.origins,
                                    .n_origins = front->opts.n_origins,
                                    .add_fields = add_id,
                                    .shares_port = front->opts.shares_port};
    int rc = reply_make_busy(&front->busy_answer);

    opts.busy_answer = buf_view(&front->busy_answer);
    return rc < 0 ? rc : http_server_new(&opts, &front->server);
}

static int open_fair_queue(struct front *front)
{
    struct fair_queue_opts opts = {.jobs = front->opts.jobs,
                                   .loop = front->opts.loop,
                                   .max_waiting = front->opts.max_waiting,
                                   .max_waiting_bytes = front->opts.max_waiting_bytes};

    return opts.jobs == NULL ? 0 : fair_queue_new(&opts, &front->fair_queue);
}

int front_new(const struct front_opts *opts, struct fault *fault, struct front **out)
{
    struct front *front = calloc(1, sizeof(*front));
    int rc = 0;

    if (front == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    front->opts = *opts;
    if (opts->sign_key != NULL)
        sign_use_key(opts->sign_key);
    list_init(&front->requests);
    list_init(&front->visits);
    list_init(&front->cancels);
    list_init(&front->pages);
    report_init(front);
    if (failed_logins_new(opts->failed_logins_per_min, MAX_LOGIN_SOURCES, &front->failed_logins) < 0 ||
        open_fair_queue(front) < 0 || stall_new(opts->loop, opts->metrics, &front->stall) < 0)
        rc = fault_set(fault, E_NOMEM, "out of memory");
    if (rc == 0 && opts->login_salt != NULL)
        failed_logins_share(front->failed_logins, opts->login_salt);
    if (rc == 0 && opts->keys_path != NULL)
        rc = front_load_keys(front, opts->keys_path, fault);
    if (rc == 0 && opts->replay_bytes > 0 && answer_cache_new(opts->replay_bytes, &front->answer_cache) < 0)
        rc = fault_set(fault, E_NOMEM, "out of memory");
    if (rc == 0 && front->answer_cache != NULL && opts->conversation_bytes > 0 &&
        conversations_new(opts->conversation_bytes, CONVERSATION_LIFE_NS, &front->conversations) < 0)
        rc = fault_set(fault, E_NOMEM, "out of memory");
    if (rc == 0 && front->conversations != NULL &&
        conversations_new(opts->conversation_bytes, RESPONSE_LIFE_NS, &front->responses) < 0)
        rc = fault_set(fault, E_NOMEM, "out of memory");
    if (rc == 0 && opts->public_prefix != NULL)
        rc = public_prefix_load(opts->public_prefix, fault, &front->public_prefix);
    if (rc == 0 && open_server(front) < 0)
        rc = fault_set(fault, E_NOMEM, "out of memory");
    if (rc < 0)
        front_free(front);
    else
        *out = front;
    return rc;
}

void front_free(struct front *front)
{
    if (front == NULL)
        return;
    shared_close(front);
    cancels_close(front);
    http_server_free(front->server);
    responses_close(front);
    /* The remaining requests have jobs in the pool; request_free waits for the running ones. */
    list_for_each (node, &front->requests)
        atomic_store(&container_of(node, struct request, node)->is_abandoned, true);
    list_for_each_safe (node, spare, &front->requests)
        request_free(container_of(node, struct request, node));
    fair_queue_free(front->fair_queue);
    stall_free(front->stall);
    failed_logins_free(front->failed_logins);
    access_keys_free(front->keys);
    conversations_free(front->conversations);
    conversations_free(front->responses);
    answer_cache_free(front->answer_cache);
    public_prefix_free(front->public_prefix);
    buf_fini(&front->busy_answer);
    buf_fini(&front->out);
    answer_scratch_fini(&front->scratch);
    free(front);
}

void front_set_bounds(struct front *front, const struct front_bounds *bounds)
{
    front->opts.bounds = *bounds;
}

int front_listen(struct front *front, const char *address, struct fault *fault)
{
    return http_server_listen(front->server, address, fault);
}

uint16_t front_port(const struct front *front)
{
    return http_server_port(front->server);
}

int front_load_keys(struct front *front, const char *keys_path, struct fault *fault)
{
    struct access_keys *keys;
    int rc = access_keys_load(keys_path, front->keys, fault, &keys);

    if (rc == 0)
        access_keys_free(front_swap_keys(front, keys));
    return rc;
}

const struct access_keys *front_keys(const struct front *front)
{
    return front->keys;
}

struct access_keys *front_swap_keys(struct front *front, struct access_keys *fresh)
{
    struct access_keys *old = front->keys;

    front->keys = fresh;
    limits_set_common(fresh->limits, front->opts.common);
    log_info("api_keys_loaded", LOG_U64("keys", auth_keys_count(fresh->auth)));
    return old;
}

void front_set_lame_duck(struct front *front, bool is_on)
{
    if (front->state == FRONT_DRAINING)
        return;
    front->state = is_on ? FRONT_LAME_DUCK : FRONT_SERVING;
    http_server_set_lame_duck(front->server, is_on);
}

void front_set_draining(struct front *front)
{
    http_server_set_lame_duck(front->server, true);
    front->state = FRONT_DRAINING;
}

void front_drain(struct front *front, ev_call done, void *arg)
{
    front->state = FRONT_DRAINING;
    http_server_drain(front->server, done, arg);
}

uint32_t front_n_running(const struct front *front)
{
    return front->n_running;
}

void front_abandon(struct front *front)
{
    list_for_each_safe (node, spare, &front->requests)
        request_abandon(container_of(node, struct request, node));
}
