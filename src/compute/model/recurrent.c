/* SPDX-License-Identifier: Apache-2.0 */
/* The walk over the rows of a sequence in a recurrent layer.  Hot path.
 *
 *     rows     | run 0           | run 1      | run 2    |
 *     state  read             write        write        (rows after the last cut leave no state)
 *
 * A recurrence goes row by row, and the bits of a row depend only on the state before it.  So it changes no bit
 * where the rows are cut into passes and runs.  State that is written and read again keeps its bits. */
#include "compute/model/model_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void recurrent_walk(const struct forward *f, const struct recurrent_walk *walk, uint32_t index, void *part)
{
    const struct model_item *item = &f->pass->items[index];
    uint32_t first = f->state->items[index].first, at = 0;

    walk->read(f, index, part);
    for (uint32_t i = 0; i < item->n_cuts; i++) {
        uint32_t end = item->cuts[i].n_tokens;

        if (end > at)
            walk->run(f, &(struct recurrent_run){.first = first + at, .n = end - at, .part = part});
        walk->write(f, index, i, part);
        at = end;
    }
    if (item->n_tokens > at)
        walk->run(f, &(struct recurrent_run){.first = first + at, .n = item->n_tokens - at, .part = part});
}

/* ---- convolutions ---- */

static struct kv_arena recurrent_arena(const struct forward *f)
{
    return (struct kv_arena){
        .layout = &f->model->layout, .base = f->pass->kv_arena, .n_blocks = f->pass->n_blocks};
}

void recurrent_read_history(const struct forward *f, uint32_t item, const struct recurrent_channels *channels)
{
    struct kv_arena arena = recurrent_arena(f);

    for (uint32_t row = 0; row + 1 < f->model->config.conv_taps; row++) {
        size_t at = (size_t)row * channels->n + channels->from;

        kv_state_read(&arena, f->pass->items[item].recurrent, f->layer->state_at + at * sizeof(float),
                      (channels->to - channels->from) * sizeof(float), f->state->recurrent.history + at);
    }
}

void recurrent_write_history(const struct forward *f, uint32_t item, uint32_t cut,
                             const struct recurrent_channels *channels)
{
    struct kv_arena arena = recurrent_arena(f);

    for (uint32_t row = 0; row + 1 < f->model->config.conv_taps; row++) {
        size_t at = (size_t)row * channels->n + channels->from;

        kv_state_write(&arena, f->pass->items[item].cuts[cut].blocks, f->layer->state_at + at * sizeof(float),
                       (channels->to - channels->from) * sizeof(float), f->state->recurrent.history + at);
    }
}

int recurrent_pack_all_taps(struct loading *load, uint32_t layer, unsigned slot, uint32_t n,
                            size_t n_channels)
{
    const uint32_t n_taps = load->model->config.conv_taps;
    float *taps = calloc(n_taps * n * n_channels, sizeof(float)), row[CONV_MOST_TAPS];

    load->model->layers[layer].recurrent.taps = taps;
    if (taps == NULL)
        return fault_set(load->fault, E_NOMEM, "no memory for the taps of a convolution");
    for (size_t channel = 0; channel < n * n_channels; channel++) {
        weights_floats(load->bound[layer].slot[slot + channel / n_channels], channel % n_channels * n_taps,
                       n_taps, row);
        for (size_t tap = 0; tap < n_taps; tap++)
            taps[tap * n * n_channels + channel] = row[tap];
    }
    return 0;
}

int recurrent_pack_taps(struct loading *load, uint32_t layer, unsigned slot, size_t n_channels)
{
    return recurrent_pack_all_taps(load, layer, slot, 1, n_channels);
}

int recurrent_pack_gains(struct loading *load, uint32_t layer)
{
    const uint32_t width = load->model->config.delta_key;
    struct recurrent_weights *weights = &load->model->layers[layer].recurrent;
    float root = sqrtf((float)width);

    weights->key_gain = calloc(2 * (size_t)width, sizeof(float));
    if (weights->key_gain == NULL)
        return fault_set(load->fault, E_NOMEM, "no memory for gains");
    for (uint32_t i = 0; i < width; i++) {
        weights->key_gain[i] = 1 / root;
        weights->key_gain[width + i] = 1 / (root * root);
    }
    return 0;
}

void recurrent_layer_fini(struct layer *layer)
{
    free(layer->recurrent.taps);
    free(layer->recurrent.key_gain);
}

#define LENGTH_EPS 1e-6f /* added to the squared length of a key */

void recurrent_norm_keys(const struct forward *f, float *qk)
{
    const uint32_t n_heads = f->model->config.delta_key_heads, width = f->model->config.delta_key;
    const float *gains = f->layer->recurrent.key_gain;

    for (uint32_t head = 0; head < 2 * n_heads; head++, qk += width)
        rms_norm(f->model->table, qk, head < n_heads ? gains + width : gains, width,
                 LENGTH_EPS / (float)width, qk);
}

/* ---- numerics ---- */

/* Computes in double precision, whose last bits do not reach the float. */
double recurrent_softplus(float x)
{
    double wide = x;

    return wide > 30 ? wide : log1p(exp(wide));
}

uint64_t recurrent_digest(void)
{
    uint64_t digest = 0x64656c7461;

    for (int i = -40; i < 40; i++) {
        double x = i * 0.37, fade = exp(-0.7 * log1p(exp(x)));
        float values[2] = {(float)fade, (float)(1 / (1 + exp(-x)))};
        uint64_t bits;

        memcpy(&bits, values, sizeof(bits));
        digest = (digest ^ bits) * UINT64_C(0x9e3779b97f4a7c15);
    }
    return digest;
}
