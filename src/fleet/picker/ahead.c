/* SPDX-License-Identifier: Apache-2.0 */
/* See fleet/picker/ahead.h. */
#include "fleet/picker/ahead.h"

#include "fleet/picker/turn.h"

#define TURN_SHARES 2   /* a tenant that is behind gets at least every second turn of a worker */
#define OVERTAKEN   2   /* prompts of other tenants that may come before, for each prompt in the queue ... */
#define FEW_OTHERS  8   /* ... unless others had less than this part of the tenant's service */
#define BEHIND_ITL  1.1 /* part of the objective between tokens that a tenant that is behind may use */

enum {
    SEATS_PER_AHEAD = 8, /* a request goes ahead for each of so many seats, and one more */
    AHEAD_BEHIND = 4,    /* requests of a tenant that is behind, for each worker */
    LEAST_BEHIND =
        PICKER_TURN_CREDIT / 4 /* tokens that it is behind; equal tenants are behind by less now and then */
};

static void ahead_count(struct picker_lines *lines, const struct picker_ahead_entry *entry, bool is_more)
{
    if (entry->decode == PICKER_NONE)
        return;
    lines->n_reads[entry->reads] += is_more ? 1 : UINT32_MAX;
    lines->n[entry->decode] += is_more ? 1 : UINT32_MAX;
    if (lines->n[entry->decode] >= 1 + entry->max_seqs / SEATS_PER_AHEAD)
        picker_slots_add(&lines->full, entry->decode);
    else
        picker_slots_remove(&lines->full, entry->decode);
}

void picker_ahead_enter(struct picker_ahead *ahead, struct picker_lines *lines,
                        const struct picker_ahead_entry *entry)
{
    ahead_count(lines, entry, true);
    ahead->n++;
    ahead->n_tenants += ++*entry->n_own == 1;
}

void picker_ahead_leave(struct picker_ahead *ahead, struct picker_lines *lines,
                        const struct picker_ahead_entry *entry)
{
    ahead_count(lines, entry, false);
    ahead->n--;
    ahead->n_tenants -= --*entry->n_own == 0;
}

/* ---- the rule ---- */

static bool ahead_has_seat(const struct picker_worker *worker)
{
    return worker->max_seqs == 0 || worker->n_running < worker->max_seqs;
}

static double ahead_limit_s(const struct picker_ahead_turn *turn)
{
    return picker_limit_s(turn->ttft_slo_s, turn->choice->alone_s);
}

/* True if the choice exceeds this part of the objective between tokens because of other sequences.  A worker that is too slow
 * even for one keeps no such objective anyway. */
static bool ahead_breaks_itl(const struct picker_ahead_turn *turn, double part)
{
    struct picker_worker worker;

    if (turn->choice->itl_s <= turn->itl_slo_s * part)
        return false;
    picker_fleet_row(turn->fleet, turn->choice->decode, &worker);
    return picker_itl_at_s(&worker, 0) <= turn->itl_slo_s;
}

/* True if the request is in time even if it begins behind the whole queue of the choice. */
static bool ahead_is_soon(const struct picker_ahead_turn *turn)
{
    double queue_s = turn->choice->ttft_s - turn->choice->alone_s, margin;

    if (turn->service.others > turn->service.own / FEW_OTHERS)
        queue_s *= 1 + OVERTAKEN;
    margin = ahead_breaks_itl(turn, 1) ? turn->margin : 0;
    return !turn->is_refused_early ||
           turn->waited_s + queue_s + turn->choice->alone_s <= ahead_limit_s(turn) * (1 - margin);
}

/* True if the tenant has no other request ahead. */
static bool ahead_is_first(const struct picker_ahead_turn *turn, const struct picker_worker *worker)
{
    return !turn->is_refused_early && turn->n_own == 0 && turn->ahead.n > 0 && ahead_has_seat(worker);
}

/* True if the request goes ahead because of other routers' sequences at the worker. */
static bool ahead_is_common(const struct picker_ahead_turn *turn, const struct picker_worker *worker,
                            uint32_t n_others)
{
    if (turn->n_routers < 2 || n_others == 0 || (turn->is_refused_early && !turn->has_waited))
        return false;
    if (!ahead_has_seat(worker))
        return !picker_slots_has(&turn->lines->full, turn->choice->decode);
    return ahead_is_soon(turn) && (worker->n_running - n_others) * turn->n_routers < worker->n_running &&
           turn->n_own == 0 && turn->ahead.n < picker_fleet_n_usable(turn->fleet, turn->group);
}

/* True if tenants of other routers had more service than the request's, so that the workers' turns favour it. */
static bool ahead_is_behind(const struct picker_ahead_turn *turn)
{
    return turn->n_routers > 1 && turn->service.most - turn->service.own >= LEAST_BEHIND;
}

/* True if enough of the tenant's requests wait for this worker to read their prompts.  They are spread over the workers as
 * those of all tenants are. */
static bool ahead_reads_enough(const struct picker_ahead_turn *turn, uint32_t slot)
{
    return (uint64_t)turn->n_own * turn->lines->n_reads[slot] >= (uint64_t)AHEAD_BEHIND * turn->ahead.n &&
           turn->ahead.n > 0;
}

static uint32_t ahead_reads(const struct picker_choice *choice)
{
    return choice->prefill != PICKER_NONE ? choice->prefill : choice->decode;
}

/* True if a request whose tenant is behind keeps the objectives when the workers take turns. */
static bool ahead_keeps(const struct picker_ahead_turn *turn)
{
    double rate = picker_prompt_rate(turn->fleet, turn->group, turn->local_prefill);
    double own = turn->n_own * (double)turn->choice->uncached_tokens + (double)turn->before_tokens;
    double own_s = rate > 0 ? own / rate : 0;
    double margin = turn->has_waited ? 0 : turn->margin;

    if (turn->is_refused_early && ahead_breaks_itl(turn, BEHIND_ITL))
        return false;
    return turn->waited_s + TURN_SHARES * own_s + turn->choice->alone_s <= ahead_limit_s(turn) * (1 - margin);
}

/* True if the request is in time when it takes its turn at the worker before other tenants' backlog. */
static bool ahead_is_in_time(const struct picker_ahead_turn *turn)
{
    const struct picker_choice *choice = turn->choice;
    double ahead = turn->ahead.n > 0 ? (double)turn->ahead.n_tenants / turn->ahead.n : 0;
    double turns_s = (choice->ttft_s - choice->alone_s) * ahead;

    return !turn->is_refused_early || turns_s + choice->alone_s <= ahead_limit_s(turn);
}

bool picker_ahead_goes(const struct picker_ahead_turn *turn)
{
    struct picker_worker worker;
    uint32_t n_others;

    picker_fleet_row(turn->fleet, turn->choice->decode, &worker);
    n_others = worker.n_running - picker_fleet_ledger(turn->fleet, turn->choice->decode)->n_seqs;
    if (ahead_is_behind(turn) && n_others > 0)
        return !ahead_reads_enough(turn, ahead_reads(turn->choice)) && ahead_keeps(turn);
    return !turn->is_judged && (ahead_is_first(turn, &worker) || ahead_is_common(turn, &worker, n_others)) &&
           ahead_is_in_time(turn);
}

bool picker_ahead_other(const struct picker_ahead_turn *turn, struct picker_slots *excluded)
{
    if (ahead_is_behind(turn)) {
        if (!ahead_reads_enough(turn, ahead_reads(turn->choice)))
            return false;
        for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++)
            if (ahead_reads_enough(turn, slot))
                picker_slots_add(excluded, slot);
        return true;
    }
    if (turn->n_routers < 2 || !picker_slots_has(&turn->lines->full, turn->choice->decode))
        return false;
    for (size_t i = 0; i < PICKER_MAX_WORKERS / 64; i++)
        excluded->words[i] |= turn->lines->full.words[i];
    return true;
}
