/* SPDX-License-Identifier: Apache-2.0 */
/* Plain answers.  Every one of them, errors and probes included, has a request id. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "front/admit.h"

#define DEFAULT_RETRY_AFTER_S 1u

static bool is_retryable(int status)
{
    return status == 429 || status == 503 || status == 529;
}

static void add_error_fields(struct http_fields *fields, const struct api_error *error, const char *id)
{
    http_fields_add_str(fields, "content-type", "application/json");
    http_fields_add_str(fields, "request-id", id);
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
    add_error_fields(&fields, error, id);
    admit_put_fields(exchange, &fields);
    if (allow != NULL)
        http_fields_add_str(&fields, "allow", allow);
    if (error->status == 401)
        http_fields_add_str(&fields, "www-authenticate", "Bearer");
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
    http_fields_add_str(fields, "request-id", id);
    admit_put_fields(exchange, fields);
    http_reply(exchange, 200, fields, body);
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
    add_error_fields(&fields, &error, id);
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
