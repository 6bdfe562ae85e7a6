/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of evicted strangers: one series per port and reason. */
#ifndef NET_LINK_STRANGER_COUNTS_H
#define NET_LINK_STRANGER_COUNTS_H

#include "base/event/strangers.h"
#include "base/metrics/metrics.h"

struct stranger_counts {
    struct metric *by_end[STRANGER_N_ENDS]; /* NULL: do not count */
};

/* metrics NULL: count nothing. */
void stranger_counts_init(struct stranger_counts *counts, struct metrics *metrics, const char *port);
/* Counts one eviction. Call it from the on_end callback of strangers_opts. */
void stranger_counts_add(const struct stranger_counts *counts, enum stranger_end why, double by);

#endif
