/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of a worker's disk tier.  disk.c adds to hit, slow, wait_s and write_s as things happen; the others follow the
 * tier's own counts.  Engine thread only. */
#ifndef WORKER_RUNNER_DISK_METRICS_PRIV_H
#define WORKER_RUNNER_DISK_METRICS_PRIV_H

#include <stdint.h>

#include "base/metrics/metrics.h"
#include "cache/kv/tier.h"

struct disk_metrics {
    struct kv_tier_counts counted; /* the counts at the latest update */
    uint64_t counted_lost;
    struct metric *written, *read, *hit, *slow, *lost, *dropped, *refused, *failed, *damaged; /* blocks */
    struct metric *bytes_written, *bytes_read, *blocks, *bytes, *wait_s, *write_s;
};

void disk_metrics_declare(struct disk_metrics *disk, struct metrics *m);
/* n_lost: blocks that left the pool before they were saved, since its beginning. */
void disk_metrics_update(struct disk_metrics *disk, const struct kv_tier_counts *now, uint64_t n_lost);

#endif
