/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the router from its configuration, runs it, and frees it.
 *
 *    loop thread:  signals, worker links, HTTP, placement, streams: everything
 *    job threads:  parse and tokenise long prompts
 *
 * The loop thread owns all state, so nothing here needs a lock. Further loops would each own a whole set
 * of links and jobs. */
#include "fleet/router/router.h"

#include <stdlib.h>
#include <string.h>
#include <openssl/crypto.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/str.h"
#include "net/link/listener.h"
#include "fleet/router/check_priv.h"
#include "fleet/router/daemon_priv.h"
#include "fleet/router/decisions_priv.h"
#include "fleet/router/cancels_priv.h"
#include "fleet/router/kept_priv.h"
#include "fleet/router/relay_priv.h"
#include "fleet/router/admission_priv.h"
#include "fleet/router/spending_priv.h"
#include "fleet/router/state_priv.h"
#include "serve/setup/admin_access.h"

#define TICK_NS    (100 * NS_PER_MS)
#define SLICE_NS   NS_PER_MS
#define TICK_SWEEP 2048 /* entries of the prefix index swept per tick */

static const ProtobufCMessage *make_hello(void *arg)
{
    struct daemon *daemon = container_of((struct router *)arg, struct daemon, router);
    Baton__Hello *hello = &daemon->hello;

    baton__hello__init(hello);
    hello->protocol = LINK_PROTOCOL;
    hello->role = BATON__ROLE__ROLE_ROUTER;
    hello->node = daemon->router.conf->node;
    hello->epoch = daemon->router.epoch;
    hello->build = PACKAGE_VERSION;
    hello->is_draining = daemon->router.life != DAEMON_SERVING;
    return &hello->base;
}

static void router_on_tick(void *arg)
{
    struct router *router = arg;

    router_place_queued(router);
    router_queue_fail_pushed(router);
    router_expire_queued(router);
    router_pause_tick(router);
    router_stream_tick(router);
    picker_index_sweep(router->index, TICK_SWEEP);
    if (router->stores.index != NULL)
        picker_index_sweep(router->stores.index, TICK_SWEEP);
    router_blocks_tick(router);
    router_roles_tick(router);
    router_decisions_tick(router);
    if (!list_is_empty(&router->unsent)) /* links may have room now */
        router_turn_soon(router);
    router_spending_tick(router);
    router_state_tick(router);
    metric_set(router->m_known_in_store, (double)router_stores_count(router));
    metric_set(router->m_known_on_disk, (double)picker_index_on_disk(router->index));
    metric_set(router->m_known_in_memory,
               (double)(picker_index_count(router->index) - picker_index_on_disk(router->index)));
    for (uint32_t i = 0; i < router->n_models; i++)
        router_model_fetch(router, &router->models[i]);
}

/* Does a slice of deferred work.  The loop serves sockets between two slices. */
static void on_turn(void *arg)
{
    struct router *router = arg;
    bool places = router->places_soon, has_more;

    router->slices.has_turn = false;
    router->places_soon = false;
    has_more = router_blocks_work(router);
    has_more |= router_chains_work(router);
    has_more |= router_jobs_send(router);
    if (places || router->places_soon)
        router_place_queued(router);
    router_slices_go(router);
    if (has_more)
        router_turn_soon(router);
}

static void on_push_turn(void *arg)
{
    router_queue_fail_pushed(arg);
}

static void on_pause_turn(void *arg)
{
    router_place_queued(arg);
}

static void on_worker_socket(void *arg, int fd, const char *peer, struct stranger *stranger)
{
    struct daemon *daemon = arg;

    if (router_workers_accept(&daemon->router, fd, stranger) < 0)
        log_warn("link_refused", LOG_STR("address", peer), LOG_STR("reason", "out of memory"));
}

/* ---- building ---- */

static int build_router(struct daemon *daemon, struct fault *fault)
{
    struct router *router = &daemon->router;

    list_init(&router->unhashed);
    list_init(&router->unsent);
    router_blocks_init(router);
    rng_system(&router->epoch, sizeof(router->epoch));
    router->started_ns = clock_now_ns();
    router->next_number = 1;
    if (router_classes_open(router, fault) < 0)
        return E_FORMAT;
    router_declare_metrics(router);
    if (hashmap_new_counted(&router->by_number) < 0 || router_queue_open(router) < 0 ||
        router_jobs_open(router) < 0 || router_decisions_open(router) < 0 ||
        picker_fleet_new((uint32_t)router->epoch, &router->fleet) < 0 ||
        picker_index_new((uint32_t)router->conf->index_entries, router->conf->index_lifetime_ns,
                         &router->index) < 0 ||
        ev_timer_new(router->loop, router_on_tick, router, &router->tick) < 0 ||
        ev_timer_new(router->loop, on_turn, router, &router->turn) < 0 ||
        ev_timer_new(router->loop, on_push_turn, router, &router->turns.push_turn) < 0 ||
        ev_timer_new(router->loop, on_pause_turn, router, &router->pauses.turn) < 0 ||
        ev_timer_new(router->loop, router_on_drain_limit, daemon, &daemon->drain_limit) < 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    router->slices.most_ns = SLICE_NS;
    ev_timer_repeat(router->tick, TICK_NS);
    return 0;
}

static int router_build_admin(struct daemon *daemon, struct fault *fault)
{
    struct router *router = &daemon->router;
    struct admin_opts opts = {.loop = router->loop,
                              .metrics = router->metrics,
                              .calls = &router_admin_calls,
                              .calls_arg = daemon,
                              .listen = router->conf->http.admin,
                              .has_console = router->conf->console};

    return admin_access_open(daemon->access, &opts, fault, &daemon->admin);
}

/* Without API keys there are no limits. */
static int router_build_spending(struct router *router, const uint8_t key[32], struct fault *fault)
{
    uint8_t limits_key[32];
    int rc = 0;

    if (router->conf->http.api_keys[0] == '\0')
        return 0;
    if (cluster_key_derive(key, "limits", limits_key) < 0)
        return fault_set(fault, E_INTERNAL, "key derivation failed");
    if (router_spending_open(router, limits_key) < 0)
        rc = fault_set(fault, E_NOMEM, "out of memory");
    OPENSSL_cleanse(limits_key, sizeof(limits_key));
    return rc;
}

static int router_build_links(struct daemon *daemon, struct fault *fault)
{
    struct router *router = &daemon->router;
    const uint8_t *data;
    int rc = link_access_read(&router->conf->link, fault, &daemon->access);

    if (rc < 0)
        return rc;
    data = daemon->access->keys.data;
    if (link_access_watch(daemon->access, router->loop, router->metrics) < 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    if (cluster_key_derive(data, "prefix", router->prefix_key) < 0 ||
        cluster_key_derive(data, "sign", router->sign_key) < 0)
        return fault_set(fault, E_INTERNAL, "key derivation failed");
    router->access = daemon->access;
    router->link_opts = (struct link_opts){.loop = router->loop,
                                           .tls = daemon->access->tls,
                                           .make_hello = make_hello,
                                           .heartbeat_ns = router->conf->link_heartbeat_ns};
    rc = router_build_spending(router, data, fault);
    if (rc == 0)
        rc = router_state_open(router, data, fault);
    if (rc == 0 && router_state_store(router) == NULL)
        rc = router_kept_open(router, data, fault);
    if (rc == 0 && router_state_store(router) == NULL)
        rc = router_relay_open(router, fault);
    return rc < 0 ? rc : router_build_admin(daemon, fault);
}

static void set_limits(const struct router_conf *conf, struct http_limits *limits)
{
    limits->max_body_bytes = conf->http_max_body;
    limits->max_conns = (uint32_t)conf->http_max_connections;
    limits->max_conns_per_address = (uint32_t)conf->http_max_per_address;
    limits->head_ns = conf->http_head_timeout_ns;
    limits->body_ns = conf->http_body_timeout_ns;
    limits->idle_ns = conf->http_idle_timeout_ns;
    limits->stall_ns = conf->http_write_timeout_ns;
}

static int router_build_reload(struct daemon *daemon, struct fault *fault)
{
    const struct reload_opts opts = {.loop = daemon->router.loop,
                                     .jobs = daemon->jobs,
                                     .front = daemon->front,
                                     .tls = daemon->https,
                                     .calls = &router_reload_calls,
                                     .arg = daemon};

    return reload_new(&opts, &daemon->reloads) < 0 ? fault_set(fault, E_NOMEM, "out of memory") : 0;
}

struct front_bounds router_front_bounds(const struct router_conf *conf)
{
    return (struct front_bounds){.max_tokens = (uint32_t)conf->default_max_tokens,
                                 .max_model_waits = (uint32_t)conf->queue_max,
                                 .model_wait_ns = conf->queue_timeout_ns};
}

static int router_build_front(struct daemon *daemon, struct fault *fault)
{
    const struct router_conf *conf = daemon->router.conf;
    struct https_conf https = http_conf_https(&conf->http);
    struct front_opts opts;
    int rc = https_open(&https, daemon->router.loop, daemon->router.metrics, fault, &daemon->https);

    if (rc < 0)
        return rc;
    front_opts_init(&opts);
    http_conf_fill(&conf->http, &opts);
    opts.tls = daemon->https;
    opts.loop = daemon->router.loop;
    opts.backend = router_backend(&daemon->router);
    opts.metrics = daemon->router.metrics;
    opts.common = router_spending_common(&daemon->router);
    opts.values = router_state_store(&daemon->router) != NULL
                      ? state_values_of(router_state_store(&daemon->router))
                      : router_kept_values(&daemon->router);
    opts.on_forget = router_state_send_forget;
    opts.on_cancel = router_cancels_ask;
    opts.on_shared_arg = &daemon->router;
    opts.login_salt = router_state_login_salt(&daemon->router);
    opts.has_console = conf->console;
    opts.replay_bytes = conf->replay_bytes;
    opts.conversation_bytes = conf->conversation_bytes;
    opts.keeps_streams = conf->keeps_streams;
    opts.sign_key = daemon->router.sign_key;
    opts.public_prefix = conf->public_prefix[0] ? conf->public_prefix : NULL;
    opts.bounds = router_front_bounds(conf);
    opts.max_requests = (uint32_t)conf->http_max_requests;
    opts.failed_logins_per_min = (uint32_t)conf->http_wrong_keys;
    opts.spans = daemon->router.spans;
    opts.trace_ratio = conf->trace_sample;
    set_limits(conf, &opts.limits);
    if (ev_jobs_new((unsigned)conf->http_job_threads, 4096, &daemon->jobs) < 0)
        return fault_set(fault, E_NOMEM, "cannot start job threads");
    opts.jobs = daemon->router.job_threads = daemon->jobs;
    rc = front_new(&opts, fault, &daemon->front);
    router_state_serve(&daemon->router, daemon->front);
    if (rc == 0)
        rc = router_build_reload(daemon, fault);
    for (size_t i = 0; rc == 0 && i < conf->http.listen.n; i++) {
        const char *address = conf->http.listen.items[i];

        rc = https_may_listen(address, opts.keys_path != NULL, opts.tls != NULL, fault);
        if (rc == 0)
            rc = front_listen(daemon->front, address, fault);
        if (rc < 0)
            fault_set(fault, rc, "http.listen: %s", fault->text);
        else
            log_info("listening", LOG_STR("http", address));
    }
    return rc;
}

static int router_build_exporter(struct daemon *daemon, struct fault *fault)
{
    const struct router_conf *conf = daemon->router.conf;
    const struct otlp_opts opts = {
        .url = conf->trace_url,
        .source = {.service = "baton-router", .node = conf->node, .version = PACKAGE_VERSION},
        .metrics = daemon->router.metrics};
    int rc = otlp_exporter_new(&opts, fault, &daemon->exporter);

    daemon->router.spans = otlp_exporter_queue(daemon->exporter);
    return rc < 0 ? fault_set(fault, rc, "trace.url: %s", fault->text) : 0;
}

static void router_tear_down(struct daemon *daemon)
{
    struct router *router = &daemon->router;

    discover_unregister(daemon->registration);
    router_state_serve(router, NULL);
    front_free(daemon->front);
    http_tls_free(daemon->https);
    ev_jobs_free(daemon->jobs);
    reload_free(daemon->reloads);
    admin_free(daemon->admin);
    router_workers_close(router);
    router_check_free(router);
    router_spending_close(router);
    block_queue_fini(&router->pending);
    listener_close(router->links);
    while (!list_is_empty(&router->jobs))
        router_job_free(container_of(router->jobs.next, struct job, all));
    router_state_close(router); /* jobs may wait for it */
    router_kept_close(router);
    router_relay_close(router);
    gen_outbox_close(&router->outbox);
    router_models_free(router);
    router_queue_close(router);
    router_decisions_close(router);
    picker_index_free(router->index);
    router_stores_free(router);
    picker_fleet_free(router->fleet);
    hashmap_free(router->by_number);
    ev_timer_free(router->tick);
    ev_timer_free(router->turn);
    ev_timer_free(router->turns.push_turn);
    ev_timer_free(router->pauses.turn);
    ev_timer_free(daemon->drain_limit);
    service_free(daemon->service);
    link_access_free(daemon->access);
    ev_loop_free(router->loop);
    otlp_exporter_free(daemon->exporter);
    metrics_free(router->metrics);
    OPENSSL_cleanse(router->prefix_key, sizeof(router->prefix_key));
    OPENSSL_cleanse(router->sign_key, sizeof(router->sign_key));
    free(daemon);
}

static int router_register(struct daemon *daemon, struct fault *fault)
{
    const struct router_conf *conf = daemon->router.conf;
    const struct discover_tls tls = {conf->discovery_ca, conf->discovery_certificate, conf->discovery_key};
    const struct discover_entry entry = {
        .role = DISCOVER_ROUTERS,
        .node = conf->node,
        .link = conf->link_advertise[0] ? conf->link_advertise : listener_address(daemon->router.links),
        .phase = "router",
        .admin = conf->http.admin[0] ? conf->http.admin : NULL};

    if (conf->link_register[0] == '\0')
        return 0;
    return discover_register(conf->link_register, &tls, &entry, fault, &daemon->registration);
}

static int router_start(struct daemon *daemon, struct fault *fault)
{
    struct router *router = &daemon->router;
    int rc;

    https_warn_outdated();
    if (ev_loop_new(&router->loop) < 0 || metrics_new(&router->metrics) < 0 ||
        service_new(router->loop, &router_service_calls, daemon, &daemon->service) < 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    rc = build_router(daemon, fault);
    if (rc == 0)
        rc = router_build_exporter(daemon, fault);
    if (rc == 0)
        rc = router_build_links(daemon, fault);
    if (rc == 0)
        rc = router_build_front(daemon, fault);
    if (rc == 0) {
        struct listener_opts links = {.loop = router->loop,
                                      .address = router->conf->link_listen,
                                      .max_connections = ROUTER_MAX_LINKS,
                                      .max_strangers = ROUTER_MAX_STRANGERS,
                                      .max_strangers_per_address = ROUTER_MAX_STRANGERS / 4,
                                      .name = "link",
                                      .metrics = router->metrics,
                                      .on_accept = on_worker_socket,
                                      .arg = daemon};
        rc = listener_open(&links, fault, &router->links);
        if (rc < 0)
            fault_set(fault, rc, "link.listen: %s", fault->text);
        else
            (void)str_copy(router->link_address, sizeof(router->link_address),
                           listener_address(router->links));
    }
    return rc < 0 ? rc : router_register(daemon, fault);
}

int router_run(const struct router_opts *opts, struct fault *fault)
{
    struct daemon *daemon = calloc(1, sizeof(*daemon));
    int rc;

    if (daemon == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    daemon->router.conf = opts->conf;
    daemon->opts = *opts;
    rc = router_start(daemon, fault);
    if (rc == 0) {
        router_apply(daemon);
        log_info("router_ready", LOG_STR("node", opts->conf->node),
                 LOG_STR("links", listener_address(daemon->router.links)),
                 LOG_STR("admin", opts->conf->http.admin), LOG_STR("version", PACKAGE_VERSION));
        service_ready(daemon->service);
        rc = ev_loop_run(daemon->router.loop);
        log_info("stopped");
    }
    if (daemon->service != NULL)
        service_ending(daemon->service, SERVICE_END_S);
    router_tear_down(daemon);
    return rc;
}

const char *router_libraries(void)
{
    return https_libraries();
}
