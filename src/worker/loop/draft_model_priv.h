/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's draft model (sched.draft_model) or MTP head (sched.mtp): draft_model.c. */
#ifndef WORKER_LOOP_DRAFT_MODEL_PRIV_H
#define WORKER_LOOP_DRAFT_MODEL_PRIV_H

#include "compute/engine/engine_load.h"
#include "worker/loop/worker_priv.h"

/* Refuses a file that does not fit the model file `own`; an MTP head of `own` that cannot be loaded; and a
 * sched.draft_memory that is too small for what drafts, or too large beside kv.memory. */
void worker_check_draft_model(struct config_check *check, const struct worker_conf *conf, struct gguf *own);
/* Loads the MTP head of a loaded model, if the file has one, sched.mtp is set and no draft model takes its place; else
 * leaves *out as it is. The head goes into own->arena, the weights' shared memory; where that was filled without a head, into
 * memory of its own. Loop thread, before the arena is sealed. */
int worker_mtp_load(struct worker *worker, const struct engine_load_opts *own,
                    const struct engine_model *model, struct fault *fault, struct engine_model **out);
/* Starts the engine of the MTP head, which it takes; or loads sched.draft_model and starts its engine with
 * opts->team. 0, or a fault that names the key. The caller frees opts on failure. Loop thread, before the engine
 * thread starts. */
int worker_draft_model_open(struct worker *worker, struct engine_model *mtp, struct worker_engine_opts *opts,
                            struct fault *fault);

#endif
