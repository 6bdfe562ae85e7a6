/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the running streams to pause, so that a request of a higher class gets a decode seat at their worker.
 *
 * A paused stream gives back its seat, its blocks and its part of the step.  The worker caches the blocks until it
 * needs them.  The stream continues later, on this or another worker, with the same tokens.
 *
 * Pure functions. */
#ifndef FLEET_PICKER_PAUSE_H
#define FLEET_PICKER_PAUSE_H

#include "fleet/picker/place.h"

#define PICKER_MAX_PAUSED 8 /* most streams that are paused for one request */

struct picker_stream {                    /* one running stream that may be paused */
    const struct picker_booking *booking; /* at its decode worker */
    uint32_t context_tokens;
};

struct picker_pause {
    uint32_t n;
    uint32_t chosen[PICKER_MAX_PAUSED]; /* indices of streams, all on one worker */
};

/* Chooses the least number of streams to pause, so that picker_place_choose() can place the request at their worker
 * within the goals.  The streams are in the order in which to pause them.  Sets the place's choice and does not
 * change the fleet.  False: no pause helps. */
bool picker_pause_choose(struct picker_place *place, const struct picker_goals *goals,
                         const struct picker_stream *streams, uint32_t n_streams, struct picker_pause *out);

#endif
