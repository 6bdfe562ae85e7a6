/* SPDX-License-Identifier: Apache-2.0 */
/* Routers and peers that a file, DNS or etcd names (discovery.c). Loop thread. */
#ifndef WORKER_LOOP_DISCOVERY_PRIV_H
#define WORKER_LOOP_DISCOVERY_PRIV_H

#include "worker/loop/worker_priv.h"

/* discovery.c: routers and peers from a file, DNS or etcd, and this worker's own key in etcd */
int worker_discovery_open(struct worker *worker, struct fault *fault);
/* True if a source can provide routers.  Without routers the worker is not ready. */
bool worker_discovery_finds_routers(const struct worker *worker);
void worker_discovery_close(struct worker *worker);

#endif
