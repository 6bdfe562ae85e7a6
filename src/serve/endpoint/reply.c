/* SPDX-License-Identifier: Apache-2.0 */
/* Sends plain answers.  All of them, including errors and probes, carry a request id. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "serve/endpoint/admit_priv.h"

#define DEFAULT_RETRY_AFTER_S 1u

static bool is_retryable(int status)
{
    return status == 429 || status == 503 || status == 529;
}

/* True for OpenAI's paths, including those that this server does not serve. */
static bool reply_is_openai(const struct http_exchange *exchange)
{
    return api_path_is_openai(http_exchange_path(exchange));
}

void reply_add_id(struct http_fields *fields, const struct http_exchange *exchange, const char *id)
{
    http_fields_add_str(fields, "request-id", id);
    if (reply_is_openai(exchange))
        http_fields_add_str(fields, "x-request-id", id);
}

static void add_error_fields(struct http_fields *fields, const struct api_error *error)
{
    http_fields_add_str(fields, "content-type", "application/json");
    if (is_retryable(error->status))
        http_fields_addf(fields, "retry-after", "%u",
                         error->retry_after_s > 0 ? error->retry_after_s : DEFAULT_RETRY_AFTER_S);
}

void reply_error(struct http_exchange *exchange, const struct api_error *error, const char *id,
                 const char *allow)
{
    struct http_fields fields = {0};
    struct buf body = {0};
    char fresh[IDS_BYTES];

    if (id == NULL) {
        ids_make("req_", fresh);
        id = fresh;
    }
    add_error_fields(&fields, error);
    reply_add_id(&fields, exchange, id);
    admit_put_fields(exchange, &fields);
    if (allow != NULL)
        http_fields_add_str(&fields, "allow", allow);
    if (error->status == 401)
        http_fields_add_str(&fields, "www-authenticate", "Bearer");
    if (reply_is_openai(exchange))
        api_put_openai_error(&body, error);
    else
        api_put_error(&body, error, id);
    http_reply(exchange, error->status, &fields, buf_view(&body));
    http_fields_fini(&fields);
    buf_fini(&body);
}

void reply_body(struct http_exchange *exchange, int status, const char *type, struct bytes body)
{
    struct http_fields fields = {0};
    char id[IDS_BYTES];

    ids_make("req_", id);
    http_fields_add_str(&fields, "content-type", type);
    http_fields_add_str(&fields, "request-id", id);
    http_reply(exchange, status, &fields, body);
    http_fields_fini(&fields);
}

void reply_json(struct http_exchange *exchange, const char *id, struct http_fields *fields, struct bytes body)
{
    http_fields_add_str(fields, "content-type", "application/json");
    reply_add_id(fields, exchange, id);
    admit_put_fields(exchange, fields);
    http_reply(exchange, 200, fields, body);
}

bool reply_not_yet(const struct front *front, const char *model, struct api_error *error)
{
    const struct backend *backend = &front->opts.backend;
    const char *why =
        backend->ops->why_not_yet != NULL ? backend->ops->why_not_yet(backend->self, model) : NULL;

    if (why == NULL)
        return false;
    if (model != NULL)
        api_fail(error, 503, "The model %s cannot be served yet: %s", model, why);
    else
        api_fail(error, 503, "The server does not know its models yet: %s", why);
    return true;
}

int reply_make_busy(struct buf *out)
{
    struct http_fields fields = {0};
    struct api_error error;
    struct buf body = {0};
    char id[IDS_BYTES];
    int rc;

    ids_make("req_", id);
    api_fail(&error, 529, "Overloaded: too many connections");
    add_error_fields(&fields, &error);
    http_fields_add_str(&fields, "request-id", id);
    http_fields_add_str(&fields, "connection", "close");
    api_put_error(&body, &error, id);
    http_fields_addf(&fields, "content-length", "%zu", body.len_bytes);
    rc = http_put_response_head(out, error.status, &fields, NULL);
    if (rc == 0)
        rc = buf_append(out, body.data, body.len_bytes);
    http_fields_fini(&fields);
    buf_fini(&body);
    return rc < 0 || out->is_bad ? E_NOMEM : 0;
}
