/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of two refreshes and the time between them give rates.  After a restart of the router the rates begin
 * again. */
#include "clients/ctl/top_view.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "base/err.h"
#include "clients/ctl/request_view_priv.h"

#define LEVELS 8

static const char *const line_names[TOP_LINES] = {[TOP_PLACED] = "placed/s",
                                                  [TOP_HANDED_OFF] = "hand-offs/s",
                                                  [TOP_RUNNING] = "running",
                                                  [TOP_WAITING] = "waiting"};

static bool top_is_router(const json_t *root)
{
    return strcmp(request_text(root, "daemon"), "baton-router") == 0;
}

static void top_history_add(struct top_history *history, const double fresh[TOP_LINES])
{
    for (unsigned line = 0; line < TOP_LINES; line++) {
        memmove(history->values[line], history->values[line] + 1, (TOP_LOOKS - 1) * sizeof(double));
        history->values[line][TOP_LOOKS - 1] = fresh[line];
    }
    history->n += history->n < TOP_LOOKS;
}

bool top_history_take(struct top_history *history, struct bytes json, double elapsed_s)
{
    json_t *root = json_loadb((const char *)json.data, json.len_bytes, 0, NULL);
    const json_t *workers = json_object_get(root, "workers");
    double handed_off = request_real(root, "handed_off"), placed = handed_off + request_real(root, "local");
    double fresh[TOP_LINES] = {[TOP_WAITING] = request_real(root, "queued")};
    bool is_router = top_is_router(root), has_rates = history->has_counters && elapsed_s > 0;
    size_t i;
    json_t *worker;

    json_array_foreach(workers, i, worker)
    {
        fresh[TOP_RUNNING] += request_real(worker, "running");
        fresh[TOP_WAITING] += request_real(worker, "waiting");
    }
    json_decref(root);
    if (!is_router)
        return false;
    if (has_rates && placed >= history->placed && handed_off >= history->handed_off) {
        fresh[TOP_PLACED] = (placed - history->placed) / elapsed_s;
        fresh[TOP_HANDED_OFF] = (handed_off - history->handed_off) / elapsed_s;
    }
    history->placed = placed;
    history->handed_off = handed_off;
    history->has_counters = true;
    top_history_add(history, fresh);
    return true;
}

void top_put_bars(const double *values, unsigned n, bool is_utf8, struct buf *out)
{
    static const char *const blocks[LEVELS + 1] = {" ",      "\u2581", "\u2582", "\u2583", "\u2584",
                                                   "\u2585", "\u2586", "\u2587", "\u2588"};
    static const char *const letters[LEVELS + 1] = {" ", ".", ".", ":", "-", "=", "+", "*", "#"};
    double most = 0;

    for (unsigned i = 0; i < n; i++)
        most = values[i] > most ? values[i] : most;
    for (unsigned i = 0; i < n; i++) {
        double share = most > 0 && values[i] > 0 ? values[i] / most : 0;
        unsigned level = share > 0 ? (unsigned)(share * (LEVELS - 1)) + 1 : 0;

        buf_append_str(out, (is_utf8 ? blocks : letters)[level > LEVELS ? LEVELS : level]);
    }
}

static void top_put_pool(const json_t *workers, const char *role, struct buf *out)
{
    uint64_t n = 0, n_usable = 0, running = 0, waiting = 0, queued = 0, free_blocks = 0, blocks = 0;
    size_t i;
    json_t *worker;

    json_array_foreach(workers, i, worker)
    {
        if (strcmp(request_text(worker, "role"), role) != 0)
            continue;
        n++;
        n_usable += json_is_true(json_object_get(worker, "usable"));
        running += request_count(worker, "running");
        waiting += request_count(worker, "waiting");
        queued += request_count(worker, "queued_prefill_tokens");
        free_blocks += request_count(worker, "blocks_free");
        blocks += request_count(worker, "blocks_total");
    }
    if (n > 0)
        buf_printf(out,
                   "%-8s %3" PRIu64 " of %3" PRIu64 " up %5" PRIu64 " running %5" PRIu64 " waiting %8" PRIu64
                   " tokens to do KV %3.0f%%\n",
                   role, n_usable, n, running, waiting, queued,
                   blocks > 0 && free_blocks <= blocks
                       ? 100.0 * (double)(blocks - free_blocks) / (double)blocks
                       : 0);
}

int top_view_render(const struct top_history *history, struct bytes json, bool is_utf8, struct buf *out)
{
    json_t *root = json_loadb((const char *)json.data, json.len_bytes, 0, NULL);
    const json_t *workers = json_object_get(root, "workers");
    bool is_router = top_is_router(root);

    if (is_router) {
        top_put_pool(workers, "prefill", out);
        top_put_pool(workers, "decode", out);
        top_put_pool(workers, "both", out);
    }
    json_decref(root);
    for (unsigned line = 0; is_router && line < TOP_LINES; line++) {
        const double *values = history->values[line];

        buf_printf(out, "%-12s %8.1f  ", line_names[line], values[TOP_LOOKS - 1]);
        top_put_bars(values + TOP_LOOKS - history->n, history->n, is_utf8, out);
        buf_append_byte(out, '\n');
    }
    return out->is_bad ? E_NOMEM : 0;
}
