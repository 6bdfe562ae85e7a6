/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the worker that pushes its blocks to the chosen worker. Gathers the rows for picker_find_owner(), as
 * fleet/router/blocks.c does. Among owners with equally many blocks only the load decides, so the rows of two workers
 * are enough. */
#include "fleet/sim/sim_priv.h"

#define OWNER_MOST_ASKED 64

/* The least loaded of the workers with the most cached tokens of the prompt. PICKER_NONE: no worker has more than
 * the asker. */
static uint32_t owner_most_cached(const struct sim *sim, uint32_t asker)
{
    const uint32_t *in_memory = sim->place.found.in_memory;
    uint32_t most = in_memory[asker], best = PICKER_NONE, least = 0, n_asked = 0;

    if (sim->place.found.most_in_memory <= most)
        return PICKER_NONE;
    for (uint32_t slot = 0; slot < sim->n_workers; slot++) {
        uint32_t n_running;

        if (in_memory[slot] < most || in_memory[slot] <= in_memory[asker] || !sim->workers[slot].is_up)
            continue;
        if (in_memory[slot] > most)
            n_asked = 0;
        most = in_memory[slot];
        if (++n_asked >= OWNER_MOST_ASKED)
            continue;
        n_running = picker_fleet_n_running(sim->place.fleet, slot);
        if (n_asked == 1 || n_running < least) {
            best = slot;
            least = n_running;
        }
    }
    return best;
}

/* Rows of the asker and of the owner, as fleet/router/blocks.c gathers them. */
void sim_owner_find(struct sim *sim, struct picker_owner *out)
{
    struct picker_choice *choice = &sim->place.choice;
    uint32_t asker = choice->prefill != PICKER_NONE ? choice->prefill : choice->decode, owner;
    struct picker_worker rows[2];
    const struct picker_world world = {rows, 2};

    if (sim->opts->prefix_fetch == PICKER_FETCH_OFF)
        return;
    owner = owner_most_cached(sim, asker);
    if (owner == PICKER_NONE)
        return;
    picker_fleet_row(sim->place.fleet, asker, &rows[0]);
    rows[0].cached_tokens = rows[0].stored_tokens = sim->place.found.in_memory[asker] * rows[0].block_tokens;
    for (uint32_t i = 0; i < sim->place.found.n_runs; i++)
        if (sim->place.found.runs[i].slot == asker)
            rows[0].stored_tokens = sim->place.found.runs[i].n_blocks * rows[0].block_tokens;
    picker_fleet_row(sim->place.fleet, owner, &rows[1]);
    rows[1].cached_tokens = sim->place.found.in_memory[owner] * rows[0].block_tokens;
    *out = picker_find_owner(&world, &sim->place.request, 0, sim->opts->prefix_fetch);
    if (out->slot == PICKER_NONE)
        return;
    out->slot = owner;
    if (choice->uncached_tokens > sim->place.request.n_tokens - out->tokens)
        choice->uncached_tokens = sim->place.request.n_tokens - out->tokens;
    choice->read_tokens = 0;
}
