/* SPDX-License-Identifier: Apache-2.0 */
/* See peer_slots_priv.h. */
#include "worker/loop/peer_slots_priv.h"

uint32_t peer_slots_free(const struct worker_peer *slots, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (slots[i].link == NULL)
            return i;
    return PEER_NONE;
}

enum peer_rank { /* links of a lower rank are closed first */
                 PEER_DOWN_IDLE,
                 PEER_UP_IDLE,
                 PEER_DOWN_WANTED,
                 PEER_STAYS
};

static enum peer_rank peer_rank_of(const struct worker_peer *peer, bool is_wanted)
{
    if (!peer->is_dialled || peer->is_configured)
        return PEER_STAYS;
    if (peer->is_up)
        return is_wanted ? PEER_STAYS : PEER_UP_IDLE;
    return is_wanted ? PEER_DOWN_WANTED : PEER_DOWN_IDLE;
}

uint32_t peer_slots_spare(const struct worker_peer *slots, uint32_t n, const struct worker_engine *engine,
                          uint64_t idle_from_ns)
{
    enum peer_rank best_rank = PEER_STAYS;
    uint32_t best = PEER_NONE;

    for (uint32_t i = 0; i < n; i++) {
        const struct worker_peer *peer = &slots[i];
        bool is_wanted = peer->used_ns >= idle_from_ns || worker_engine_uses_peer(engine, i);
        enum peer_rank rank = peer_rank_of(peer, is_wanted);

        if (rank == PEER_STAYS || rank > best_rank ||
            (rank == best_rank && peer->used_ns >= slots[best].used_ns))
            continue;
        best = i;
        best_rank = rank;
    }
    return best;
}
