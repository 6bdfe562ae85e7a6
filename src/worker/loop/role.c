/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's role, and its change while the worker runs.
 *
 *    batonctl role --> admin port ----+
 *    router --SET_ROLE--> link -------+--> worker_role_set() --heartbeat at once--> routers, peers
 *
 * A role guides placement and does not limit what a worker can do: each worker has both ends of a transfer
 * and a scheduler for both phases.  So a change affects no sequence, no block and no transfer.  Requests
 * placed under the old role end normally.  Routers place the next ones by the new role as soon as the
 * heartbeat arrives.
 *
 * HELLO and every heartbeat carry the role, so it survives lost links and restarts of routers.  A restarted
 * worker begins with node.role again. */
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "proto/role.h"
#include "worker/loop/worker_priv.h"

static void role_publish(struct worker *worker)
{
    struct metric_family *family = metric_family(worker->metrics, METRIC_GAUGE, "baton_worker_role",
                                                 "1 for the role that the worker has now.", "role");

    for (int role = BATON__ROLE__ROLE_PREFILL; role <= BATON__ROLE__ROLE_BOTH; role++)
        metric_set(metric_series(family, (const char *const[]){role_text((Baton__Role)role)}),
                   role == (int)worker->role);
}

void worker_role_open(struct worker *worker)
{
    static const Baton__Role roles[] = {[WORKER_PREFILL] = BATON__ROLE__ROLE_PREFILL,
                                        [WORKER_DECODE] = BATON__ROLE__ROLE_DECODE,
                                        [WORKER_BOTH] = BATON__ROLE__ROLE_BOTH};

    worker->role = roles[worker->conf->start_role];
    role_publish(worker);
}

void worker_role_send(struct worker *worker)
{
    for (uint32_t i = 0; i < worker->n_routers; i++)
        if (worker->routers[i].link != NULL)
            link_beat(worker->routers[i].link);
    for (uint32_t i = 0; i < worker->n_peers; i++)
        if (worker->peers[i].link != NULL && worker->peers[i].is_up)
            link_beat(worker->peers[i].link);
}

void worker_role_set(struct worker *worker, Baton__Role role, const char *by)
{
    if (!role_is_worker(role))
        return;
    if (role != worker->role) {
        log_info("role_changed", LOG_STR("from", role_text(worker->role)), LOG_STR("to", role_text(role)),
                 LOG_STR("by", by));
        worker->role = role;
        worker->role_since_ns = clock_now_ns();
        metric_add(metric_single(worker->metrics, METRIC_COUNTER, "baton_worker_role_changes_total",
                                 "Times that the worker's role changed."),
                   1);
        role_publish(worker);
    }
    worker_role_send(worker);
}

int worker_role_order(struct worker *worker, const struct admin_role *wanted, struct fault *fault)
{
    Baton__Role role;

    if (!bytes_is(wanted->worker, worker->conf->node))
        return fault_set(fault, E_NOT_FOUND, "this worker's name is %s", worker->conf->node);
    if (!role_read(wanted->role, &role))
        return fault_set(fault, E_INVAL, "a worker's role is prefill, decode or both");
    worker_role_set(worker, role, "operator");
    return 0;
}

uint64_t worker_role_age_ms(const struct worker *worker)
{
    return worker->role_since_ns > 0 ? (clock_now_ns() - worker->role_since_ns) / NS_PER_MS : 0;
}
