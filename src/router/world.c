/* SPDX-License-Identifier: Apache-2.0 */
/* The picker's view of the cluster for one request: what each worker reported, what this router sent it
 * since, and how much of this prompt it should hold.
 *
 * A report is up to a heartbeat old.  Work dispatched meanwhile is in the ledger, and work of other routers
 * only in the report, so the larger of the two counts. */
#include "router/router_priv.h"

#include "base/clock.h"

static void fill_row(const struct router_worker *worker, uint32_t cached_blocks, struct picker_worker *row)
{
    const Baton__LoadReport *report = &worker->report;
    uint64_t reserved = worker->ledger.tokens / worker->block_tokens;
    uint64_t n_reported = (uint64_t)report->waiting + report->running;

    row->role = worker->role;
    row->layout = worker->layout;
    row->host = worker->host;
    row->block_tokens = worker->block_tokens;
    row->blocks_free = report->blocks_free > reserved ? report->blocks_free - (uint32_t)reserved : 0;
    row->blocks_total = worker->n_blocks;
    row->max_seqs = worker->max_seqs;
    row->queued_prefill_tokens = report->queued_prefill_tokens > worker->ledger.prefill_tokens
                                     ? report->queued_prefill_tokens
                                     : worker->ledger.prefill_tokens;
    if (n_reported < worker->ledger.n_seqs)
        n_reported = worker->ledger.n_seqs;
    row->n_running = n_reported < UINT32_MAX ? (uint32_t)n_reported : UINT32_MAX;
    row->prefill_tokens_per_s = report->prefill_tokens_per_s;
    row->decode_step_s = report->decode_step_s;
    row->transfer_bytes_per_s = report->transfer_bytes_per_s;
    row->push_bytes_per_s = report->push_bytes_per_s;
    row->kv_bytes_per_token = worker->kv_bytes_per_token;
    row->cached_tokens = cached_blocks * worker->block_tokens;
}

void router_world(struct router *router, const struct gen_handle *job,
                  struct picker_worker rows[PICKER_MAX_WORKERS], struct picker_world *out)
{
    uint32_t cached[PICKER_MAX_WORKERS];

    picker_index_match(router->index, job->hashes, job->n_hashes, clock_now_ns(), cached, PICKER_MAX_WORKERS);
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++) {
        const struct router_worker *worker = &router->workers[slot];

        rows[slot] = (struct picker_worker){0};
        rows[slot].is_usable = router_worker_usable(worker) && worker->model == job->model;
        /* who drains takes no work, but may give away what it has */
        rows[slot].can_push = worker->is_taken && worker->link != NULL && link_is_up(worker->link) &&
                              worker->model == job->model;
        if (rows[slot].is_usable || rows[slot].can_push)
            fill_row(worker, cached[slot], &rows[slot]);
    }
    out->workers = rows;
    out->n = PICKER_MAX_WORKERS;
    out->ttft_slo_s = (double)router->conf->ttft_slo_ns / 1e9;
    out->itl_slo_s = (double)router->conf->itl_slo_ns / 1e9;
    out->local_prefill_tokens = (uint32_t)router->conf->local_prefill_tokens;
}
