/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of the remote tier. The tier counts, and an update adds the increase since the last update. */
#include "worker/runner/remote_metrics_priv.h"

#include <stddef.h>

void remote_metrics_declare(struct remote_metrics *out, struct metrics *m)
{
    static const double bounds[] = {1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1, 3, 10};
    struct metric_family *blocks =
        metric_family(m, METRIC_COUNTER, "baton_kv_remote_blocks_total",
                      "Blocks of the remote tier, by what happened to them.", "what");
    struct metric_family *bytes = metric_family(m, METRIC_COUNTER, "baton_kv_remote_bytes_total",
                                                "Bytes of blocks to and from the remote tier.", "way");

    out->written = metric_series(blocks, (const char *const[]){"written"});
    out->existed = metric_series(blocks, (const char *const[]){"existed"});
    out->read = metric_series(blocks, (const char *const[]){"read"});
    out->asked = metric_series(blocks, (const char *const[]){"asked"});
    out->found = metric_series(blocks, (const char *const[]){"found"});
    out->slow = metric_series(blocks, (const char *const[]){"not_worth_reading"});
    out->missing = metric_series(blocks, (const char *const[]){"missing"});
    out->damaged = metric_series(blocks, (const char *const[]){"damaged"});
    out->failed = metric_series(blocks, (const char *const[]){"failed"});
    out->bytes_written = metric_series(bytes, (const char *const[]){"written"});
    out->bytes_read = metric_series(bytes, (const char *const[]){"read"});
    out->late = metric_single(m, METRIC_COUNTER, "baton_kv_remote_late_total",
                              "Waits for the remote tier that ended before its answer.");
    out->trips = metric_single(m, METRIC_COUNTER, "baton_kv_remote_trips_total",
                               "Times that the remote tier was given up until it answers again.");
    out->up = metric_single(m, METRIC_GAUGE, "baton_kv_remote_up", "1 while the remote tier is used.");
    out->full =
        metric_single(m, METRIC_GAUGE, "baton_kv_remote_full", "1 while the remote tier takes no blocks.");
    out->writeback = metric_single(m, METRIC_GAUGE, "baton_kv_remote_writeback_blocks",
                                   "Cached blocks that wait to be written to the remote tier.");
    out->wait_s =
        metric_series(metric_histogram_family(m, "baton_kv_remote_wait_seconds",
                                              "How long prompts waited for blocks of the remote tier.", "",
                                              METRIC_BOUNDS(bounds)),
                      NULL);
}

void remote_metrics_update(struct remote_metrics *m, const struct kv_remote_counts *now, uint32_t n_writeback)
{
    struct kv_remote_counts *was = &m->counted;

    metric_add(m->written, (double)(now->n_written - was->n_written));
    metric_add(m->existed, (double)(now->n_existed - was->n_existed));
    metric_add(m->read, (double)(now->n_read - was->n_read));
    metric_add(m->asked, (double)(now->n_asked - was->n_asked));
    metric_add(m->found, (double)(now->n_found - was->n_found));
    metric_add(m->missing, (double)(now->n_missing - was->n_missing));
    metric_add(m->damaged, (double)(now->n_damaged - was->n_damaged));
    metric_add(m->failed,
               (double)(now->n_write_failed + now->n_read_failed - was->n_write_failed - was->n_read_failed));
    metric_add(m->bytes_written, (double)(now->written_bytes - was->written_bytes));
    metric_add(m->bytes_read, (double)(now->read_bytes - was->read_bytes));
    metric_add(m->late, (double)(now->n_late - was->n_late));
    metric_add(m->trips, (double)(now->n_trips - was->n_trips));
    metric_set(m->up, now->is_up);
    metric_set(m->full, now->is_full);
    metric_set(m->writeback, n_writeback);
    *was = *now;
}
