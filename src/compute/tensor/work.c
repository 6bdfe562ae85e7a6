/* SPDX-License-Identifier: Apache-2.0 */
/* Distributes units of work: a counter per rank, each on its own cache line.
 *
 *     units   0 1 2 3 | 4 5 6 7 | 8 9 10 11
 *             rank 0    rank 1    rank 2
 *              next ->   next ->   next ->     own share first; when it is empty, the next rank's, and so on
 *
 * With several memory nodes the ranks of a node have units of their own, and help only each other.
 *
 * A counter may exceed its end by one per rank; this is harmless.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/tensor/work_priv.h"

#include "base/check.h"
#include "base/team.h"

void work_init(struct work *work, uint32_t n_units, unsigned n_ranks)
{
    ASSERT(n_ranks <= WORK_MAX_RANKS);
    for (unsigned rank = 0; rank < n_ranks; rank++) {

        const struct team_range range = team_split(n_units, 1, rank, n_ranks);
        atomic_init(&work->shares[rank].next, (uint32_t)range.from);
        work->shares[rank].end = (uint32_t)range.to;
        work->shares[rank].first = 0;
        work->shares[rank].n = (uint16_t)n_ranks;
    }
}

void work_init_nodes(struct work *work, const struct team *team, const uint32_t *n_units)
{
    ASSERT(team_size(team) <= WORK_MAX_RANKS);
    for (unsigned node = 0; node < team_n_nodes(team); node++) {
        const struct team_ranks ranks = team_node_ranks(team, node);

        for (unsigned i = 0; i < ranks.n; i++) {
            struct work_share *share = &work->shares[ranks.first + i];
            const struct team_range range = team_split(n_units[node], 1, i, ranks.n);

            atomic_init(&share->next, (uint32_t)range.from);
            share->end = (uint32_t)range.to;
            share->first = (uint16_t)ranks.first;
            share->n = (uint16_t)ranks.n;
        }
    }
}

bool work_next(struct work *work, unsigned rank, uint32_t *unit_out)
{
    const unsigned first = work->shares[rank].first, n = work->shares[rank].n;

    for (unsigned i = 0; i < n; i++) {
        struct work_share *share = &work->shares[first + (rank - first + i) % n];

        if (atomic_load_explicit(&share->next, memory_order_relaxed) >= share->end)
            continue;
        uint32_t unit = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed);
        if (unit < share->end) {
            *unit_out = unit;
            return true;
        }
    }
    return false;
}

uint32_t work_owner(const uint32_t *firsts, size_t step_bytes, uint32_t n, uint32_t unit)
{
    uint32_t low = 0, high = n;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        const void *first = (const char *)firsts + middle * step_bytes;

        if (*(const uint32_t *)first <= unit)
            low = middle;
        else
            high = middle;
    }
    return low;
}
