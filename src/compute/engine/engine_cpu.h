/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU engine: compute/model/forward over paged KV. Sampling runs on the engine thread. */
#ifndef COMPUTE_ENGINE_ENGINE_CPU_H
#define COMPUTE_ENGINE_ENGINE_CPU_H

#include "base/team.h"
#include "compute/engine/engine.h"
#include "compute/model/model.h"

struct engine_cpu_opts {
    struct model *model; /* borrowed; must outlive the engine */
    struct team *team;   /* borrowed */
    void *kv_arena;      /* borrowed: n_blocks blocks of the model's layout */
    uint32_t n_blocks;
    uint32_t max_batch_tokens; /* most tokens of a step; scratch is sized for it */
    uint32_t max_items;        /* most sequences of a step */
    uint32_t max_draws;        /* most tokens sampled per step, all draft tokens counted; 0: max_items */
    uint64_t team_from_bytes;  /* as in struct model_state_opts; 0: default */
};

/* Allocates all memory that a step needs; a step allocates nothing. */
int engine_cpu_new(const struct engine_cpu_opts *opts, struct engine *out);

#endif
