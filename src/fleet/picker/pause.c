/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of streams to pause.
 *
 *    streams, in order      a@3  b@7  c@3  d@3  e@7
 *    by worker              3: a c d     7: b e
 *    least number           3: 2         7: 1          by seats and time between tokens, which only need arithmetic
 *    tried, least first     7: b   7: b e   3: a c ..  the worker's row as it would be: the picker has the last word
 *
 * The picker itself decides, so blocks, queue and both objectives count as in any placement.  A try changes one row
 * and makes one choice; the number of tries is bounded. */
#include "fleet/picker/pause.h"

#include "fleet/picker/fleet_priv.h"

#define MAX_SITES 16 /* workers that are considered */
#define MAX_TRIES 8

#define LEAST_TOKENS   32 /* between two pauses of a stream */
#define MAX_PLACEMENTS 50 /* of a budget */

/* ---- the rules of the streams' owner ---- */

bool picker_pause_may(const struct picker_pause_past *past, uint32_t answered, uint64_t most_ns)
{
    return answered > 0 && past->paused_ns < most_ns &&
           (past->n == 0 || answered - past->went_on_at >= LEAST_TOKENS);
}

uint64_t picker_pause_itl_ns(const struct picker_classes *classes, uint32_t class_at,
                             const uint32_t n_at_workers[PICKER_MAX_CLASSES])
{
    const struct picker_class *own = &classes->all[class_at];
    uint64_t itl_ns = own->itl_slo_ns;

    for (uint32_t i = 0; own->pause_ns > 0 && i < classes->n; i++) {
        const struct picker_class *other = &classes->all[i];

        if (other->priority > own->priority && n_at_workers[i] > 0 && other->itl_slo_ns < itl_ns)
            itl_ns = other->itl_slo_ns;
    }
    return itl_ns;
}

bool picker_pause_affords(struct picker_pause_budget *budget, uint32_t n, uint64_t now_ns)
{
    if (now_ns >= budget->since_ns + PICKER_PAUSE_BUDGET_NS)
        *budget = (struct picker_pause_budget){.since_ns = now_ns};
    if (budget->n_tried + n > MAX_PLACEMENTS)
        return false;
    budget->n_tried += n;
    return true;
}

/* ---- the choice ---- */

struct pause_site { /* one worker and its first streams */
    uint32_t slot, n, n_least;
    uint32_t chosen[PICKER_MAX_PAUSED];
};

static struct pause_site *site_for(struct pause_site *sites, uint32_t *n_sites, uint32_t slot)
{
    for (uint32_t i = 0; i < *n_sites; i++)
        if (sites[i].slot == slot)
            return &sites[i];
    if (*n_sites == MAX_SITES)
        return NULL;
    sites[*n_sites] = (struct pause_site){.slot = slot};
    return &sites[(*n_sites)++];
}

static uint32_t pause_gather(const struct picker_stream *streams, uint32_t n_streams,
                             struct pause_site sites[MAX_SITES])
{
    uint32_t n_sites = 0;

    for (uint32_t i = 0; i < n_streams; i++) {
        struct pause_site *site = site_for(sites, &n_sites, streams[i].booking->slot);

        if (site != NULL && site->n < PICKER_MAX_PAUSED)
            site->chosen[site->n++] = i;
    }
    return n_sites;
}

/* The least number of streams to pause, so that a seat is free and a step keeps the objective. A number above its
 * streams: no pause is enough. */
static uint32_t pause_least(const struct picker_fleet *fleet, const struct pause_site *site, double itl_slo_s)
{
    struct picker_worker worker;
    uint32_t n = 1;

    picker_fleet_row(fleet, site->slot, &worker);
    while (n <= site->n) {
        uint32_t left = worker.n_running > n ? worker.n_running - n : 0;

        if ((worker.max_seqs == 0 || left < worker.max_seqs) && picker_itl_at_s(&worker, left) <= itl_slo_s)
            break;
        n++;
    }
    return n;
}

/* True if the request would be placed there without the site's first n streams. */
static bool pause_helps(struct picker_place *place, const struct picker_goals *goals,
                        const struct picker_stream *streams, const struct pause_site *site, uint32_t n)
{
    struct fleet_slot *slot = &place->fleet->slots[site->slot], saved = *slot;
    bool helps;

    for (uint32_t i = 0; i < n; i++) {
        const struct picker_stream *stream = &streams[site->chosen[i]];
        struct picker_booking booking = *stream->booking;

        picker_booking_cancelled(place->fleet, &booking, stream->context_tokens, place->now_ns);
    }
    helps = picker_place_choose(place, goals) == 0 && place->choice.decode == site->slot;
    *slot = saved;
    picker_fleet_refresh(place->fleet, site->slot);
    return helps;
}

static struct pause_site *pause_next(struct pause_site *sites, uint32_t n_sites)
{
    struct pause_site *best = NULL;

    for (uint32_t i = 0; i < n_sites; i++)
        if (sites[i].n_least <= sites[i].n && (best == NULL || sites[i].n_least < best->n_least))
            best = &sites[i];
    return best;
}

bool picker_pause_choose(struct picker_place *place, const struct picker_goals *goals,
                         const struct picker_stream *streams, uint32_t n_streams, struct picker_pause *out)
{
    double itl_slo_s = goals->itl_slo_s * (1 - goals->itl_margin);
    struct pause_site sites[MAX_SITES], *site;
    uint32_t n_sites = pause_gather(streams, n_streams, sites);

    for (uint32_t i = 0; i < n_sites; i++)
        sites[i].n_least = pause_least(place->fleet, &sites[i], itl_slo_s);
    for (uint32_t n_tries = 0; n_tries < MAX_TRIES && (site = pause_next(sites, n_sites)) != NULL;
         n_tries++) {
        if (pause_helps(place, goals, streams, site, site->n_least)) {
            *out = (struct picker_pause){.n = site->n_least};
            for (uint32_t i = 0; i < site->n_least; i++)
                out->chosen[i] = site->chosen[i];
            return true;
        }
        site->n_least++;
    }
    return false;
}
