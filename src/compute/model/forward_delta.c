/* SPDX-License-Identifier: Apache-2.0 */
/* A gated delta net in place of attention (Yang et al. 2024; Qwen 3.5).  Hot path.
 *
 *     in [n][..]      = norm(x) . W^T            q k v | z | b | a, side by side in each row
 *     q, k, v         = silu(short convolution of q k v along the rows)
 *     q, k            = each head divided by its length; q also by the root of the width
 *     decay, beta     = exp(A softplus(a + bias)), sigmoid(b)        one of each head of values
 *     out             = the delta rule (kernels/recurrent.h): each head of values reads one head of keys
 *     out             = rmsnorm(each head) * silu(z)
 *     x              += out . Wout^T
 *
 * The state of a sequence is the history of the convolution, then S [heads][key][value].  The convolution is
 * split by channels among ranks, the rule by heads, the rest by rows. */
#include "compute/model/model_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_EPS 1e-6f /* added to the squared length of a key */

struct delta_shape { /* floats of a row */
    size_t qkv, values, in;
    size_t k, v, z, b, a; /* where they begin */
};

static struct delta_shape delta_shape(const struct model_config *c)
{
    struct delta_shape s = {.qkv = dim_of(c, DIM_DELTA_QKV), .values = dim_of(c, DIM_DELTA_VALUES)};

    s.k = (size_t)c->delta_key_heads * c->delta_key;
    s.v = 2 * s.k;
    s.z = s.qkv;
    s.b = s.z + s.values;
    s.a = s.b + c->delta_heads;
    s.in = s.a + c->delta_heads;
    return s;
}

/* The head of keys that a head of values reads. */
static uint32_t delta_key_of(const struct model_config *c, uint32_t head)
{
    return c->delta_is_grouped ? head / (c->delta_heads / c->delta_key_heads) : head % c->delta_key_heads;
}

/* Where a row has b and a of a head: all b then all a; or the same for each group. */
static struct delta_gates {
    size_t b, a;
} delta_gates_of(const struct model_config *c, const struct delta_shape *s, uint32_t head)
{
    size_t group = c->delta_heads / c->delta_key_heads, at = s->b + head / group * 2 * group + head % group;

    if (c->delta_is_grouped)
        return (struct delta_gates){.b = at, .a = at + group};
    return (struct delta_gates){.b = s->b + head, .a = s->a + head};
}

static size_t delta_history_bytes(const struct model_config *c)
{
    return (size_t)(c->conv_taps - 1) * dim_of(c, DIM_DELTA_QKV) * sizeof(float);
}

static size_t delta_head_bytes(const struct model_config *c)
{
    return (size_t)c->delta_key * c->delta_value * sizeof(float);
}

static size_t delta_state_bytes(const struct model_config *c)
{
    return delta_history_bytes(c) + c->delta_heads * delta_head_bytes(c);
}

/* ---- the convolution, in place ---- */

static void delta_conv_read(const struct forward *f, uint32_t item, void *part)
{
    recurrent_read_history(f, item, part);
}

static void delta_conv_write(const struct forward *f, uint32_t item, uint32_t cut, void *part)
{
    recurrent_write_history(f, item, cut, part);
}

static void delta_conv_run(const struct forward *f, const struct recurrent_run *run)
{
    const struct delta_shape s = delta_shape(&f->model->config);
    const struct recurrent_channels *part = run->part;
    float *rows = f->state->recurrent.in + run->first * s.in + part->from;

    conv_rows(f->model->table, &(struct conv_args){.x = rows,
                                                   .in_stride = s.in,
                                                   .taps = f->layer->recurrent.taps + part->from,
                                                   .history = f->state->recurrent.history + part->from,
                                                   .out = rows,
                                                   .out_stride = s.in,
                                                   .stride = s.qkv,
                                                   .n_taps = f->model->config.conv_taps,
                                                   .n_rows = run->n,
                                                   .n_channels = part->to - part->from,
                                                   .is_silu = true});
}

static void delta_conv_on_rank(void *arg, unsigned rank, unsigned n_ranks)
{
    static const struct recurrent_walk WALK = {
        .read = delta_conv_read, .write = delta_conv_write, .run = delta_conv_run};
    const struct forward *f = arg;
    struct recurrent_channels part = {.n = (uint32_t)delta_shape(&f->model->config).qkv};
    uint64_t from, to;

    team_split(part.n, MEM_CACHE_LINE / sizeof(float), rank, n_ranks, &from, &to);
    part.from = (uint32_t)from;
    part.to = (uint32_t)to;
    for (uint32_t item = 0; from < to && item < f->pass->n_items; item++)
        recurrent_walk(f, &WALK, item, &part);
}

/* ---- rows before the rule ---- */

/* In double precision, whose last bits do not reach the float. */
static float delta_fade(float rate, float a)
{
    double x = a, softplus = x > 30 ? x : log1p(exp(x));

    return (float)exp(rate * softplus);
}

static void delta_prepare(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model_config *c = &f->model->config;
    const struct delta_shape s = delta_shape(c);
    const float *bias = f->layer->vectors[SLOT_DELTA_TIME_BIAS], *rate = f->layer->vectors[SLOT_DELTA_DECAY];
    const float *gains = f->layer->recurrent.key_gain;

    for (size_t row = from; row < to; row++) {
        float *in = f->state->recurrent.in + row * s.in;
        float *decay = f->state->recurrent.decay + row * c->delta_heads;
        float *beta = f->state->recurrent.beta + row * c->delta_heads;

        for (uint32_t head = 0; head < 2 * c->delta_key_heads; head++) { /* those of q, then of k */
            float *at = in + (size_t)head * c->delta_key;

            rms_norm(f->model->table, at, head < c->delta_key_heads ? gains + c->delta_key : gains,
                     c->delta_key, LENGTH_EPS / (float)c->delta_key, at);
        }
        for (uint32_t head = 0; head < c->delta_heads; head++) {
            struct delta_gates gates = delta_gates_of(c, &s, head);

            decay[head] = delta_fade(rate[head], in[gates.a] + bias[head]);
            beta[head] = (float)(1 / (1 + exp(-(double)in[gates.b])));
        }
    }
}

/* ---- the rule ---- */

struct delta_part {
    uint32_t head;
    float *state; /* of this rank */
};

static size_t delta_state_at(const struct forward *f, const struct delta_part *part)
{
    const struct model_config *c = &f->model->config;

    return f->layer->state_at + delta_history_bytes(c) + part->head * delta_head_bytes(c);
}

static struct kv_arena delta_arena(const struct forward *f)
{
    return (struct kv_arena){
        .layout = &f->model->layout, .base = f->pass->kv_arena, .n_blocks = f->pass->n_blocks};
}

static void delta_read_state(const struct forward *f, uint32_t item, void *arg)
{
    const struct delta_part *part = arg;
    struct kv_arena arena = delta_arena(f);

    kv_state_read(&arena, f->pass->items[item].recurrent, delta_state_at(f, part),
                  delta_head_bytes(&f->model->config), part->state);
}

static void delta_write_state(const struct forward *f, uint32_t item, uint32_t cut, void *arg)
{
    const struct delta_part *part = arg;
    struct kv_arena arena = delta_arena(f);

    kv_state_write(&arena, f->pass->items[item].cuts[cut].blocks, delta_state_at(f, part),
                   delta_head_bytes(&f->model->config), part->state);
}

static void delta_run(const struct forward *f, const struct recurrent_run *run)
{
    const struct model_config *c = &f->model->config;
    const struct delta_shape s = delta_shape(c);
    const struct delta_part *part = run->part;
    const struct recurrent_state *state = &f->state->recurrent;
    const float *in = state->in + run->first * s.in;
    size_t key = (size_t)delta_key_of(c, part->head) * c->delta_key;
    size_t by = (size_t)run->first * c->delta_heads + part->head, value = (size_t)part->head * c->delta_value;

    delta_rows(f->model->table, &(struct delta_args){.q = in + key,
                                                     .k = in + s.k + key,
                                                     .v = in + s.v + value,
                                                     .decay = state->decay + by,
                                                     .beta = state->beta + by,
                                                     .qk_stride = s.in,
                                                     .v_stride = s.in,
                                                     .by_stride = c->delta_heads,
                                                     .out_stride = s.values,
                                                     .state = part->state,
                                                     .out = state->out + run->first * s.values + value,
                                                     .n_rows = run->n,
                                                     .n_keys = c->delta_key,
                                                     .n_values = c->delta_value,
                                                     .is_delta = true});
}

static void delta_on_rank(void *arg, unsigned rank, unsigned n_ranks)
{
    static const struct recurrent_walk WALK = {
        .read = delta_read_state, .write = delta_write_state, .run = delta_run};
    const struct forward *f = arg;
    const struct model_config *c = &f->model->config;
    struct delta_part part = {.state =
                                  f->state->recurrent.states + (size_t)rank * c->delta_key * c->delta_value};
    uint64_t from, to;

    team_split(c->delta_heads, 1, rank, n_ranks, &from, &to);
    for (uint32_t item = 0; item < f->pass->n_items; item++)
        for (part.head = (uint32_t)from; part.head < to; part.head++)
            recurrent_walk(f, &WALK, item, &part);
}

/* ---- rows after the rule ---- */

static void delta_finish(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct model_config *c = &f->model->config;
    const struct delta_shape s = delta_shape(c);

    for (size_t row = from; row < to; row++) {
        float *out = f->state->recurrent.out + row * s.values;
        float *gate = f->state->recurrent.in + row * s.in + s.z;

        for (uint32_t head = 0; head < c->delta_heads; head++)
            rms_norm(f->model->table, out + (size_t)head * c->delta_value, f->layer->vectors[SLOT_DELTA_NORM],
                     c->delta_value, c->norm_eps, out + (size_t)head * c->delta_value);
        swiglu(f->model->table, gate, out, (uint32_t)s.values);
        memcpy(out, gate, s.values * sizeof(*out));
    }
}

static void forward_delta(struct forward *f, uint32_t layer)
{
    const struct model_config *c = &f->model->config;
    const struct delta_shape s = delta_shape(c);
    struct model_state *state = f->state;
    const float *input = forward_norm(f, SLOT_ATTN_NORM);
    uint64_t rule_bytes = (uint64_t)f->n_rows * c->delta_heads * delta_head_bytes(c);

    forward_matmul(f, &f->layer->groups[GROUP_QKV], input, c->hidden, state->recurrent.in);
    team_run(forward_team(f, f->n_rows * s.qkv * 4 * sizeof(float)), delta_conv_on_rank, f);
    forward_rows(f, delta_prepare);
    team_run(forward_team(f, rule_bytes), delta_on_rank, f);
    forward_rows(f, delta_finish);
    if (layer + 1 == c->n_layers)
        forward_narrow(f, state->recurrent.out, s.values, s.values);
    if (f->n_rows == 0)
        return;
    f->next = forward_first(f, f->layer, f->layer->ffn->first);
    forward_matmul(f, &f->layer->groups[GROUP_OUT], state->recurrent.out, s.values, state->normed);
    forward_finish(f, NULL);
}

/* ---- weights and scratch ---- */

static void delta_lay_out(const struct model *model, struct model_state *state, struct carving *carving)
{
    const struct model_config *c = &model->config;
    const struct delta_shape s = delta_shape(c);
    size_t rows = state->max_tokens;

    state->recurrent.in = carve(carving, rows * s.in * sizeof(float));
    state->recurrent.out = carve(carving, rows * s.values * sizeof(float));
    state->recurrent.decay = carve(carving, rows * c->delta_heads * sizeof(float));
    state->recurrent.beta = carve(carving, rows * c->delta_heads * sizeof(float));
    state->recurrent.history = carve(carving, delta_history_bytes(c));
    state->recurrent.states = carve(carving, state->n_ranks * delta_head_bytes(c));
}

static int delta_pack(struct loading *load, uint32_t index)
{
    const struct model_config *c = &load->model->config;
    struct recurrent_weights *weights = &load->model->layers[index].recurrent;
    float root = sqrtf((float)c->delta_key);

    weights->key_gain = calloc(2 * (size_t)c->delta_key, sizeof(float));
    if (weights->key_gain == NULL)
        return fault_set(load->fault, E_NOMEM, "no memory for gains");
    for (uint32_t i = 0; i < c->delta_key; i++) {
        weights->key_gain[i] = 1 / root;
        weights->key_gain[c->delta_key + i] = 1 / (root * root);
    }
    return recurrent_pack_taps(load, index, SLOT_DELTA_TAPS, dim_of(c, DIM_DELTA_QKV));
}

static void delta_layer_fini(struct layer *layer)
{
    free(layer->recurrent.taps);
    free(layer->recurrent.key_gain);
}

const struct half attn_delta = {
    .name = "gated delta net",
    .first = GROUP_QKV,
    .needs = SLOT_BIT(DELTA_QKV) | SLOT_BIT(DELTA_Z) | SLOT_BIT(DELTA_BETA) | SLOT_BIT(DELTA_ALPHA) |
             SLOT_BIT(DELTA_TAPS) | SLOT_BIT(DELTA_TIME_BIAS) | SLOT_BIT(DELTA_DECAY) | SLOT_BIT(DELTA_NORM) |
             SLOT_BIT(DELTA_OUT),
    .forward = forward_delta,
    .lay_out = delta_lay_out,
    .pack = delta_pack,
    .layer_fini = delta_layer_fini,
    .state_bytes = delta_state_bytes,
};

const struct half attn_delta_grouped = {
    .name = "gated delta net, by groups of heads",
    .first = GROUP_QKV,
    .needs = SLOT_BIT(DELTA_QKV) | SLOT_BIT(DELTA_Z) | SLOT_BIT(DELTA_BETA_ALPHA) | SLOT_BIT(DELTA_TAPS) |
             SLOT_BIT(DELTA_TIME_BIAS) | SLOT_BIT(DELTA_DECAY) | SLOT_BIT(DELTA_NORM) | SLOT_BIT(DELTA_OUT),
    .forward = forward_delta,
    .lay_out = delta_lay_out,
    .pack = delta_pack,
    .layer_fini = delta_layer_fini,
    .state_bytes = delta_state_bytes,
};
