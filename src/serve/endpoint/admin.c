/* SPDX-License-Identifier: Apache-2.0 */
/* The loop answers each admin request at once by a call into the daemon, because these requests are small and
 * rare.  A request that reads files (reload) waits for admin_acted(). */
#include "serve/endpoint/admin.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/list.h"
#include "base/log.h"
#include "base/name.h"
#include "base/str.h"
#include "net/http/response.h"
#include "net/http/server.h"
#include "serve/endpoint/admin_events_priv.h"
#include "serve/endpoint/console_priv.h"

struct admin {
    struct http_server *server;
    struct metrics *metrics;
    const struct admin_calls *calls;
    void *calls_arg;
    struct admin_tokens tokens;
    bool has_console;
    struct list waiting;   /* admin_wait */
    struct list parts;     /* statuses that are being written (admin_status) */
    struct ev_timer *turn; /* runs while `parts` is not empty */
    struct admin_events *events;
};

struct admin_status { /* a status that is being written */
    struct list node;
    struct http_exchange *exchange; /* NULL: for the watchers of events */
    struct buf body;
    uint32_t n_parts;
};

struct admin_wait { /* a request that waits for admin_acted() */
    struct list node;
    enum admin_verb verb;
    struct http_exchange *exchange;
};

void admin_token(const uint8_t key[32], char out[ADMIN_TOKEN_BYTES])
{
    hex_encode(key, 32, out);
}

void admin_tokens_make(const uint8_t (*all)[32], const uint8_t (*metrics)[32], int n,
                       struct admin_tokens *out)
{
    memset(out, 0, sizeof(*out));
    for (int i = 0; i < n && i < ADMIN_MAX_TOKENS; i++) {
        admin_token(all[i], out->all[i]);
        admin_token(metrics[i], out->metrics[i]);
    }
}

static void admin_reply(struct http_exchange *exchange, int status, const char *type, struct bytes body)
{
    struct http_fields fields = {0};

    (void)http_fields_add_str(&fields, "content-type", type);
    (void)http_fields_add_str(&fields, "cache-control", "no-store");
    http_reply(exchange, status, &fields, body);
    http_fields_fini(&fields);
}

static void reply_text(struct http_exchange *exchange, int status, const char *text)
{
    struct buf body = {0};

    (void)buf_append_str(&body, "{\"ok\": ");
    (void)buf_append_str(&body, status == 200 ? "true" : "false");
    (void)buf_append_str(&body, ", \"message\": ");
    (void)json_put_str(&body, bytes_str(text));
    (void)buf_append_str(&body, "}\n");
    admin_reply(exchange, status, "application/json", buf_view(&body));
    buf_fini(&body);
}

static bool has_token(const struct http_exchange *exchange,
                      const char tokens[ADMIN_MAX_TOKENS][ADMIN_TOKEN_BYTES])
{
    static const char scheme[] = "Bearer ";
    struct bytes value = http_exchange_field(exchange, "authorization");
    size_t len = strlen(scheme) + ADMIN_TOKEN_BYTES - 1;

    if (value.len_bytes != len || memcmp(value.data, scheme, strlen(scheme)) != 0)
        return false;
    for (unsigned i = 0; i < ADMIN_MAX_TOKENS; i++)
        if (tokens[i][0] != '\0' &&
            CRYPTO_memcmp(value.data + strlen(scheme), tokens[i], ADMIN_TOKEN_BYTES - 1) == 0)
            return true;
    return false;
}

static bool is_for_metrics(const struct http_exchange *exchange)
{
    return http_exchange_method(exchange) == HTTP_GET && bytes_is(http_exchange_path(exchange), "/metrics");
}

static bool is_for_console(const struct admin *admin, const struct http_exchange *exchange)
{
    enum http_method method = http_exchange_method(exchange);

    return admin->has_console && (method == HTTP_GET || method == HTTP_HEAD) &&
           console_has(http_exchange_path(exchange));
}

static bool admin_is_allowed(const struct admin *admin, const struct http_exchange *exchange)
{
    return has_token(exchange, admin->tokens.all) ||
           (is_for_metrics(exchange) && has_token(exchange, admin->tokens.metrics));
}

static void admin_on_head(void *arg, struct http_exchange *exchange)
{
    if (admin_is_allowed(arg, exchange))
        http_exchange_prove(exchange);
    else if (!is_for_console(arg, exchange))
        reply_text(exchange, 401, "the admin token is missing or wrong (batonctl takes --cluster-key FILE)");
}

static void admin_show(struct http_exchange *exchange, int rc, const char *type, struct buf *body)
{
    if (rc < 0)
        reply_text(exchange, 500, err_text(rc));
    else
        admin_reply(exchange, 200, type, buf_view(body));
    buf_fini(body);
}

static void admin_show_metrics(struct admin *admin, struct http_exchange *exchange)
{
    enum metrics_format format = metrics_format_wanted(http_exchange_field(exchange, "accept"));
    struct buf body = {0};
    int rc;

    metrics_read_process(admin->metrics);
    rc = metrics_render_as(admin->metrics, format, &body);
    admin_show(exchange, rc, metrics_content_type(format), &body);
}

static void admin_status_free(struct admin_status *status)
{
    list_remove(&status->node);
    buf_fini(&status->body);
    free(status);
}

static void admin_send_events(struct admin *admin, int rc, struct buf *status)
{
    struct buf placements = {0};

    if (rc == 0)
        admin_events_send(admin->events, "status", buf_view(status));
    if (rc == 0 && admin->calls->placements != NULL &&
        admin->calls->placements(admin->calls_arg, &placements) == 0)
        admin_events_send(admin->events, "placements", buf_view(&placements));
    buf_fini(&placements);
    buf_fini(status);
    admin_events_sent(admin->events);
}

/* Writes the next part of the status that has waited longest. */
static void admin_on_turn(void *arg)
{
    struct admin *admin = arg;
    struct admin_status *status = container_of(list_pop_front(&admin->parts), struct admin_status, node);
    int rc = admin->calls->status(admin->calls_arg, status->n_parts++, &status->body);

    if (rc == 1) {
        list_push_back(&admin->parts, &status->node);
    } else {
        struct http_exchange *exchange = status->exchange;
        struct buf body = status->body;

        status->body = (struct buf){0};
        admin_status_free(status);
        if (exchange != NULL)
            admin_show(exchange, rc, "application/json", &body);
        else
            admin_send_events(admin, rc, &body);
    }
    if (!list_is_empty(&admin->parts))
        ev_timer_start(admin->turn, 0);
}

/* exchange NULL: for the clients of /admin/events.  E_NOMEM. */
static int admin_begin_status(struct admin *admin, struct http_exchange *exchange)
{
    struct admin_status *status = calloc(1, sizeof(*status));

    if (status == NULL)
        return E_NOMEM;
    status->exchange = exchange;
    list_push_back(&admin->parts, &status->node);
    ev_timer_start(admin->turn, 0);
    return 0;
}

static void admin_show_status(struct admin *admin, struct http_exchange *exchange)
{
    if (admin_begin_status(admin, exchange) < 0)
        reply_text(exchange, 500, err_text(E_NOMEM));
}

static void admin_on_ask(void *arg)
{
    struct admin *admin = arg;

    if (admin_begin_status(admin, NULL) < 0)
        admin_events_sent(admin->events); /* memory may suffice next time */
}

static void admin_show_events(struct admin *admin, struct http_exchange *exchange)
{
    int rc = admin_events_watch(admin->events, exchange);

    if (rc < 0)
        reply_text(exchange, 503, rc == E_LIMIT ? "too many watch this daemon already" : err_text(rc));
}

static void reply_acted(struct http_exchange *exchange, const struct fault *fault)
{
    reply_text(exchange, fault != NULL ? 409 : 200, fault != NULL ? fault->text : "done");
}

static void endpoint_admin_act(struct admin *admin, struct http_exchange *exchange, enum admin_verb verb)
{
    struct admin_wait *wait = calloc(1, sizeof(*wait));
    struct fault fault = {0};
    int rc;

    if (wait == NULL) {
        reply_text(exchange, 500, err_text(E_NOMEM));
        return;
    }
    wait->exchange = exchange;
    wait->verb = verb;
    list_push_back(&admin->waiting, &wait->node); /* act may call admin_acted() */
    rc = admin->calls->act(admin->calls_arg, verb, &fault);
    if (rc == 1)
        return;
    list_remove(&wait->node);
    free(wait);
    reply_acted(exchange, rc < 0 ? &fault : NULL);
}

void admin_acted(struct admin *admin, const struct fault *fault)
{
    if (admin == NULL)
        return;
    list_for_each_safe (node, spare, &admin->waiting) {
        struct admin_wait *wait = container_of(node, struct admin_wait, node);
        struct http_exchange *exchange = wait->exchange;

        if (wait->verb == ADMIN_RELOAD_DIFF)
            continue;
        list_remove(&wait->node);
        free(wait);
        reply_acted(exchange, fault);
    }
}

void admin_diffed(struct admin *admin, const struct fault *fault, struct bytes json)
{
    if (admin == NULL)
        return;
    list_for_each_safe (node, spare, &admin->waiting) {
        struct admin_wait *wait = container_of(node, struct admin_wait, node);
        struct http_exchange *exchange = wait->exchange;

        if (wait->verb != ADMIN_RELOAD_DIFF)
            continue;
        list_remove(&wait->node);
        free(wait);
        if (fault != NULL)
            reply_acted(exchange, fault);
        else
            admin_reply(exchange, 200, "application/json", json);
    }
}

static bool admin_is_word(struct bytes text, const char *allowed)
{
    bool is_good = text.len_bytes > 0 && text.len_bytes < 64;

    for (size_t i = 0; is_good && i < text.len_bytes; i++)
        is_good = text.data[i] != '\0' && strchr(allowed, text.data[i]) != NULL;
    return is_good;
}

bool admin_role_read(struct bytes path, struct admin_role *out)
{
    static const char prefix[] = "/admin/role/", letters[] = "abcdefghijklmnopqrstuvwxyz";
    size_t at = sizeof(prefix) - 1, slash;
    struct admin_role wanted;

    if (path.len_bytes < at || memcmp(path.data, prefix, at) != 0)
        return false;
    slash = bytes_find(path, bytes_str("/"), at);
    if (slash == SIZE_MAX)
        return false;
    wanted.role = bytes_of(path.data + at, slash - at);
    wanted.worker = bytes_of(path.data + slash + 1, path.len_bytes - slash - 1);
    if (!admin_is_word(wanted.role, letters) || !name_is_valid(wanted.worker, NAME_MOST_BYTES))
        return false;
    *out = wanted;
    return true;
}

static void set_role(struct admin *admin, struct http_exchange *exchange, const struct admin_role *wanted)
{
    struct fault fault = {0};
    int rc = admin->calls->set_role(admin->calls_arg, wanted, &fault);

    reply_text(exchange, rc < 0 ? 409 : 200, rc < 0 ? fault.text : "done");
}

/* Answers /admin/request/ID. False: the path is another. */
static bool admin_show_request(const struct admin *admin, struct http_exchange *exchange)
{
    static const char prefix[] = "/admin/request/";
    struct bytes path = http_exchange_path(exchange);
    struct buf body = {0};
    char id[64] = "";
    size_t at = sizeof(prefix) - 1;
    int rc;

    if (http_exchange_method(exchange) != HTTP_GET || admin->calls->request == NULL ||
        !bytes_starts_with(path, prefix) || path.len_bytes - at >= sizeof(id))
        return false;
    memcpy(id, path.data + at, path.len_bytes - at);
    rc = admin->calls->request(admin->calls_arg, id, &body);
    if (rc == E_NOT_FOUND)
        reply_text(exchange, 409,
                   "this router has placed no such request lately (it keeps the last 512 placements)");
    else if (rc < 0)
        reply_text(exchange, 500, err_text(rc));
    else
        admin_reply(exchange, 200, "application/json", buf_view(&body));
    buf_fini(&body);
    return true;
}

int32_t admin_check_row(struct bytes path)
{
    static const char prefix[] = "/admin/check";
    size_t at = sizeof(prefix) - 1;
    uint64_t row;

    if (bytes_is(path, prefix))
        return -1;
    if (!bytes_starts_with(path, prefix) || path.len_bytes < at + 2 || path.data[at] != '/' ||
        str_to_u64(bytes_of(path.data + at + 1, path.len_bytes - at - 1), &row) != 0 || row > INT32_MAX)
        return -2;
    return (int32_t)row;
}

/* Answers /admin/check and its rows.  False: the path is another. */
static bool admin_show_check(struct admin *admin, struct http_exchange *exchange)
{
    int32_t row = admin_check_row(http_exchange_path(exchange));
    struct buf body = {0};
    int rc;

    if (http_exchange_method(exchange) != HTTP_GET || admin->calls->check == NULL || row < -1)
        return false;
    rc = admin->calls->check(admin->calls_arg, row, &body);
    if (rc == E_NOT_FOUND) {
        buf_fini(&body);
        return false;
    }
    admin_show(exchange, rc, "application/json", &body);
    return true;
}

/* Answers /admin/placements.  False: the path is another. */
static bool admin_show_placements(const struct admin *admin, struct http_exchange *exchange)
{
    struct buf body = {0};

    if (http_exchange_method(exchange) != HTTP_GET || admin->calls->placements == NULL ||
        !bytes_is(http_exchange_path(exchange), "/admin/placements"))
        return false;
    admin_show(exchange, admin->calls->placements(admin->calls_arg, &body), "application/json", &body);
    return true;
}

static void admin_on_request(void *arg, struct http_exchange *exchange)
{
    static const char *const verbs[] = {[ADMIN_DRAIN] = "/admin/drain",
                                        [ADMIN_DRAIN_MOVE] = "/admin/drain-move",
                                        [ADMIN_UNDRAIN] = "/admin/undrain",
                                        [ADMIN_RELOAD] = "/admin/reload",
                                        [ADMIN_RELOAD_DIFF] = "/admin/reload-diff",
                                        [ADMIN_CHECK] = "/admin/check"};
    struct bytes path = http_exchange_path(exchange);
    enum http_method method = http_exchange_method(exchange);
    struct admin_role wanted;

    if (method == HTTP_GET && bytes_is(path, "/admin/status")) {
        admin_show_status(arg, exchange);
        return;
    }
    if (method == HTTP_GET && bytes_is(path, "/admin/events")) {
        admin_show_events(arg, exchange);
        return;
    }
    if (is_for_metrics(exchange)) {
        admin_show_metrics(arg, exchange);
        return;
    }
    if (is_for_console(arg, exchange)) {
        console_reply(exchange);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        if (method == HTTP_POST && bytes_is(path, verbs[i])) {
            endpoint_admin_act(arg, exchange, (enum admin_verb)i);
            return;
        }
    }
    if (method == HTTP_POST && admin_role_read(path, &wanted)) {
        set_role(arg, exchange, &wanted);
        return;
    }
    if (!admin_show_request(arg, exchange) && !admin_show_placements(arg, exchange) &&
        !admin_show_check(arg, exchange))
        reply_text(exchange, 404, "no such admin path");
}

static void admin_on_refused(void *arg, struct http_exchange *exchange, int status, const char *why)
{
    reply_text(exchange, status, why);
}

static void admin_on_abort(void *arg, struct http_exchange *exchange, enum http_abort why)
{
    struct admin *admin = arg;

    if (admin_events_drop(admin->events, exchange))
        return;
    list_for_each (node, &admin->parts) {
        struct admin_status *status = container_of(node, struct admin_status, node);

        if (status->exchange != exchange)
            continue;
        admin_status_free(status);
        if (list_is_empty(&admin->parts))
            ev_timer_stop(admin->turn);
        return;
    }
    list_for_each (node, &admin->waiting) {
        struct admin_wait *wait = container_of(node, struct admin_wait, node);

        if (wait->exchange != exchange)
            continue;
        list_remove(&wait->node);
        free(wait);
        return;
    }
}

static void admin_on_pause(void *arg, struct http_exchange *exchange, bool is_paused)
{
    struct admin *admin = arg;

    /* other answers are small; the server's own limit ends a stalled client */
    admin_events_pause(admin->events, exchange, is_paused);
}

static const struct http_handler handler = {.on_head = admin_on_head,
                                            .on_request = admin_on_request,
                                            .on_refused = admin_on_refused,
                                            .on_abort = admin_on_abort,
                                            .on_pause = admin_on_pause};

int admin_new(const struct admin_opts *opts, struct fault *fault, struct admin **out)
{
    struct admin *admin = calloc(1, sizeof(*admin));
    struct http_server_opts server = {.loop = opts->loop,
                                      .handler = &handler,
                                      .handler_arg = admin,
                                      .port = "admin",
                                      .port_metrics = opts->metrics};
    int rc;

    if (admin == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    list_init(&admin->waiting);
    list_init(&admin->parts);
    server.limits.max_body_bytes = 4096;
    server.limits.max_conns = 256; /* a new connection evicts an idle one that has not sent the token */
    admin->metrics = opts->metrics;
    admin->has_console = opts->has_console;
    admin->calls = opts->calls;
    admin->calls_arg = opts->calls_arg;
    admin->tokens = *opts->tokens;
    rc = ev_timer_new(opts->loop, admin_on_turn, admin, &admin->turn);
    if (rc == 0)
        rc = admin_events_new(opts->loop, admin_on_ask, admin, &admin->events);
    if (rc == 0)
        rc = http_server_new(&server, &admin->server);
    if (rc == 0)
        rc = http_server_listen(admin->server, opts->listen, fault);
    if (rc < 0) {
        admin_free(admin);
        return rc;
    }
    *out = admin;
    return 0;
}

/* True if a token that permits everything was dropped. */
static bool admin_loses_token(const struct admin_tokens *before, const struct admin_tokens *after)
{
    for (size_t i = 0; i < ADMIN_MAX_TOKENS; i++) {
        bool is_kept = before->all[i][0] == '\0';

        for (size_t k = 0; k < ADMIN_MAX_TOKENS; k++)
            is_kept = is_kept || strcmp(before->all[i], after->all[k]) == 0;
        if (!is_kept)
            return true;
    }
    return false;
}

void admin_set_tokens(struct admin *admin, const struct admin_tokens *tokens)
{
    bool is_lost = admin_loses_token(&admin->tokens, tokens);

    admin->tokens = *tokens;
    if (is_lost)
        admin_events_end(admin->events); /* clients with a valid token reconnect */
}

uint16_t admin_port(const struct admin *admin)
{
    return http_server_port(admin->server);
}

void admin_free(struct admin *admin)
{
    if (admin == NULL)
        return;
    http_server_free(admin->server);
    while (!list_is_empty(&admin->waiting))
        free(container_of(list_pop_front(&admin->waiting), struct admin_wait, node));
    while (!list_is_empty(&admin->parts))
        admin_status_free(container_of(admin->parts.next, struct admin_status, node));
    ev_timer_free(admin->turn);
    admin_events_free(admin->events);
    OPENSSL_cleanse(&admin->tokens, sizeof(admin->tokens));
    free(admin);
}
