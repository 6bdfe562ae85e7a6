/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's part of `batonctl check`: it connects to the addresses that a router names and reports how that went.
 *
 *    router --PROBE--> loop --> probe thread: link_probe_all() --> loop --PROBED--> the router with that epoch
 *
 * The thread starts with the first probe.  It is separate, so that connecting never delays a grammar on the job
 * thread.  One probe runs at a time; a router that asks during a probe gets no answer and asks again. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "net/link/probe.h"
#include "worker/loop/probe_priv.h"

#define PROBE_WAIT_NS (2 * NS_PER_S)

struct worker_probe {
    struct ev_jobs *thread;
    bool is_running;
    atomic_bool is_cancelled; /* the worker closes; the thread reads it */
    uint64_t number, router_epoch, clock_unix_ns;
    struct link_probe list[FRAME_PROBE_ADDRESSES];
    unsigned n;
};

static void probe_work(void *arg)
{
    struct worker *worker = arg;

    link_probe_all(worker->probe->list, worker->probe->n, PROBE_WAIT_NS, &worker->probe->is_cancelled);
}

static void probe_send(const struct worker_probe *probe, struct link *link)
{
    Baton__Probed probed = BATON__PROBED__INIT;
    Baton__ProbeResult results[FRAME_PROBE_ADDRESSES], *pointers[FRAME_PROBE_ADDRESSES];

    for (unsigned i = 0; i < probe->n; i++) {
        results[i] = (Baton__ProbeResult)BATON__PROBE_RESULT__INIT;
        results[i].outcome = (Baton__ProbeOutcome)probe->list[i].outcome;
        results[i].rtt_us = probe->list[i].rtt_us;
        results[i].mtu = probe->list[i].mtu;
        pointers[i] = &results[i];
    }
    probed.number = probe->number;
    probed.clock_unix_ns = probe->clock_unix_ns;
    probed.results = pointers;
    probed.n_results = probe->n;
    (void)link_send(link, FRAME_PROBED, &probed.base);
}

static void probe_done(void *arg)
{
    struct worker *worker = arg;
    struct worker_probe *probe = worker->probe;

    if (probe == NULL)
        return; /* the worker closes */
    probe->is_running = false;
    for (uint32_t i = 0; i < worker->n_routers; i++)
        if (worker->routers[i].epoch == probe->router_epoch && worker_router_is_up(&worker->routers[i])) {
            probe_send(probe, worker->routers[i].link);
            return;
        }
}

void worker_probe_run(struct worker *worker, const struct worker_router *router, const Baton__Probe *wanted)
{
    struct worker_probe *probe = worker->probe;

    if (probe == NULL) {
        probe = calloc(1, sizeof(*probe));
        if (probe == NULL || ev_jobs_new(1, 1, &probe->thread) < 0) {
            free(probe);
            return;
        }
        worker->probe = probe;
    }
    if (probe->is_running)
        return;
    probe->number = wanted->number;
    probe->router_epoch = router->epoch;
    probe->clock_unix_ns = clock_unix_ns();
    probe->n = 0;
    for (size_t i = 0; i < wanted->n_addresses; i++) {
        struct link_probe *one = &probe->list[probe->n++];

        *one = (struct link_probe){.outcome = LINK_PROBE_UNKNOWN};
        (void)str_copy(one->address, sizeof(one->address), wanted->addresses[i]);
    }
    probe->is_running = ev_jobs_submit(probe->thread, worker->loop, probe_work, probe_done, worker) == 0;
    log_debug("probe", LOG_STR("router", router->node), LOG_U64("addresses", probe->n));
}

void worker_probe_close(struct worker *worker)
{
    if (worker->probe == NULL)
        return;
    atomic_store(&worker->probe->is_cancelled, true);
    ev_jobs_free(worker->probe->thread);
    free(worker->probe);
    worker->probe = NULL;
}
