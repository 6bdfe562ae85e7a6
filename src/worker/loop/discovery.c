/* SPDX-License-Identifier: Apache-2.0 */
/* Routers and peers that a file, DNS or etcd names (net/discover), and this worker's own registration in etcd.
 *
 * The list of a source only proposes addresses to dial. A link that is up stays up even if the list drops its
 * address, and the link's TLS admits only peers with the cluster's key. A timer goes through the list again,
 * because slots become free with time. */
#include "worker/loop/worker_priv.h"
#include "worker/loop/discovery_priv.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "proto/role.h"

#define DISCOVERY_LOOK_NS (2 * NS_PER_S)

struct worker_discovery {
    struct discover *routers, *peers;
    struct endpoints router_list;
    struct ev_timer *look;
    struct discover_registration *registration;
};

static void discovery_on_routers(void *arg, const struct endpoints *list)
{
    struct worker *worker = arg;

    worker->discovery->router_list = *list;
    worker_routers_list(worker, list);
    ev_timer_repeat(worker->discovery->look, DISCOVERY_LOOK_NS);
}

static void discovery_on_look(void *arg)
{
    struct worker *worker = arg;

    worker_routers_list(worker, &worker->discovery->router_list);
}

static void discovery_on_peers(void *arg, const struct endpoints *list)
{
    worker_peers_list(arg, list);
}

static struct discover_tls discovery_tls(const struct worker_conf *conf)
{
    return (struct discover_tls){
        .ca = conf->discovery_ca, .certificate = conf->discovery_certificate, .key = conf->discovery_key};
}

static int discovery_register(struct worker *worker, struct fault *fault)
{
    const struct worker_conf *conf = worker->conf;
    const struct discover_tls tls = discovery_tls(conf);
    const struct discover_entry entry = {.role = DISCOVER_WORKERS,
                                         .node = conf->node,
                                         .link = worker_link_address(worker),
                                         .phase = role_text(worker->role),
                                         .model = worker->model.name,
                                         .fingerprint = worker->model.fingerprint,
                                         .admin = conf->http.admin[0] ? conf->http.admin : NULL};

    if (conf->link_register[0] == '\0')
        return 0;
    return discover_register(conf->link_register, &tls, &entry, fault, &worker->discovery->registration);
}

int worker_discovery_open(struct worker *worker, struct fault *fault)
{
    const struct worker_conf *conf = worker->conf;
    struct discover_opts opts = {.loop = worker->loop,
                                 .items = (const char *const *)conf->routers.items,
                                 .n_items = conf->routers.n,
                                 .role = DISCOVER_ROUTERS,
                                 .tls = discovery_tls(conf),
                                 .on_list = discovery_on_routers,
                                 .arg = worker};
    int rc;

    worker->discovery = calloc(1, sizeof(*worker->discovery));
    if (worker->discovery == NULL ||
        ev_timer_new(worker->loop, discovery_on_look, worker, &worker->discovery->look) < 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    rc = discover_open(&opts, fault, &worker->discovery->routers);
    if (rc == 0) {
        opts.items = (const char *const *)conf->peers.items;
        opts.n_items = conf->peers.n;
        opts.role = DISCOVER_WORKERS;
        opts.fingerprint = worker->model.fingerprint;
        opts.on_list = discovery_on_peers;
        rc = discover_open(&opts, fault, &worker->discovery->peers);
    }
    return rc < 0 ? rc : discovery_register(worker, fault);
}

bool worker_discovery_finds_routers(const struct worker *worker)
{
    return worker->discovery != NULL && worker->discovery->routers != NULL;
}

void worker_discovery_close(struct worker *worker)
{
    if (worker->discovery == NULL)
        return;
    discover_unregister(worker->discovery->registration);
    discover_close(worker->discovery->routers);
    discover_close(worker->discovery->peers);
    ev_timer_free(worker->discovery->look);
    free(worker->discovery);
    worker->discovery = NULL;
}
