/* SPDX-License-Identifier: Apache-2.0 */
/* The scratch of forward passes: one allocation, divided into the matrices of a pass, so that a step
 * allocates nothing. Sizes follow the most rows of a pass; attention's scratch also follows the longest
 * sequence.
 *
 *     x, normed, ..  |  the largest of: attention's needs, the feed-forward's needs, logits
 *
 * The two halves of a layer and the output head pass only x to each other. So they share the same memory,
 * one after another. */
#include "compute/model/model_priv.h"

#include "base/check.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum {
    ALIGN_BYTES = 64,
    TEAM_FROM_BYTES = 512 * 1024 /* one core reads and computes these in about 20 microseconds */
};

void *carve(struct carving *carving, size_t len_bytes)
{
    size_t at = carving->used_bytes;

    carving->used_bytes += (len_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    return carving->base ? carving->base + at : NULL;
}

/* Visits each kind of half once, however many layers use it. which: 0 attention, 1 feed-forward. */
static void lay_out_halves(const struct model *model, unsigned which, struct model_state *state,
                           struct carving *carving)
{
    const struct half *done[8] = {NULL};
    uint32_t n_done = 0;

    for (uint32_t i = 0; i < model->config.n_layers; i++) {
        const struct layer *layer = &model->layers[i];
        const struct half *half = which == 0 ? layer->attn : layer->ffn;
        uint32_t k = 0;

        while (k < n_done && done[k] != half)
            k++;
        if (k < n_done)
            continue;
        ASSERT(n_done < ARRAY_LEN(done));
        done[n_done++] = half;
        if (half->lay_out)
            half->lay_out(model, state, carving);
    }
}

static bool has_gates(const struct model *model)
{
    bool has_any = false;

    for (uint32_t i = 0; i < model->config.n_layers; i++)
        has_any = has_any || model->layers[i].attn->has_gates;
    return has_any;
}

static void lay_out_attn(const struct model *model, struct model_state *state, struct carving *carving)
{
    const struct model_config *c = &model->config;
    size_t rows = state->max_tokens, q = (size_t)c->n_heads * c->head_dim;
    size_t kv = (size_t)c->n_kv_heads * c->head_dim;

    state->qkv = carve(carving, rows * (q + 2 * kv + (has_gates(model) ? q : 0)) * sizeof(float));
    state->attended = carve(carving, rows * q * sizeof(float));
    state->values = model->norms_values ? carve(carving, rows * kv * sizeof(float)) : NULL;
    state->attn_scratch_bytes =
        attn_scratch_bytes(&(struct attn_sizes){.max_tokens = state->max_tokens,
                                                .max_context = state->max_context,
                                                .n_heads = c->n_heads,
                                                .k_dim = c->latent ? model->layout.k_dim : c->head_dim,
                                                .v_dim = model_value_dim(c),
                                                .n_ranks = state->n_ranks});
    state->attn_scratch = carve(carving, state->attn_scratch_bytes);
    lay_out_halves(model, 0, state, carving);
}

static void lay_out_ffn(const struct model *model, struct model_state *state, struct carving *carving)
{
    lay_out_halves(model, 1, state, carving);
}

/* Most scratch that a matrix of forward_matmul or the output head needs. */
static size_t products_bytes(const struct model *model, const struct model_state *state)
{
    const uint32_t n = state->max_tokens > state->max_logits ? state->max_tokens : state->max_logits;
    size_t most =
        matmul_scratch_bytes(model->config.is_tied ? &model->embedding : &model->head, n, state->n_ranks);

    for (uint32_t p = 0; p < model->inputs_proj.n_parts; p++) {
        size_t len_bytes = matmul_scratch_bytes(&model->inputs_proj.parts[p], n, state->n_ranks);

        most = len_bytes > most ? len_bytes : most;
    }
    if (altup_products_bytes(model, n, state->n_ranks) > most)
        most = altup_products_bytes(model, n, state->n_ranks);
    for (uint32_t i = 0; i < model->config.n_layers; i++)
        for (uint32_t g = 0; g < N_GROUPS; g++) {
            const struct layer *layer = &model->layers[i];
            bool is_few =
                (g == GROUP_GATE_UP || g == GROUP_DOWN) && n > FFN_FEW_TOKENS && ffn_is_gated(layer);

            for (uint32_t p = 0; p < layer->groups[g].n_parts; p++) {
                size_t len_bytes = matmul_scratch_bytes(&layer->groups[g].parts[p],
                                                        is_few ? FFN_FEW_TOKENS : n, state->n_ranks);

                most = len_bytes > most ? len_bytes : most;
            }
        }
    return most;
}

static void lay_out_head(const struct model *model, struct model_state *state, struct carving *carving)
{
    state->last = carve(carving, (size_t)state->max_logits * model->config.hidden * sizeof(float));
    state->raw = model->arch->mtp_reads_raw
                     ? carve(carving, (size_t)state->max_logits * model->config.hidden * sizeof(float))
                     : NULL;
    state->logits = carve(carving, (size_t)state->max_logits * model->config.vocab * sizeof(float));
}

/* All start at the same place. */
static void lay_out_turns(const struct model *model, struct model_state *state, struct carving *carving)
{
    static void (*const TURNS[])(const struct model *model, struct model_state *state,
                                 struct carving *carving) = {lay_out_attn, lay_out_ffn, lay_out_head};
    size_t from = carving->used_bytes, end = from;

    for (unsigned i = 0; i < ARRAY_LEN(TURNS); i++) {
        carving->used_bytes = from;
        TURNS[i](model, state, carving);
        end = carving->used_bytes > end ? carving->used_bytes : end;
    }
    carving->used_bytes = end;
}

static void model_state_lay_out(const struct model *model, struct model_state *state, struct carving *carving)
{
    const struct model_config *c = &model->config;
    size_t rows = state->max_tokens, items = state->max_items;
    size_t word = sizeof(float);

    state->x = carve(carving, rows * c->hidden * word);
    state->normed = carve(carving, rows * c->hidden * word);
    state->joined = model->mtp_of ? carve(carving, rows * 2 * c->hidden * word) : NULL;
    state->branch = model->is_parallel ? carve(carving, rows * c->hidden * word) : NULL;
    for (unsigned i = 0; i < model->n_ropes; i++) {
        state->cos[i] = carve(carving, rows * (c->rope_dims / 2) * word);
        state->sin[i] = carve(carving, rows * (c->rope_dims / 2) * word);
    }
    state->logits_end = carve(carving, items * sizeof(*state->logits_end));
    state->n_logits = carve(carving, items * sizeof(*state->n_logits));
    state->n_kept = carve(carving, items * sizeof(*state->n_kept));
    state->items = carve(carving, items * sizeof(*state->items));
    state->chunk_items =
        c->is_chunked ? carve(carving, (2 * items + rows) * sizeof(*state->chunk_items)) : NULL;
    state->matmul_scratch = carve(carving, products_bytes(model, state));
    tail_lay_out(model, state, carving);
    altup_lay_out(model, state, carving);
    if (c->index_top != 0)
        index_lay_out(model, state, carving);
    lay_out_turns(model, state, carving);
}

static int model_state_allocate(const struct model *model, struct model_state *state)
{
    struct carving carving = {0};

    state->solos = calloc(state->n_ranks, sizeof(*state->solos));
    if (state->solos == NULL)
        return E_NOMEM;
    for (uint32_t i = 0; i < state->n_ranks; i++) {
        int rc = team_new(&(struct team_opts){.n_threads = 1}, &state->solos[i]);

        if (rc < 0)
            return rc;
    }
    state->solo = state->solos[0];
    model_state_lay_out(model, state, &carving);
    /* Touches the pages now, on huge pages if available, so that no step waits for the kernel. */
    int rc = mem_region_open(carving.used_bytes, false, true, "activations", &state->memory);
    if (rc < 0)
        return rc;
    carving = (struct carving){.base = state->memory.base};
    model_state_lay_out(model, state, &carving);
    return 0;
}

int model_state_new(const struct model *model, struct team *team, const struct model_state_opts *opts,
                    struct model_state **out)
{
    struct model_state *state;
    int rc;

    if (opts->max_tokens == 0 || opts->max_items == 0 || opts->max_tokens > 1u << 20 ||
        opts->max_items > 1u << 16 || opts->max_logits > 1u << 16)
        return E_INVAL;
    state = calloc(1, sizeof(*state));
    if (state == NULL)
        return E_NOMEM;
    state->max_tokens = opts->max_tokens;
    state->max_items = opts->max_items;
    state->max_logits = opts->max_logits ? opts->max_logits : opts->max_items;
    state->max_context = opts->max_context ? opts->max_context : model->config.context_length;
    state->team_from_bytes = opts->team_from_bytes ? opts->team_from_bytes : TEAM_FROM_BYTES;
    state->n_ranks = team_size(team);
    state->vocab = model->config.vocab;
    state->hidden = model->config.hidden;
    rc = model_state_allocate(model, state);
    if (rc < 0) {
        model_state_free(state);
        return rc;
    }
    *out = state;
    return 0;
}

void model_state_free(struct model_state *state)
{
    if (state == NULL)
        return;
    for (uint32_t i = 0; state->solos && i < state->n_ranks; i++)
        team_free(state->solos[i]);
    free(state->solos);
    mem_region_close(&state->memory);
    free(state);
}
