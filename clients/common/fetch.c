/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the caller's loop until one call has ended.  The whole body is kept, so it is bounded: beyond the bound
 * the call is cancelled and the fetch fails with E_LIMIT. */
#include "clients/common/fetch.h"

#include "base/err.h"

struct fetching {
    const struct fetch_opts *opts;
    struct http_call *call;
    struct buf *body;
    struct fault *fault;
    int status;
    int result;
    bool is_over;
};

static void fetch_on_head(void *arg, const struct http_head *head, struct bytes text)
{
    struct fetching *fetching = arg;

    fetching->status = head->status;
}

static void fetch_stop(struct fetching *fetching, int result)
{
    fetching->result = result;
    fetching->is_over = true;
    ev_loop_stop(fetching->opts->loop);
}

static void fetch_on_body(void *arg, struct bytes piece)
{
    struct fetching *fetching = arg;
    int rc = buf_append(fetching->body, piece.data, piece.len_bytes);

    if (rc == 0 && fetching->body->len_bytes > fetching->opts->max_bytes)
        rc = E_LIMIT;
    if (rc == 0)
        return;
    http_call_cancel(fetching->call);
    fetch_stop(fetching, fault_set(fetching->fault, rc, "the answer is too long (over %zu bytes)",
                                   fetching->opts->max_bytes));
}

static void fetch_on_end(void *arg, int result, const struct fault *fault)
{
    struct fetching *fetching = arg;

    if (result < 0)
        fault_set(fetching->fault, result, "%s", fault->text);
    fetch_stop(fetching, result);
}

int fetch(const struct fetch_opts *opts, struct fault *fault, struct buf *body_out)
{
    static const struct http_call_events events = {
        .on_head = fetch_on_head, .on_body = fetch_on_body, .on_end = fetch_on_end};
    struct fetching fetching = {.opts = opts, .body = body_out, .fault = fault};
    struct http_call_opts call = {.method = opts->method,
                                  .path = opts->path,
                                  .fields = opts->fields,
                                  .body = opts->body,
                                  .timeout_ns = opts->timeout_ns,
                                  .may_repeat = opts->method == HTTP_GET,
                                  .events = &events,
                                  .arg = &fetching};
    int rc;

    buf_clear(body_out);
    rc = http_client_start(opts->client, &call, &fetching.call);
    if (rc < 0)
        return fault_set(fault, rc, "%s", err_text(rc));
    rc = ev_loop_run(opts->loop);
    if (!fetching.is_over)
        http_call_cancel(fetching.call);
    if (rc < 0)
        return fault_set(fault, rc, "the event loop failed");
    if (!fetching.is_over)
        return fault_set(fault, E_CANCELLED, "interrupted");
    return fetching.result < 0 ? fetching.result : fetching.status;
}
