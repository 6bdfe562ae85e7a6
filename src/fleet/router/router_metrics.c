/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the router's metrics.  Those that only one file counts may stand there (admission.c, roles.c, pause.c).
 * How to change it: docs/changes-fleet.md, "A metric". */
#include "fleet/router/admission_priv.h"
#include "fleet/router/pause_priv.h"
#include "fleet/router/router_priv.h"

static void router_declare_queue(struct router *router)
{
    static const double bounds[] = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30};
    struct metrics *m = router->metrics;
    struct metric_family *wait = metric_histogram_family(
        m, "baton_router_queue_wait_seconds",
        "How long requests waited for a placement, of those that had to.", "outcome", METRIC_BOUNDS(bounds));

    router->m_queued =
        metric_single(m, METRIC_GAUGE, "baton_router_queued", "Requests waiting for a placement.");
    router->turns.m_tenants = metric_single(m, METRIC_GAUGE, "baton_router_queued_tenants",
                                            "Tenants with requests waiting for one.");
    router->turns.m_pushed_out =
        metric_single(m, METRIC_COUNTER, "baton_router_pushed_out_total",
                      "Requests refused with 529 after waiting, because the queue was "
                      "full and their tenant had most in it.");
    router->turns.m_wait_placed = metric_series(wait, (const char *const[]){"placed"});
    router->turns.m_wait_left = metric_series(wait, (const char *const[]){"not_placed"});
}

void router_declare_metrics(struct router *router)
{
    struct metrics *m = router->metrics;
    struct metric_family *known;

    router_declare_queue(router);
    router_admission_declare(router);
    router_roles_declare(router);
    router_pause_declare(router);
    if (router->conf->log_prefixes)
        router_trace_declare();
    router->m_redispatched = metric_single(m, METRIC_COUNTER, "baton_router_redispatched_total",
                                           "Requests placed again: their worker was lost, or failed them.");
    router->m_resumed = metric_single(m, METRIC_COUNTER, "baton_router_resumed_total",
                                      "Streams of other routers that this one went on with.");
    router->m_handed_off = metric_single(m, METRIC_COUNTER, "baton_router_handed_off_total",
                                         "Requests placed on a prefill and a decode worker.");
    router->m_local =
        metric_single(m, METRIC_COUNTER, "baton_router_local_total", "Requests placed on one worker alone.");
    router->m_refused =
        metric_single(m, METRIC_COUNTER, "baton_router_refused_total", "Requests refused, for any reason.");
    router->m_asks = metric_single(m, METRIC_COUNTER, "baton_router_asks_total",
                                   "Requests whose worker got the owner of cached blocks.");
    router->m_resyncs = metric_single(m, METRIC_COUNTER, "baton_router_block_resyncs_total",
                                      "Times that block events of a worker were missing.");
    router->m_reads = metric_single(m, METRIC_COUNTER, "baton_router_reads_total",
                                    "Requests placed where a part of the prompt is to be read from disk.");
    known = metric_family(
        m, METRIC_GAUGE, "baton_router_blocks_known",
        "Cached blocks that the router knows of, by the best tier that any worker has them in.", "tier");
    router->m_known_in_memory = metric_series(known, (const char *const[]){"memory"});
    router->m_known_in_store = metric_series(known, (const char *const[]){"store"});
    router->m_store_reads =
        metric_single(m, METRIC_COUNTER, "baton_router_store_reads_total",
                      "Requests placed where a part of the prompt is to be read from the shared store.");
    router->m_known_on_disk = metric_series(known, (const char *const[]){"disk"});
    router->m_lost = metric_single(m, METRIC_COUNTER, "baton_router_workers_lost_total",
                                   "Links to workers that went down.");
}
