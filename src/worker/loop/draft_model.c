/* SPDX-License-Identifier: Apache-2.0 */
/* The draft model of a worker: a second, smaller model file whose tokens the first one verifies
 * (compute/sched/draft_model.c). It shares the compute threads and has KV memory of its own,
 * sched.draft_memory. Both files must have the same vocabulary, token by token. Without such a file the MTP head of
 * model.path takes its place, if there is one. */
#include "worker/loop/draft_model_priv.h"
#include "worker/loop/load_progress_priv.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "compute/engine/engine_load.h"

#define BATCH_TOKENS 512 /* tokens of a step */
#define MAX_ITEMS    SCHED_DRAFT_SEQS
#define BLOCKS_LEAST 4

/* Compares the spelling and the kind of each token. */
static int draft_compare_tokens(const struct tokenizer *own, const struct tokenizer *draft,
                                struct fault *fault)
{
    uint32_t n = tokenizer_vocab_size(own);

    if (tokenizer_vocab_size(draft) != n)
        return fault_set(fault, E_MISMATCH, "its vocabulary has %u tokens, that of model.path %u",
                         tokenizer_vocab_size(draft), n);
    for (token_id id = 0; id < n; id++) {
        if (!bytes_equal(tokenizer_piece(own, id), tokenizer_piece(draft, id)) ||
            tokenizer_is_control(own, id) != tokenizer_is_control(draft, id))
            return fault_set(fault, E_MISMATCH, "token %u of its vocabulary differs from that of model.path",
                             id);
    }
    return 0;
}

/* In a draft model, layers with a window use the same blocks as the other layers. */
static struct engine_load_opts draft_load_opts(const struct worker_conf *conf, struct gguf *gguf)
{
    struct engine_load_opts opts = worker_load_opts(conf, gguf);

    opts.splits_windows = false;
    return opts;
}

static int draft_check_file(const struct worker_conf *conf, const struct tokenizer *own, struct gguf *gguf,
                            struct fault *fault)
{
    struct engine_load_opts opts = draft_load_opts(conf, gguf);
    struct tokenizer *tokenizer;
    struct kv_layout layout;
    uint32_t context;
    int rc = tokenizer_new(gguf, fault, &tokenizer);

    if (rc < 0)
        return rc;
    rc = draft_compare_tokens(own, tokenizer, fault);
    tokenizer_unref(tokenizer);
    opts.block_tokens = 0; /* block_tokens and kernels have their own checks */
    if (!engine_has_kernels(opts.kernels))
        opts.kernels = "auto";
    if (rc == 0)
        rc = engine_model_check(&opts, fault, &layout, &context);
    if (rc == 0 && layout.state_bytes > 0)
        rc = fault_set(fault, E_UNSUPPORTED, "it has recurrent layers; a draft model has attention only");
    return rc;
}

void worker_check_draft_model(struct config_check *check, const struct worker_conf *conf,
                              const struct gguf *own)
{
    struct tokenizer *tokenizer = NULL;
    struct gguf *gguf = NULL;
    struct fault fault = {0};

    if (conf->draft_model[0] == '\0' || tokenizer_new(own, &fault, &tokenizer) < 0)
        return; /* a bad model.path is refused elsewhere */
    if (conf->engine_kind == WORKER_ENGINE_SIM)
        config_refuse(check, "sched.draft_model", "engine.kind = sim computes no model; leave it empty");
    else if (gguf_open(conf->draft_model, &fault, &gguf) < 0 ||
             draft_check_file(conf, tokenizer, gguf, &fault) < 0)
        config_refuse(check, "sched.draft_model", "%.200s: %s", conf->draft_model, fault.text);
    gguf_close(gguf);
    tokenizer_unref(tokenizer);
}

/* Starts the engine over its own arena. Takes the model. */
static int draft_start(const struct worker_conf *conf, struct engine_model *model,
                       struct worker_engine_opts *opts, struct fault *fault)
{
    struct engine_start_opts start = {.max_batch_tokens = BATCH_TOKENS, .max_items = MAX_ITEMS};
    uint64_t block_bytes = kv_layout_block_bytes(engine_model_layout(model));
    uint64_t n_blocks = conf->draft_memory / block_bytes;
    int rc = 0;

    if (n_blocks < BLOCKS_LEAST)
        rc = fault_set(fault, E_INVAL, "sched.draft_memory holds %u blocks of %zu bytes; give it %zu bytes",
                       (unsigned)n_blocks, (size_t)block_bytes, (size_t)block_bytes * BLOCKS_LEAST);
    else if (mem_region_open((size_t)n_blocks * block_bytes, false, false, "draft kv", &opts->draft_arena) <
             0)
        rc = fault_set(fault, E_NOMEM, "cannot get %zu bytes of sched.draft_memory",
                       (size_t)n_blocks * block_bytes);
    if (rc < 0) {
        engine_model_free(model);
        return rc;
    }
    start.kv_arena = opts->draft_arena.base;
    start.n_blocks = opts->draft_blocks = n_blocks > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)n_blocks;
    rc = engine_model_start(model, &start, &opts->draft);
    return rc < 0 ? fault_set(fault, rc, "cannot get the engine's scratch memory") : 0;
}

/* Packs the weights of a file, or of the MTP head in the file of a loaded model, and starts the engine. */
static int draft_load(struct worker *worker, struct gguf *gguf, const struct engine_model *mtp_of,
                      struct worker_engine_opts *opts, struct fault *fault)
{
    struct worker_progress progress = {.worker = worker, .said_ns = clock_now_ns()};
    struct engine_load_opts load = draft_load_opts(worker->conf, gguf);
    struct engine_model *model = NULL;
    int rc;

    load.mtp_of = mtp_of;
    load.team = opts->team;
    load.context_length = 0;
    load.on_progress = worker_load_on_progress;
    load.progress_arg = &progress;
    rc = engine_model_load(&load, fault, &model);
    return rc < 0 ? rc : draft_start(worker->conf, model, opts, fault);
}

static int mtp_open(struct worker *worker, struct worker_engine_opts *opts, struct fault *fault)
{
    const struct engine_model *model = engine_loaded(&opts->engine);
    int rc;

    if (!worker->conf->mtp || model == NULL || !engine_model_has_mtp(model, worker->gguf))
        return 0;
    rc = draft_load(worker, worker->gguf, model, opts, fault);
    if (rc < 0)
        return fault_set(fault, rc, "sched.mtp: %.200s: %s", worker->conf->model_path, fault->text);
    log_info("mtp_ready", LOG_STR("engine", opts->draft.info.name), LOG_U64("kv_blocks", opts->draft_blocks),
             LOG_U64("context", opts->draft.info.context_length));
    return 0;
}

int worker_draft_model_open(struct worker *worker, struct worker_engine_opts *opts, struct fault *fault)
{
    const struct worker_conf *conf = worker->conf;
    int rc;

    if (conf->speculate == SPECULATE_OFF)
        return 0;
    if (conf->draft_model[0] == '\0')
        return mtp_open(worker, opts, fault);
    rc = gguf_open(conf->draft_model, fault, &worker->draft_gguf);
    if (rc == 0)
        rc = draft_check_file(conf, worker->model.tokenizer, worker->draft_gguf, fault);
    if (rc == 0)
        rc = draft_load(worker, worker->draft_gguf, NULL, opts, fault);
    if (rc < 0)
        return fault_set(fault, rc, "sched.draft_model: %.200s: %s", conf->draft_model, fault->text);
    log_info("draft_model_ready", LOG_STR("file", conf->draft_model),
             LOG_STR("engine", opts->draft.info.name), LOG_U64("kv_blocks", opts->draft_blocks),
             LOG_U64("context", opts->draft.info.context_length));
    return 0;
}
