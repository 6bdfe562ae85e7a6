/* SPDX-License-Identifier: Apache-2.0 */
/* A gated short convolution in place of attention (LFM2, Liquid AI 2025).  Hot path.
 *
 *     in [n][3 H]   = norm(x) . Win^T           b | c | v, side by side in each row
 *     u             = b * v
 *     y             = sum over j of taps[j] * u of (taps - 1 - j) rows ago
 *     out [n][H]    = c * y
 *     x            += out . Wout^T
 *
 * The state of a sequence is u of the last taps - 1 rows, the oldest first.  Channels do not meet, so each rank
 * takes some of them through all items. */
#include "compute/model/model_priv.h"

#include <stdlib.h>

static size_t conv_state_bytes(const struct model_config *config)
{
    return (size_t)(config->conv_taps - 1) * config->hidden * sizeof(float);
}

static void conv_read(const struct forward *f, uint32_t item, void *part)
{
    recurrent_read_history(f, item, part);
}

static void conv_write(const struct forward *f, uint32_t item, uint32_t cut, void *part)
{
    recurrent_write_history(f, item, cut, part);
}

static void conv_run(const struct forward *f, const struct recurrent_run *run)
{
    const struct model_config *c = &f->model->config;
    const struct recurrent_channels *part = run->part;
    const struct recurrent_state *state = &f->state->recurrent;
    const float *in = state->in + (size_t)run->first * 3 * c->hidden + part->from;

    conv_rows(f->model->table,
              &(struct conv_args){.x = in + 2 * (size_t)c->hidden,
                                  .before = in,
                                  .after = in + c->hidden,
                                  .in_stride = 3 * (size_t)c->hidden,
                                  .taps = f->layer->recurrent.taps + part->from,
                                  .history = state->history + part->from,
                                  .out = state->out + (size_t)run->first * c->hidden + part->from,
                                  .stride = c->hidden,
                                  .n_taps = c->conv_taps,
                                  .n_rows = run->n,
                                  .n_channels = part->to - part->from});
}

static void conv_on_rank(void *arg, unsigned rank, unsigned n_ranks)
{
    static const struct recurrent_walk WALK = {.read = conv_read, .write = conv_write, .run = conv_run};
    const struct forward *f = arg;
    struct recurrent_channels part;

    const struct team_range range =
        team_split(f->model->config.hidden, MEM_CACHE_LINE / sizeof(float), rank, n_ranks);
    part = (struct recurrent_channels){
        .from = (uint32_t)range.from, .to = (uint32_t)range.to, .n = f->model->config.hidden};
    for (uint32_t item = 0; range.from < range.to && item < f->pass->n_items; item++)
        recurrent_walk(f, &WALK, item, &part);
}

static void forward_conv(struct forward *f, uint32_t layer)
{
    struct model_state *state = f->state;
    const size_t hidden = f->model->config.hidden;
    const float *input = forward_norm(f, SLOT_ATTN_NORM);

    f->next = forward_first(f, f->layer, GROUP_OUT);
    forward_matmul(f, &f->layer->groups[GROUP_QKV], input, hidden, state->recurrent.in);
    team_run(forward_team(f, f->n_rows * hidden * 4 * sizeof(float)), conv_on_rank, f);
    if (layer + 1 == f->model->config.n_layers)
        forward_narrow(f, state->recurrent.out, hidden, hidden);
    if (f->n_rows == 0)
        return;
    f->next = forward_first(f, f->layer, f->layer->ffn->first);
    forward_matmul(f, &f->layer->groups[GROUP_OUT], state->recurrent.out, hidden, state->normed);
    forward_finish(f, NULL);
}

static void conv_lay_out(const struct model *model, struct model_state *state, struct carving *carving)
{
    const struct model_config *c = &model->config;
    size_t rows = state->max_tokens, hidden = c->hidden;

    state->recurrent.in = carve(carving, rows * 3 * hidden * sizeof(float));
    state->recurrent.out = carve(carving, rows * hidden * sizeof(float));
    state->recurrent.history = carve(carving, conv_state_bytes(c));
}

static int conv_pack(struct loading *load, uint32_t index)
{
    return recurrent_pack_taps(load, index, SLOT_CONV_TAPS, load->model->config.hidden);
}

static void conv_layer_fini(struct layer *layer)
{
    free(layer->recurrent.taps);
}

const struct half attn_conv = {
    .name = "short convolution",
    .first = GROUP_QKV,
    .needs = SLOT_BIT(CONV_IN) | SLOT_BIT(CONV_TAPS) | SLOT_BIT(CONV_OUT),
    .forward = forward_conv,
    .lay_out = conv_lay_out,
    .pack = conv_pack,
    .layer_fini = conv_layer_fini,
    .is_keyless = true,
    .state_bytes = conv_state_bytes,
};
