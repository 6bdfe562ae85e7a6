/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a model file as far as possible without packing weights: header, directory, vocabulary, template,
 * architecture, names and shapes of all tensors, and the number of blocks that fit kv.memory.  The start
 * calls the same functions, so both give the same verdict. */
#include <limits.h>
#include <string.h>

#include "worker/loop/draft_model_priv.h"
#include "worker/loop/worker_priv.h"

static void check_vocabulary(struct config_check *check, const struct worker_conf *conf,
                             const struct gguf *gguf, uint32_t *context_out)
{
    struct tokenizer *tokenizer = NULL;
    struct chat_format *chat = NULL;
    struct fault fault = {0};

    if (tokenizer_new(gguf, &fault, &tokenizer) < 0 || chat_format_new(tokenizer, &fault, &chat) < 0)
        config_refuse(check, "model.path", "%.200s: %s", conf->model_path, fault.text);
    else
        *context_out = tokenizer_context_length(tokenizer);
    chat_format_free(chat);
    tokenizer_unref(tokenizer);
}

static void check_memory(struct config_check *check, const struct worker_conf *conf,
                         const struct kv_layout *layout)
{
    struct fault fault = {0};
    uint32_t n_blocks;

    if (worker_arena_blocks(conf, layout, &fault, &n_blocks) < 0)
        config_refuse(check, "kv.memory", "%s", fault.text);
}

static void check_weights(struct config_check *check, const struct worker_conf *conf, struct gguf *gguf)
{
    struct engine_load_opts opts = worker_load_opts(conf, gguf);
    struct kv_layout layout = {0};
    struct fault fault = {0};
    uint32_t context;

    opts.block_tokens = 0; /* block_tokens and kernels have their own checks */
    if (!engine_has_kernels(opts.kernels))
        opts.kernels = "auto";
    if (engine_model_check(&opts, &fault, &layout, &context) < 0) {
        config_refuse(check, "model.path", "%.200s: %s", conf->model_path, fault.text);
        return;
    }
    if (conf->context > context)
        config_refuse(check, "model.context", "%llu is more than the model's own context, %u; 0 takes that",
                      (unsigned long long)conf->context, context);
    layout.block_tokens = (uint32_t)conf->kv_block_tokens;
    check_memory(check, conf, &layout);
}

static void model_check_name(struct config_check *check, const struct worker_conf *conf)
{
    char of_file[NAME_MAX + 1];
    const char *name = conf->model_name[0] ? conf->model_name : of_file;
    size_t room = sizeof(((struct gen_model *)0)->name);

    gguf_model_name(conf->model_path, of_file, sizeof(of_file));
    if (strlen(name) >= room)
        config_refuse(check, "model.name", "'%.40s...' is too long; %zu bytes are possible", name, room - 1);
}

void worker_check_model(struct config_check *check, const struct worker_conf *conf)
{
    struct kv_layout sim = worker_sim_layout(conf);
    struct gguf *gguf = NULL;
    struct fault fault = {0};
    uint32_t context = 0;

    if (conf->model_path[0] == '\0') {
        config_refuse(check, "model.path", "not set; name the GGUF file to serve");
        return;
    }
    model_check_name(check, conf);
    if (gguf_open(conf->model_path, &fault, &gguf) < 0 || gguf_check_model(gguf, &fault) < 0) {
        gguf_close(gguf);
        config_refuse(check, "model.path", "%.200s: %s", conf->model_path, fault.text);
        return;
    }
    check_vocabulary(check, conf, gguf, &context);
    if (conf->engine_kind == WORKER_ENGINE_SIM)
        check_memory(check, conf, &sim);
    else
        check_weights(check, conf, gguf);
    worker_check_draft_model(check, conf, gguf);
    gguf_close(gguf);
}
