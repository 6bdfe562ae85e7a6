/* SPDX-License-Identifier: Apache-2.0 */
/* Log-linear buckets: the bits above the lowest SIM_HIST_BITS + 1 give the octave, the next ones the part of
 * it.  Values below 2^SIM_HIST_BITS have a bucket each. */
#include "fleet/sim/hist.h"

#include <inttypes.h>

static unsigned hist_bucket(uint64_t ns)
{
    unsigned octave;

    if (ns < 1u << SIM_HIST_BITS)
        return (unsigned)ns;
    octave = 63 - (unsigned)__builtin_clzll(ns) - SIM_HIST_BITS;
    return ((octave + 1) << SIM_HIST_BITS) + ((unsigned)(ns >> octave) - (1u << SIM_HIST_BITS));
}

static double hist_low(unsigned bucket)
{
    unsigned octave = bucket >> SIM_HIST_BITS;

    if (octave == 0)
        return bucket;
    return (double)((uint64_t)((bucket & ((1u << SIM_HIST_BITS) - 1)) + (1u << SIM_HIST_BITS))
                    << (octave - 1));
}

void sim_hist_add(struct sim_hist *hist, uint64_t ns, uint64_t weight)
{
    if (weight == 0)
        return;
    hist->counts[hist_bucket(ns)] += weight;
    hist->least_ns = hist->n == 0 || ns < hist->least_ns ? ns : hist->least_ns;
    hist->most_ns = ns > hist->most_ns ? ns : hist->most_ns;
    hist->n += weight;
    hist->sum_ns += (double)ns * (double)weight;
}

double sim_hist_mean_s(const struct sim_hist *hist)
{
    return hist->n > 0 ? hist->sum_ns / (double)hist->n / 1e9 : 0;
}

double sim_hist_quantile_s(const struct sim_hist *hist, double q)
{
    double want = q * (double)hist->n, before = 0, ns;
    unsigned i = 0;

    if (hist->n == 0)
        return 0;
    while (i + 1 < SIM_HIST_BUCKETS && (hist->counts[i] == 0 || before + (double)hist->counts[i] < want))
        before += (double)hist->counts[i++];
    ns = hist_low(i);
    if (hist->counts[i] > 0)
        ns += (hist_low(i + 1) - hist_low(i)) * (want - before) / (double)hist->counts[i];
    ns = ns > (double)hist->most_ns ? (double)hist->most_ns : ns;
    return (ns < (double)hist->least_ns ? (double)hist->least_ns : ns) / 1e9;
}

void sim_hist_render(const struct sim_hist *hist, struct buf *out)
{
    const char *comma = "";

    for (unsigned i = 0; i + 1 < SIM_HIST_BUCKETS; i++) {
        if (hist->counts[i] == 0)
            continue;
        buf_printf(out, "%s[%.6g, %" PRIu64 "]", comma, hist_low(i + 1) / 1e9, hist->counts[i]);
        comma = ", ";
    }
}
