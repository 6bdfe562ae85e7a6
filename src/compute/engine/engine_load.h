/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a CPU engine from an open model file.  There are two calls, load and start, because the caller
 * allocates KV memory between them, by the model's layout. Users of an engine need no other header of the
 * model. */
#ifndef COMPUTE_ENGINE_ENGINE_LOAD_H
#define COMPUTE_ENGINE_ENGINE_LOAD_H

#include "base/fault.h"
#include "base/team.h"
#include "compute/engine/engine.h"
#include "gguf/gguf.h"
#include "compute/tensor/tensor.h"
#include "compute/tensor/tune.h"

/* Tokens of a KV block: a multiple of ENGINE_BLOCK_STEP, at most ENGINE_BLOCK_MAX. */
enum { ENGINE_BLOCK_STEP = ATTN_BLOCK_STEP, ENGINE_BLOCK_MAX = ATTN_BLOCK_MAX };

/* The words of engine.kernels and --kernels: the best of this CPU, or a family of kernel tables (compute/kernels). */
#define ENGINE_KERNELS(X)                                                                                    \
    X("auto")                                                                                                \
    X("scalar")                                                                                              \
    X("avx2")                                                                                                \
    X("avx512")

struct engine_model; /* weights, packed for the kernels */

struct engine_load_opts {
    const struct engine_model
        *mtp_of;         /* not NULL: load its MTP head, see model_opts; its engine must live longer */
    struct gguf *gguf;   /* borrowed; must outlive the engine */
    struct team *team;   /* borrowed; must outlive the engine */
    const char *kernels; /* one of ENGINE_KERNELS */
    enum kv_type kv_type;
    uint32_t block_tokens;    /* tokens of a KV block; 0: 32 */
    bool splits_windows;      /* see model_opts */
    uint32_t context_length;  /* tokens; 0: the model's own */
    enum bf16_math bf16;      /* see model_opts */
    bool converts_f16;        /* see model_opts */
    uint64_t beside_bytes;    /* see model_opts */
    struct mem_sealed *arena; /* see model_opts */
    /* Reports progress while weights are packed; NULL: no reports. False: stop loading. */
    bool (*on_progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes);
    void *progress_arg;
};

/* Reads, checks and packs the weights. fault names the key or tensor. */
int engine_model_load(const struct engine_load_opts *opts, struct fault *fault, struct engine_model **out);
/* Makes the checks that engine_model_load makes before packing, except for the context and the team.
 * Returns the KV layout and the model's own context length. */
int engine_model_check(const struct engine_load_opts *opts, struct fault *fault, struct kv_layout *layout_out,
                       uint32_t *context_out);
bool engine_model_has_mtp(const struct engine_model *model,
                          const struct gguf *gguf); /* see model_has_mtp() */
int engine_model_check_mtp(const struct engine_load_opts *opts, struct fault *fault,
                           struct kv_layout *layout_out); /* see model_check_mtp() */
bool engine_has_kernels(const char *kernels);             /* known, and this CPU runs them */
void engine_model_free(struct engine_model *model);       /* NULL is allowed; not after engine_model_start */
const struct kv_layout *engine_model_layout(const struct engine_model *model);

struct engine_start_opts {
    void *kv_arena; /* borrowed: n_blocks blocks of the model's layout */
    uint32_t n_blocks;
    uint32_t max_batch_tokens;
    uint32_t max_items; /* most sequences of a step */
    uint32_t max_draws; /* most tokens sampled per step, all draft tokens counted; 0: max_items */
};

/* Chooses the fastest kernels on this machine for the process: tensor_tune(), with kernels by name. An
 * unknown name chooses nothing (E_INVAL). Call it before threads compute or copy. */
int engine_tune(struct team *team, const char *kernels, enum tune_mode mode, struct tuned *out);
void engine_tuned_line(const struct tuned *tuned, struct buf *out);  /* one line, for logs */
void engine_tuned_table(const struct tuned *tuned, struct buf *out); /* a table, for people */

/* Starts an engine. Takes the model, also on failure; engine_free releases it. */
int engine_model_start(struct engine_model *model, const struct engine_start_opts *opts, struct engine *out);

/* The model that the engine took; NULL: it was not started by engine_model_start(). */
const struct engine_model *engine_loaded(const struct engine *engine);

#endif
