/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of a slot for one more link to a worker.  It changes nothing.  Loop thread only. */
#ifndef WORKER_LOOP_PEER_SLOTS_PRIV_H
#define WORKER_LOOP_PEER_SLOTS_PRIV_H

#include "worker/loop/worker_priv.h"

/* The first free one of n slots; PEER_NONE: there is none. */
uint32_t peer_slots_free(const struct worker_peer *slots, uint32_t n);
/* The slot of a link to be closed for another one.  Only links that this worker dialled, and that the configuration does
 * not name, are closed; their other ends lose nothing, because this worker dials again when it needs them.  A link is
 * idle if it is unused since idle_from_ns, and no task or transfer of the engine needs it.  First idle links that are down,
 * then those that are up, then links that are down and not idle: one that was dialled a moment ago is still down.  Among
 * equals the least recently used.  PEER_NONE: there is none. */
uint32_t peer_slots_spare(const struct worker_peer *slots, uint32_t n, const struct worker_engine *engine,
                          uint64_t idle_from_ns);

#endif
