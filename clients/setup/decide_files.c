/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of each daemon's file.  A setting that equals the daemon's default is written only if its reason
 * adds to the explanation in the sample. */
#include "clients/setup/decide_priv.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "net/link/addr.h"

/* Adds a setting; value and why are taken from the line that it returns. */
static struct setup_line *files_add(struct setup_file *file, const char *section, const char *key)
{
    struct setup_line *line =
        &file->lines[file->n_lines < SETUP_MAX_LINES - 1 ? file->n_lines++ : file->n_lines];

    line->section = section;
    line->key = key;
    return line;
}

__attribute__((format(printf, 2, 3))) static void line_value(struct setup_line *line, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(line->value, sizeof(line->value), format, args);
    va_end(args);
}

__attribute__((format(printf, 2, 3))) static void line_why(struct setup_line *line, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(line->why, sizeof(line->why), format, args);
    va_end(args);
}

static void files_add_text(struct setup_file *file, const char *section, const char *key, const char *value,
                           const char *why)
{
    struct setup_line *line = files_add(file, section, key);

    line_value(line, "%s", value);
    line_why(line, "%s", why);
}

/* "10.0.0.5" and "fd00::5" as the host part of an address. */
static void files_put_host(const char *address, char out[300])
{
    const char *host = address != NULL ? address : "127.0.0.1";

    snprintf(out, 300, strchr(host, ':') != NULL && host[0] != '[' ? "[%s]" : "%s", host);
}

/* Adds an address to listen on, at the wanted port or the next free one. */
static unsigned files_add_port(const struct setup_wish *wish, struct decision *d, struct setup_line *line,
                               const char *address, unsigned wanted)
{
    char host[300];
    unsigned port = decide_port(wish, d, wanted);
    size_t n = strlen(line->why);

    files_put_host(address, host);
    line_value(line, "%s:%u", host, port);
    if (port != wanted)
        snprintf(line->why + n, sizeof(line->why) - n, " Port %u is taken.", wanted);
    return port;
}

static void files_add_key(const struct setup_wish *wish, struct setup_file *file)
{
    if (wish->key_path != NULL)
        files_add_text(
            file, "link", "cluster_key", wish->key_path,
            "Every daemon of the cluster has the same key. The units hand it over as a credential; a "
            "daemon started by hand reads this file.");
}

/* Keeps the port of an address that the operator chose from all others of the plan. */
static void files_reserve_port(const char *address, struct decision *d)
{
    struct addr addr;

    if (addr_parse(address, NULL, &addr) == 0 && d->n_ports < DECIDE_MAX_PORTS)
        d->ports[d->n_ports++] = addr.port;
}

static void files_router_http(const struct setup_wish *wish, struct decision *d, struct setup_file *file)
{
    struct setup_line *line = files_add(file, "http", "listen");

    if (wish->http != NULL) {
        files_reserve_port(wish->http, d);
        line_value(line, "%s", wish->http);
        line_why(line, "Where clients connect, as asked for.");
    } else {
        line_why(line,
                 "Clients of this host. Other hosts reach it once an API key file is given (http.api_keys).");
        files_add_port(wish, d, line, NULL, 8080);
    }
    if (wish->api_keys != NULL)
        files_add_text(file, "http", "api_keys", wish->api_keys,
                       "Beyond loopback the endpoint wants keys; batonctl new-key makes them.");
    line = files_add(file, "http", "admin");
    line_why(line, "batonctl connects here. The admin port is on loopback always.");
    files_add_port(wish, d, line, NULL, 8081);
}

static void files_router(const struct setup_wish *wish, struct decision *d, struct setup_plan *out)
{
    struct setup_file *file = &out->files[out->n_files++];
    struct setup_line *line;

    str_copy(file->name, sizeof(file->name), "router.conf");
    str_copy(file->conf, sizeof(file->conf), file->name);
    str_copy(file->unit, sizeof(file->unit), "baton-router");
    str_copy(file->title, sizeof(file->title), "The router of this host.");
    file->daemon = "baton-router";
    files_router_http(wish, d, file);
    line = files_add(file, "link", "listen");
    line_why(line, wish->address != NULL
                       ? "Workers of other hosts register here. Both sides prove the cluster's key."
                       : "Workers of this host register here. --address opens it to other hosts.");
    d->router_link = files_add_port(wish, d, line, wish->address, 8090);
    files_add_key(wish, file);
    if (d->n_workers > 2)
        files_add_text(
            file, "placement", "roles", "auto",
            "The router moves workers between prefill and decode as the load of the two phases changes.");
}

static void files_engine(const struct setup_host *host, const struct setup_wish *wish,
                         const struct decide_seat *seat, struct setup_file *file)
{
    struct setup_line *line = files_add(file, "engine", "threads");

    line_value(line, "%u", seat->n_threads);
    if (seat->node != NULL) {
        line_why(line, "The CPUs of one NUMA node%s.",
                 seat->n_threads < seat->node->n_cpus ? ", less one for links, router and system" : "");
        line = files_add(file, "engine", "cpus");
        if (setup_cpus_keep(seat->node->cpus, seat->n_threads, line->value) < 0)
            str_copy(line->value, sizeof(line->value), seat->node->cpus);
        line_why(line, "Pinned: each thread's weights and KV are in the memory of its own node.");
        line = files_add(file, "engine", "numa");
        line_value(line, "node:%u", seat->node->id);
        line_why(line,
                 "Memory of this node, also for the pages that other threads of the worker touch first.");
        return;
    }
    if (wish->n_threads > 0)
        line_why(line, "A part of the %u threads asked for.", wish->n_threads);
    else
        line_why(line, "This worker's part of the %u CPUs%s%s.", host->n_cpus,
                 host->has_quota ? " that the control group gives" : " usable",
                 host->n_cpus >= 8 ? "; one is left to links, router and system" : "");
}

static void files_kv_memory(const struct setup_wish *wish, const struct decision *d, struct setup_file *file)
{
    struct setup_line *line = files_add(file, "kv", "memory");
    char size[24], weights[24], reserve[24], room[96] = "";

    str_from_size(d->kv_bytes, size);
    line_value(line, "%s", size);
    if (wish->model.kv_token_bytes > 0)
        snprintf(room, sizeof(room), " It holds about %" PRIu64 " tokens in f16.",
                 d->kv_bytes / wish->model.kv_token_bytes);
    if (d->reserve_bytes == 0) {
        line_why(line, "As asked for.%s", room);
        return;
    }
    str_from_size((wish->model.file_bytes + (1 << 20) - 1) >> 20 << 20, weights);
    str_from_size(d->reserve_bytes >> 20 << 20, reserve);
    line_why(line,
             "Three quarters of the memory that %s of weights for each worker and a reserve of %s leave, in "
             "equal parts.%s More is a larger prefix cache.",
             weights, reserve, room);
}

static void files_worker_net(const struct setup_wish *wish, struct decision *d, unsigned base,
                             struct setup_file *file)
{
    struct setup_line *line;
    char host[300];

    if (wish->n_routers == 0) {
        files_put_host(wish->address, host);
        line = files_add(file, "link", "routers");
        line_value(line, "%s:%u", host, d->router_link);
        line_why(line, "The router of this host.");
    }
    for (unsigned i = 0; i < wish->n_routers; i++)
        files_add_text(file, "link", "routers", wish->routers[i], "Where this worker registers.");
    line = files_add(file, "link", "listen");
    line_why(line, "Other workers dial this address for hand-offs.");
    files_add_port(wish, d, line, wish->address, base + 10);
    if (wish->address != NULL) {
        line = files_add(file, "kv", "tcp_listen");
        line_why(line, "KV arrives here from other hosts; a fixed port, so that a firewall can name it.");
        files_add_port(wish, d, line, wish->address, base + 20);
    }
    files_add_key(wish, file);
    line = files_add(file, "http", "listen");
    line_why(line, "The worker's own endpoint, for tests of this worker.");
    files_add_port(wish, d, line, NULL, base);
    line = files_add(file, "http", "admin");
    line_why(line, "batonctl --admin connects here.");
    files_add_port(wish, d, line, NULL, base + 1);
}

static void files_rails(const struct setup_host *host, const struct setup_wish *wish, struct setup_file *file)
{
    struct setup_line *line;
    char all[200] = "";

    if (host->n_rails == 0 || wish->address == NULL)
        return;
    for (unsigned i = 0; i < host->n_rails; i++) {
        size_t at = strlen(all);

        snprintf(all + at, sizeof(all) - at, "%s%s", at > 0 ? ", " : "", host->rails[i]);
    }
    line = files_add(file, "kv", "rdma_devices");
    line_value(line, "auto");
    line_why(line, "RDMA ports that are up: %.190s. auto takes those with the address of kv.tcp_listen.",
             all);
}

static void files_worker(const struct setup_host *host, const struct setup_wish *wish, struct decision *d,
                         unsigned i, struct setup_plan *out)
{
    struct setup_file *file = &out->files[out->n_files++];
    bool is_prefill = i < d->n_prefill;
    const char *role = is_prefill ? "prefill" : "decode";
    unsigned nth = is_prefill ? i : i - d->n_prefill;
    char name[64];

    if (nth == 0 && wish->name != NULL)
        snprintf(name, sizeof(name), "%s", wish->name);
    else
        snprintf(name, sizeof(name), "%s%s%u", wish->name != NULL ? wish->name : "",
                 wish->name != NULL ? "-" : "", nth);
    snprintf(file->name, sizeof(file->name), "%s-%s.conf", role, name);
    str_copy(file->conf, sizeof(file->conf), file->name);
    snprintf(file->unit, sizeof(file->unit), "baton-%s@%s", role, name);
    snprintf(file->title, sizeof(file->title), "A %s worker of this host.", role);
    file->daemon = is_prefill ? "baton-prefill" : "baton-decode";
    if (wish->role == SETUP_ALL && d->n_workers == 1)
        files_add_text(file, "node", "role", "both",
                       "With few cores one worker for both phases is faster than two that share them.");
    files_add_text(file, "model", "path", wish->model.path,
                   "The same contents on every worker of the model.");
    files_engine(host, wish, &d->seats[i], file);
    files_kv_memory(wish, d, file);
    files_rails(host, wish, file);
    files_worker_net(wish, d, (is_prefill ? 8082 : 8084) + 100 * nth, file);
}

void decide_files(const struct setup_host *host, const struct setup_wish *wish, struct decision *d,
                  struct setup_plan *out)
{
    if (wish->role == SETUP_ALL || wish->role == SETUP_ROUTER)
        files_router(wish, d, out);
    for (unsigned i = 0; i < d->n_workers; i++)
        files_worker(host, wish, d, i, out);
}
