/* SPDX-License-Identifier: Apache-2.0 */
/* Which peers this worker needs now: for a transfer under way, or for a task that will begin one.  The engine thread
 * counts, and the loop thread looks before it closes an idle link. */
#include "worker/runner/engine_thread_priv.h"

void worker_peer_use(struct worker_engine *engine, uint32_t peer)
{
    if (peer < WORKER_MAX_PEERS)
        atomic_fetch_add_explicit(&engine->peer_uses[peer], 1, memory_order_relaxed);
}

void worker_peer_leave(struct worker_engine *engine, uint32_t peer)
{
    if (peer < WORKER_MAX_PEERS)
        atomic_fetch_sub_explicit(&engine->peer_uses[peer], 1, memory_order_relaxed);
}

bool worker_engine_uses_peer(const struct worker_engine *engine, uint32_t peer)
{
    return atomic_load_explicit(&engine->peer_uses[peer], memory_order_relaxed) > 0;
}
