/* SPDX-License-Identifier: Apache-2.0 */
/* Look up, pick, book: the three steps of a placement, in the one order in which all that route take them. */
#include "picker/place.h"

int picker_place_choose(struct picker_place *place, const struct picker_goals *goals)
{
    picker_index_match(place->index, place->hashes, place->n_hashes, place->now_ns, place->cached_blocks,
                       PICKER_MAX_WORKERS);
    place->request.cached_blocks = place->cached_blocks;
    return picker_pick(place->fleet, goals, &place->request, &place->choice);
}

static void book(const struct picker_place *place, uint32_t slot, uint64_t prefill_tokens,
                 struct picker_booking *out)
{
    picker_fleet_charge(place->fleet, slot, prefill_tokens, place->request.n_tokens);
    *out = (struct picker_booking){slot, prefill_tokens, place->request.n_tokens};
}

void picker_place_book(const struct picker_place *place, struct picker_booking *prefill_out,
                       struct picker_booking *decode_out)
{
    const struct picker_choice *choice = &place->choice;

    picker_index_learn_pair(place->index, (const uint32_t[2]){choice->prefill, choice->decode}, place->hashes,
                            place->n_hashes, place->now_ns);
    *prefill_out = (struct picker_booking){.slot = PICKER_NONE};
    if (choice->prefill != PICKER_NONE)
        book(place, choice->prefill, choice->uncached_tokens, prefill_out);
    book(place, choice->decode, choice->prefill != PICKER_NONE ? 0 : choice->uncached_tokens, decode_out);
}

void picker_booking_started(struct picker_fleet *fleet, struct picker_booking *booking)
{
    if (booking->slot == PICKER_NONE || (booking->prefill_tokens == 0 && booking->context_tokens == 0))
        return;
    picker_fleet_discharge(fleet, booking->slot, booking->prefill_tokens, booking->context_tokens);
    booking->prefill_tokens = booking->context_tokens = 0;
}

void picker_booking_over(struct picker_fleet *fleet, struct picker_booking *booking)
{
    if (booking->slot == PICKER_NONE)
        return;
    picker_booking_started(fleet, booking);
    picker_fleet_leave(fleet, booking->slot);
    booking->slot = PICKER_NONE;
}
