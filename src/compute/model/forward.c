/* SPDX-License-Identifier: Apache-2.0 */
/* The forward pass. Hot path: no malloc, no log, no system call.
 *
 * The tokens of all items form the rows of one matrix. So a prompt chunk and thirty decoding sequences
 * share each read of the weights:
 *
 *     item 0: tokens of a prompt     row 0 ..  n0-1
 *     item 1: one token              row n0
 *     ...                                                    x [n_rows][hidden]
 *
 *     x = embedding of the tokens
 *     for each layer:   x += attention(norm(x))     forward_attn.c
 *                       x += ffn(norm(x))           forward_ffn.c, or both of the same x (is_parallel)
 *     logits = norm(x's last rows of each item that wants them) . head^T
 *
 * If the logits of a whole prompt are needed, the pass computes and delivers them a few rows at a time.
 * For 512 tokens and a large vocabulary they would take 300 MB.
 *
 * Only attention knows which item a row belongs to. Everything else treats rows alike, and the kernels sum
 * each output in an order that does not depend on the other rows. So the bits of an item do not depend on
 * its batch neighbours. */
#include "compute/model/model_priv.h"

#include "base/check.h"
#include "base/err.h"

#include <string.h>

struct rows_call {
    const struct forward *f;
    row_job job;
};

static void rows_on_rank(void *arg, unsigned rank, unsigned n_ranks)
{
    const struct rows_call *call = arg;

    const struct team_range range = team_split(call->f->n_rows, 1, rank, n_ranks);
    if (range.from < range.to)
        call->job(call->f, (uint32_t)range.from, (uint32_t)range.to);
}

struct team *forward_team(const struct forward *f, uint64_t work_bytes)
{
    return work_bytes < f->state->team_from_bytes ? f->state->solo : f->pass->team;
}

void forward_rows(const struct forward *f, row_job job)
{
    struct rows_call call = {.f = f, .job = job};

    /* A row's norm, gate or sines cost a few operations per element. */
    team_run(forward_team(f, (uint64_t)f->n_rows * f->model->config.ffn * sizeof(float)), rows_on_rank,
             &call);
}

const struct weight *forward_first(const struct forward *f, const struct layer *layer, enum group group)
{
    const struct weight *weight = &layer->groups[group].parts[0];

    if (layer->groups[group].n_parts == 0 ||
        forward_team(f, (uint64_t)weight->len_bytes * f->n_rows) == f->state->solo)
        return NULL;
    return weight;
}

static const struct weight *head_of(const struct model *model)
{
    return model->config.is_tied ? &model->embedding : &model->head;
}

const struct weight *forward_beyond(const struct forward *f, uint32_t layer)
{
    const struct model *model = f->model;

    if (layer + 1 == model->config.n_layers)
        return head_of(model);
    return forward_first(f, &model->layers[layer + 1], model->layers[layer + 1].attn->first);
}

void forward_matmul(struct forward *f, const struct weight_group *group, const float *x, size_t x_stride,
                    float *y)
{
    uint32_t at = 0;

    if (f->model->watch.to.on_input)
        watch_group(f, group, x, x_stride);
    for (uint32_t i = 0; i < group->n_parts; i++) {
        const struct weight *weight = &group->parts[i];
        const struct weight *next = i + 1 < group->n_parts ? weight + 1 : f->next;

        matmul(forward_team(f, (uint64_t)weight->len_bytes * f->n_rows),
               &(struct matmul_args){.weight = weight,
                                     .x = x,
                                     .x_stride = x_stride,
                                     .n = f->n_rows,
                                     .y = y + at,
                                     .y_stride = group->rows,
                                     .scratch = f->state->matmul_scratch,
                                     .next = next});
        at += group->parts[i].rows;
    }
    f->next = NULL;
}

void forward_norm_row(const struct model *model, const float *x, const struct layer_gain *gain, uint32_t n,
                      float *out)
{
    if (model->norm == NORM_LAYER)
        layer_norm(model->table, x, gain, n, model->config.norm_eps, out);
    else
        rms_norm(model->table, x, gain->gain, n, model->config.norm_eps, out);
}

static void norm_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model_config *c = &f->model->config;

    for (size_t row = from; row < to; row++)
        forward_norm_row(f->model, f->state->x + row * c->hidden, &f->gain, c->hidden,
                         f->state->normed + row * c->hidden);
}

const float *forward_norm(struct forward *f, enum slot slot)
{
    const float *const *vectors = f->layer->vectors;

    if (f->model->arch->norm == NORM_LAYER_PLAIN)
        f->gain = (struct layer_gain){.gain = f->model->ones};
    else if (vectors[slot] == NULL)
        return f->state->x;
    else
        f->gain = (struct layer_gain){.gain = vectors[slot],
                                      .bias = f->model->norm == NORM_LAYER ? vectors[slot + 1] : NULL};
    forward_rows(f, norm_rows);
    return f->state->normed;
}

enum slot forward_ffn_norm(const struct forward *f)
{
    if (f->layer->vectors[SLOT_FFN_NORM])
        return SLOT_FFN_NORM;
    return f->model->is_parallel || f->layer->attn == &attn_none ? SLOT_ATTN_NORM : SLOT_FFN_NORM_LATE;
}

static void finish_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model_config *c = &f->model->config;

    for (size_t row = from; row < to; row++) {
        float *out = f->state->normed + row * c->hidden;

        if (f->gain.gain)
            forward_norm_row(f->model, out, &f->gain, c->hidden, out);
        if (c->residual_scale != 1)
            vec_scale(f->model->table, out, c->residual_scale, c->hidden);
        if (f->state->branch)
            vec_add(f->model->table, f->state->x + row * c->hidden, f->state->branch + row * c->hidden,
                    c->hidden);
        vec_add(f->model->table, f->state->x + row * c->hidden, out, c->hidden);
    }
}

void forward_finish(struct forward *f, const float *post_norm)
{
    f->gain = (struct layer_gain){.gain = post_norm};
    forward_rows(f, finish_rows);
}

/* ---- before the layers ---- */

/* Numbers the rows and describes each item's rows to attention. */
static void place_items(struct forward *f)
{
    const struct model_pass *pass = f->pass;
    struct model_state *state = f->state;
    uint32_t n_logits = 0;

    ASSERT(pass->n_items <= state->max_items && team_size(pass->team) <= state->n_ranks);
    f->n_rows = 0;
    for (uint32_t i = 0; i < pass->n_items; i++) {
        const struct model_item *item = &pass->items[i];

        ASSERT(item->n_tokens > 0 && item->n_tokens <= state->max_tokens - f->n_rows);
        ASSERT(item->position < state->max_context && item->n_tokens <= state->max_context - item->position);
        state->items[i] = (struct attn_item){.first = f->n_rows,
                                             .n_tokens = item->n_tokens,
                                             .position = item->position,
                                             .blocks = item->blocks};
        ASSERT(item->n_logits <= item->n_tokens && item->n_logits <= state->max_logits - n_logits);
        ASSERT(item->n_prompt_logits <= item->n_tokens - item->n_logits);
        n_logits += item->n_logits;
        state->n_logits[i] = item->n_logits;
        state->n_kept[i] = item->rows ? item->n_tokens : item->n_logits + item->n_prompt_logits;
        state->logits_end[i] = n_logits;
        f->n_rows += item->n_tokens;
    }
    state->n_items = f->n_items = pass->n_items;
}

/* Looks up the token of each row and the sines of its position. */
static void forward_embed(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model *model = f->model;
    struct model_state *state = f->state;
    size_t hidden = model->config.hidden, pairs = model->config.rope_dims / 2;

    for (uint32_t i = 0; i < f->pass->n_items; i++) {
        const struct model_item *item = &f->pass->items[i];
        uint32_t first = state->items[i].first;
        uint32_t row = first > from ? first : from;

        for (; row < to && row < first + item->n_tokens; row++) {
            weight_row(&model->embedding, item->tokens[row - first], state->x + row * hidden);
            if (model->config.embedding_scale != 1)
                vec_scale(model->table, state->x + row * hidden, model->config.embedding_scale,
                          (uint32_t)hidden);
            if (model->positions.rows != 0) {
                weight_row(&model->positions, item->position + (row - first), state->normed + row * hidden);
                vec_add(model->table, state->x + row * hidden, state->normed + row * hidden,
                        (uint32_t)hidden);
            }
            for (unsigned k = 0; k < model->n_ropes; k++)
                rope_angles(&model->ropes[k], item->position + (row - first), state->cos[k] + row * pairs,
                            state->sin[k] + row * pairs);
        }
    }
}

struct rope_args forward_rope(const struct forward *f, enum rope_kind rope, size_t row)
{
    size_t pairs = f->model->config.rope_dims / 2;

    return (struct rope_args){.pairs = f->model->ropes[rope].pairs,
                              .dims = f->model->ropes[rope].dims,
                              .cos = f->state->cos[rope] + row * pairs,
                              .sin = f->state->sin[rope] + row * pairs};
}

/* ---- after the layers ---- */

struct logits_call {
    const struct model *model;
    float *logits;
    uint64_t n;
};

/* Scales and caps logits, each by itself. */
static void finish_logits(void *arg, unsigned rank, unsigned n_ranks)
{
    const struct logits_call *call = arg;
    const struct model_config *c = &call->model->config;

    const struct team_range range = team_split(call->n, MEM_CACHE_LINE / sizeof(float), rank, n_ranks);
    if (range.from < range.to && c->logit_scale != 1)
        vec_scale(call->model->table, call->logits + range.from, c->logit_scale,
                  (uint32_t)(range.to - range.from));
    if (range.from < range.to && c->logit_cap != 0)
        vec_cap(call->model->table, call->logits + range.from, c->logit_cap,
                (uint32_t)(range.to - range.from));
}

/* The output head over the first n rows of last. */
static void multiply_head(const struct forward *f, uint32_t n)
{
    const struct model *model = f->model;
    const struct weight *head = head_of(model);
    struct model_state *state = f->state;

    matmul(forward_team(f, (uint64_t)head->len_bytes * n),
           &(struct matmul_args){.weight = head,
                                 .x = state->last,
                                 .x_stride = model->config.hidden,
                                 .n = n,
                                 .y = state->logits,
                                 .y_stride = model->config.vocab,
                                 .scratch = state->matmul_scratch,
                                 .next = forward_first(f, &model->layers[0], model->layers[0].attn->first)});
    for (uint32_t i = 0; i < n && model->head_bias; i++)
        vec_add(model->table, state->logits + (size_t)i * model->config.vocab, model->head_bias,
                model->config.vocab);
    if (model->config.logit_scale != 1 || model->config.logit_cap != 0)
        team_run(forward_team(f, (uint64_t)n * model->config.vocab * sizeof(float)), finish_logits,
                 &(struct logits_call){
                     .model = model, .logits = state->logits, .n = (uint64_t)n * model->config.vocab});
}

/* Norms rows of x, from one row on, into the output head's input. */
static void norm_last(const struct forward *f, uint32_t row, uint32_t n, uint32_t to)
{
    const struct model *model = f->model;
    size_t hidden = model->config.hidden;

    for (uint32_t i = 0; i < n; i++)
        forward_norm_row(model, f->state->x + (row + i) * hidden, &model->final_norm, model->config.hidden,
                         f->state->last + hidden * (to + i));
    if (f->state->raw != NULL)
        memcpy(f->state->raw + hidden * to, f->state->x + row * hidden, n * hidden * sizeof(float));
}

/* First row of an item that was kept after the last layer. Rows lie in the order of the items, narrowed or
 * not. */
static uint32_t kept_row(const struct forward *f, uint32_t index)
{
    const struct model_state *state = f->state;
    uint32_t row = 0;

    for (uint32_t i = 0; i < index; i++)
        row += f->is_narrowed ? state->n_kept[i] : f->pass->items[i].n_tokens;
    return f->is_narrowed ? row : row + f->pass->items[index].n_tokens - state->n_kept[index];
}

/* Delivers logits that are used once, as many at a time as there is room for. */
static void show_logits(const struct forward *f, uint32_t index)
{
    const struct model_item *item = &f->pass->items[index];
    uint32_t n_before = f->state->n_kept[index] - item->n_logits - item->n_prompt_logits, n;
    uint32_t row = kept_row(f, index) + n_before,
             at = item->n_tokens - item->n_logits - item->n_prompt_logits;

    for (uint32_t done = 0; done < item->n_prompt_logits; done += n) {
        n = item->n_prompt_logits - done < f->state->max_logits ? item->n_prompt_logits - done
                                                                : f->state->max_logits;
        norm_last(f, row + done, n, 0);
        multiply_head(f, n);
        f->pass->on_logits(f->pass->on_logits_arg, index, at + done, n, f->state->logits);
    }
}

/* Gives the rows of items that want them, as model_drafting_row() does: a part of the rows of all items. */
static void give_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model *model = f->model;
    size_t hidden = model->config.hidden;

    for (uint32_t i = 0; i < f->pass->n_items; i++) {
        const struct model_item *item = &f->pass->items[i];
        uint32_t first = kept_row(f, i), end = first + item->n_tokens - item->n_logits;

        for (uint32_t row = first > from ? first : from; item->rows && row < to && row < end; row++) {
            const float *x = f->state->x + row * hidden;
            float *out = item->rows + (row - first) * hidden;

            if (f->state->raw != NULL)
                memcpy(out, x, hidden * sizeof(*out));
            else
                forward_norm_row(model, x, &model->final_norm, model->config.hidden, out);
        }
    }
}

static bool wants_rows(const struct forward *f)
{
    bool has_any = false;

    for (uint32_t i = 0; i < f->pass->n_items; i++)
        has_any = has_any || f->pass->items[i].rows != NULL;
    return has_any;
}

static void compute_logits(const struct forward *f)
{
    const struct model_state *state = f->state;
    uint32_t n = 0;

    if (wants_rows(f))
        forward_rows(f, give_rows);
    for (uint32_t i = 0; i < f->pass->n_items; i++)
        if (f->pass->items[i].n_prompt_logits > 0)
            show_logits(f, i);
    for (uint32_t i = 0; i < f->pass->n_items; i++) {
        norm_last(f, kept_row(f, i) + state->n_kept[i] - state->n_logits[i], state->n_logits[i], n);
        n += state->n_logits[i];
    }
    if (n > 0)
        multiply_head(f, n);
}

int model_forward(const struct model *model, struct model_state *state, const struct model_pass *pass)
{
    struct forward f = {.model = model, .state = state, .pass = pass};

    place_items(&f);
    if (f.n_rows == 0)
        return 0;
    forward_rows(&f, forward_embed);
    if (model->mtp_of)
        forward_mtp(&f);
    if (model->config.input != 0)
        forward_inputs(&f);
    if (model->config.n_streams != 0)
        altup_begin(&f);
    for (uint32_t layer = 0; layer < model->config.n_layers; layer++) {
        if (pass->is_given_up && atomic_load_explicit(pass->is_given_up, memory_order_relaxed)) {
            state->n_items = 0;
            return E_CANCELLED;
        }
        f.layer = &model->layers[layer];
        f.layer->attn->forward(&f, layer);
        if (layer + 1 == model->config.n_layers && model->config.n_kv_layers == 0 && pass->on_layer)
            pass->on_layer(pass->on_layer_arg, 0); /* the state is complete */
        if (f.n_rows == 0)                         /* no item wants logits */
            return 0;
        f.layer->ffn->forward(&f, layer);
        if (f.layer->tail)
            f.layer->tail->forward(&f, layer);
    }
    compute_logits(&f);
    return 0;
}

float *model_logits(const struct model_state *state, uint32_t index, uint32_t back)
{
    if (index >= state->n_items || back >= state->n_logits[index])
        return NULL;
    return state->logits + (size_t)(state->logits_end[index] - 1 - back) * state->vocab;
}

const float *model_hidden(const struct model_state *state, uint32_t index, uint32_t back)
{
    if (index >= state->n_items || back >= state->n_logits[index])
        return NULL;
    return state->last + (size_t)(state->logits_end[index] - 1 - back) * state->hidden;
}

const float *model_drafting_row(const struct model_state *state, uint32_t index, uint32_t back)
{
    const float *row = model_hidden(state, index, back);

    return row == NULL || state->raw == NULL ? row : state->raw + (row - state->last);
}
