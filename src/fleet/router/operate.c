/* SPDX-License-Identifier: Apache-2.0 */
/* Stops and changes the running router: drain, reload, and the requests of batonctl.
 *
 *    SERVING --SIGTERM--> LAME_DUCK --lame_duck--> DRAINING --all answers ended, or drain_timeout--> stopped
 *       '---batonctl drain---> DRAINED --undrain--> SERVING */
#include "fleet/router/daemon_priv.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "fleet/router/check_priv.h"
#include "fleet/router/decisions_priv.h"
#include "serve/setup/admin_access.h"

#define LAST_WORDS_NS (2 * NS_PER_S) /* time for errors to reach clients after the drain limit */

/* ---- drain, reload ---- */

static void on_drained(void *arg)
{
    struct daemon *daemon = arg;

    ev_loop_stop(daemon->router.loop);
}

void router_on_drain_limit(void *arg)
{
    struct daemon *daemon = arg;

    if (daemon->is_abandoned) { /* a client could keep its connection open for ever */
        ev_loop_stop(daemon->router.loop);
        return;
    }
    log_warn("drain_limit", LOG_U64("running", front_n_running(daemon->front)));
    daemon->is_abandoned = true;
    front_abandon(daemon->front);
    ev_timer_start(daemon->drain_limit, LAST_WORDS_NS);
}

static uint64_t router_on_lame_duck(void *arg)
{
    struct daemon *daemon = arg;

    daemon->router.life = DAEMON_LAME_DUCK;
    front_set_lame_duck(daemon->front, true);
    return daemon->router.conf->lame_duck_ns;
}

static void router_on_drain(void *arg)
{
    struct daemon *daemon = arg;

    daemon->router.life = DAEMON_DRAINING;
    front_set_draining(daemon->front);
    service_extend(daemon->service, daemon->router.conf->drain_timeout_ns + 10 * NS_PER_S);
    ev_timer_start(daemon->drain_limit, daemon->router.conf->drain_timeout_ns);
    front_drain(daemon->front, on_drained, daemon);
}

static void router_on_stop(void *arg)
{
    struct daemon *daemon = arg;

    front_abandon(daemon->front);
}

static int router_read_access(void *arg, const void *conf, struct fault *fault, void **out)
{
    struct daemon *daemon = arg;
    const struct router_conf *fresh = conf;

    return link_access_read_again(&fresh->link, tls_has_certificate(daemon->access->tls), fault,
                                  (struct link_access **)out);
}

static void router_take_access(void *arg, void *fresh)
{
    struct daemon *daemon = arg;

    link_access_take(daemon->access, fresh);
    admin_access_renew(daemon->access, daemon->admin);
}

static void router_drop_access(void *fresh)
{
    link_access_free(fresh);
}

static const void *router_read_conf(void *arg)
{
    struct daemon *daemon = arg;

    return daemon->opts.reload(daemon->opts.reload_arg);
}

static struct reload_files router_conf_files(const void *conf)
{
    const struct router_conf *fresh = conf;

    return (struct reload_files){.api_keys = fresh->http.api_keys, .https = http_conf_https(&fresh->http)};
}

void router_apply(const struct daemon *daemon)
{
    const struct router *router = &daemon->router;

    log_set_level((enum log_level)router->conf->log_level);
    metrics_set_names(router->metrics, (enum metrics_names)router->conf->metrics_names);
    metric_set(
        metric_single(router->metrics, METRIC_GAUGE, "baton_config_hash",
                      "Digest of the effective configuration: equal for equal configurations of a role."),
        (double)config_digest(&router_conf_table, router->conf));
}

static void router_take_conf(void *arg, const void *conf)
{
    struct daemon *daemon = arg;

    const struct front_bounds bounds = router_front_bounds(conf);

    daemon->router.conf = conf;
    front_set_bounds(daemon->front, &bounds);
    router_apply(daemon);
}

static int router_diff(void *arg, struct buf *out, struct fault *fault)
{
    struct daemon *daemon = arg;

    return daemon->opts.diff(daemon->opts.reload_arg, out, fault);
}

static void router_diffed(void *arg, const struct fault *fault, struct bytes json)
{
    struct daemon *daemon = arg;

    admin_diffed(daemon->admin, fault, json);
}

static void router_on_reloaded(void *arg, const struct fault *fault)
{
    struct daemon *daemon = arg;

    if (fault != NULL)
        log_error("reload_failed", LOG_STR("reason", fault->text));
    else
        log_info("reloaded");
    service_reloaded(daemon->service);
    admin_acted(daemon->admin, fault);
}

const struct reload_calls router_reload_calls = {.read = router_read_conf,
                                                 .files = router_conf_files,
                                                 .read_more = router_read_access,
                                                 .take_more = router_take_access,
                                                 .drop_more = router_drop_access,
                                                 .take = router_take_conf,
                                                 .done = router_on_reloaded,
                                                 .diff = router_diff,
                                                 .diffed = router_diffed};

static void router_on_reload(void *arg)
{
    struct daemon *daemon = arg;

    reload_begin(daemon->reloads);
}

const struct service_calls router_service_calls = {.lame_duck = router_on_lame_duck,
                                                   .drain = router_on_drain,
                                                   .stop = router_on_stop,
                                                   .reload = router_on_reload};

/* ---- the operator ---- */

static int router_admin_status(void *arg, uint32_t part, struct buf *out)
{
    struct daemon *daemon = arg;

    return router_status_json(&daemon->router, part, out);
}

static int router_admin_act(void *arg, enum admin_verb verb, struct fault *fault)
{
    struct daemon *daemon = arg;

    switch (verb) {
    case ADMIN_RELOAD:
        reload_begin(daemon->reloads);
        return 1;
    case ADMIN_RELOAD_DIFF:
        return reload_diff(daemon->reloads, fault) < 0 ? E_OVERLOADED : 1;
    case ADMIN_CHECK:
        return router_check_begin(&daemon->router, fault);
    case ADMIN_DRAIN_MOVE:
        return fault_set(fault, E_UNSUPPORTED,
                         "a router holds no answers that could move: drain --move is a worker's");
    case ADMIN_DRAIN:
    case ADMIN_UNDRAIN:
        break;
    }
    if (daemon->router.life >= DAEMON_LAME_DUCK)
        return fault_set(fault, E_UNSUPPORTED, "the router is stopping");
    daemon->router.life = verb == ADMIN_DRAIN ? DAEMON_DRAINED : DAEMON_SERVING;
    front_set_lame_duck(daemon->front, verb == ADMIN_DRAIN);
    return 0;
}

static int router_admin_request(void *arg, const char *request_id, struct buf *out)
{
    struct daemon *daemon = arg;

    return router_decisions_json(&daemon->router, request_id, out);
}

static int router_admin_placements(void *arg, struct buf *out)
{
    struct daemon *daemon = arg;

    return router_decisions_list(&daemon->router, out);
}

static int router_admin_check(void *arg, int32_t row, struct buf *out)
{
    struct daemon *daemon = arg;

    return router_check_json(&daemon->router, row, out);
}

static int router_admin_set_role(void *arg, const struct admin_role *wanted, struct fault *fault)
{
    struct daemon *daemon = arg;

    return router_role_order(&daemon->router, wanted, fault);
}

const struct admin_calls router_admin_calls = {.status = router_admin_status,
                                               .act = router_admin_act,
                                               .set_role = router_admin_set_role,
                                               .request = router_admin_request,
                                               .placements = router_admin_placements,
                                               .check = router_admin_check};
