/* SPDX-License-Identifier: Apache-2.0 */
/* All series exist from the start, with value 0: a rate alert needs the value before the first eviction. */
#include "net/link/stranger_counts.h"

void stranger_counts_init(struct stranger_counts *counts, struct metrics *metrics, const char *port)
{
    struct metric_family *family;

    *counts = (struct stranger_counts){{0}};
    if (metrics == NULL)
        return;
    family = metric_family(metrics, METRIC_COUNTER, "baton_strangers_evicted_total",
                           "Connections closed before they authenticated, by port and by what was too much.",
                           "port why");
    for (unsigned i = 0; i < STRANGER_N_ENDS; i++)
        counts->by_end[i] = metric_series(family, (const char *const[]){port, stranger_end_names[i]});
}

void stranger_counts_add(const struct stranger_counts *counts, enum stranger_end why, double by)
{
    if (counts->by_end[why] != NULL)
        metric_add(counts->by_end[why], by);
}
