/* SPDX-License-Identifier: Apache-2.0 */
/* batonctl why: one table for each attempt, the chosen workers first, then the others of each phase by their cost. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "clients/ctl/request_view.h"
#include "clients/ctl/request_view_priv.h"

#define MAX_ROWS 64

static int request_compare_rows(const void *a, const void *b)
{
    const json_t *one = *(json_t *const *)a, *two = *(json_t *const *)b;
    int first = json_is_true(json_object_get(two, "chosen")) - json_is_true(json_object_get(one, "chosen"));
    int role = (strcmp(request_text(one, "role"), "prefill") != 0) -
               (strcmp(request_text(two, "role"), "prefill") != 0);
    int open = (request_text(one, "why_not")[0] != '\0') - (request_text(two, "why_not")[0] != '\0');
    double cost = request_real(one, "cost_ms") - request_real(two, "cost_ms");

    if (role != 0)
        return role;
    if (open != 0)
        return open;
    return first != 0 ? first : cost < 0 ? -1 : cost > 0;
}

static void request_put_candidate(const json_t *row, struct buf *out)
{
    const char *why_not = request_text(row, "why_not");

    buf_printf(out, "  %c ", json_is_true(json_object_get(row, "chosen")) ? '>' : ' ');
    request_put_name(request_text(row, "node"), 16, out);
    buf_printf(out, " %-7.7s", request_text(row, "role"));
    if (why_not[0] != '\0') {
        buf_printf(out, " %.48s\n", why_not);
        return;
    }
    buf_printf(out, " %7" PRIu64 " %7.0f %7.0f %7.1f %6.1f %4" PRIu64 " %7.0f\n",
               request_count(row, "cached_tokens"), request_real(row, "queue_ms"),
               request_real(row, "prompt_ms"), request_real(row, "transfer_ms"), request_real(row, "itl_ms"),
               request_count(row, "running"), request_real(row, "cost_ms"));
}

/* Which tokens of the prompt a worker reads, from where, and how long that is expected to take. */
static void request_put_read(const json_t *decision, struct buf *out)
{
    uint64_t n = request_count(decision, "read_tokens"), all = request_count(decision, "prompt_tokens"),
             computed = request_count(decision, "uncached_tokens");
    bool is_store = json_is_true(json_object_get(decision, "reads_store"));

    if (n == 0 || n > all || computed > all - n)
        return;
    buf_printf(out, "  tokens %" PRIu64 " to %" PRIu64 " of the prompt are read from %s, in %.1f ms\n",
               all - computed - n + 1, all - computed, is_store ? "the shared store" : "its disk",
               request_real(decision, "read_ms"));
}

static void request_put_verdict(const json_t *decision, struct buf *out)
{
    const char *refused = request_text(decision, "refused");

    buf_printf(out, "attempt %" PRIu64 ", %s, ", request_count(decision, "attempt"),
               request_text(decision, "when"));
    request_put_name(request_text(decision, "model"), 0, out);
    buf_printf(out, ", class %s\n", request_text(decision, "class"));
    buf_printf(out, "  prompt of %" PRIu64 " tokens; objectives: first token %.0f ms, each next %.1f ms\n",
               request_count(decision, "prompt_tokens"), request_real(decision, "ttft_slo_ms"),
               request_real(decision, "itl_slo_ms"));
    if (request_real(decision, "waited_ms") > 0)
        buf_printf(out, "  it waited %.0f ms in the router's queue\n", request_real(decision, "waited_ms"));
    if (refused[0] != '\0')
        buf_printf(out, "  refused: %s\n", refused);
    else
        buf_printf(out,
                   "  placed: %" PRIu64 " tokens to compute, %" PRIu64 " to read from %s, %" PRIu64
                   " to fetch\n  predicted: first token in %.0f ms, then %.1f ms for each\n",
                   request_count(decision, "uncached_tokens"), request_count(decision, "read_tokens"),
                   json_is_true(json_object_get(decision, "reads_store")) ? "the store" : "disk",
                   request_count(decision, "fetch_tokens"), request_real(decision, "ttft_ms"),
                   request_real(decision, "itl_ms"));
    request_put_read(decision, out);
    if (request_text(decision, "error")[0] != '\0')
        buf_printf(out, "  the attempt failed: %.60s\n", request_text(decision, "error"));
}

static void request_put_decision(const json_t *decision, struct buf *out)
{
    const json_t *candidates = json_object_get(decision, "candidates");
    json_t *rows[MAX_ROWS], *row;
    size_t i, n = 0;

    request_put_verdict(decision, out);
    json_array_foreach(candidates, i, row) if (n < MAX_ROWS) rows[n++] = row;
    qsort(rows, n, sizeof(rows[0]), request_compare_rows);
    buf_append_str(out, "    worker           role     cached   queue  prompt  transf    itl  run cost ms\n");
    for (i = 0; i < n; i++)
        request_put_candidate(rows[i], out);
    if (request_count(decision, "looked_at") < request_count(decision, "known_workers"))
        buf_printf(out, "  (a sample: %" PRIu64 " of %" PRIu64 " workers)\n",
                   request_count(decision, "looked_at"), request_count(decision, "known_workers"));
}

int request_view_why(struct bytes json, struct buf *out)
{
    json_t *root = json_loadb((const char *)json.data, json.len_bytes, 0, NULL);
    const json_t *decisions = json_object_get(root, "decisions");
    bool is_good = json_array_size(decisions) > 0;
    size_t i;
    json_t *decision;

    json_array_foreach(decisions, i, decision) request_put_decision(decision, out);
    json_decref(root);
    return !is_good ? E_FORMAT : out->is_bad ? E_NOMEM : 0;
}
