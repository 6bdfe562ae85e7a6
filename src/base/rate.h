/* SPDX-License-Identifier: Apache-2.0 */
/* An exponentially weighted mean of observations, used wherever a rate is learned from reports. */
#ifndef BASE_RATE_H
#define BASE_RATE_H

struct rate_mean {
    double value;  /* meaningless while weight is 0 */
    double weight; /* 0..1, how much was seen */
};

void rate_observe(struct rate_mean *mean, double observation, double alpha);
double rate_get(const struct rate_mean *mean, double if_none);

#endif
