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
#include "base/mem_machine.h"
#include "base/str.h"
#include "compute/engine/engine_load.h"
#include "worker/loop/numa_priv.h"

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

/* The options for checks: block_tokens and kernels have checks of their own. */
static struct engine_load_opts draft_check_opts(const struct worker_conf *conf, struct gguf *gguf)
{
    struct engine_load_opts opts = draft_load_opts(conf, gguf);

    opts.block_tokens = 0;
    if (!engine_has_kernels(opts.kernels))
        opts.kernels = "auto";
    return opts;
}

static int draft_check_file(const struct worker_conf *conf, const struct tokenizer *own, struct gguf *gguf,
                            struct kv_layout *layout_out, struct fault *fault)
{
    struct engine_load_opts opts = draft_check_opts(conf, gguf);
    struct tokenizer *tokenizer;
    uint32_t context;
    int rc = tokenizer_new(gguf, fault, &tokenizer);

    if (rc < 0)
        return rc;
    rc = draft_compare_tokens(own, tokenizer, fault);
    tokenizer_unref(tokenizer);
    if (rc == 0)
        rc = engine_model_check(&opts, fault, layout_out, &context);
    if (rc == 0 && layout_out->state_bytes > 0)
        rc = fault_set(fault, E_UNSUPPORTED, "it has recurrent layers; a draft model has attention only");
    return rc;
}

/* Blocks of KV that sched.draft_memory holds. */
static int draft_blocks_of(const struct worker_conf *conf, const struct kv_layout *layout,
                           struct fault *fault, uint32_t *out)
{
    size_t block_bytes = kv_layout_block_bytes(layout);
    uint64_t n_blocks = conf->draft_memory / block_bytes;

    if (n_blocks < BLOCKS_LEAST)
        return fault_set(fault, E_INVAL, "holds %u blocks of %zu bytes; give it %zu bytes",
                         (unsigned)n_blocks, block_bytes, block_bytes * BLOCKS_LEAST);
    *out = n_blocks > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)n_blocks;
    return 0;
}

/* The KV of what drafts lies in memory beside that of the model. */
static void draft_check_memory(struct config_check *check, const struct worker_conf *conf,
                               struct kv_layout *layout)
{
    struct mem_machine machine = mem_machine_get();
    char drafts[24], own[24], has[24];
    struct fault fault = {0};
    uint32_t n_blocks;

    if (conf->speculate == SPECULATE_OFF)
        return;
    layout->block_tokens = (uint32_t)conf->kv_block_tokens;
    if (draft_blocks_of(conf, layout, &fault, &n_blocks) < 0)
        config_refuse(check, "sched.draft_memory", "%s", fault.text);
    if (conf->kv_memory > machine.bytes || conf->draft_memory <= machine.bytes - conf->kv_memory)
        return; /* kv.memory alone has a check of its own */
    str_from_size(conf->draft_memory, drafts);
    str_from_size(conf->kv_memory, own);
    str_from_size(machine.bytes >> 20 << 20, has);
    config_refuse(check, "sched.draft_memory", "%s beside kv.memory, %s, is more than %s, %s%s", drafts, own,
                  machine.name, has, machine.remedy);
}

static void draft_check_mtp(struct config_check *check, const struct worker_conf *conf, struct gguf *own)
{
    struct engine_load_opts opts = draft_check_opts(conf, own);
    struct kv_layout layout = {0};
    struct fault fault = {0};
    int rc;

    if (!conf->mtp || conf->speculate == SPECULATE_OFF || conf->engine_kind == WORKER_ENGINE_SIM)
        return;
    rc = engine_model_check_mtp(&opts, &fault, &layout);
    if (rc == 0)
        draft_check_memory(check, conf, &layout);
    else if (rc != E_NOT_FOUND)
        config_refuse(check, "sched.mtp", "%.200s: %s", conf->model_path, fault.text);
}

void worker_check_draft_model(struct config_check *check, const struct worker_conf *conf, struct gguf *own)
{
    struct tokenizer *tokenizer = NULL;
    struct kv_layout layout = {0};
    struct gguf *gguf = NULL;
    struct fault fault = {0};

    if (tokenizer_new(own, &fault, &tokenizer) < 0)
        return; /* a bad model.path is refused elsewhere */
    if (conf->draft_model[0] == '\0')
        draft_check_mtp(check, conf, own);
    else if (conf->engine_kind == WORKER_ENGINE_SIM)
        config_refuse(check, "sched.draft_model", "engine.kind = sim computes no model; leave it empty");
    else if (gguf_open(conf->draft_model, &fault, &gguf) < 0 ||
             draft_check_file(conf, tokenizer, gguf, &layout, &fault) < 0)
        config_refuse(check, "sched.draft_model", "%.200s: %s", conf->draft_model, fault.text);
    else
        draft_check_memory(check, conf, &layout);
    gguf_close(gguf);
    tokenizer_unref(tokenizer);
}

/* Starts the engine over its own arena, on the memory nodes that the model's KV is on. Takes the model. */
static int draft_start(struct worker *worker, struct engine_model *model, struct worker_engine_opts *opts,
                       struct fault *fault)
{
    const struct kv_layout *layout = engine_model_layout(model);
    struct engine_start_opts start = {.max_batch_tokens = BATCH_TOKENS, .max_items = MAX_ITEMS};
    size_t block_bytes = kv_layout_block_bytes(layout);
    int rc = draft_blocks_of(worker->conf, layout, fault, &opts->draft_blocks);

    if (rc < 0)
        fault_set(fault, rc, "sched.draft_memory %s", fault->text);
    else if (mem_region_open(opts->draft_blocks * block_bytes, false, false, "draft kv", &opts->draft_arena) <
                 0 ||
             worker_numa_place_kv(&worker->numa, opts->team, layout, &opts->draft_arena) < 0)
        rc = fault_set(fault, E_NOMEM, "cannot get %zu bytes of sched.draft_memory",
                       opts->draft_blocks * block_bytes);
    if (rc < 0) {
        engine_model_free(model);
        return rc;
    }
    start.kv_arena = opts->draft_arena.base;
    start.n_blocks = opts->draft_blocks;
    rc = engine_model_start(model, &start, &opts->draft);
    return rc < 0 ? fault_set(fault, rc, "cannot get the engine's scratch memory") : 0;
}

/* Packs the weights of a file, or of the MTP head of a model in it. */
static int draft_pack(struct worker *worker, const struct engine_model *mtp_of, struct engine_load_opts *load,
                      struct fault *fault, struct engine_model **out)
{
    struct worker_progress progress = {.worker = worker, .logged_ns = clock_now_ns()};

    load->mtp_of = mtp_of;
    load->context_length = 0;
    load->on_progress = worker_load_on_progress;
    load->progress_arg = &progress;
    return engine_model_load(load, fault, out);
}

int worker_mtp_load(struct worker *worker, const struct engine_load_opts *own,
                    const struct engine_model *model, struct fault *fault, struct engine_model **out)
{
    const struct worker_conf *conf = worker->conf;
    struct engine_load_opts load = draft_load_opts(conf, worker->gguf);
    int rc;

    if (!conf->mtp || conf->speculate == SPECULATE_OFF || conf->draft_model[0] != '\0' ||
        !engine_model_has_mtp(model, worker->gguf))
        return 0;
    load.team = own->team;
    load.arena = own->arena;
    rc = draft_pack(worker, model, &load, fault, out);
    if (load.arena != NULL &&
        (rc == E_MISMATCH || rc == E_FULL)) { /* of a worker that drafts without a head */
        load.arena = NULL;
        rc = draft_pack(worker, model, &load, fault, out);
    }
    if (rc < 0)
        return fault_set(fault, rc, "sched.mtp: %.200s: %s", conf->model_path, fault->text);
    log_info("mtp_loaded", LOG_STR("memory", load.arena != NULL ? "shared" : "private"));
    return 0;
}

static int mtp_open(struct worker *worker, struct engine_model *mtp, struct worker_engine_opts *opts,
                    struct fault *fault)
{
    int rc = draft_start(worker, mtp, opts, fault);

    if (rc < 0)
        return fault_set(fault, rc, "sched.mtp: %.200s: %s", worker->conf->model_path, fault->text);
    log_info("mtp_ready", LOG_STR("engine", opts->draft.info.name), LOG_U64("kv_blocks", opts->draft_blocks),
             LOG_U64("context", opts->draft.info.context_length));
    return 0;
}

int worker_draft_model_open(struct worker *worker, struct engine_model *mtp, struct worker_engine_opts *opts,
                            struct fault *fault)
{
    const struct worker_conf *conf = worker->conf;
    struct engine_model *model = NULL;
    struct engine_load_opts load;
    struct kv_layout layout;
    int rc;

    if (mtp != NULL)
        return mtp_open(worker, mtp, opts, fault);
    if (conf->speculate == SPECULATE_OFF || conf->draft_model[0] == '\0')
        return 0;
    rc = gguf_open(conf->draft_model, fault, &worker->draft_gguf);
    if (rc == 0)
        rc = draft_check_file(conf, worker->model.tokenizer, worker->draft_gguf, &layout, fault);
    if (rc == 0) {
        load = draft_load_opts(conf, worker->draft_gguf);
        load.team = opts->team;
        rc = draft_pack(worker, NULL, &load, fault, &model);
    }
    if (rc == 0)
        rc = draft_start(worker, model, opts, fault);
    if (rc < 0)
        return fault_set(fault, rc, "sched.draft_model: %.200s: %s", conf->draft_model, fault->text);
    log_info("draft_model_ready", LOG_STR("file", conf->draft_model),
             LOG_STR("engine", opts->draft.info.name), LOG_U64("kv_blocks", opts->draft_blocks),
             LOG_U64("context", opts->draft.info.context_length));
    return 0;
}
