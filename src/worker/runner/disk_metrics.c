/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of a worker's disk tier. */
#include "worker/runner/disk_metrics_priv.h"

#include <stddef.h>

static struct metric *events_of(struct metrics *metrics, const char *what)
{
    return metric_series(metric_family(metrics, METRIC_COUNTER, "baton_kv_disk_blocks_total",
                                       "Blocks of the disk tier, by what happened to them.", "what"),
                         &what);
}

static struct metric *bytes_of_way(struct metrics *metrics, const char *way)
{
    return metric_series(metric_family(metrics, METRIC_COUNTER, "baton_kv_disk_bytes_total",
                                       "Bytes of blocks to and from the disk tier.", "way"),
                         &way);
}

static struct metric *disk_seconds_of(struct metrics *metrics, const char *name, const char *help)
{
    static const double bounds[] = {1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1, 3, 10};

    return metric_series(metric_histogram_family(metrics, name, help, "", METRIC_BOUNDS(bounds)), NULL);
}

void disk_metrics_declare(struct disk_metrics *disk, struct metrics *m)
{
    disk->written = events_of(m, "written");
    disk->read = events_of(m, "read");
    disk->hit = events_of(m, "hit");
    disk->slow = events_of(m, "not_worth_reading");
    disk->lost = events_of(m, "evicted_unwritten");
    disk->dropped = events_of(m, "dropped");
    disk->refused = events_of(m, "refused");
    disk->failed = events_of(m, "failed");
    disk->damaged = events_of(m, "damaged");
    disk->bytes_written = bytes_of_way(m, "written");
    disk->bytes_read = bytes_of_way(m, "read");
    disk->blocks = metric_single(m, METRIC_GAUGE, "baton_kv_disk_blocks", "Blocks in the disk tier.");
    disk->bytes = metric_single(m, METRIC_GAUGE, "baton_kv_disk_bytes", "Bytes of the disk tier's files.");
    disk->wait_s =
        disk_seconds_of(m, "baton_kv_disk_wait_seconds", "How long prompts waited for blocks from disk.");
    disk->write_s =
        disk_seconds_of(m, "baton_kv_disk_write_seconds", "From a block's turn to be saved until it was.");
}

void disk_metrics_update(struct disk_metrics *disk, const struct kv_tier_counts *now, uint64_t n_lost)
{
    struct kv_tier_counts *was = &disk->counted;

    metric_add(disk->written, (double)(now->n_written - was->n_written));
    metric_add(disk->read, (double)(now->n_read - was->n_read));
    metric_add(disk->dropped, (double)(now->n_dropped - was->n_dropped));
    metric_add(disk->refused, (double)(now->n_refused - was->n_refused));
    metric_add(disk->failed,
               (double)(now->n_write_failed + now->n_read_failed - was->n_write_failed - was->n_read_failed));
    metric_add(disk->damaged, (double)(now->n_damaged - was->n_damaged));
    metric_add(disk->lost, (double)(n_lost - disk->counted_lost));
    metric_add(disk->bytes_written, (double)(now->written_bytes - was->written_bytes));
    metric_add(disk->bytes_read, (double)(now->read_bytes - was->read_bytes));
    metric_set(disk->blocks, (double)now->n_blocks);
    metric_set(disk->bytes, (double)now->used_bytes);
    disk->counted_lost = n_lost;
    *was = *now;
}
