/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-origin requests (the Fetch standard); off unless origins are configured.
 *
 *     page at ORIGIN ──OPTIONS, access-control-request-method──> 204, what may be asked
 *                    ──the request, origin: ORIGIN────────────> its answer, access-control-allow-origin
 *
 * The browser keeps a page from reading forbidden answers; the server only states who may read them. So an
 * answer to a foreign origin has none of these fields, and its preflight goes to the handler like any
 * other OPTIONS. Keys travel in headers, not in cookies, so credentials are never allowed. */
#include "net/http/conn_priv.h"

#include <string.h>

#include "net/http/parse_priv.h"

#define MAX_REQUESTED_BYTES 2048
#define EXPOSED                                                                                              \
    "request-id, retry-after, retry-after-ms, x-should-retry, server-timing, baton-proof, "                  \
    "anthropic-ratelimit-requests-limit, anthropic-ratelimit-requests-remaining, "                           \
    "anthropic-ratelimit-requests-reset, anthropic-ratelimit-tokens-limit, "                                 \
    "anthropic-ratelimit-tokens-remaining, anthropic-ratelimit-tokens-reset, "                               \
    "anthropic-ratelimit-input-tokens-limit, anthropic-ratelimit-input-tokens-remaining, "                   \
    "anthropic-ratelimit-input-tokens-reset, anthropic-ratelimit-output-tokens-limit, "                      \
    "anthropic-ratelimit-output-tokens-remaining, anthropic-ratelimit-output-tokens-reset"

/* Returns the configured entry that covers this request's origin, "*" included; NULL: none. */
static const char *allowed_origin(const struct http_exchange *exchange)
{
    const struct http_server_opts *opts = &exchange->conn->server->opts;
    struct bytes origin;

    if (opts->n_origins == 0)
        return NULL;
    origin = http_exchange_field(exchange, "origin");
    if (origin.len_bytes == 0)
        return NULL;
    for (size_t i = 0; i < opts->n_origins; i++)
        if (strcmp(opts->origins[i], "*") == 0 || bytes_is(origin, opts->origins[i]))
            return opts->origins[i];
    return NULL;
}

static bool http_cors_is_any(const struct http_exchange *exchange)
{
    const struct http_server_opts *opts = &exchange->conn->server->opts;

    for (size_t i = 0; i < opts->n_origins; i++)
        if (strcmp(opts->origins[i], "*") == 0)
            return true;
    return false;
}

void http_cors_add(const struct http_exchange *exchange, struct http_fields *fields)
{
    const char *origin = allowed_origin(exchange);

    if (exchange->conn->server->opts.n_origins == 0)
        return;
    /* A cache must not give one origin's answer to another origin. */
    if (!http_cors_is_any(exchange))
        http_fields_add_str(fields, "vary", "origin");
    if (origin == NULL)
        return;
    http_fields_add_str(fields, "access-control-allow-origin", origin);
    http_fields_add_str(fields, "access-control-expose-headers", EXPOSED);
}

/* Accepts only names and commas, because the text is sent back. */
static bool is_name_list(struct bytes text)
{
    for (size_t i = 0; i < text.len_bytes; i++)
        if (!http_is_token_char(text.data[i]) && text.data[i] != ',' && text.data[i] != ' ')
            return false;
    return text.len_bytes > 0 && text.len_bytes <= MAX_REQUESTED_BYTES;
}

bool http_cors_answer(struct http_exchange *exchange)
{
    const struct http_server_opts *opts = &exchange->conn->server->opts;
    struct bytes asked = http_exchange_field(exchange, "access-control-request-headers");
    struct http_fields fields = {0};

    if (http_exchange_method(exchange) != HTTP_OPTIONS || allowed_origin(exchange) == NULL ||
        http_exchange_field(exchange, "access-control-request-method").len_bytes == 0)
        return false;
    http_fields_add_str(&fields, "access-control-allow-methods", "GET, HEAD, POST");
    if (is_name_list(asked))
        http_fields_add(&fields, "access-control-allow-headers", asked);
    http_fields_add_str(&fields, "access-control-max-age", "7200");
    if (opts->add_fields != NULL)
        opts->add_fields(opts->handler_arg, &fields);
    http_reply(exchange, 204, &fields, bytes_of(NULL, 0));
    http_fields_fini(&fields);
    return true;
}
