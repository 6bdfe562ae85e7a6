/* SPDX-License-Identifier: Apache-2.0 */
/* Routers and workers describe themselves differently (src/fleet/router/status.c, src/worker/loop/status.c);
 * what is missing is shown as 0, so that a batonctl can look at a daemon of another version.
 *
 *   router  baton-router "router0"                        worker  baton-decode "decode0"
 *     what was placed where, queue                          engine, speed, blocks by state
 *     one row per worker                                    routers and peers, up or not
 */
#include "clients/ctl/status.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

static uint64_t status_count_of(const json_t *object, const char *name)
{
    double value = json_number_value(json_object_get(object, name));

    if (!(value >= 1))
        return 0;
    return value < 1e18 ? (uint64_t)value : UINT64_C(1000000000000000000);
}

static double real_of(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

static bool is_set(const json_t *object, const char *name)
{
    return json_is_true(json_object_get(object, name));
}

/* Appends a text for display: bounded, without terminal control characters. */
static const char *long_text_of(const json_t *object, const char *name, size_t cap, char *out)
{
    const char *value = json_string_value(json_object_get(object, name));

    str_copy(out, cap, value != NULL ? value : "");
    out[utf8_valid_prefix(bytes_str(out))] = '\0';
    for (char *c = out; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    return out;
}

static const char *status_text_of(const json_t *object, const char *name, char out[64])
{
    return long_text_of(object, name, 64, out);
}

static double status_percent(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

/* ---- router ---- */

static void put_worker_brief(const json_t *worker, struct buf *out)
{
    char node[64];
    char role[64];

    buf_printf(out, " | %s", status_text_of(worker, "node", node));
    if (!is_set(worker, "up"))
        buf_append_str(out, " down");
    else if (is_set(worker, "draining"))
        buf_append_str(out, " draining");
    else if (strcmp(status_text_of(worker, "role", role), "prefill") == 0)
        buf_printf(out, " %.0f tok/s", real_of(worker, "prefill_tokens_per_s"));
    else
        buf_printf(
            out, " %.1f ms/token, %.0f%% blocks free", real_of(worker, "decode_step_ms"),
            status_percent(status_count_of(worker, "blocks_free"), status_count_of(worker, "blocks_total")));
}

static void put_router_line(const json_t *root, struct buf *out)
{
    const json_t *workers = json_object_get(root, "workers");
    uint64_t running = 0;
    uint64_t up = 0;
    size_t i;
    json_t *worker;

    json_array_foreach(workers, i, worker)
    {
        running += status_count_of(worker, "running");
        up += is_set(worker, "up");
    }
    buf_printf(out, "router: %" PRIu64 " worker%s, %" PRIu64 " running, %" PRIu64 " queued", up,
               up == 1 ? "" : "s", running, status_count_of(root, "queued"));
    if (is_set(root, "draining"))
        buf_append_str(out, ", draining");
    buf_printf(out, " | handed off %" PRIu64 ", local %" PRIu64 ", redispatched %" PRIu64,
               status_count_of(root, "handed_off"), status_count_of(root, "local"),
               status_count_of(root, "redispatched"));
    json_array_foreach(workers, i, worker) put_worker_brief(worker, out);
    if (json_array_size(json_object_get(root, "refused")) > 0)
        buf_printf(out, " | %zu refused, name taken", json_array_size(json_object_get(root, "refused")));
    buf_append_str(out, "\n");
}

static const char *worker_state(const json_t *worker)
{
    if (!is_set(worker, "up"))
        return "down";
    if (is_set(worker, "draining"))
        return "draining";
    if (is_set(worker, "unfit"))
        return "unfit";
    return is_set(worker, "usable") ? "up" : "not ready";
}

static void put_worker_row(const json_t *worker, struct buf *out)
{
    char node[64];
    char role[64];

    buf_printf(out, "%-20s %-8s %-9s %7" PRIu64 " %7" PRIu64 " %8" PRIu64 " %10.0f %9.2f",
               status_text_of(worker, "node", node), status_text_of(worker, "role", role),
               worker_state(worker), status_count_of(worker, "running"), status_count_of(worker, "waiting"),
               status_count_of(worker, "queued_prefill_tokens"), real_of(worker, "prefill_tokens_per_s"),
               real_of(worker, "decode_step_ms"));
    buf_printf(out, " %6" PRIu64 "/%-6" PRIu64 " %8" PRIu64 " %8.2f %8" PRIu64 " %5" PRIu64 "\n",
               status_count_of(worker, "blocks_free"), status_count_of(worker, "blocks_total"),
               status_count_of(worker, "blocks_on_disk"), real_of(worker, "rtt_us") / 1000,
               status_count_of(worker, "dispatched"), status_count_of(worker, "lost"));
}

/* Lists workers whose name another one has. */
static void put_refused(const json_t *list, struct buf *out)
{
    char node[64], address[64], current[64];
    size_t i;
    json_t *one;

    json_array_foreach(list, i, one)
        buf_printf(out,
                   "\nrefused: %s at %s, the name is taken by the worker at %s (%" PRIu64 " times in %" PRIu64
                   " s); give it another node.name\n",
                   status_text_of(one, "node", node), status_text_of(one, "address", address),
                   status_text_of(one, "current", current), status_count_of(one, "times"),
                   status_count_of(one, "since_s"));
}

/* One line for each model: its workers, how many are wanted, and why. */
static void put_roles(const json_t *list, struct buf *out)
{
    char model[64], reason[128];
    size_t i;
    json_t *one;

    json_array_foreach(list, i, one)
    {
        buf_printf(out, "  roles     %s: %" PRIu64 " prefill, %" PRIu64 " decode",
                   status_text_of(one, "model", model), status_count_of(one, "prefill"),
                   status_count_of(one, "decode"));
        if (status_count_of(one, "wanted_decode") > 0)
            buf_printf(out, "; wanted %" PRIu64 " and %" PRIu64 " (room %.2f and %.2f)",
                       status_count_of(one, "wanted_prefill"), status_count_of(one, "wanted_decode"),
                       real_of(one, "prefill_room"), real_of(one, "decode_room"));
        buf_printf(out, "; %s: %s\n", is_set(one, "auto") ? "auto" : "fixed",
                   long_text_of(one, "reason", sizeof(reason), reason));
    }
}

static void put_router_table(const json_t *root, struct buf *out)
{
    const json_t *workers = json_object_get(root, "workers");
    char node[64];
    size_t i;
    json_t *worker;

    buf_printf(out, "baton-router %s%s\n", status_text_of(root, "node", node),
               is_set(root, "draining") ? ", draining" : "");
    buf_printf(out,
               "  requests  %" PRIu64 " handed off, %" PRIu64 " local, %" PRIu64 " redispatched, %" PRIu64
               " queued now\n",
               status_count_of(root, "handed_off"), status_count_of(root, "local"),
               status_count_of(root, "redispatched"), status_count_of(root, "queued"));
    buf_printf(out, "  index     %" PRIu64 " cached blocks known, %" PRIu64 " of them on disk only\n",
               status_count_of(root, "indexed_blocks"), status_count_of(root, "indexed_on_disk_only"));
    put_roles(json_object_get(root, "roles"), out);
    buf_append_str(out, "\n");
    if (json_array_size(workers) == 0) {
        buf_append_str(out, "no worker has registered; a worker's link.routers must name this router's "
                            "link.listen address\n");
        return;
    }
    buf_printf(out, "%-20s %-8s %-9s %7s %7s %8s %10s %9s %13s %8s %8s %8s %5s\n", "WORKER", "ROLE", "STATE",
               "RUNNING", "WAITING", "QUEUED", "PREFILL", "STEP", "BLOCKS", "DISK", "RTT", "SENT", "LOST");
    buf_printf(out, "%-20s %-8s %-9s %7s %7s %8s %10s %9s %13s %8s %8s %8s %5s\n", "", "", "", "", "",
               "tokens", "tokens/s", "ms", "free/total", "blocks", "ms", "", "");
    json_array_foreach(workers, i, worker) put_worker_row(worker, out);
    put_refused(json_object_get(root, "refused"), out);
}

/* ---- worker ---- */

static void put_worker_line(const json_t *root, struct buf *out)
{
    const json_t *blocks = json_object_get(root, "blocks");
    char daemon[64];
    char node[64];

    buf_printf(out, "%s %s: ", status_text_of(root, "daemon", daemon), status_text_of(root, "node", node));
    if (is_set(root, "draining"))
        buf_append_str(out, "draining, ");
    buf_printf(out,
               "%" PRIu64 " running, %" PRIu64
               " waiting | %.0f tok/s prefill, %.1f ms/token | %.0f%% blocks free, %" PRIu64 " cached\n",
               status_count_of(root, "running"), status_count_of(root, "waiting"),
               real_of(root, "prefill_tokens_per_s"), real_of(root, "decode_step_ms"),
               status_percent(status_count_of(blocks, "free") + status_count_of(blocks, "cached"),
                              status_count_of(blocks, "total")),
               status_count_of(blocks, "cached"));
}

static void status_put_links(const json_t *list, const char *what, const char *name, struct buf *out)
{
    char text[64];
    size_t i;
    json_t *link;

    buf_printf(out, "  %-10s", what);
    if (json_array_size(list) == 0)
        buf_append_str(out, "none");
    json_array_foreach(list, i, link)
        buf_printf(out, "%s%s (%s)", i > 0 ? ", " : "", status_text_of(link, name, text),
                   is_set(link, "up") ? "up" : "down");
    buf_append_str(out, "\n");
}

/* Appends why a router is not linked, in the router's own words when it refused. */
static void put_why_down(const json_t *routers, struct buf *out)
{
    char why[600];
    size_t i;
    json_t *router;

    json_array_foreach(routers, i, router) if (json_string_length(json_object_get(router, "reason")) > 0)
        buf_printf(out, "            %s\n", long_text_of(router, "reason", sizeof(why), why));
}

/* Appends the transport of KV from each peer, with its reason. */
static void put_kv_from(const json_t *peers, struct buf *out)
{
    char node[64], transport[64], why[64];
    size_t i;
    json_t *peer;

    json_array_foreach(peers, i, peer) if (json_object_get(peer, "transport") != NULL)
        buf_printf(out, "  kv from   %s over %s (%s)\n", status_text_of(peer, "node", node),
                   status_text_of(peer, "transport", transport), status_text_of(peer, "transport_why", why));
}

static void status_put_disk(const json_t *disk, struct buf *out)
{
    if (disk != NULL)
        buf_printf(
            out, "  disk      %" PRIu64 " blocks in %.1f MB, read at %.1f MB/s; %" PRIu64 " to be saved%s\n",
            status_count_of(disk, "blocks"), real_of(disk, "bytes") / 1e6,
            real_of(disk, "read_bytes_per_s") / 1e6, status_count_of(disk, "writeback"),
            is_set(disk, "resting") ? ", failing" : "");
}

/* Appends the number of peers' blocks that this worker knows. */
static void status_put_peer_blocks(const json_t *known, struct buf *out)
{
    if (known != NULL)
        buf_printf(out,
                   "  peers'    %" PRIu64 " cached blocks known of %" PRIu64 " workers, %" PRIu64
                   " more on disk only; %" PRIu64 " fetches by that, %" PRIu64 " resyncs\n",
                   status_count_of(known, "in_memory"), status_count_of(known, "followed"),
                   status_count_of(known, "on_disk_only"), status_count_of(known, "fetches"),
                   status_count_of(known, "resyncs"));
}

static void put_worker_table(const json_t *root, struct buf *out)
{
    const json_t *blocks = json_object_get(root, "blocks");
    uint64_t hits = status_count_of(blocks, "hits");
    bool has_role = json_object_get(root, "role") != NULL;
    char role[64];
    char one[64];
    char two[64];
    char rails[512];

    buf_printf(out, "%s %s%s%s%s%s\n", status_text_of(root, "daemon", one), status_text_of(root, "node", two),
               has_role ? ", role " : "", has_role ? status_text_of(root, "role", role) : "",
               is_set(root, "draining") ? ", draining" : "",
               is_set(root, "unfit") ? ", unfit: its logits are not finite numbers" : "");
    buf_printf(out, "  model     %s on engine %s\n", status_text_of(root, "model", one),
               status_text_of(root, "engine", two));
    buf_printf(out,
               "  requests  %" PRIu64 " running, %" PRIu64 " waiting (%" PRIu64
               " tokens to prefill), %" PRIu64 " tasks\n",
               status_count_of(root, "running"), status_count_of(root, "waiting"),
               status_count_of(root, "queued_prefill_tokens"), status_count_of(root, "tasks"));
    buf_printf(out, "  speed     prefill %.0f tokens/s, decode step %.2f ms, transfer %.1f MB/s\n",
               real_of(root, "prefill_tokens_per_s"), real_of(root, "decode_step_ms"),
               real_of(root, "transfer_bytes_per_s") / 1e6);
    buf_printf(
        out,
        "  steps     %" PRIu64 ", %" PRIu64 " with drafts: %" PRIu64 " tokens drafted, %" PRIu64
        " right (%.0f%%); %" PRIu64 " prompt tokens at most in the last\n",
        status_count_of(root, "steps"), status_count_of(root, "draft_steps"),
        status_count_of(root, "drafted_tokens"), status_count_of(root, "accepted_tokens"),
        status_percent(status_count_of(root, "accepted_tokens"), status_count_of(root, "drafted_tokens")),
        status_count_of(root, "chunk_tokens"));
    buf_printf(out,
               "  blocks    %" PRIu64 " of %" PRIu64 " free, %" PRIu64 " cached (%" PRIu64
               " pinned), %" PRIu64 " filling, %" PRIu64 " sealed, %" PRIu64 " leased, %" PRIu64 " zombie\n",
               status_count_of(blocks, "free"), status_count_of(blocks, "total"),
               status_count_of(blocks, "cached"), status_count_of(blocks, "pinned"),
               status_count_of(blocks, "filling"), status_count_of(blocks, "sealed"),
               status_count_of(blocks, "leased"), status_count_of(blocks, "zombie"));
    buf_printf(out,
               "  cache     %" PRIu64 " hits, %" PRIu64 " misses (%.0f%%), %" PRIu64 " evicted, %" PRIu64
               " expired\n",
               hits, status_count_of(blocks, "misses"),
               status_percent(hits, hits + status_count_of(blocks, "misses")),
               status_count_of(blocks, "evicted"), status_count_of(blocks, "expired"));
    status_put_disk(json_object_get(root, "disk"), out);
    status_put_peer_blocks(json_object_get(root, "peer_blocks"), out);
    buf_printf(out, "  transfer  tcp %s, unix %s\n", status_text_of(root, "kv_tcp", one),
               status_text_of(root, "kv_unix", two));
    if (json_object_get(root, "kv_rdma") != NULL)
        buf_printf(out, "  rdma      %" PRIu64 " up: %s\n", status_count_of(root, "kv_rdma_rails_up"),
                   long_text_of(root, "kv_rdma", sizeof(rails), rails));
    put_kv_from(json_object_get(root, "peers"), out);
    status_put_links(json_object_get(root, "routers"), "routers", "address", out);
    put_why_down(json_object_get(root, "routers"), out);
    status_put_links(json_object_get(root, "peers"), "peers", "node", out);
}

int status_render(struct bytes json, bool is_line, struct buf *out)
{
    json_t *root = json_loadb((const char *)json.data, json.len_bytes, 0, NULL);
    const char *daemon = json_string_value(json_object_get(root, "daemon"));
    int rc = 0;

    if (daemon == NULL)
        rc = E_FORMAT;
    else if (strcmp(daemon, "baton-router") == 0)
        (is_line ? put_router_line : put_router_table)(root, out);
    else
        (is_line ? put_worker_line : put_worker_table)(root, out);
    json_decref(root);
    return rc < 0 ? rc : out->is_bad ? E_NOMEM : 0;
}

int status_work(struct bytes json, struct status_work *out)
{
    json_t *root = json_loadb((const char *)json.data, json.len_bytes, 0, NULL);
    const json_t *workers = json_object_get(root, "workers");
    struct status_work work = {.is_draining = is_set(root, "draining")};
    size_t i;
    json_t *worker;
    bool is_status = json_is_string(json_object_get(root, "daemon"));

    work.n_running = status_count_of(root, "queued") + status_count_of(root, "tasks");
    json_array_foreach(workers, i, worker) work.n_running += status_count_of(worker, "inflight");
    work.n_placed = status_count_of(root, "handed_off") + status_count_of(root, "local");
    json_decref(root);
    if (!is_status)
        return E_FORMAT;
    *out = work;
    return 0;
}

int status_role(struct bytes json, const char *node, char role_out[64])
{
    json_t *root = json_loadb((const char *)json.data, json.len_bytes, 0, NULL);
    const json_t *workers = json_object_get(root, "workers");
    int rc = json_is_string(json_object_get(root, "daemon")) ? E_NOT_FOUND : E_FORMAT;
    char name[64];
    size_t i;
    json_t *worker;

    if (rc == E_NOT_FOUND && workers == NULL && strcmp(status_text_of(root, "node", name), node) == 0) {
        status_text_of(root, "role", role_out);
        rc = 0;
    }
    json_array_foreach(workers, i, worker)
    {
        if (rc != E_NOT_FOUND || strcmp(status_text_of(worker, "node", name), node) != 0)
            continue;
        status_text_of(worker, "role", role_out);
        rc = 0;
    }
    json_decref(root);
    return rc;
}
