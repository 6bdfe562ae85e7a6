/* SPDX-License-Identifier: Apache-2.0 */
/* A histogram of durations with buckets of 1/32 of an octave: quantiles are right within 2.2 percent, the
 * mean is exact.  Fixed memory, no allocation; adding is a few instructions. */
#ifndef FLEET_SIM_HIST_H
#define FLEET_SIM_HIST_H

#include <stdint.h>

#include "base/bytes.h"

#define SIM_HIST_BITS    5
#define SIM_HIST_BUCKETS ((64 - SIM_HIST_BITS + 1) << SIM_HIST_BITS)

struct sim_hist { /* zeroed: empty */
    uint64_t counts[SIM_HIST_BUCKETS];
    uint64_t n, least_ns, most_ns;
    double sum_ns;
};

void sim_hist_add(struct sim_hist *hist, uint64_t ns, uint64_t weight);
double sim_hist_mean_s(const struct sim_hist *hist); /* 0: empty */
/* The value below which the part q (0 to 1) of the weight lies, interpolated inside its bucket. */
double sim_hist_quantile_s(const struct sim_hist *hist, double q);
/* Appends the filled buckets as JSON pairs [upper bound in seconds, weight], without brackets around them. */
void sim_hist_render(const struct sim_hist *hist, struct buf *out);

#endif
