/* SPDX-License-Identifier: Apache-2.0 */
/* The returned engine owns its model: calls pass through to engine_cpu, free releases both. */
#include "compute/engine/engine_load.h"

#include <stdlib.h>

#include "base/err.h"
#include "compute/engine/engine_cpu.h"
#include "compute/model/model.h"

struct engine_model {
    struct model *model;
    struct team *team;
    struct engine cpu;
};

static struct model_opts model_opts_of(const struct engine_load_opts *opts)
{
    return (struct model_opts){.mtp_of = opts->mtp_of ? opts->mtp_of->model : NULL,
                               .kernels = opts->kernels,
                               .kv_type = opts->kv_type,
                               .block_tokens = opts->block_tokens,
                               .splits_windows = opts->splits_windows,
                               .context_length = opts->context_length,
                               .bf16 = opts->bf16,
                               .converts_f16 = opts->converts_f16,
                               .beside_bytes = opts->beside_bytes,
                               .arena = opts->arena,
                               .on_progress = opts->on_progress,
                               .progress_arg = opts->progress_arg};
}

bool engine_has_kernels(const char *kernels)
{
    return model_has_kernels(kernels);
}

int engine_model_check(const struct engine_load_opts *opts, struct fault *fault, struct kv_layout *layout_out,
                       uint32_t *context_out)
{
    struct model_opts model_opts = model_opts_of(opts);

    return model_check(opts->gguf, &model_opts, fault, layout_out, context_out);
}

int engine_model_check_mtp(const struct engine_load_opts *opts, struct fault *fault,
                           struct kv_layout *layout_out)
{
    struct model_opts model_opts = model_opts_of(opts);

    return model_check_mtp(opts->gguf, &model_opts, fault, layout_out);
}

int engine_model_load(const struct engine_load_opts *opts, struct fault *fault, struct engine_model **out)
{
    struct model_opts model_opts = model_opts_of(opts);
    struct engine_model *loaded = calloc(1, sizeof(*loaded));
    int rc;

    if (loaded == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    loaded->team = opts->team;
    rc = model_new(opts->gguf, opts->team, &model_opts, fault, &loaded->model);
    if (rc < 0) {
        free(loaded);
        return rc;
    }
    *out = loaded;
    return 0;
}

bool engine_model_has_mtp(const struct engine_model *loaded, const struct gguf *gguf)
{
    return model_has_mtp(loaded->model, gguf);
}

void engine_model_free(struct engine_model *loaded)
{
    if (loaded == NULL)
        return;
    engine_free(&loaded->cpu);
    model_free(loaded->model);
    free(loaded);
}

const struct kv_layout *engine_model_layout(const struct engine_model *loaded)
{
    return model_kv_layout(loaded->model);
}

static int loaded_step(void *self, const struct engine_batch *batch, struct sample_result *results_out)
{
    struct engine_model *loaded = self;

    return engine_step(&loaded->cpu, batch, results_out);
}

static const float *loaded_logits(void *self, uint32_t index)
{
    struct engine_model *loaded = self;

    return loaded->cpu.ops->logits(loaded->cpu.self, index);
}

static const float *loaded_hidden(void *self, uint32_t index, uint32_t back)
{
    struct engine_model *loaded = self;

    return loaded->cpu.ops->hidden(loaded->cpu.self, index, back);
}

static void loaded_free(void *self)
{
    engine_model_free(self);
}

static const struct engine_ops LOADED_OPS = {
    .step = loaded_step, .logits = loaded_logits, .hidden = loaded_hidden, .free = loaded_free};

const struct engine_model *engine_loaded(const struct engine *engine)
{
    return engine->ops == &LOADED_OPS ? engine->self : NULL;
}

int engine_model_start(struct engine_model *loaded, const struct engine_start_opts *opts, struct engine *out)
{
    struct engine_cpu_opts cpu = {.model = loaded->model,
                                  .team = loaded->team,
                                  .kv_arena = opts->kv_arena,
                                  .n_blocks = opts->n_blocks,
                                  .max_batch_tokens = opts->max_batch_tokens,
                                  .max_items = opts->max_items,
                                  .max_draws = opts->max_draws};
    int rc = engine_cpu_new(&cpu, &loaded->cpu);

    if (rc < 0) {
        engine_model_free(loaded);
        return rc;
    }
    *out = (struct engine){.ops = &LOADED_OPS, .self = loaded, .info = loaded->cpu.info};
    return 0;
}

int engine_tune(struct team *team, const char *kernels, enum tune_mode mode, struct tuned *out)
{
    const struct kern_table *table = kern_table_get(kernels);

    if (table == NULL)
        return E_INVAL;
    tensor_tune(team, table, mode, out);
    return 0;
}

void engine_tuned_line(const struct tuned *tuned, struct buf *out)
{
    tuned_line(tuned, out);
}

void engine_tuned_table(const struct tuned *tuned, struct buf *out)
{
    tuned_table(tuned, out);
}
