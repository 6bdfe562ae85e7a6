/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and certificates of a worker's ports, and their reload (calls of struct reload_calls). */
#ifndef WORKER_LOOP_ACCESS_PRIV_H
#define WORKER_LOOP_ACCESS_PRIV_H

#include "serve/setup/link_access.h"
#include "worker/loop/worker_priv.h"

/* Derives the KV connections' keys.  E_INTERNAL. */
int worker_kv_keys(const struct worker *worker, struct tr_keys *out);
int worker_read_access(void *arg, const void *conf, struct fault *fault, void **out);
void worker_take_access(void *arg, void *fresh);
void worker_drop_access(void *fresh);

#endif
