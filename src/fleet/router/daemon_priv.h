/* SPDX-License-Identifier: Apache-2.0 */
/* The router's process around struct router: endpoint, loop, service manager. Loop thread. */
#ifndef FLEET_ROUTER_DAEMON_PRIV_H
#define FLEET_ROUTER_DAEMON_PRIV_H

#include "base/event/jobs.h"
#include "base/event/service.h"
#include "fleet/router/router.h"
#include "fleet/router/router_priv.h"
#include "net/discover/discover.h"
#include "net/http/https.h"
#include "net/link/tls.h"
#include "net/otlp/otlp_export.h"
#include "serve/endpoint/admin.h"
#include "serve/endpoint/front.h"
#include "serve/endpoint/reload.h"

struct daemon {
    struct router router;
    struct front *front;
    struct admin *admin;
    struct ev_jobs *jobs;
    struct link_access *access; /* keys and TLS of links */
    struct http_tls *https;     /* NULL: cleartext */
    struct service *service;
    struct ev_timer *drain_limit;
    bool is_abandoned; /* the limit was reached: final errors are on their way */
    struct router_opts opts;
    struct reload *reloads;
    struct discover_registration *registration; /* NULL: none */
    struct otlp_exporter *exporter;             /* of spans; NULL: none */
    Baton__Hello hello;
};

/* operate.c: drain, reload, and requests of the operator. Their argument is the daemon. */
extern const struct service_calls router_service_calls;
extern const struct reload_calls router_reload_calls;
extern const struct admin_calls router_admin_calls;
void router_on_drain_limit(void *daemon); /* of daemon.drain_limit */
/* Applies settings to objects that keep a copy of them. */
void router_apply(const struct daemon *daemon);

/* router.c: the bounds of the endpoint, at the start and at each reload. */
struct front_bounds router_front_bounds(const struct router_conf *conf);

#endif
