/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the inputs of matrices to a program that measures them (baton-model imatrix).
 *
 *     forward_matmul          all matrices of a group read one input
 *     experts                 gate and up read the rows of the tokens that chose them; down their gated rows
 *
 * Without a watch each product costs one comparison more. With a watch, the last layer keeps all rows. */
#include "compute/model/model_priv.h"

#include "base/check.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

enum { WATCH_EXPERTS_IN = N_GROUPS, WATCH_EXPERTS_DOWN };

_Static_assert((int)WATCH_EXPERTS_DOWN < (int)MODEL_INPUT_GROUPS, "programs have room for all groups");

int model_watch_inputs(struct model *model, const struct model_watch *watch)
{
    const struct model_config *c = &model->config;
    size_t width = c->expert_ffn > c->shared_ffn ? c->expert_ffn : c->shared_ffn;

    width = c->expert_io > width ? c->expert_io : width;
    float *row = calloc(width + 1, sizeof(*row));
    if (row == NULL)
        return E_NOMEM;
    free(model->watch.row);
    model->watch.row = row;
    model->watch.to = *watch;
    return 0;
}

static void watch_show(const struct forward *f, const struct model_input *input)
{
    f->model->watch.to.on_input(f->model->watch.to.arg, input);
}

void watch_group(const struct forward *f, const struct weight_group *group, const float *x, size_t x_stride)
{
    if (f->layer == NULL || group < f->layer->groups || group >= f->layer->groups + N_GROUPS)
        return;
    watch_show(f, &(struct model_input){.layer = (uint32_t)(f->layer - f->model->layers),
                                        .group = (uint32_t)(group - f->layer->groups),
                                        .x = x,
                                        .stride = x_stride,
                                        .n_rows = f->n_rows,
                                        .n_cols = group->parts[0].cols});
}

/* Returns the row that the pass multiplies: gate times up, or up alone. */
static const float *watch_gated(const struct forward *f, const float *row, uint32_t ffn, float limit)
{
    float *out = f->model->watch.row;

    moe_gate(f, row, ffn, limit, out);
    return out;
}

static void watch_shared(const struct forward *f, struct model_input input)
{
    const struct model_config *c = &f->model->config;

    input.group = GROUP_GATE_UP;
    input.x = f->state->normed;
    input.stride = c->hidden;
    input.n_rows = f->n_rows;
    input.n_cols = c->hidden;
    watch_show(f, &input);
    input.group = GROUP_DOWN;
    input.n_rows = 1;
    input.n_cols = c->shared_ffn;
    for (size_t row = 0; row < f->n_rows; row++) {
        input.x = watch_gated(f, f->state->moe.shared_gate_up + row * c->expert_parts * c->shared_ffn,
                              c->shared_ffn, f->layer->shared_limit);
        watch_show(f, &input);
    }
}

/* The row that an expert reads for a pick. */
static const float *watch_picked(const struct forward *f, size_t pick)
{
    const struct moe_state *moe = &f->state->moe;
    const uint32_t width = f->model->config.expert_io;
    const float *row = (moe->latent ? moe->latent : f->state->normed) + (size_t)moe->token[pick] * width;
    float *out = f->model->watch.row;

    if (!f->model->route.scales_input)
        return row;
    memcpy(out, row, width * sizeof(*out));
    vec_scale(f->model->table, out, moe->pick_weight[pick], width);
    return out;
}

void watch_experts(const struct forward *f)
{
    const struct model_config *c = &f->model->config;
    const struct moe_state *moe = &f->state->moe;
    struct model_input input = {.layer = (uint32_t)(f->layer - f->model->layers)};

    if (c->shared_ffn)
        watch_shared(f, input);
    input.n_rows = 1;
    for (input.expert = 0; input.expert < c->n_experts; input.expert++)
        for (size_t pick = moe->first[input.expert]; pick < moe->first[input.expert + 1]; pick++) {
            input.group = WATCH_EXPERTS_IN;
            input.n_cols = c->expert_io;
            input.x = watch_picked(f, pick);
            watch_show(f, &input);
            input.group = WATCH_EXPERTS_DOWN;
            input.n_cols = c->expert_ffn;
            input.x = moe->gate_up + pick * c->expert_parts * c->expert_ffn;
            if (f->layer->experts.gate_up_bias == NULL) /* else the row is gated already */
                input.x = watch_gated(f, input.x, c->expert_ffn, f->layer->expert_limit);
            watch_show(f, &input);
        }
}

static bool watch_reads(enum slot slot, uint32_t group)
{
    if (group == WATCH_EXPERTS_IN)
        return slot == SLOT_GATE_EXPERTS || slot == SLOT_UP_EXPERTS || slot == SLOT_GATE_UP_EXPERTS;
    if (group == WATCH_EXPERTS_DOWN)
        return slot == SLOT_DOWN_EXPERTS;
    if (slot == SLOT_Q_GATED) /* packed by its half of the layer */
        return group == GROUP_QKV;
    return group != GROUP_NONE && (uint32_t)SLOTS[slot].group == group;
}

bool model_input_tensor(const struct model *model, uint32_t layer, uint32_t group, uint32_t index,
                        char name_out[64])
{
    slot_set may = layer_may(model, layer);

    for (unsigned slot = 0; slot < N_SLOTS; slot++)
        if ((may >> slot & 1) && watch_reads(slot, group) && index-- == 0) {
            slot_name(layer, slot, name_out);
            return true;
        }
    return false;
}
