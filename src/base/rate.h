/* SPDX-License-Identifier: Apache-2.0 */
/* Rates and durations that are learned from observations.
 *
 * Use struct rate for every duration and speed: a pause, other load on the machine or a wrong clock can
 * falsify them.  Use struct rate_mean for observations with a bounded range. docs/rates.md lists every
 * learned number.  Pure functions: the caller passes the time.  One thread for each object. */
#ifndef BASE_RATE_H
#define BASE_RATE_H

#include <stdbool.h>
#include <stdint.h>

struct rate_mean {
    double value;  /* undefined while weight is 0 */
    double weight; /* 0..1, how much evidence there is */
};

void rate_observe(struct rate_mean *mean, double observation, double alpha);
double rate_get(const struct rate_mean *mean, double if_none);

struct rate {       /* zeroed: no evidence */
    double level;   /* > 0; 0: no samples yet */
    double weight;  /* 0..1, how much evidence there is; fades without samples */
    double doubt;   /* weight of recent samples in a row far above the level (< 0: below) */
    double nearest; /* the one of those samples that is nearest to the level */
    uint64_t at_ns; /* time of the latest sample */
};

/* Learns from a sample > 0; ignores others. alpha: the sample's long-run share of the level. weight: 0..1,
 * how much this sample counts relative to a full one. */
void rate_learn(struct rate *rate, double sample, double alpha, double weight, uint64_t now_ns);
double rate_level(const struct rate *rate); /* 0: no samples yet */
/* Returns the level, or prior without samples.  A level below `prior` moves towards the prior as time passes
 * without samples, so that something that seems slow is tried again. */
double rate_hope(const struct rate *rate, double prior, uint64_t now_ns);
/* The same for a cost: a level above `usual` (0: unknown) moves half-way there in half_ns.  0: no samples yet. */
double rate_hope_less(const struct rate *rate, double usual, uint64_t half_ns, uint64_t now_ns);

/* Tells a step whose thread was stopped from a step that is slow.  Start with a zeroed struct. */
struct rate_pause {
    uint32_t n_cold;    /* how many of the next steps still count as the first after a pause */
    uint32_t n_skipped; /* steps in a row that were ignored */
};

struct rate_step {
    double wall_s, cpu_s; /* cpu_s: CPU time of the thread, < 0: unknown */
    double expected_s;    /* 0: unknown */
};

/* True if the step's speed must be ignored.  At most three steps in a row are ignored: a longer slowdown is not a
 * pause. */
bool rate_pause_spoils(struct rate_pause *pause, const struct rate_step *step);
/* Records a pause before the next step. */
void rate_pause_note(struct rate_pause *pause);

#endif
