/* SPDX-License-Identifier: Apache-2.0 */
/* Pausing: which running streams leave their worker so that a request of a higher class gets a decode seat there.
 *
 * A paused stream gives its seat, its blocks and its part of the step back.  The worker keeps the blocks in its cache
 * as long as it has no other use for them, and the stream goes on later, there or elsewhere, with the same tokens.
 *
 * Pure, as the rest of the picker. */
#ifndef FLEET_PICKER_PAUSE_H
#define FLEET_PICKER_PAUSE_H

#include "fleet/picker/place.h"

#define PICKER_MAX_PAUSED 8 /* streams that are paused for one request */

struct picker_stream {                    /* one running stream that may be paused */
    const struct picker_booking *booking; /* at its decode worker */
    uint32_t context_tokens;
};

struct picker_pause {
    uint32_t n;
    uint32_t chosen[PICKER_MAX_PAUSED]; /* indices of streams, all on one worker */
};

/* Chooses the least number of streams whose pause would let picker_place_choose() place the request at their worker
 * within the goals.  The streams come in the order in which they are to be paused.  False: no pause helps.  Sets the
 * place's choice; the fleet is as before. */
bool picker_pause_choose(struct picker_place *place, const struct picker_goals *goals,
                         const struct picker_stream *streams, uint32_t n_streams, struct picker_pause *out);

#endif
