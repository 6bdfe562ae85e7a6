/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's draft model (sched.draft_model) or MTP head (sched.mtp): draft_model.c. */
#ifndef WORKER_LOOP_DRAFT_MODEL_PRIV_H
#define WORKER_LOOP_DRAFT_MODEL_PRIV_H

#include "worker/loop/worker_priv.h"

/* Refuses a file that does not fit the model file `own`; an MTP head of `own` that cannot be loaded; and a
 * sched.draft_memory that is too small for what drafts, or too large beside kv.memory. */
void worker_check_draft_model(struct config_check *check, const struct worker_conf *conf, struct gguf *own);
/* Loads sched.draft_model and starts its engine with opts->team. Without that key it loads the model's MTP head, if
 * the file has one and sched.mtp is set. 0, or a fault that names the key. The
 * caller frees opts on failure. Loop thread, before the engine thread starts. */
int worker_draft_model_open(struct worker *worker, struct worker_engine_opts *opts, struct fault *fault);

#endif
