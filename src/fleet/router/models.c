/* SPDX-License-Identifier: Apache-2.0 */
/* The router's models: a tokeniser and a chat format per fingerprint, built from the vocabulary image that a
 * worker sends. The router holds no model file.
 *
 *    a worker registers with an unknown fingerprint
 *        -> VOCABULARY_WANTED -> VOCABULARY_PART ... -> checked, built, ready
 *
 * A job thread builds the model, because 150,000 tokens take a tenth of a second and other models' streams
 * must continue.
 *
 * The number of models is bounded.  A model keeps its row while a connected worker has it, or requests use it, and after
 * that until another model needs the row: its workers may return, and requests may wait for them.  The image
 * comes from an authenticated peer but is treated as hostile: sizes are bounded, and every offset is checked
 * when it is read. */
#include "fleet/router/router_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "serve/prompt/verdicts.h"

#define IMAGE_MAX_BYTES (UINT64_C(256) << 20)

static void model_build_free(struct model_build *build);

struct router_model *router_model_find(struct router *router, const char *fingerprint)
{
    for (uint32_t i = 0; i < router->n_models; i++)
        if (strcmp(router->models[i].gen.fingerprint, fingerprint) == 0)
            return &router->models[i];
    return NULL;
}

bool router_model_is_linked(const struct router *router, const struct router_model *model)
{
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++)
        if (router->workers[slot].link != NULL && router->workers[slot].model == model)
            return true;
    return false;
}

static void model_fini(struct router_model *model)
{
    verdicts_free(model->gen.verdicts);
    chat_format_free(model->gen.chat);
    tokenizer_unref(model->gen.tokenizer);
    buf_fini(&model->image);
    model_build_free(model->build);
    for (uint32_t at = 0; at < PICKER_MAX_CLASSES; at++)
        fair_free(model->turns[at]);
}

/* Empties the row.  The slots of workers that are gone forget that they had it. */
static void model_forget(struct router *router, struct router_model *model)
{
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++)
        if (router->workers[slot].model == model)
            router->workers[slot].model = NULL;
    model_fini(model);
    *model = (struct router_model){.n_jobs = 0};
}

/* Returns an empty row: a new one, or that of a model that nothing uses, preferably one that was never complete.
 * NULL: all are in use. */
static struct router_model *model_row(struct router *router)
{
    struct router_model *spare = NULL;

    if (router->n_models < ROUTER_MAX_MODELS)
        return &router->models[router->n_models++];
    for (uint32_t i = 0; i < router->n_models; i++) {
        struct router_model *model = &router->models[i];

        if (model->n_jobs == 0 && model->n_held == 0 && model->build == NULL &&
            (spare == NULL || (spare->is_ready && !model->is_ready)) &&
            !router_model_is_linked(router, model))
            spare = model;
    }
    if (spare != NULL)
        model_forget(router, spare);
    return spare;
}

/* Takes another size of blocks, unless another connected worker of the model has the old one.  The index knows no block
 * of workers that are not connected; the hashes of jobs that wait for one match no block of the new size. */
static int model_take_size(struct router *router, struct router_model *model, uint32_t block_tokens,
                           const struct router_worker *place, struct fault *fault)
{
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++) {
        const struct router_worker *worker = &router->workers[slot];

        if (worker->link != NULL && worker->model == model && worker != place)
            return fault_set(
                fault, E_MISMATCH,
                "model %s is served here with another block size: kv.block_tokens is %u at worker "
                "%s, and %u at this one; give all workers of a model one value",
                model->gen.name, worker->block_tokens, worker->node, block_tokens);
    }
    model->gen.block_tokens = block_tokens;
    list_for_each (node, &router->jobs) {
        struct job *job = container_of(node, struct job, all);

        if (job->model == model)
            router_chain_drop(job);
    }
    return 0;
}

int router_model_meet(struct router *router, const Baton__Hello *hello, const struct router_worker *place,
                      struct router_model **out, struct fault *fault)
{
    const Baton__ModelInfo *info = hello->model;
    struct router_model *model = router_model_find(router, info->fingerprint);

    *out = model;
    if (model != NULL)
        return model->gen.block_tokens == hello->kv->block_tokens
                   ? 0
                   : model_take_size(router, model, hello->kv->block_tokens, place, fault);
    if (info->vocabulary_bytes == 0 || info->vocabulary_bytes > IMAGE_MAX_BYTES)
        return fault_set(fault, E_LIMIT, "model %s has no vocabulary, or one beyond 256 MiB", info->name);
    model = model_row(router);
    if (model == NULL)
        return fault_set(fault, E_LIMIT, "this router serves %d models already", ROUTER_MAX_MODELS);
    str_copy(model->gen.name, sizeof(model->gen.name), info->name);
    str_copy(model->gen.fingerprint, sizeof(model->gen.fingerprint), info->fingerprint);
    model->gen.context_length = info->context_length;
    model->gen.block_tokens = hello->kv->block_tokens;
    model->gen.created_unix_s = info->created_unix_s;
    model->image_bytes = info->vocabulary_bytes;
    *out = model;
    return 0;
}

/* Sets the model's context to the least of its connected workers.
 * With none connected it keeps the latest value. */
void router_model_limit(struct router *router, struct router_model *model)
{
    uint32_t least = UINT32_MAX;

    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++) {
        const struct router_worker *worker = &router->workers[slot];

        if (worker->link != NULL && worker->model == model && worker->context_length < least)
            least = worker->context_length;
    }
    if (least < UINT32_MAX)
        model->gen.context_length = least;
}

/* Asks a connected worker for the image, unless it has arrived or is being sent. */
void router_model_fetch(struct router *router, struct router_model *model)
{
    Baton__VocabularyWanted wanted = BATON__VOCABULARY_WANTED__INIT;

    if (model->is_ready || model->is_failed || model->build != NULL || model->source != NULL)
        return;
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++) {
        struct router_worker *worker = &router->workers[slot];

        if (worker->model != model || worker->link == NULL || !link_is_up(worker->link))
            continue;
        wanted.fingerprint = model->gen.fingerprint;
        buf_clear(&model->image);
        if (router_send(router, slot, FRAME_VOCABULARY_WANTED, &wanted.base) < 0)
            continue;
        model->source = worker->link;
        return;
    }
}

struct model_build { /* owned by a job thread */
    struct router *router;
    struct router_model *model;
    struct buf image;
    struct tokenizer *tokenizer;
    struct chat_format *chat;
    struct verdicts *verdicts;
    struct fault fault;
    int rc;
};

static void model_build_free(struct model_build *build)
{
    if (build == NULL)
        return;
    verdicts_free(build->verdicts);
    chat_format_free(build->chat);
    tokenizer_unref(build->tokenizer);
    buf_fini(&build->image);
    free(build);
}

static void model_build_work(void *arg)
{
    struct model_build *build = arg;

    build->rc = tokenizer_new_from_image(buf_view(&build->image), &build->fault, &build->tokenizer);
    if (build->rc == 0)
        build->rc = chat_format_new(build->tokenizer, &build->fault, &build->chat);
    if (build->rc == 0)
        build->rc = verdicts_new(VERDICTS_KEPT, &build->verdicts);
    buf_fini(&build->image);
}

static void model_take(struct router_model *model, struct model_build *build)
{
    struct router *router = build->router;

    model->gen.tokenizer = build->tokenizer;
    model->gen.chat = build->chat;
    model->gen.verdicts = build->verdicts;
    build->tokenizer = NULL;
    build->chat = NULL;
    build->verdicts = NULL;
    model->is_ready = true;
    if (chat_format_warning(model->gen.chat) != NULL)
        log_warn("chat_template", LOG_STR("model", model->gen.name),
                 LOG_STR("reason", chat_format_warning(model->gen.chat)));
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++)
        if (router->workers[slot].model == model)
            router_worker_refresh(router, &router->workers[slot]);
    log_info("model_ready", LOG_STR("model", model->gen.name), LOG_STR("fingerprint", model->gen.fingerprint),
             LOG_STR("chat", chat_format_name(model->gen.chat)),
             LOG_U64("context", model->gen.context_length));
}

static void model_built(void *arg)
{
    struct model_build *build = arg;
    struct router *router = build->router;
    struct router_model *model = build->model;

    model->build = NULL;
    if (build->rc == 0) {
        model_take(model, build);
    } else {
        log_error("model_refused", LOG_STR("model", model->gen.name),
                  LOG_STR("reason", build->fault.text[0] ? build->fault.text : err_text(build->rc)));
        model->is_failed = true;
    }
    model_build_free(build);
    router_place_queued(router);
}

/* Takes the image. E_NOMEM, E_FULL: router_model_fetch() will ask for it again. */
static int model_build_begin(struct router *router, struct router_model *model)
{
    struct model_build *build = calloc(1, sizeof(*build));
    int rc = 0;

    if (build == NULL)
        return E_NOMEM;
    build->router = router;
    build->model = model;
    build->image = model->image;
    model->image = (struct buf){0};
    if (router->job_threads == NULL) {
        model_build_work(build);
        model_built(build);
        return 0;
    }
    rc = ev_jobs_submit(router->job_threads, router->loop, model_build_work, model_built, build);
    if (rc < 0)
        model_build_free(build);
    else
        model->build = build;
    return rc;
}

int router_model_part(struct router *router, struct link *from, const Baton__VocabularyPart *part)
{
    struct router_model *model = router_model_find(router, part->fingerprint);

    if (model == NULL || model->source != from)
        return 0; /* meanwhile another worker was asked */
    if (part->offset != model->image.len_bytes || part->total_bytes != model->image_bytes ||
        part->data.len > model->image_bytes - part->offset)
        return E_PROTO;
    if (model->image.len_bytes == 0 && buf_reserve(&model->image, model->image_bytes) < 0)
        return E_NOMEM; /* reserved at once, because growing it would copy megabytes on the loop */
    if (buf_append(&model->image, part->data.data, part->data.len) < 0)
        return E_NOMEM;
    if (model->image.len_bytes < model->image_bytes)
        return 0;
    model->source = NULL;
    if (model_build_begin(router, model) < 0)
        log_warn("model_postponed", LOG_STR("model", model->gen.name));
    return 0;
}

void router_models_free(struct router *router)
{
    for (uint32_t i = 0; i < router->n_models; i++)
        model_fini(&router->models[i]); /* the job of a build has ended, and the loop too */
    router->n_models = 0;
}
