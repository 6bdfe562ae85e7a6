/* SPDX-License-Identifier: Apache-2.0 */
/* Layers whose state is a matrix for each head: gated delta nets and Mamba 2.  Hot path.
 *
 *     in [n][..]   a row holds, among others, q, k and v of all heads, which lie side by side
 *     q k v        = silu(short convolution of q k v along the rows), in place
 *     out          = the rule (kernels/recurrent.h): each head of values reads one head of keys
 *
 * The state of a sequence is the history of the convolution, then S [heads][key][value].  The convolution is
 * split by channels among ranks, the rule by heads. */
#include "compute/model/model_priv.h"

/* ---- the state ---- */

static size_t heads_history_bytes(const struct model_config *c)
{
    return (size_t)(c->conv_taps - 1) * dim_of(c, DIM_DELTA_QKV) * sizeof(float);
}

static size_t heads_matrix_bytes(const struct model_config *c)
{
    return (size_t)c->delta_key * c->delta_value * sizeof(float);
}

size_t recurrent_heads_state_bytes(const struct model_config *config)
{
    return heads_history_bytes(config) + config->delta_heads * heads_matrix_bytes(config);
}

void recurrent_heads_lay_out(const struct model_config *config, size_t in, struct model_state *state,
                             struct carving *carving)
{
    size_t rows = state->max_tokens;

    state->recurrent.in = carve(carving, rows * in * sizeof(float));
    state->recurrent.out = carve(carving, rows * dim_of(config, DIM_DELTA_VALUES) * sizeof(float));
    state->recurrent.decay = carve(carving, rows * config->delta_heads * sizeof(float));
    state->recurrent.beta = carve(carving, rows * config->delta_heads * sizeof(float));
    state->recurrent.history = carve(carving, heads_history_bytes(config));
    state->recurrent.states = carve(carving, state->n_ranks * heads_matrix_bytes(config));
}

/* ---- the convolution ---- */

struct heads_channels {
    struct recurrent_channels channels;
    const struct recurrent_heads *heads;
};

static void heads_conv_read(const struct forward *f, uint32_t item, void *part)
{
    recurrent_read_history(f, item, &((const struct heads_channels *)part)->channels);
}

static void heads_conv_write(const struct forward *f, uint32_t item, uint32_t cut, void *part)
{
    recurrent_write_history(f, item, cut, &((const struct heads_channels *)part)->channels);
}

static void heads_conv_run(const struct forward *f, const struct recurrent_run *run)
{
    const struct heads_channels *part = run->part;
    const struct recurrent_heads *heads = part->heads;
    const uint32_t from = part->channels.from;
    float *rows = f->state->recurrent.in + run->first * heads->in + heads->conv_at + from;

    conv_rows(f->model->table, &(struct conv_args){.x = rows,
                                                   .in_stride = heads->in,
                                                   .taps = f->layer->recurrent.taps + from,
                                                   .bias = heads->conv_bias ? heads->conv_bias + from : NULL,
                                                   .history = f->state->recurrent.history + from,
                                                   .out = rows,
                                                   .out_stride = heads->in,
                                                   .stride = heads->n_conv,
                                                   .n_taps = f->model->config.conv_taps,
                                                   .n_rows = run->n,
                                                   .n_channels = part->channels.to - from,
                                                   .is_silu = true});
}

static void heads_conv_on_rank(void *arg, unsigned rank, unsigned n_ranks)
{
    static const struct recurrent_walk WALK = {
        .read = heads_conv_read, .write = heads_conv_write, .run = heads_conv_run};
    const struct recurrent_heads *heads = arg;
    struct heads_channels part = {.heads = heads, .channels.n = (uint32_t)heads->n_conv};

    const struct team_range range = team_split(heads->n_conv, MEM_CACHE_LINE / sizeof(float), rank, n_ranks);
    part.channels.from = (uint32_t)range.from;
    part.channels.to = (uint32_t)range.to;
    for (uint32_t item = 0; range.from < range.to && item < heads->f->pass->n_items; item++)
        recurrent_walk(heads->f, &WALK, item, &part);
}

void recurrent_conv(const struct recurrent_heads *heads)
{
    team_run(forward_team(heads->f, heads->f->n_rows * heads->n_conv * 4 * sizeof(float)), heads_conv_on_rank,
             (void *)heads);
}

/* ---- the rule ---- */

struct heads_part {
    const struct recurrent_heads *heads;
    uint32_t head;
    float *state; /* of this rank */
};

static size_t heads_state_at(const struct forward *f, const struct heads_part *part)
{
    const struct model_config *c = &f->model->config;

    return f->layer->state_at + heads_history_bytes(c) + part->head * heads_matrix_bytes(c);
}

static struct kv_arena heads_arena(const struct forward *f)
{
    return (struct kv_arena){
        .layout = &f->model->layout, .base = f->pass->kv_arena, .n_blocks = f->pass->n_blocks};
}

static void heads_read_state(const struct forward *f, uint32_t item, void *arg)
{
    const struct heads_part *part = arg;
    struct kv_arena arena = heads_arena(f);

    kv_state_read(&arena, f->pass->items[item].recurrent, heads_state_at(f, part),
                  heads_matrix_bytes(&f->model->config), part->state);
}

static void heads_write_state(const struct forward *f, uint32_t item, uint32_t cut, void *arg)
{
    const struct heads_part *part = arg;
    struct kv_arena arena = heads_arena(f);

    kv_state_write(&arena, f->pass->items[item].cuts[cut].blocks, heads_state_at(f, part),
                   heads_matrix_bytes(&f->model->config), part->state);
}

/* The head of keys that a head of values reads. */
static uint32_t heads_key_of(const struct recurrent_heads *heads, uint32_t head)
{
    const struct model_config *c = &heads->f->model->config;

    return heads->is_grouped ? head / (c->delta_heads / c->delta_key_heads) : head % c->delta_key_heads;
}

/* Row by row: the rows of the state fade here, each by its own number, and not in the kernel. */
static void heads_run_fading(const struct forward *f, const struct heads_part *part,
                             const struct recurrent_run *run, struct delta_args args)
{
    static const float ONE = 1;
    const size_t step = (size_t)f->model->config.delta_heads * args.n_keys;
    const float *fades = f->state->recurrent.fades + run->first * step + (size_t)part->head * args.n_keys;

    args.n_rows = 1;
    args.decay = &ONE;
    for (uint32_t row = 0; row < run->n; row++, fades += step) {
        for (size_t i = 0; i < args.n_keys; i++)
            for (size_t j = 0; j < args.n_values; j++)
                args.state[i * args.n_values + j] *= fades[i];
        delta_rows(f->model->table, &args);
        args.q += args.qk_stride;
        args.k += args.qk_stride;
        args.v += args.v_stride;
        args.beta += args.by_stride;
        args.out += args.out_stride;
    }
}

static void heads_run(const struct forward *f, const struct recurrent_run *run)
{
    const struct model_config *c = &f->model->config;
    const struct heads_part *part = run->part;
    const struct recurrent_heads *heads = part->heads;
    const struct recurrent_state *state = &f->state->recurrent;
    const float *in = state->in + run->first * heads->in;
    const size_t key = (size_t)heads_key_of(heads, part->head) * c->delta_key;
    const size_t values = dim_of(c, DIM_DELTA_VALUES), value = (size_t)part->head * c->delta_value;
    const size_t by = (size_t)run->first * c->delta_heads + part->head;

    struct delta_args args = {.q = in + heads->q + key,
                              .k = in + heads->k + key,
                              .v = in + heads->v + value,
                              .decay = state->decay + by,
                              .beta = state->beta + by,
                              .qk_stride = heads->in,
                              .v_stride = heads->in,
                              .by_stride = c->delta_heads,
                              .out_stride = values,
                              .state = part->state,
                              .out = state->out + run->first * values + value,
                              .n_rows = run->n,
                              .n_keys = c->delta_key,
                              .n_values = c->delta_value,
                              .is_delta = heads->is_delta};
    if (heads->fades_keys)
        heads_run_fading(f, part, run, args);
    else
        delta_rows(f->model->table, &args);
}

static void heads_on_rank(void *arg, unsigned rank, unsigned n_ranks)
{
    static const struct recurrent_walk WALK = {
        .read = heads_read_state, .write = heads_write_state, .run = heads_run};
    const struct recurrent_heads *heads = arg;
    const struct forward *f = heads->f;
    const struct model_config *c = &f->model->config;
    struct heads_part part = {
        .heads = heads, .state = f->state->recurrent.states + (size_t)rank * c->delta_key * c->delta_value};

    const struct team_range range = team_split(c->delta_heads, 1, rank, n_ranks);
    for (uint32_t item = 0; item < f->pass->n_items; item++)
        for (part.head = (uint32_t)range.from; part.head < range.to; part.head++)
            recurrent_walk(f, &WALK, item, &part);
}

void recurrent_rule(const struct recurrent_heads *heads)
{
    const struct model_config *c = &heads->f->model->config;

    team_run(forward_team(heads->f, (uint64_t)heads->f->n_rows * c->delta_heads * heads_matrix_bytes(c)),
             heads_on_rank, (void *)heads);
}
