/* SPDX-License-Identifier: Apache-2.0 */
/* The feed-forward half of a layer without a gate, as in GPT-2. Hot path.
 *
 *     normed [n][hidden] = norm(x)
 *     up     [n][F]      = act(normed . Wup^T + bias)      F = ffn; forward_ffn.c lists the acts
 *     x                 += up . Wdown^T + bias
 *
 * `up` lies where the gated half has gate and up.
 *
 * Apertus' act is xIELU (Huang & Schlag 2024), whose numbers are a layer's own. e^x comes from the kernels' sigmoid:
 * s / (1 - s), which loses nothing for x <= 0. */
#include "compute/model/model_priv.h"

enum { XIELU_CHUNK = 128 };

static void plain_xielu(const struct kern_table *table, const struct xielu *p, float *x, uint32_t n)
{
    float least[XIELU_CHUNK], share[XIELU_CHUNK];

    for (uint32_t from = 0; from < n; from += XIELU_CHUNK, x += XIELU_CHUNK) {
        uint32_t len = n - from < XIELU_CHUNK ? n - from : XIELU_CHUNK;

        for (uint32_t i = 0; i < len; i++) {
            least[i] = x[i] < p->most ? x[i] : p->most;
            share[i] = 1;
        }
        vec_gate(table, share, least, len);
        for (uint32_t i = 0; i < len; i++) {
            float above = p->up * x[i] * x[i], below = (share[i] / (1 - share[i]) - 1 - x[i]) * p->down;

            x[i] = (x[i] > 0 ? above : below) + p->beta * x[i]; /* NaN stays */
        }
    }
}

static void activate_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct kern_table *table = f->model->table;
    const float *bias = f->layer->vectors[SLOT_UP_BIAS];
    const bool is_xielu = f->model->activation == ACT_XIELU;
    plain_act act = is_xielu ? NULL : ffn_plain_act(f->model);
    uint32_t ffn = f->model->config.ffn;

    for (size_t row = from; row < to; row++) {
        float *up = f->state->gate_up + row * ffn;

        if (bias)
            vec_add(table, up, bias, ffn);
        if (is_xielu)
            plain_xielu(table, &f->layer->xielu, up, ffn);
        else
            act(table, up, ffn);
    }
}

static void forward_plain(struct forward *f, uint32_t layer)
{
    const struct model_config *c = &f->model->config;
    struct model_state *state = f->state;
    const float *input = forward_norm(f, forward_ffn_norm(f));

    f->next = forward_first(f, f->layer, GROUP_DOWN);
    forward_matmul(f, &f->layer->groups[GROUP_GATE_UP], input, c->hidden, state->gate_up);
    forward_rows(f, activate_rows);
    f->next = forward_beyond(f, layer);
    forward_matmul(f, &f->layer->groups[GROUP_DOWN], state->gate_up, c->ffn, state->normed);
    ffn_add_down_bias(f);
    forward_finish(f, f->layer->vectors[SLOT_POST_FFN_NORM]);
}

static void forward_plain_lay_out(const struct model *model, struct model_state *state,
                                  struct carving *carving)
{
    state->gate_up = carve(carving, (size_t)state->max_tokens * model->config.ffn * sizeof(float));
}

const struct half ffn_plain = {
    .name = "plain",
    .first = GROUP_GATE_UP,
    .needs = SLOT_BIT(UP) | SLOT_BIT(DOWN),
    .forward = forward_plain,
    .lay_out = forward_plain_lay_out,
};

const struct half ffn_plain_biased = {
    .name = "plain, with biases",
    .first = GROUP_GATE_UP,
    .needs = SLOT_BIT(UP) | SLOT_BIT(DOWN) | SLOT_BIT(UP_BIAS) | SLOT_BIT(DOWN_BIAS),
    .forward = forward_plain,
    .lay_out = forward_plain_lay_out,
};

const struct half ffn_plain_may = {
    .name = "plain, with or without biases",
    .first = GROUP_GATE_UP,
    .needs = SLOT_BIT(UP) | SLOT_BIT(DOWN),
    .may = SLOT_BIT(UP_BIAS) | SLOT_BIT(DOWN_BIAS),
    .forward = forward_plain,
    .lay_out = forward_plain_lay_out,
};
