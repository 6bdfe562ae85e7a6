/* SPDX-License-Identifier: Apache-2.0 */
/* The feed-forward half of a layer with experts. Hot path.
 *
 *     normed [n][hidden] = rmsnorm(x)
 *     scores [n][E]      = normed . Wrouter^T;   each token chooses k experts (moe_route.c): n k "picks"
 *
 *         token   0    1    2                picks by expert    expert 2: tokens 0 2
 *         chose  2 5  5 7  7 2      ->                          expert 5: tokens 0 1
 *                                                               expert 7: tokens 1 2
 *
 *     gate_up [n k][2 F]    = rows of its tokens . (gate, up of the expert)^T     one run for all experts
 *     down    [n k][hidden] = silu(gate) up . down of the expert^T                another
 *     x                    += for each token: weight_1 down_1 + weight_2 down_2 + ... (+ the shared experts')
 *
 * With scales_input (llama4), weight_i multiplies the row that expert i reads instead.
 * Experts without a gate (nemotron_h_moe) have up alone, and its relu squared. They may read and write rows
 * narrower than the model's: latent [n][L] = normed . Wdown^T before them, and their sum . Wup^T behind them.
 *
 * Each step reads every chosen expert once, however many tokens chose it, and reads no other expert. The
 * shared experts, which all tokens go through, are pieces of the same two runs.
 *
 * A token's sum runs over its experts in the order of its choice, best first, shared ones last. Each
 * product depends on the token and the expert alone. So nothing here depends on the rest of the batch. */
#include "compute/model/model_priv.h"

#include "base/check.h"

#include <string.h>

/* ---- routing ---- */

static void route_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct route_rule *rule = &f->model->route;
    const struct moe_state *moe = &f->state->moe;

    for (size_t row = from; row < to && f->layer->vectors[SLOT_ROUTER_BIAS]; row++)
        vec_add(f->model->table, moe->scores + row * rule->n_experts, f->layer->vectors[SLOT_ROUTER_BIAS],
                rule->n_experts);
    for (size_t row = from; row < to; row++)
        route_token(rule, moe->scores + row * rule->n_experts, f->layer->vectors[SLOT_CHOICE_BIAS],
                    moe->chosen + row * rule->n_used, moe->weights + row * rule->n_used);
}

/* Numbers the picks: by expert, within an expert by token. */
static void group_picks(const struct forward *f)
{
    const struct route_rule *rule = &f->model->route;
    struct moe_state *moe = &f->state->moe;
    uint32_t n = f->n_rows * rule->n_used, at = 0;

    memset(moe->first, 0, (rule->n_experts + 1) * sizeof(*moe->first));
    for (uint32_t i = 0; i < n; i++)
        moe->first[moe->chosen[i]]++;
    for (uint32_t e = 0; e <= rule->n_experts; e++) {
        uint32_t count = moe->first[e];

        moe->first[e] = at;
        at += count;
    }
    for (uint32_t i = 0; i < n; i++) {
        moe->pick[i] = moe->first[moe->chosen[i]]++;
        moe->token[moe->pick[i]] = i / rule->n_used;
        if (rule->scales_input)
            moe->pick_weight[moe->pick[i]] = moe->weights[i];
    }
    for (uint32_t e = rule->n_experts; e > 0; e--) /* each advanced to the next expert's begin */
        moe->first[e] = moe->first[e - 1];
    moe->first[0] = 0;
}

/* ---- the products ---- */

/* Rows that the chosen experts read. */
static const float *moe_input(const struct forward *f)
{
    return f->state->moe.latent ? f->state->moe.latent : f->state->normed;
}

static void load_token(const struct grouped_piece *piece, uint32_t i, float *out)
{
    const struct forward *f = piece->arg;
    size_t width = f->model->config.expert_io;

    memcpy(out, moe_input(f) + f->state->moe.token[piece->first + i] * width, width * sizeof(float));
    if (f->model->route.scales_input)
        vec_scale(f->model->table, out, f->state->moe.pick_weight[piece->first + i], (uint32_t)width);
}

void moe_gate(const struct forward *f, const float *row, uint32_t ffn, float limit, float *out)
{
    if (limit != 0)
        ffn_activate_limited(f->model, row, ffn, limit, out);
    else
        ffn_activate(f->model, row, ffn, f->model->config.expert_parts, out);
}

static void load_gated(const struct grouped_piece *piece, uint32_t i, float *out)
{
    const struct forward *f = piece->arg;
    uint32_t ffn = f->model->config.expert_ffn;
    size_t stride = (size_t)f->model->config.expert_parts * ffn;

    moe_gate(f, f->state->moe.gate_up + stride * (piece->first + i), ffn, f->layer->expert_limit, out);
}

static void load_gated_shared(const struct grouped_piece *piece, uint32_t i, float *out)
{
    const struct forward *f = piece->arg;
    uint32_t ffn = f->model->config.shared_ffn;

    moe_gate(f, f->state->moe.shared_gate_up + (size_t)f->model->config.expert_parts * ffn * i, ffn,
             f->layer->shared_limit, out);
}

/* gate | up of one expert, or up alone. */
static uint32_t add_gate_up(const struct forward *f, uint32_t expert, struct grouped_piece *out)
{
    const struct expert_weights *weights = &f->layer->experts;
    const struct moe_state *moe = &f->state->moe;
    uint32_t ffn = f->model->config.expert_ffn, first = moe->first[expert];
    size_t stride = (size_t)f->model->config.expert_parts * ffn;

    for (uint32_t i = 0; i < weights->n_gate_up; i++) {
        uint32_t n_rows = weights->n_gate_up == 1 ? (uint32_t)stride : ffn;

        out[i] = (struct grouped_piece){.weight = &weights->gate_up[i],
                                        .first_row = expert * n_rows,
                                        .n_rows = n_rows,
                                        .n = moe->first[expert + 1] - first,
                                        .load = load_token,
                                        .arg = f,
                                        .first = first,
                                        .y = moe->gate_up + stride * first + i * ffn,
                                        .y_stride = stride};
        if (out[i].n == 1 && !f->model->route.scales_input) { /* x is used directly */
            out[i].load = NULL;
            out[i].x = moe_input(f) + (size_t)moe->token[first] * f->model->config.expert_io;
        }
    }
    return weights->n_gate_up;
}

static uint32_t add_down(const struct forward *f, uint32_t expert, struct grouped_piece *out)
{
    const struct moe_state *moe = &f->state->moe;
    uint32_t width = f->model->config.expert_io, first = moe->first[expert];

    *out = (struct grouped_piece){.weight = &f->layer->experts.down,
                                  .first_row = expert * width,
                                  .n_rows = width,
                                  .n = moe->first[expert + 1] - first,
                                  .load = load_gated,
                                  .arg = f,
                                  .first = first,
                                  .y = moe->down + (size_t)width * first,
                                  .y_stride = width};
    if (f->layer->experts.gate_up_bias) { /* already gated */
        out->load = NULL;
        out->x_stride = (size_t)2 * f->model->config.expert_ffn;
        out->x = moe->gate_up + first * out->x_stride;
    }
    return 1;
}

/* All parts of a group of matrices over all rows. */
static uint32_t add_group(const struct forward *f, const struct weight_group *group,
                          const struct grouped_piece *like, struct grouped_piece *out)
{
    float *y = like->y;

    for (uint32_t i = 0; i < group->n_parts; i++) {
        out[i] = *like;
        out[i].weight = &group->parts[i];
        out[i].n_rows = group->parts[i].rows;
        out[i].n = f->n_rows;
        out[i].arg = f;
        out[i].y = y;
        out[i].y_stride = group->rows;
        y += group->parts[i].rows;
    }
    return group->n_parts;
}

/* Returns the length of the longest row that a product of the experts reads. */
static uint32_t moe_max_cols(const struct model_config *c)
{
    uint32_t ffn = c->expert_ffn + c->shared_ffn, n = c->hidden > ffn ? c->hidden : ffn;

    return n > c->expert_io ? n : c->expert_io;
}

static void run_pieces(const struct forward *f, uint32_t n_pieces)
{
    const struct moe_state *moe = &f->state->moe;
    uint64_t work_bytes = 0;

    for (uint32_t i = 0; i < n_pieces; i++)
        work_bytes += (uint64_t)moe->pieces[i].n * moe->pieces[i].n_rows * moe->pieces[i].weight->cols;
    matmul_grouped(forward_team(f, work_bytes),
                   &(struct grouped_args){.pieces = moe->pieces,
                                          .n_pieces = n_pieces,
                                          .solos = f->state->solos,
                                          .max_cols = moe_max_cols(&f->model->config),
                                          .scratch = moe->grouped_scratch});
}

enum { GATE_LIMIT = 7 };
static const float GATE_SHARPNESS = 1.702f;

/* g sigmoid(a g) (u + 1), with g = min(gate, 7) and u = up within -7..7   (gpt-oss, OpenAI 2025), equals
 * silu(a g) (u + 1) / a. This prepares the inputs of silu and of the product in place. */
static void clamp_gate(float *gate, float *up, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        float u = up[i] < GATE_LIMIT ? up[i] : GATE_LIMIT;

        gate[i] = GATE_SHARPNESS * (gate[i] < GATE_LIMIT ? gate[i] : GATE_LIMIT);
        up[i] = ((u > -GATE_LIMIT ? u : -GATE_LIMIT) + 1) / GATE_SHARPNESS;
    }
}

/* For models with biases: biases are added before the gate, which then runs in place. */
static void bias_and_gate(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct moe_state *moe = &f->state->moe;
    uint32_t ffn = f->model->config.expert_ffn, used = f->model->config.n_experts_used;

    for (size_t i = (size_t)from * used; i < (size_t)to * used; i++) {
        float *gate = moe->gate_up + (size_t)2 * ffn * moe->pick[i];

        vec_add(f->model->table, gate, f->layer->experts.gate_up_bias + (size_t)2 * ffn * moe->chosen[i],
                2 * ffn);
        clamp_gate(gate, gate + ffn, ffn);
        swiglu(f->model->table, gate, gate + ffn, ffn);
    }
}

static void compute_picks(const struct forward *f)
{
    const struct model_config *c = &f->model->config;
    const struct moe_state *moe = &f->state->moe;
    uint32_t n = 0;

    if (c->shared_ffn)
        n += add_group(
            f, &f->layer->groups[GROUP_GATE_UP],
            &(struct grouped_piece){.x = f->state->normed, .x_stride = c->hidden, .y = moe->shared_gate_up},
            moe->pieces);
    for (uint32_t e = 0; e < c->n_experts; e++)
        if (moe->first[e] < moe->first[e + 1])
            n += add_gate_up(f, e, moe->pieces + n);
    run_pieces(f, n);
    if (f->layer->experts.gate_up_bias)
        forward_rows(f, bias_and_gate);
    n = 0;
    if (c->shared_ffn)
        n +=
            add_group(f, &f->layer->groups[GROUP_DOWN],
                      &(struct grouped_piece){.load = load_gated_shared, .y = moe->shared_down}, moe->pieces);
    for (uint32_t e = 0; e < c->n_experts; e++)
        if (moe->first[e] < moe->first[e + 1])
            n += add_down(f, e, moe->pieces + n);
    run_pieces(f, n);
}

/* Weight of the shared experts for a token. Reads the token's row of normed. */
static float shared_weight(const struct forward *f, size_t row)
{
    const float *gate = f->layer->vectors[SLOT_SHARED_GATE];
    const uint32_t hidden = f->model->config.hidden;
    const float *x = f->state->normed + row * hidden;
    double score = 0;

    for (uint32_t i = 0; gate && i < hidden; i++)
        score += (double)x[i] * gate[i];
    return gate ? route_sigmoid(score) : f->model->route.averages_shared ? 0.5f : 1;
}

/* Sums a token's picks, and its shared experts unless their rows are wider. */
static void mix_picks(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model_config *c = &f->model->config;
    const struct moe_state *moe = &f->state->moe;
    const float *rows[ROUTE_MAX_USED + 1];
    float weights[ROUTE_MAX_USED + 1];

    for (size_t row = from; row < to; row++) {
        uint32_t n = c->n_experts_used;

        for (uint32_t i = 0; i < n; i++) {
            rows[i] = moe->down + (size_t)c->expert_io * moe->pick[row * n + i];
            weights[i] = f->model->route.scales_input ? 1 : moe->weights[row * n + i];
            if (f->layer->experts.down_bias)
                vec_add(f->model->table, moe->down + (size_t)c->hidden * moe->pick[row * n + i],
                        f->layer->experts.down_bias + (size_t)c->hidden * moe->chosen[row * n + i],
                        c->hidden);
        }
        if (c->shared_ffn && moe->latent == NULL) {
            rows[n] = moe->shared_down + row * c->hidden;
            weights[n++] = shared_weight(f, row);
        }
        mix_rows(f->model->table, &(struct weighted_rows){rows, weights, n}, c->expert_io,
                 (moe->latent ? moe->latent : f->state->normed) + row * c->expert_io);
    }
}

static void add_shared(const struct forward *f, uint32_t from, uint32_t to)
{
    const uint32_t hidden = f->model->config.hidden;

    for (size_t row = from; row < to; row++)
        vec_add(f->model->table, f->state->normed + row * hidden, f->state->moe.shared_down + row * hidden,
                hidden);
}

void moe_choose(struct forward *f)
{
    forward_rows(f, route_rows);
    group_picks(f);
}

void moe_compute(struct forward *f)
{
    const struct moe_state *moe = &f->state->moe;

    if (moe->latent)
        forward_matmul(f, &f->layer->groups[GROUP_LATENT_DOWN], f->state->normed, f->model->config.hidden,
                       moe->latent);
    compute_picks(f);
    if (f->model->watch.to.on_input)
        watch_experts(f);
    forward_rows(f, mix_picks);
    if (moe->latent == NULL)
        return;
    forward_matmul(f, &f->layer->groups[GROUP_LATENT_UP], moe->latent, f->model->config.expert_io,
                   f->state->normed);
    if (f->model->config.shared_ffn)
        forward_rows(f, add_shared);
}

static void forward_moe(struct forward *f, uint32_t layer)
{
    (void)layer;
    forward_norm(f, forward_ffn_norm(f));
    forward_matmul(f, &f->layer->groups[GROUP_ROUTER], f->state->normed, f->model->config.hidden,
                   f->state->moe.scores);
    moe_choose(f);
    moe_compute(f);
    forward_finish(f, f->layer->vectors[SLOT_POST_FFN_NORM]);
}

void moe_lay_out(const struct model *model, struct model_state *state, struct carving *carving)
{
    const struct model_config *c = &model->config;
    struct moe_state *moe = &state->moe;
    size_t rows = state->max_tokens, picks = rows * c->n_experts_used, word = sizeof(float);
    uint32_t max_pieces = 2 * c->n_experts + 3;

    moe->scores = carve(carving, rows * c->n_experts * word);
    moe->chosen = carve(carving, picks * sizeof(*moe->chosen));
    moe->weights = carve(carving, picks * word);
    moe->pick = carve(carving, picks * sizeof(*moe->pick));
    moe->token = carve(carving, picks * sizeof(*moe->token));
    moe->pick_weight = model->route.scales_input ? carve(carving, picks * word) : NULL;
    moe->first = carve(carving, (c->n_experts + 1) * sizeof(*moe->first));
    moe->gate_up = carve(carving, picks * c->expert_parts * c->expert_ffn * word);
    moe->down = carve(carving, picks * c->expert_io * word);
    moe->latent = c->expert_io != c->hidden ? carve(carving, rows * c->expert_io * word) : NULL;
    moe->shared_gate_up = carve(carving, rows * c->expert_parts * c->shared_ffn * word);
    moe->shared_down = carve(carving, c->shared_ffn ? rows * c->hidden * word : 0);
    moe->pieces = carve(carving, max_pieces * sizeof(*moe->pieces));
    moe->grouped_scratch = carve(carving, grouped_scratch_bytes(max_pieces, moe_max_cols(c), state->n_ranks));
}

#define EXPERTS (SLOT_BIT(ROUTER) | SLOT_BIT(DOWN_EXPERTS))
#define GATE_UP (SLOT_BIT(GATE_EXPERTS) | SLOT_BIT(UP_EXPERTS)) /* or both in one tensor */
#define SHARED  (SLOT_BIT(GATE_SHARED) | SLOT_BIT(UP_SHARED) | SLOT_BIT(DOWN_SHARED))

const struct half ffn_moe = {
    .name = "experts",
    .needs = EXPERTS,
    .usual = GATE_UP,
    .may = SLOT_BIT(CHOICE_BIAS) | SLOT_BIT(GATE_UP_EXPERTS),
    .forward = forward_moe,
    .lay_out = moe_lay_out,
    .bind = moe_bind_either,
    .pack = moe_pack_either,
    .layer_fini = moe_layer_fini,
};

const struct half ffn_moe_unbiased = {
    .name = "experts, chosen without a bias",
    .needs = EXPERTS,
    .usual = GATE_UP,
    .may = SLOT_BIT(GATE_UP_EXPERTS),
    .forward = forward_moe,
    .lay_out = moe_lay_out,
    .bind = moe_bind_either,
    .pack = moe_pack_either,
    .layer_fini = moe_layer_fini,
};

const struct half ffn_moe_shared = {
    .name = "experts, some shared",
    .needs = EXPERTS | SHARED,
    .usual = GATE_UP,
    .may = SLOT_BIT(CHOICE_BIAS) | SLOT_BIT(GATE_UP_EXPERTS),
    .forward = forward_moe,
    .lay_out = moe_lay_out,
    .bind = moe_bind_either,
    .pack = moe_pack_either,
    .layer_fini = moe_layer_fini,
};

const struct half ffn_moe_shared_gated = {
    .name = "experts, some shared behind a gate",
    .needs = EXPERTS | SHARED | SLOT_BIT(SHARED_GATE),
    .usual = GATE_UP,
    .may = SLOT_BIT(CHOICE_BIAS) | SLOT_BIT(GATE_UP_EXPERTS),
    .forward = forward_moe,
    .lay_out = moe_lay_out,
    .bind = moe_bind_either,
    .pack = moe_pack_either,
    .layer_fini = moe_layer_fini,
};

#define PLAIN_EXPERTS                                                                                        \
    (SLOT_BIT(ROUTER) | SLOT_BIT(UP_EXPERTS) | SLOT_BIT(DOWN_EXPERTS) | SLOT_BIT(UP_SHARED) |                \
     SLOT_BIT(DOWN_SHARED))

const struct half ffn_moe_plain = {
    .name = "experts without gates",
    .needs = PLAIN_EXPERTS,
    .may = SLOT_BIT(CHOICE_BIAS),
    .forward = forward_moe,
    .lay_out = moe_lay_out,
    .pack = moe_pack_plain,
    .layer_fini = moe_layer_fini,
};

const struct half ffn_moe_plain_latent = {
    .name = "narrow experts without gates",
    .needs = PLAIN_EXPERTS | SLOT_BIT(LATENT_DOWN) | SLOT_BIT(LATENT_UP),
    .may = SLOT_BIT(CHOICE_BIAS),
    .forward = forward_moe,
    .lay_out = moe_lay_out,
    .pack = moe_pack_plain,
    .layer_fini = moe_layer_fini,
};

const struct half ffn_moe_loose = {
    .name = "experts, a tensor each",
    .needs = SLOT_BIT(ROUTER),
    .forward = forward_moe,
    .lay_out = moe_lay_out,
    .bind = moe_bind_loose,
    .knows = moe_knows_loose,
    .pack = moe_pack_loose,
    .layer_fini = moe_layer_fini,
};

const struct half ffn_moe_biased = {
    .name = "experts with biases",
    .needs = EXPERTS | SLOT_BIT(ROUTER_BIAS) | SLOT_BIT(DOWN_EXPERTS_BIAS),
    .usual = GATE_UP | SLOT_BIT(GATE_EXPERTS_BIAS) | SLOT_BIT(UP_EXPERTS_BIAS),
    .may = SLOT_BIT(GATE_UP_EXPERTS) | SLOT_BIT(GATE_UP_EXPERTS_BIAS),
    .forward = forward_moe,
    .lay_out = moe_lay_out,
    .bind = moe_bind_biased,
    .pack = moe_pack_biased,
    .layer_fini = moe_layer_fini,
};
