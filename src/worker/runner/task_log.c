/* SPDX-License-Identifier: Apache-2.0 */
/* The access line of a worker: event "task", one for each task of a router or of the worker's own endpoint.
 *
 * It is a line of level debug, because the engine thread writes it and must not wait for a log.  The daemon that answered
 * HTTP writes "access" at level info (serve/endpoint/report.c); that line has the figures of both workers.
 * What the request asks for is task->spec.order.work here.
 * How to change it: docs/changes-api.md, "A column of the access log". */
#include "worker/runner/engine_thread_priv.h"

#include "base/clock.h"
#include "base/log.h"

static uint64_t task_log_us(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns != 0 && to_ns > from_ns ? (to_ns - from_ns) / NS_PER_US : 0;
}

void worker_task_log(const struct worker_engine *engine, const struct task *task)
{
    const struct work *work = &task->spec.order.work;
    const struct task_times *times = &task->times;
    const struct seq_stats *stats = &task->stats;
    const struct peer_facts *peer = NULL;
    uint64_t now_ns = clock_now_ns();

    if (!log_enabled(LOG_LEVEL_DEBUG))
        return;
    if (times->transfer_began_ns != 0)
        peer = worker_engine_peer(engine, times->transfer_peer);
    log_debug("task", LOG_STR("request_id", work->request_id),
              LOG_STR("phase", worker_task_phase(times->mode)),
              LOG_STR("peer", peer == NULL ? "" : peer->node), LOG_BOOL("failed", times->is_failed),
              LOG_U64("tokens_in", task->spec.order.n_prompt),
              LOG_U64("tokens_out", task->n_answered - task->n_begun), LOG_U64("computed", stats->n_computed),
              LOG_U64("reused", stats->n_reused), LOG_U64("transferred", stats->n_transferred),
              LOG_U64("preempted", stats->n_preempted), LOG_U64("queue_us", stats->queue_ns / NS_PER_US),
              LOG_U64("prefill_us", stats->prefill_ns / NS_PER_US),
              LOG_U64("transfer_us", stats->transfer_ns / NS_PER_US),
              LOG_U64("decode_us", stats->decode_ns / NS_PER_US),
              LOG_U64("total_us", task_log_us(times->submitted_ns, now_ns)));
}
