/* SPDX-License-Identifier: Apache-2.0 */
/* Values that this worker keeps for its routers (kept.c).  Loop thread. */
#ifndef WORKER_LOOP_KEPT_PRIV_H
#define WORKER_LOOP_KEPT_PRIV_H

#include "worker/loop/worker_priv.h"

int worker_kept_open(struct worker *worker); /* E_NOMEM; closed also after a failure */
void worker_kept_close(struct worker *worker);
/* Messages of a router. */
void worker_kept_keep(struct worker *worker, const Baton__Keep *keep);
void worker_kept_fetch(struct worker_router *router, const Baton__Fetch *fetch);
void worker_kept_list(struct worker_router *router, const Baton__ListKept *list);

#endif
