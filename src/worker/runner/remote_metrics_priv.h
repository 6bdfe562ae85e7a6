/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of the remote tier (remote.c). Engine thread only. */
#ifndef WORKER_RUNNER_REMOTE_METRICS_PRIV_H
#define WORKER_RUNNER_REMOTE_METRICS_PRIV_H

#include <stdint.h>

#include "base/metrics/metrics.h"
#include "cache/remote/remote.h"

struct remote_metrics {
    struct kv_remote_counts counted; /* the counts at the latest update of the metrics */
    struct metric *written, *existed, *read, *found, *asked, *slow, *missing, *damaged, *failed;
    struct metric *bytes_written, *bytes_read, *late, *trips, *up, *full, *writeback, *wait_s;
};

void remote_metrics_declare(struct remote_metrics *out, struct metrics *m);
/* Adds the tier's counts since the last update. n_writeback: blocks that wait to be written. */
void remote_metrics_update(struct remote_metrics *m, const struct kv_remote_counts *now,
                           uint32_t n_writeback);

#endif
