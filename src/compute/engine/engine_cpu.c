/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU engine: checks a batch, runs compute/model/forward over it, and samples the tokens that its items
 * want.
 *
 * A batch is checked before anything is written, so a bad batch changes no KV. Token ids and block tables
 * come from several sources (tokenisers, peers' grants, schedulers). A value out of range is the caller's
 * error: the step returns E_INVAL and never writes outside the arena.
 *
 * Sampling runs on the engine thread after the pass. A sampled token depends only on the logits, the seed and
 * its position. So a sequence continues with the same tokens on any worker. */
#include "compute/engine/engine_cpu.h"

#include "base/err.h"
#include "cache/kv/window.h"

#include <stdio.h>
#include <stdlib.h>

#define LEAST_LOGITS 16 /* rows of logits at once; fewer would read the output head too often in a prompt */

struct engine_cpu {
    struct engine_cpu_opts opts;
    struct model_state *state;
    struct sampler *sampler;
    struct model_item *items; /* [max_items] */
    uint32_t max_context;     /* most tokens of a sequence: the model's context or the arena's size */
    char name[32];            /* "cpu avx512" */
};

static bool blocks_ok(const struct engine_cpu *engine, const struct engine_item *item)
{
    uint32_t block_tokens = model_kv_layout(engine->opts.model)->block_tokens;
    uint32_t n_needed = (item->position + item->n_tokens + block_tokens - 1) / block_tokens;

    if (item->n_blocks < n_needed)
        return false;
    for (uint32_t i = 0; i < n_needed; i++)
        if (item->blocks[i] >= engine->opts.n_blocks)
            return false;
    return true;
}

/* The blocks that the item reads and writes. */
static bool windows_ok(const struct engine_cpu *engine, const struct engine_item *item)
{
    const struct kv_layout *layout = model_kv_layout(engine->opts.model);
    uint32_t n_groups = kv_window_groups(layout), from, to;

    if (n_groups == 0)
        return true;
    from = kv_window_first(layout, item->position);
    to = (item->position + item->n_tokens + layout->block_tokens - 1) / layout->block_tokens;
    if (item->windows == NULL || item->window_stride < to)
        return false;
    for (uint32_t group = 0; group < n_groups; group++)
        for (uint32_t i = from; i < to; i++)
            if (item->windows[(size_t)group * item->window_stride + i] >= engine->opts.n_blocks)
                return false;
    return true;
}

static bool states_ok(const struct engine_cpu *engine, const struct engine_item *item)
{
    uint32_t n = kv_layout_state_blocks(model_kv_layout(engine->opts.model)), at = 0;

    if (n == 0)
        return item->n_cuts == 0;
    if (item->position > 0 && item->recurrent == NULL)
        return false;
    for (uint32_t k = 0; item->recurrent && k < n; k++)
        if (item->recurrent[k] >= engine->opts.n_blocks)
            return false;
    for (uint32_t i = 0; i < item->n_cuts; i++) {
        if (item->cuts[i].n_tokens < at || item->cuts[i].n_tokens > item->n_tokens)
            return false;
        at = item->cuts[i].n_tokens;
        for (uint32_t k = 0; k < n; k++)
            if (item->cuts[i].blocks[k] >= engine->opts.n_blocks)
                return false;
    }
    return true;
}

/* Most tokens that an item may sample. */
static uint32_t n_draws(const struct engine_item *item)
{
    return item->wants_token ? 1 + item->n_drafts : 0;
}

/* Tokens whose logits are scored and not sampled from. */
static uint32_t n_prompt_logits(const struct engine_item *item)
{
    return item->n_scores > 0 ? item->n_tokens - n_draws(item) - item->score_at : 0;
}

static bool scores_ok(const struct engine_item *item, uint32_t vocab)
{
    uint32_t n_most = item->n_tokens - n_draws(item);

    if (item->n_scores == 0)
        return true;
    return item->scores != NULL && item->score_at < n_most && item->n_scores <= n_most - item->score_at &&
           item->tokens[item->score_at + item->n_scores] < vocab;
}

static bool item_ok(const struct engine_cpu *engine, const struct engine_item *item)
{
    uint32_t vocab = model_config(engine->opts.model)->vocab;

    if (item->n_tokens == 0 || item->n_tokens > engine->max_context ||
        item->position > engine->max_context - item->n_tokens)
        return false;
    if (item->n_drafts > 0 && (!item->wants_token || item->n_drafts >= item->n_tokens))
        return false;
    if (model_config(engine->opts.model)->is_mtp && item->hidden == NULL)
        return false;
    for (uint32_t i = 0; i < item->n_tokens; i++)
        if (item->tokens[i] >= vocab)
            return false;
    return scores_ok(item, vocab) && blocks_ok(engine, item) && windows_ok(engine, item) &&
           states_ok(engine, item);
}

static int check_batch(const struct engine_cpu *engine, const struct engine_batch *batch)
{
    uint32_t room = engine->opts.max_batch_tokens, room_drawn = engine->opts.max_draws;

    if (batch->n_items > engine->opts.max_items)
        return E_INVAL;
    for (uint32_t i = 0; i < batch->n_items; i++) {
        const struct engine_item *item = &batch->items[i];

        if (!item_ok(engine, item) || item->n_tokens > room || n_draws(item) > room_drawn)
            return E_INVAL;
        room -= item->n_tokens;
        room_drawn -= n_draws(item);
    }
    return 0;
}

/* Samples each token from its own row of logits at its own position. A token is sampled only if the tokens
 * before it are those that one-step-at-a-time decoding would have fed. The state advances along the tokens
 * and returns to its start. */
static void engine_cpu_draw(struct engine_cpu *engine, uint32_t index, const struct engine_item *item,
                            struct sample_result *results_out)
{
    const token_id *drafts = item->tokens + item->n_tokens - item->n_drafts;
    struct sample_place place = {.position = (uint64_t)item->sampled_after + item->position + item->n_tokens -
                                             item->n_drafts,
                                 .state = item->state,
                                 .tokens_left = item->tokens_left};
    bool goes_on = item->wants_token;
    uint32_t n_pushed = 0;

    for (uint32_t i = 0; i <= item->n_drafts; i++, place.position++, place.tokens_left--) {
        results_out[i] = (struct sample_result){.id = TOKEN_NONE};
        if (!goes_on)
            continue;
        sampler_draw_at(engine->sampler, model_logits(engine->state, index, item->n_drafts - i),
                        &item->sample, &place, &results_out[i]);
        if (results_out[i].is_spoilt) /* a token sampled from such logits is meaningless */
            results_out[i].id = TOKEN_NONE;
        goes_on = i < item->n_drafts && results_out[i].id == drafts[i] &&
                  sample_state_push(item->state, drafts[i]) == 0;
        n_pushed += goes_on;
    }
    sample_state_pop(item->state, drafts, n_pushed);
}

static void engine_cpu_embed(const struct engine_cpu *engine, uint32_t index, const struct engine_item *item)
{
    const float *row = model_hidden(engine->state, index, 0);

    if (row != NULL)
        memcpy(item->embedding, row, model_config(engine->opts.model)->hidden * sizeof(*row));
}

struct scoring {
    struct engine_cpu *engine;
    const struct engine_batch *batch;
};

static void engine_cpu_score(void *arg, uint32_t index, uint32_t at, uint32_t n, float *logits)
{
    const struct scoring *scoring = arg;
    const struct engine_item *item = &scoring->batch->items[index];
    size_t vocab = model_config(scoring->engine->opts.model)->vocab;

    for (uint32_t i = 0; i < n && at + i < item->score_at + item->n_scores; i++)
        sampler_score(scoring->engine->sampler, logits + i * vocab, item->tokens[at + i + 1],
                      item->sample.n_top, &item->scores[at + i - item->score_at]);
}

static int engine_cpu_step(void *self, const struct engine_batch *batch, struct sample_result *results_out)
{
    struct engine_cpu *engine = self;
    struct scoring scoring = {engine, batch};
    int rc = check_batch(engine, batch);

    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < batch->n_items; i++) {
        const struct engine_item *item = &batch->items[i];

        engine->items[i] = (struct model_item){.tokens = item->tokens,
                                               .hidden = item->hidden,
                                               .n_tokens = item->n_tokens,
                                               .position = item->position,
                                               .blocks = item->blocks,
                                               .windows = item->windows,
                                               .window_stride = item->window_stride,
                                               .recurrent = item->recurrent,
                                               .cuts = item->cuts,
                                               .n_cuts = item->n_cuts,
                                               .n_logits = n_draws(item),
                                               .n_prompt_logits = n_prompt_logits(item),
                                               .rows = item->rows};
    }
    rc = model_forward(engine->opts.model, engine->state,
                       &(struct model_pass){.team = engine->opts.team,
                                            .kv_arena = engine->opts.kv_arena,
                                            .n_blocks = engine->opts.n_blocks,
                                            .items = engine->items,
                                            .n_items = batch->n_items,
                                            .on_layer = batch->on_layer,
                                            .on_layer_arg = batch->on_layer_arg,
                                            .is_given_up = batch->is_given_up,
                                            .on_logits = engine_cpu_score,
                                            .on_logits_arg = &scoring});
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < batch->n_items; i++) {
        if (batch->items[i].embedding != NULL)
            engine_cpu_embed(engine, i, &batch->items[i]);
        engine_cpu_draw(engine, i, &batch->items[i], results_out);
        results_out += 1 + batch->items[i].n_drafts;
    }
    return 0;
}

static const float *engine_cpu_logits(void *self, uint32_t index)
{
    const struct engine_cpu *engine = self;

    return model_logits(engine->state, index, 0);
}

static const float *engine_cpu_hidden(void *self, uint32_t index, uint32_t back)
{
    const struct engine_cpu *engine = self;

    return model_drafting_row(engine->state, index, back);
}

static void engine_cpu_free(void *self)
{
    struct engine_cpu *engine = self;

    if (engine == NULL)
        return;
    model_state_free(engine->state);
    sampler_free(engine->sampler);
    free(engine->items);
    free(engine);
}

static int engine_cpu_build(struct engine_cpu *engine)
{
    const struct model_config *config = model_config(engine->opts.model);
    uint64_t arena_tokens =
        (uint64_t)engine->opts.n_blocks * model_kv_layout(engine->opts.model)->block_tokens;
    struct model_state_opts opts = {
        .max_tokens = engine->opts.max_batch_tokens,
        .max_items = engine->opts.max_items,
        .max_logits = engine->opts.max_draws > LEAST_LOGITS ? engine->opts.max_draws : LEAST_LOGITS,
        .team_from_bytes = engine->opts.team_from_bytes};
    int rc;

    engine->max_context = config->context_length;
    if (arena_tokens < engine->max_context)
        engine->max_context = (uint32_t)arena_tokens;
    opts.max_context = engine->max_context;
    engine->items = calloc(engine->opts.max_items, sizeof(*engine->items));
    if (engine->items == NULL)
        return E_NOMEM;
    rc = sampler_new(config->vocab, &engine->sampler);
    if (rc < 0)
        return rc;
    snprintf(engine->name, sizeof(engine->name), "cpu %s", model_kernels_name(engine->opts.model));
    return model_state_new(engine->opts.model, engine->opts.team, &opts, &engine->state);
}

int engine_cpu_new(const struct engine_cpu_opts *opts, struct engine *out)
{
    static const struct engine_ops OPS = {.step = engine_cpu_step,
                                          .logits = engine_cpu_logits,
                                          .hidden = engine_cpu_hidden,
                                          .free = engine_cpu_free};
    const struct model_config *config = model_config(opts->model);
    struct engine_cpu *engine;
    int rc;

    if (opts->n_blocks == 0 || opts->max_batch_tokens == 0 || opts->max_items == 0 || opts->kv_arena == NULL)
        return E_INVAL;
    engine = calloc(1, sizeof(*engine));
    if (engine == NULL)
        return E_NOMEM;
    engine->opts = *opts;
    if (engine->opts.max_draws < opts->max_items)
        engine->opts.max_draws = opts->max_items;
    rc = engine_cpu_build(engine);
    if (rc < 0) {
        engine_cpu_free(engine);
        return rc;
    }
    *out = (struct engine){.ops = &OPS,
                           .self = engine,
                           .info = {.name = engine->name,
                                    .vocab_size = config->vocab,
                                    .context_length = config->context_length,
                                    .max_batch_tokens = opts->max_batch_tokens,
                                    .max_draws = engine->opts.max_draws,
                                    .hidden = config->hidden,
                                    .is_mtp = config->is_mtp,
                                    .layout = *model_kv_layout(opts->model),
                                    .numerics_id = model_numerics_id(opts->model)}};
    return 0;
}
