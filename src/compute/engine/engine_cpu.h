/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU engine: compute/model/forward over paged KV, sampling on the engine thread. */
#ifndef COMPUTE_ENGINE_ENGINE_CPU_H
#define COMPUTE_ENGINE_ENGINE_CPU_H

#include "base/team.h"
#include "compute/engine/engine.h"
#include "compute/model/model.h"

struct engine_cpu_opts {
    struct model *model; /* borrowed, outlives the engine */
    struct team *team;   /* borrowed */
    void *kv_arena;      /* borrowed: n_blocks blocks of the model's layout */
    uint32_t n_blocks;
    uint32_t max_batch_tokens; /* scratch is sized for this */
    uint32_t max_items;        /* sequences per step */
    uint32_t max_draws;        /* tokens drawn per step, right and wrong guesses included; 0: max_items */
    uint64_t share_from_bytes; /* as in struct model_state_opts; 0: a sensible size */
};

/* All memory a step needs is allocated here; a step allocates nothing. */
int engine_cpu_new(const struct engine_cpu_opts *opts, struct engine *out);

#endif
