/* SPDX-License-Identifier: Apache-2.0 */
/* batonctl trace: the parts of a request as bars on one scale, from the router's and the workers' own reports. */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "base/err.h"
#include "clients/ctl/request_view.h"
#include "clients/ctl/request_view_priv.h"

#define BAR_WIDTH 34

uint64_t request_count(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));

    return value > 0 ? (uint64_t)value : 0;
}

double request_real(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

const char *request_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text != NULL ? text : "";
}

void request_put_name(const char *name, unsigned width, struct buf *out)
{
    unsigned n = 0;

    for (; *name != '\0' && (width == 0 || n < width); name++, n++)
        buf_append_byte(out, *name >= ' ' && *name <= '~' ? (uint8_t)*name : '?');
    for (; n < width; n++)
        buf_append_byte(out, ' ');
}

/* Writes one part: daemon, name, time, and its bar.  Writes nothing if both times are 0: the request did not reach
 * this part. */
static void request_put_bar(const char *who, const char *what, const uint64_t span_us[2], uint64_t whole_us,
                            struct buf *out)
{
    uint64_t from = span_us[0], to = span_us[1] > from ? span_us[1] : from;
    unsigned at, n;

    to = to < whole_us ? to : whole_us;
    from = from < to ? from : to;
    at = (unsigned)((double)from * BAR_WIDTH / (double)whole_us);
    n = (unsigned)((double)to * BAR_WIDTH / (double)whole_us + 0.99);
    n = n > at ? n - at : 1;
    at = at + n > BAR_WIDTH ? BAR_WIDTH - n : at;
    request_put_name(who, 14, out);
    buf_printf(out, " %-15s %9.2f ms |", what, (double)(to - from) / 1e3);
    for (unsigned i = 0; i < BAR_WIDTH; i++)
        buf_append_byte(out, i >= at && i < at + n ? '=' : ' ');
    buf_append_str(out, "|\n");
}

/* A worker's parts; its times are after its SUBMIT. */
static void request_put_worker(const json_t *worker, uint64_t whole_us, struct buf *out)
{
    const char *node = request_text(worker, "node"), *role = request_text(worker, "role");
    uint64_t submit = request_count(worker, "submit_us"), fetched = request_count(worker, "fetched_us");
    uint64_t admitted = request_count(worker, "admitted_us"), first = request_count(worker, "first_us");
    uint64_t began = request_count(worker, "transfer_began_us"),
             ended = request_count(worker, "transfer_ended_us");
    uint64_t end = request_count(worker, "ended_us");

    if (fetched > 0)
        request_put_bar(node, "prefix fetch", (uint64_t[]){submit, submit + fetched}, whole_us, out);
    if (admitted > 0) {
        request_put_bar(node, "queue", (uint64_t[]){submit + fetched, submit + admitted}, whole_us, out);
        request_put_bar(node, "compute prompt",
                        (uint64_t[]){submit + admitted, submit + (first > 0 ? first : end)}, whole_us, out);
    }
    if (began > 0)
        request_put_bar(node, strcmp(role, "prefill") == 0 ? "KV send" : "KV receive",
                        (uint64_t[]){submit + began, submit + (ended > 0 ? ended : end)}, whole_us, out);
    if (first > 0 && strcmp(role, "prefill") != 0)
        request_put_bar(node, "decode tokens", (uint64_t[]){submit + first, submit + end}, whole_us, out);
}

static void request_put_attempt(const json_t *decision, uint64_t whole_us, struct buf *out)
{
    const json_t *workers = json_object_get(decision, "workers");
    uint64_t submitted = request_count(decision, "submitted_us"),
             decided = request_count(decision, "decided_us");
    uint64_t ended = request_count(decision, "ended_us");
    bool is_first = request_count(decision, "attempt") <= 1;
    size_t i;
    json_t *worker;

    if (is_first)
        request_put_bar("router", "parse, tokenise", (uint64_t[]){0, submitted}, whole_us, out);
    if (request_text(decision, "refused")[0] != '\0') {
        request_put_bar("router", "refused", (uint64_t[]){submitted, decided}, whole_us, out);
        return;
    }
    if (request_real(decision, "waited_ms") > 0)
        request_put_bar("router", "queue", (uint64_t[]){submitted, decided}, whole_us, out);
    request_put_bar("router", "dispatch", (uint64_t[]){decided, ended > 0 ? ended : whole_us}, whole_us, out);
    json_array_foreach(workers, i, worker) request_put_worker(worker, whole_us, out);
    if (json_array_size(workers) == 0)
        buf_append_str(out, json_is_true(json_object_get(decision, "over"))
                                ? "               its workers reported no times (cancelled, lost, or older)\n"
                                : "               its workers report when they are done\n");
}

int request_view_trace(struct bytes json, struct buf *out)
{
    json_t *root = json_loadb((const char *)json.data, json.len_bytes, 0, NULL);
    const json_t *decisions = json_object_get(root, "decisions");
    const json_t *last = json_array_get(decisions, json_array_size(decisions) - 1);
    bool is_good = json_array_size(decisions) > 0;
    uint64_t whole_us = 1, first_us = request_count(last, "first_us");
    size_t i;
    json_t *decision;

    json_array_foreach(decisions, i, decision)
    {
        uint64_t end_us = request_count(decision, "ended_us");

        end_us = end_us > 0 ? end_us : request_count(decision, "decided_us");
        whole_us = end_us > whole_us ? end_us : whole_us;
    }
    if (is_good) {
        request_put_name(request_text(root, "request"), 0, out);
        buf_printf(out, "\n%" PRIu64 " prompt tokens, %" PRIu64 " answered, first token after %.2f ms\n",
                   request_count(last, "prompt_tokens"), request_count(last, "answered"),
                   (double)first_us / 1e3);
        buf_printf(out, "%43s |0%*.1f ms|\n", "", BAR_WIDTH - 4, (double)whole_us / 1e3);
    }
    json_array_foreach(decisions, i, decision) request_put_attempt(decision, whole_us, out);
    json_decref(root);
    return !is_good ? E_FORMAT : out->is_bad ? E_NOMEM : 0;
}
