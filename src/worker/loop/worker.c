/* SPDX-License-Identifier: Apache-2.0 */
/* Builds a worker from its configuration, runs it, and frees it.
 *
 *    loop thread       links to routers and peers, HTTP, timers, signals    (here)
 *    engine thread     scheduler, KV pool, hand-offs                        worker/runner/engine_thread.c
 *    team              kernels
 *    transport thread  KV bytes                                             transfer/transport/
 *
 * Ready means: the model is loaded and warmed up, KV memory is allocated, every port is open.  Draining
 * means: routers are informed, and running tasks continue until their end or the time limit. */
#include "worker/loop/worker.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hashmap.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/str.h"
#include "net/http/https.h"
#include "worker/loop/kept_priv.h"
#include "worker/loop/probe_priv.h"
#include "worker/loop/access_priv.h"
#include "worker/loop/worker_priv.h"
#include "worker/loop/spending_priv.h"
#include "worker/loop/discovery_priv.h"
#include "serve/setup/admin_access.h"
#include "worker/loop/weights_priv.h"

#define DRAIN_LOOK_NS (50 * NS_PER_MS)

/* ---- reports of the engine thread ---- */

static void on_report(struct worker *worker, struct report *report)
{
    thread_owner_check(&worker->loop_thread);
    switch (report->kind) {
    case REPORT_ANSWERS:
        if (report->number == ORIGIN_LOCAL)
            worker_local_answers(worker, report);
        else
            worker_routers_answers(worker, report);
        break;
    case REPORT_PEER_MESSAGE:
        worker_peers_send(worker, report);
        break;
    case REPORT_GRAMMAR:
        worker_compile(worker, report);
        break;
    case REPORT_BLOCKS:
    case REPORT_STORE:
        worker_send_blocks(worker, report);
        break;
    case REPORT_LOAD:
        worker->load = report->load;
        worker->has_load = true;
        worker_notices_reported(worker);
        worker_metrics_load(worker, &report->load);
        break;
    }
    report_free(report);
}

static void on_reports(void *arg, int fd, unsigned ready)
{
    struct worker *worker = arg;
    struct mailbox *box = worker_engine_reports(worker->engine);
    struct report *report;

    mailbox_drain_fd(box);
    while ((report = mailbox_receive(box)) != NULL)
        on_report(worker, report);
}

/* ---- drain, reload, watchdog ---- */

static void stop_loop(void *arg)
{
    struct worker *worker = arg;

    ev_loop_stop(worker->loop);
}

static void on_drain_look(void *arg)
{
    struct worker *worker = arg;

    bool is_quiet = !worker_engine_is_busy(worker->engine) && front_n_running(worker->front) == 0 &&
                    worker_routers_queued_bytes(worker) == 0;

    /* The drain needs two checks in a row without work, because the engine thread's last answers may be on their
     * way. */
    worker->n_quiet_looks = is_quiet ? worker->n_quiet_looks + 1 : 0;
    if (worker->n_quiet_looks < 2)
        return;
    ev_timer_stop(worker->drain_timer);
    front_drain(worker->front, stop_loop, worker);
}

/* Sets the state of life.  Routers learn it from the next heartbeat.
 * A drained or draining engine refuses new work. */
static void set_life(struct worker *worker, enum daemon_life life)
{
    struct command *command = command_new(COMMAND_DRAIN, 0);

    worker->life = life;
    if (command == NULL)
        return;
    command->flag = life == DAEMON_DRAINED || life == DAEMON_DRAINING;
    (void)worker_engine_send(worker->engine, command);
}

/* Returns the routers' jobs, so that each router places them on other workers, from their tokens so far.  The
 * heartbeat goes first, because a router must know that this worker takes no jobs. */
static void move_answers(struct worker *worker)
{
    struct command *command = command_new(COMMAND_MOVE, 0);

    worker_role_send(worker);
    if (command != NULL)
        (void)worker_engine_send(worker->engine, command);
}

static void on_drain_limit(void *arg)
{
    struct worker *worker = arg;

    log_warn("drain_limit", LOG_U64("tasks", worker->load.n_tasks));
    front_abandon(worker->front);
    ev_loop_stop(worker->loop);
}

/* Returns how long lame duck lasts.
 * Routers need one heartbeat; the rest is for clients of the worker's own endpoint. */
static uint64_t on_lame_duck(void *arg)
{
    struct worker *worker = arg;

    if (worker->life == DAEMON_DRAINED || worker->conf->http.listen.n == 0)
        return 0;
    set_life(worker, DAEMON_LAME_DUCK);
    front_set_lame_duck(worker->front, true);
    return worker->conf->lame_duck_ns;
}

static void on_drain(void *arg)
{
    struct worker *worker = arg;

    set_life(worker, DAEMON_DRAINING);
    front_set_draining(worker->front);
    service_extend(worker->service, worker->conf->drain_timeout_ns + 10 * NS_PER_S);
    ev_timer_repeat(worker->drain_timer, DRAIN_LOOK_NS);
    ev_timer_start(worker->drain_limit, worker->conf->drain_timeout_ns);
}

static void on_stop(void *arg)
{
    struct worker *worker = arg;

    front_abandon(worker->front);
}

static const void *read_conf(void *arg)
{
    struct worker *worker = arg;

    return worker->reload(worker->reload_arg);
}

static struct reload_files conf_files(const void *conf)
{
    const struct worker_conf *fresh = conf;

    return (struct reload_files){.api_keys = fresh->http.api_keys, .https = http_conf_https(&fresh->http)};
}

/* Applies settings to objects that keep a copy of them.  The tables of both roles have the same keys. */
static void worker_apply(const struct worker *worker)
{
    log_set_level((enum log_level)worker->conf->log_level);
    metrics_set_names(worker->metrics, (enum metrics_names)worker->conf->metrics_names);
    metric_set(
        metric_single(worker->metrics, METRIC_GAUGE, "baton_config_hash",
                      "Digest of the effective configuration: equal for equal configurations of a role."),
        (double)config_digest(&decode_conf_table, worker->conf));
}

static void take_conf(void *arg, const void *conf)
{
    struct worker *worker = arg;

    worker->conf = conf;
    worker_apply(worker);
}

static int worker_diff(void *arg, struct buf *out, struct fault *fault)
{
    struct worker *worker = arg;

    return worker->diff(worker->reload_arg, out, fault);
}

static void worker_diffed(void *arg, const struct fault *fault, struct bytes json)
{
    struct worker *worker = arg;

    admin_diffed(worker->admin, fault, json);
}

static void on_reloaded(void *arg, const struct fault *fault)
{
    struct worker *worker = arg;

    if (fault != NULL)
        log_error("reload_failed", LOG_STR("reason", fault->text));
    else
        log_info("reloaded");
    service_reloaded(worker->service);
    admin_acted(worker->admin, fault);
}

static const struct reload_calls reload_calls = {.read = read_conf,
                                                 .files = conf_files,
                                                 .read_more = worker_read_access,
                                                 .take_more = worker_take_access,
                                                 .drop_more = worker_drop_access,
                                                 .take = take_conf,
                                                 .done = on_reloaded,
                                                 .diff = worker_diff,
                                                 .diffed = worker_diffed};

static void on_reload(void *arg)
{
    struct worker *worker = arg;

    reload_begin(worker->reloads);
}

/* True if the engine thread advanced its counter, which it does in every turn and after every layer. */
static bool has_progress(void *arg)
{
    struct worker *worker = arg;
    uint64_t beats = worker_engine_beats(worker->engine);
    bool moved = beats != worker->beats_seen;

    worker->beats_seen = beats;
    return moved;
}

static const struct service_calls service_calls = {.lame_duck = on_lame_duck,
                                                   .drain = on_drain,
                                                   .stop = on_stop,
                                                   .reload = on_reload,
                                                   .has_progress = has_progress};

static int admin_status(void *arg, uint32_t part, struct buf *out)
{
    return worker_status_json(arg, out);
}

static int admin_act(void *arg, enum admin_verb verb, struct fault *fault)
{
    struct worker *worker = arg;

    switch (verb) {
    case ADMIN_RELOAD:
        reload_begin(worker->reloads);
        return 1;
    case ADMIN_RELOAD_DIFF:
        return reload_diff(worker->reloads, fault) < 0 ? E_OVERLOADED : 1;
    case ADMIN_CHECK:
        return fault_set(fault, E_UNSUPPORTED, "a router checks the network: give its http.admin address");
    case ADMIN_DRAIN:
    case ADMIN_DRAIN_MOVE:
    case ADMIN_UNDRAIN:
        break;
    }
    if (worker->life >= DAEMON_LAME_DUCK)
        return fault_set(fault, E_UNSUPPORTED, "the worker is stopping");
    set_life(worker, verb == ADMIN_UNDRAIN ? DAEMON_SERVING : DAEMON_DRAINED);
    if (verb == ADMIN_DRAIN_MOVE)
        move_answers(worker);
    return 0;
}

static int admin_set_role(void *arg, const struct admin_role *wanted, struct fault *fault)
{
    return worker_role_order(arg, wanted, fault);
}

static const struct admin_calls admin_calls = {
    .status = admin_status, .act = admin_act, .set_role = admin_set_role};

/* ---- building ---- */

static void read_host_id(char out[64])
{
    char host[256] = "";

    (void)file_read_line("/proc/sys/kernel/random/boot_id", out, 64);
    if (out[0] == '\0' && gethostname(host, sizeof(host) - 1) == 0)
        str_copy(out, 64, host);
}

/* Derives the instance from the network namespace and http.admin.  Only one process there can listen on that
 * port, so an equal value means this worker in an earlier life. */
static uint64_t read_instance(const struct worker *worker)
{
    struct stat space = {0};
    char text[600];

    (void)stat("/proc/self/ns/net", &space);
    snprintf(text, sizeof(text), "%llu %s %u", (unsigned long long)space.st_ino, worker->conf->http.admin,
             admin_port(worker->admin));
    return str_digest(text);
}

static int build_keys(struct worker *worker, struct fault *fault)
{
    int rc = link_access_read(&worker->conf->link, fault, &worker->access);

    if (rc < 0)
        return rc;
    if (link_access_watch(worker->access, worker->loop, worker->metrics) < 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    if (cluster_key_derive(worker->access->keys.data, "prefix", worker->prefix_key) < 0)
        return fault_set(fault, E_INTERNAL, "key derivation failed");
    return 0;
}

static int build_admin(struct worker *worker, struct fault *fault)
{
    struct admin_opts opts = {.loop = worker->loop,
                              .metrics = worker->metrics,
                              .calls = &admin_calls,
                              .calls_arg = worker,
                              .listen = worker->conf->http.admin};
    int rc = admin_access_open(worker->access, &opts, fault, &worker->admin);

    if (rc == 0)
        worker->instance = read_instance(worker);
    return rc;
}

static int build_reload(struct worker *worker, struct fault *fault)
{
    const struct reload_opts opts = {.loop = worker->loop,
                                     .jobs = worker->jobs,
                                     .front = worker->front,
                                     .tls = worker->https,
                                     .calls = &reload_calls,
                                     .arg = worker};

    return reload_new(&opts, &worker->reloads) < 0 ? fault_set(fault, E_NOMEM, "out of memory") : 0;
}

static int build_front(struct worker *worker, struct fault *fault)
{
    const struct worker_conf *conf = worker->conf;
    struct https_conf https = http_conf_https(&conf->http);
    struct front_opts opts;
    int rc;

    if (ev_jobs_new(1, 1024, &worker->jobs) < 0 || worker_compiles_open(worker) < 0 ||
        worker_local_open(worker) < 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    rc = https_open(&https, worker->loop, worker->metrics, fault, &worker->https);
    if (rc < 0)
        return rc;
    front_opts_init(&opts);
    http_conf_fill(&conf->http, &opts);
    opts.tls = worker->https;
    opts.loop = worker->loop;
    opts.jobs = worker->jobs;
    opts.backend = worker_backend(worker);
    opts.metrics = worker->metrics;
    opts.replay_bytes = conf->replay_bytes;
    opts.conversation_bytes = conf->conversation_bytes;
    opts.public_prefix = conf->public_prefix[0] ? conf->public_prefix : NULL;
    opts.spans = otlp_exporter_queue(worker->exporter);
    opts.trace_ratio = conf->trace_sample;
    rc = front_new(&opts, fault, &worker->front);
    if (rc == 0)
        rc = build_reload(worker, fault);
    for (size_t i = 0; rc == 0 && i < conf->http.listen.n; i++) {
        rc = https_may_listen(conf->http.listen.items[i], opts.keys_path != NULL, opts.tls != NULL, fault);
        if (rc == 0)
            rc = front_listen(worker->front, conf->http.listen.items[i], fault);
        if (rc < 0)
            fault_set(fault, rc, "http.listen: %s", fault->text);
    }
    return rc;
}

static int build_exporter(struct worker *worker, struct fault *fault)
{
    const struct otlp_opts opts = {
        .url = worker->conf->trace_url,
        .source = {.service = worker->daemon, .node = worker->conf->node, .version = PACKAGE_VERSION},
        .metrics = worker->metrics};
    int rc = otlp_exporter_new(&opts, fault, &worker->exporter);

    return rc < 0 ? fault_set(fault, rc, "trace.url: %s", fault->text) : 0;
}

static void on_peer_socket(void *arg, int fd, const char *peer, struct stranger *stranger)
{
    if (worker_peers_accept(arg, fd, stranger) < 0)
        log_warn("peer_refused", LOG_STR("address", peer), LOG_STR("reason", "all peer slots are taken"));
}

static int build_links(struct worker *worker, struct fault *fault)
{
    struct listener_opts listener = {.loop = worker->loop,
                                     .address = worker->conf->link_listen,
                                     .max_connections = WORKER_MAX_PEERS,
                                     .max_strangers = WORKER_MAX_STRANGERS,
                                     .max_strangers_per_address = WORKER_MAX_STRANGERS / 2,
                                     .name = "link",
                                     .metrics = worker->metrics,
                                     .on_accept = on_peer_socket,
                                     .arg = worker};
    struct link_opts opts = {.loop = worker->loop,
                             .tls = worker->access->tls,
                             .events_arg = worker,
                             .make_hello = worker_make_hello,
                             .make_heartbeat = worker_make_heartbeat,
                             .heartbeat_ns = worker->conf->link_heartbeat_ns};
    int rc = listener_open(&listener, fault, &worker->peer_listener);

    if (rc < 0)
        return fault_set(fault, rc, "link.listen: %s", fault->text);
    worker->router_link_opts = worker->peer_link_opts = opts;
    if (worker_follow_open(worker) < 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    rc = worker_peers_open(worker, fault);
    if (rc == 0)
        rc = worker_routers_open(worker, fault);
    return rc < 0 ? rc : worker_discovery_open(worker, fault);
}

static int loop_worker_start(struct worker *worker, struct fault *fault)
{
    int rc;

    https_warn_outdated();
    if (ev_loop_new(&worker->loop) < 0 || metrics_new(&worker->metrics) < 0 ||
        service_new(worker->loop, &service_calls, worker, &worker->service) < 0 ||
        ev_timer_new(worker->loop, on_drain_look, worker, &worker->drain_timer) < 0 ||
        ev_timer_new(worker->loop, on_drain_limit, worker, &worker->drain_limit) < 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    worker_role_open(worker);
    rng_system(&worker->epoch, sizeof(worker->epoch));
    read_host_id(worker->host_id);
    rc = build_keys(worker, fault);
    service_hold(worker->service);
    if (rc == 0)
        rc = build_exporter(worker, fault);
    worker_numa_prefer(worker->conf); /* before the vocabulary takes memory */
    if (rc == 0)
        rc = worker_model_open(worker, fault);
    if (rc == 0)
        rc = worker_engine_build(worker, fault);
    if (rc == E_CANCELLED)
        return rc;
    service_release(worker->service);
    if (rc == 0 && ev_fd_new(worker->loop, mailbox_fd(worker_engine_reports(worker->engine)), on_reports,
                             worker, &worker->reports_fd) < 0)
        rc = fault_set(fault, E_NOMEM, "out of memory");
    if (rc == 0)
        rc = build_admin(worker, fault);
    if (rc == 0)
        rc = build_front(worker, fault);
    if (rc == 0 && (worker_tails_open(worker) < 0 || worker_spending_open(worker) < 0 ||
                    worker_kept_open(worker) < 0 || worker_notices_open(worker) < 0))
        rc = fault_set(fault, E_NOMEM, "out of memory");
    if (rc == 0)
        rc = build_links(worker, fault);
    return rc;
}

static void tear_down(struct worker *worker)
{
    worker->life = DAEMON_DRAINING;
    worker_discovery_close(worker);
    worker_routers_close(worker);
    worker_peers_close(worker);
    worker_follow_close(worker);
    listener_close(worker->peer_listener);
    worker_tails_close(worker);
    worker_spending_close(worker);
    worker_kept_close(worker);
    worker_notices_close(worker);
    front_free(worker->front);
    http_tls_free(worker->https);
    worker_probe_close(worker);
    ev_jobs_free(worker->jobs);
    reload_free(worker->reloads);
    worker_compiles_close(worker);
    admin_free(worker->admin);
    ev_fd_free(worker->reports_fd);
    worker_engine_free(worker->engine);
    worker_weights_close(worker);
    worker_local_close(worker);
    worker_model_close(worker);
    otlp_exporter_free(worker->exporter);
    ev_timer_free(worker->drain_timer);
    ev_timer_free(worker->drain_limit);
    service_free(worker->service);
    link_access_free(worker->access);
    ev_loop_free(worker->loop);
    metrics_free(worker->metrics);
    OPENSSL_cleanse(worker->prefix_key, sizeof(worker->prefix_key));
    free(worker);
}

int worker_run(const struct worker_opts *opts, struct fault *fault)
{
    struct worker *worker = calloc(1, sizeof(*worker));
    int rc;

    if (worker == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    list_init(&worker->compiles);
    worker->daemon = opts->daemon;
    worker->conf = opts->conf;
    worker->reload = opts->reload;
    worker->diff = opts->diff;
    worker->reload_arg = opts->reload_arg;
    rc = loop_worker_start(worker, fault);
    if (rc == 0) {
        worker_apply(worker);
        log_info("worker_ready", LOG_STR("node", worker->conf->node), LOG_STR("model", worker->model.name),
                 LOG_STR("links", listener_address(worker->peer_listener)),
                 LOG_STR("kv_tcp", worker_engine_tcp_address(worker->engine)),
                 LOG_STR("kv_unix", worker_engine_unix_path(worker->engine)),
                 LOG_STR("kv_rdma", worker_engine_rdma_text(worker->engine)),
                 LOG_STR("version", PACKAGE_VERSION));
        service_ready(worker->service);
        thread_owner_claim(&worker->loop_thread);
        rc = ev_loop_run(worker->loop);
        log_info("stopped");
    } else if (rc == E_CANCELLED) { /* a stop signal came while the model was loading */
        log_info("stopped", LOG_STR("how", "while loading"));
        rc = 0;
    }
    if (worker->service != NULL)
        service_ending(worker->service, SERVICE_END_S);
    tear_down(worker);
    return rc;
}

const char *worker_libraries(void)
{
    return https_libraries();
}
