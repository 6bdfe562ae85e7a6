/* SPDX-License-Identifier: Apache-2.0 */
/* Match, pick, book: the three steps of a placement, in the same order for every caller. */
#include "fleet/picker/place.h"

#include "fleet/picker/fleet_priv.h"

#define OVERDUE 2 /* an answer of so many times its expected length is overdue */

/* Adds the run of each worker whose shared store has more of the prompt than the worker itself. */
static void place_add_runs(struct picker_place *place, const uint32_t *in_store)
{
    struct picker_found *found = &place->found;
    uint32_t run_of[PICKER_MAX_WORKERS] = {0}; /* from 1; 0: none */

    for (uint32_t i = 0; i < found->n_runs; i++)
        run_of[found->runs[i].slot] = i + 1;
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++) {
        uint32_t store = picker_fleet_store(place->fleet, slot), n, has;

        if (store == 0 || store > PICKER_MAX_STORES)
            continue;
        n = in_store[store - 1];
        has = run_of[slot] > 0 ? found->runs[run_of[slot] - 1].n_blocks : found->in_memory[slot];
        if (n <= has)
            continue;
        if (run_of[slot] == 0)
            run_of[slot] = ++found->n_runs;
        found->runs[run_of[slot] - 1] = (struct picker_run){.slot = slot, .n_blocks = n, .is_in_store = true};
    }
}

static void place_match_stores(struct picker_place *place, const struct picker_query *query)
{
    struct picker_query of_stores = *query;
    struct picker_found found;

    if (place->stored == NULL || picker_index_count(place->stored) == 0)
        return;
    of_stores.n_slots = PICKER_MAX_STORES;
    picker_index_match(place->stored, &of_stores, &found);
    if (found.most_in_memory > 0)
        place_add_runs(place, found.in_memory);
}

void picker_place_copy(struct picker_place *to, const struct picker_place *from)
{
    *to = *from;
    if (from->request.cached_blocks == from->found.in_memory)
        to->request.cached_blocks = to->found.in_memory;
    if (from->request.runs == from->found.runs)
        to->request.runs = to->found.runs;
}

int picker_place_choose(struct picker_place *place, const struct picker_goals *goals)
{
    const struct picker_query query = {.hashes = place->hashes,
                                       .n = place->n_hashes,
                                       .n_slots = PICKER_MAX_WORKERS,
                                       .now_ns = place->now_ns};
    uint32_t most;

    picker_index_match(place->index, &query, &place->found);
    place_match_stores(place, &query);
    most = place->found.most_in_memory;
    place->request.cached_blocks = most > 0 ? place->found.in_memory : NULL;
    place->request.runs = place->found.runs;
    place->request.n_runs = place->found.n_runs;
    place->request.now_ns = place->now_ns;
    place->request.pushable_blocks = place->may_push ? most : 0;
    place->goals = *goals;
    return picker_pick(place->fleet, goals, &place->request, &place->choice);
}

/* The prompt may lack fewer tokens than at the choice, if the worker fetches some from another one. */
static uint64_t place_busy_ns(const struct picker_place *place, uint32_t slot)
{
    uint32_t n = place->choice.uncached_tokens;
    struct picker_worker row;

    picker_fleet_row(place->fleet, slot, &row);
    return (uint64_t)(1e9 * place->choice.stretch * picker_prompt_s(&row, place->request.n_tokens - n, n));
}

/* computes: this worker prefills; otherwise its KV comes from the worker that does. */
static void place_book(const struct picker_place *place, uint32_t slot, bool computes,
                       struct picker_booking *out)
{
    *out = (struct picker_booking){.slot = slot, .charge = {.context_tokens = place->request.n_tokens}};
    if (slot == place->choice.decode)
        out->charge.answer_tokens = place->request.answer_tokens;
    if (computes) {
        out->charge.prefill_tokens = place->choice.uncached_tokens;
        if (place->choice.reads_store)
            out->charge.store_tokens = place->choice.read_tokens;
        else
            out->charge.read_tokens = place->choice.read_tokens;
        out->charge.busy_ns = place_busy_ns(place, slot);
    }
    picker_fleet_charge(place->fleet, slot, &out->charge, place->now_ns);
}

void picker_place_book(const struct picker_place *place, struct picker_booking *prefill_out,
                       struct picker_booking *decode_out)
{
    const struct picker_choice *choice = &place->choice;

    picker_index_learn_pair(place->index, (const uint32_t[2]){choice->prefill, choice->decode}, place->hashes,
                            place->n_hashes, place->now_ns);
    *prefill_out = (struct picker_booking){.slot = PICKER_NONE};
    if (choice->prefill != PICKER_NONE)
        place_book(place, choice->prefill, true, prefill_out);
    place_book(place, choice->decode, choice->prefill == PICKER_NONE, decode_out);
}

static void booking_discharge(struct picker_fleet *fleet, struct picker_booking *booking, bool has_begun,
                              uint64_t now_ns)
{
    if (booking->charge.context_tokens == 0)
        return;
    picker_fleet_discharge(fleet, booking->slot, &booking->charge, has_begun, now_ns);
    booking->begun_report = picker_fleet_report(fleet, booking->slot);
    booking->begun_tokens = has_begun ? booking->charge.context_tokens : 0;
    booking->charge = (struct picker_charge){0};
}

void picker_booking_started(struct picker_fleet *fleet, struct picker_booking *booking, uint64_t now_ns)
{
    if (booking->slot != PICKER_NONE)
        booking_discharge(fleet, booking, true, now_ns);
}

void picker_booking_grows(struct picker_fleet *fleet, struct picker_booking *booking, uint64_t n_tokens)
{
    if (booking->slot == PICKER_NONE || booking->growth_tokens == n_tokens)
        return;
    picker_fleet_grow(fleet, booking->slot, booking->growth_tokens, n_tokens);
    booking->growth_tokens = n_tokens;
}

static uint64_t booking_pace(const struct picker_written *written)
{
    uint32_t most = written->most > written->n_tokens ? written->most - written->n_tokens : 1;

    if (written->n_tokens / OVERDUE < written->expected || written->n_tokens == 0)
        return 0;
    return PICKER_PACE / (most < written->n_tokens ? most : written->n_tokens);
}

void picker_booking_wrote(struct picker_fleet *fleet, struct picker_booking *booking,
                          const struct picker_written *written)
{
    uint64_t pace = booking_pace(written);

    if (booking->slot == PICKER_NONE || booking->overdue_pace == pace)
        return;
    picker_fleet_pace(fleet, booking->slot, booking->overdue_pace, pace);
    booking->overdue_pace = pace;
}

void picker_booking_over(struct picker_fleet *fleet, struct picker_booking *booking, uint64_t now_ns)
{
    if (booking->slot == PICKER_NONE)
        return;
    booking_discharge(fleet, booking, false, now_ns);
    if (booking->begun_tokens > 0)
        picker_fleet_ended(fleet, booking->slot, booking->begun_report, booking->begun_tokens);
    picker_booking_grows(fleet, booking, 0);
    picker_fleet_pace(fleet, booking->slot, booking->overdue_pace, 0);
    booking->overdue_pace = 0;
    picker_fleet_leave(fleet, booking->slot);
    booking->slot = PICKER_NONE;
}

void picker_booking_cancelled(struct picker_fleet *fleet, struct picker_booking *booking,
                              uint64_t context_tokens, uint64_t now_ns)
{
    uint32_t slot = booking->slot;
    bool is_counted = booking->begun_tokens == 0 || booking->begun_report != picker_fleet_report(fleet, slot);

    picker_booking_over(fleet, booking, now_ns);
    if (is_counted) /* in the worker's report, as taken */
        picker_fleet_freed(fleet, slot, context_tokens);
}
