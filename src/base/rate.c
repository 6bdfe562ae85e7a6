/* SPDX-License-Identifier: Apache-2.0 */
/* Means that are right from the first observation, and levels that one bad observation cannot spoil.
 *
 * rate_mean.  The plain recurrence v += a (x - v) starts at an invented value and forgets it slowly.  Here
 * the total weight of all observations so far is kept beside the mean; it tends to 1.  Each observation
 * enters with share a / weight.  The first one enters with share 1; later the share falls to a, which is the
 * plain recurrence.
 *
 * rate.  The same recurrence on the logarithm, so that a factor of 1000 too fast and too slow are equally
 * wrong.  It has three more rules:
 *
 *   sample   0.7  1.1 | 1000  0.9  1.0 |  30  28  31  29  30
 *   counts   as is    | as 2           |   2   2   2  the level becomes 28
 *
 *   - A sample counts as at most LIMIT times the level, and as at least a LIMITth of it.
 *   - Several samples in a row beyond that range on the same side are no accident.  The level becomes the
 *     nearest of them.  So it forgets a bad first sample and learns a changed machine.
 *   - Without samples the weight halves every HALF_LIFE_NS, so that later samples count for more.  Then two
 *     samples, however small their weight, are enough for the rule above.
 *
 * A stopped thread (SIGSTOP, a swapped page, a migrated guest) shows in wall time and not in its CPU time.
 * That alone proves nothing, since a thread may sleep by design.  A step that also takes three times the
 * expected time was stopped.  The first steps after it find cold caches. */
#include "base/rate.h"

#include <math.h>

#include "base/check.h"
#include "base/clock.h"

#define LIMIT          2.0
#define PROOF          4.0 /* weight of samples in a row that changes the level at once */
#define PROOF_WHEN_OLD 2.0
#define HALF_LIFE_NS   (30 * NS_PER_S)
#define HOPE_NS        (60 * NS_PER_S) /* time until the level has moved half-way to the prior */
#define LATE           3.0
#define LATE_AT_FIRST  2.0
#define IDLE_SHARE     0.5 /* least part of a step's time that its thread did not run, if it was stopped */
#define FIRST_STEPS    2
#define SKIPPED_MOST   3

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

/* ---- levels ---- */

static double rate_age(const struct rate *rate, uint64_t now_ns, uint64_t half_ns)
{
    return now_ns > rate->at_ns ? (double)(now_ns - rate->at_ns) / (double)half_ns : 0;
}

static void rate_begin(struct rate *rate, double sample, double alpha)
{
    rate->level = sample;
    rate->weight = alpha;
    rate->doubt = 0;
}

/* Counts samples in a row that are far off on one side.  True: they become the level. */
static bool rate_doubts(struct rate *rate, double sample, double weight, bool is_old)
{
    double side = sample > rate->level ? 1 : -1;

    if (rate->doubt * side <= 0) {
        rate->doubt = 0;
        rate->nearest = sample;
    }
    if (side * (rate->nearest - sample) > 0)
        rate->nearest = sample;
    rate->doubt += side * (is_old ? 1 : weight);
    return side * rate->doubt >= (is_old ? PROOF_WHEN_OLD : PROOF);
}

void rate_learn(struct rate *rate, double sample, double alpha, double weight, uint64_t now_ns)
{
    double old, step;

    ASSERT(alpha > 0 && alpha <= 1 && weight >= 0 && weight <= 1);
    if (!isfinite(sample) || sample <= 0 || weight <= 0)
        return;
    alpha *= weight;
    old = rate_age(rate, now_ns, HALF_LIFE_NS);
    rate->at_ns = now_ns;
    if (rate->level <= 0) {
        rate_begin(rate, sample, alpha);
        return;
    }
    step = log(sample / rate->level);
    if (fabs(step) <= log(LIMIT)) {
        rate->doubt = 0;
    } else if (rate_doubts(rate, sample, weight, old > 1)) {
        rate_begin(rate, rate->nearest, alpha);
        return;
    }
    step = fmin(fmax(step, -log(LIMIT)), log(LIMIT));
    rate->weight = fmax(rate->weight * exp2(-old), fmin(rate->weight, alpha));
    rate->weight += alpha * (1 - rate->weight);
    rate->level *= exp(alpha / rate->weight * step);
}

double rate_level(const struct rate *rate)
{
    return rate->level;
}

static double rate_tend(const struct rate *rate, double to, uint64_t half_ns, uint64_t now_ns)
{
    return to * pow(rate->level / to, exp2(-rate_age(rate, now_ns, half_ns)));
}

double rate_hope(const struct rate *rate, double prior, uint64_t now_ns)
{
    if (rate->level <= 0)
        return prior;
    return rate->level >= prior ? rate->level : rate_tend(rate, prior, HOPE_NS, now_ns);
}

double rate_hope_less(const struct rate *rate, double usual, uint64_t half_ns, uint64_t now_ns)
{
    return usual <= 0 || rate->level <= usual ? rate->level : rate_tend(rate, usual, half_ns, now_ns);
}

/* ---- pauses ---- */

bool rate_pause_spoils(struct rate_pause *pause, const struct rate_step *step)
{
    double expected_s = step->expected_s;
    bool is_stopped = expected_s > 0 && step->wall_s > LATE * expected_s && step->cpu_s >= 0 &&
                      step->wall_s - step->cpu_s > IDLE_SHARE * step->wall_s;
    bool is_cold = pause->n_cold > 0 && expected_s > 0 && step->wall_s > LATE_AT_FIRST * expected_s;

    if (pause->n_cold > 0)
        pause->n_cold--;
    if (!is_stopped && !is_cold) {
        pause->n_skipped = 0;
        return false;
    }
    if (pause->n_skipped == SKIPPED_MOST)
        return false;
    pause->n_skipped++;
    if (is_stopped)
        rate_pause_note(pause);
    return true;
}

void rate_pause_note(struct rate_pause *pause)
{
    pause->n_cold = FIRST_STEPS;
}
