/* SPDX-License-Identifier: Apache-2.0 */
/* One copy of the packed weights for all workers of a host (weights.c). Loop thread. */
#ifndef WORKER_LOOP_WEIGHTS_PRIV_H
#define WORKER_LOOP_WEIGHTS_PRIV_H

#include "worker/loop/worker_priv.h"

/* weights.c: one copy of the packed weights for all workers of a host */
/* An arena for engine_load_opts, empty or filled by another worker; NULL: the weights stay private. May wait for a worker that
 * is packing them. */
struct mem_sealed *worker_weights_arena(struct worker *worker, uint64_t file_bytes, const struct team *team);
void worker_weights_refused(struct worker *worker, const char *why); /* call it if the arena was not usable;
                                                                      * why: static */
void worker_weights_loaded(struct worker *worker); /* seals the arena and serves it to others */
bool worker_weights_are_shared(const struct worker *worker);
void worker_weights_close(struct worker *worker); /* after the engine is freed */

#endif
