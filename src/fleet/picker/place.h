/* SPDX-License-Identifier: Apache-2.0 */
/* One request's placement as the router does it and the simulator repeats it: who holds how much of the
 * prompt, where it runs best, and the booking, so that the next request sees it.  One thread. */
#ifndef FLEET_PICKER_PLACE_H
#define FLEET_PICKER_PLACE_H

#include "fleet/picker/fleet.h"
#include "fleet/picker/index.h"

struct picker_place { /* one request's placement under way: storage of the caller */
    struct picker_fleet *fleet;
    struct picker_index *index;
    const struct block_hash *hashes; /* of the prompt's full blocks */
    size_t n_hashes;
    uint64_t now_ns;
    struct picker_request request; /* what is cached is set here */
    struct picker_found found;     /* out: leading blocks that each worker has */
    struct picker_choice choice;   /* out */
};

struct picker_booking { /* what was charged to one worker for one request; slot PICKER_NONE: nothing */
    uint32_t slot;
    struct picker_charge charge;
};

/* Looks the prompt up and picks.  Codes as of picker_pick(); the choice counts with 0 and E_OVERLOADED. */
int picker_place_choose(struct picker_place *place, const struct picker_goals *goals);
/* Charges the ledgers of the choice and notes in the index that its workers will hold the prompt. */
void picker_place_book(const struct picker_place *place, struct picker_booking *prefill_out,
                       struct picker_booking *decode_out);

/* The worker has admitted and prefilled it; then, or without that, it is over there.  Both may be repeated.
 */
void picker_booking_started(struct picker_fleet *fleet, struct picker_booking *booking);
void picker_booking_over(struct picker_fleet *fleet, struct picker_booking *booking);

#endif
