/* SPDX-License-Identifier: Apache-2.0 */
/* The metric of evicted strangers: one series for each port and reason. */
#ifndef NET_LINK_STRANGER_COUNTS_H
#define NET_LINK_STRANGER_COUNTS_H

#include "base/event/strangers.h"
#include "base/metrics/metrics.h"

struct stranger_counts {
    struct metric *by_end[STRANGER_N_ENDS]; /* NULL: not counted */
};

/* metrics NULL: nothing is counted. */
void stranger_counts_init(struct stranger_counts *counts, struct metrics *metrics, const char *port);
/* An on_end of strangers_opts, whose argument is not the counts: to be called from it. */
void stranger_counts_add(const struct stranger_counts *counts, enum stranger_end why, double by);

#endif
