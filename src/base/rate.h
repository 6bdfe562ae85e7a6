/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that are learned from observations: how fast, how long.
 *
 * struct rate is for what a pause, a stranger's load or a strange clock may falsify, which is every duration
 * and every speed.  struct rate_mean is for observations that are bounded by themselves. docs/rates.md lists
 * every learned number.  Pure: the time is given.  Any one thread. */
#ifndef BASE_RATE_H
#define BASE_RATE_H

#include <stdbool.h>
#include <stdint.h>

struct rate_mean {
    double value;  /* meaningless while weight is 0 */
    double weight; /* 0..1, how much was seen */
};

void rate_observe(struct rate_mean *mean, double observation, double alpha);
double rate_get(const struct rate_mean *mean, double if_none);

struct rate {       /* a zeroed one knows nothing */
    double level;   /* > 0; 0: nothing seen */
    double weight;  /* 0..1, how much was seen; fades when nothing is */
    double doubt;   /* weight of the latest samples, all far above the level (or far below: negative) */
    double nearest; /* the one of these that is nearest to the level */
    uint64_t at_ns; /* of the latest sample */
};

/* A sample > 0; others are ignored.  alpha: its share of the level in the long run.  weight: 0..1, how much
 * such a sample says beside a full one. */
void rate_learn(struct rate *rate, double sample, double alpha, double weight, uint64_t now_ns);
double rate_level(const struct rate *rate); /* 0: nothing seen */
/* The level; but the longer it is since the last sample, the less a level below `prior` is believed: it tends
 * to the prior, so that what seems slow is tried again.  The prior itself if nothing was seen. */
double rate_hope(const struct rate *rate, double prior, uint64_t now_ns);

/* Tells a step in which its thread was stopped from a step that is slow.  A zeroed one is ready. */
struct rate_pause {
    uint32_t n_unsettled; /* steps from now on that are among the first after a pause */
    uint32_t n_skipped;   /* steps that did not count, in a row */
};

struct rate_step {
    double wall_s, cpu_s; /* cpu_s: of the thread, < 0: unknown */
    double expected_s;    /* 0: unknown */
};

/* Whether the step says nothing about speed.  At most three in a row do: what goes on is no pause. */
bool rate_pause_spoils(struct rate_pause *pause, const struct rate_step *step);
/* There was a pause before the next step. */
void rate_pause_note(struct rate_pause *pause);

#endif
