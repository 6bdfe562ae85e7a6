/* SPDX-License-Identifier: Apache-2.0 */
/* An exponentially weighted mean that is right from the first observation.
 *
 * The plain recurrence v += a (x - v) begins at an invented value and takes long to forget it.  Here the
 * weight of everything seen so far is kept beside the mean (it tends to 1), and each observation enters with
 * its share a / weight.  The first one enters with share 1; later the share falls to a, which is the plain
 * recurrence.
 */
#include "base/rate.h"

#include "base/check.h"

void rate_observe(struct rate_mean *mean, double observation, double alpha)
{
    ASSERT(alpha > 0 && alpha <= 1);
    mean->weight += alpha * (1 - mean->weight);
    mean->value += alpha / mean->weight * (observation - mean->value);
}

double rate_get(const struct rate_mean *mean, double if_none)
{
    return mean->weight > 0 ? mean->value : if_none;
}
