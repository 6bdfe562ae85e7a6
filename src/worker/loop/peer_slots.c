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

uint32_t peer_slots_spare(const struct worker_peer *slots, uint32_t n, const struct worker_engine *engine,
                          uint64_t idle_from_ns)
{
    uint32_t best = PEER_NONE;

    for (uint32_t i = 0; i < n; i++) {
        const struct worker_peer *peer = &slots[i];

        if (!peer->is_dialled || peer->is_configured ||
            (peer->is_up && (peer->used_ns >= idle_from_ns || worker_engine_uses_peer(engine, i))))
            continue;
        if (best == PEER_NONE || slots[best].is_up > peer->is_up ||
            (slots[best].is_up == peer->is_up && peer->used_ns < slots[best].used_ns))
            best = i;
    }
    return best;
}
