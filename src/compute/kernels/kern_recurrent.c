/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrences.  Each loop takes sixteen channels through all rows, so that their state stays in registers.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/kernels/kern_set_priv.h"

static inline v16 lanes_load(const float *from, uint32_t lanes)
{
    return lanes < 16 ? v16_load_n(from, lanes) : v16_load(from);
}

static inline void lanes_store(float *to, v16 value, uint32_t lanes)
{
    if (lanes < 16)
        v16_store_n(to, value, lanes);
    else
        v16_store(to, value);
}

static inline v16 silu_of(v16 x)
{
    v16 e = v16_exp_clamped(v16_sub(v16_zero(), x));

    return v16_div(x, v16_add(v16_set1(1.0f), e));
}

static void conv_lanes(const struct conv_args *args, uint32_t at, uint32_t lanes)
{
    const uint32_t n_old = args->n_taps - 1;
    const size_t out_stride = args->out_stride ? args->out_stride : args->stride;
    v16 taps[CONV_MOST_TAPS], old[CONV_MOST_TAPS];
    v16 bias = args->bias ? lanes_load(args->bias + at, lanes) : v16_zero();

    for (uint32_t j = 0; j < args->n_taps; j++)
        taps[j] = lanes_load(args->taps + j * args->stride + at, lanes);
    for (uint32_t j = 0; j < n_old; j++)
        old[j] = lanes_load(args->history + j * args->stride + at, lanes);
    for (size_t row = 0; row < args->n_rows; row++) {
        size_t in = row * args->in_stride + at;
        v16 u = lanes_load(args->x + in, lanes), y = bias;

        if (args->before)
            u = v16_mul(lanes_load(args->before + in, lanes), u);
        for (uint32_t j = 0; j < n_old; j++) {
            y = v16_fma(old[j], taps[j], y);
            old[j] = j + 1 < n_old ? old[j + 1] : u;
        }
        y = v16_fma(u, taps[n_old], y);
        if (args->after)
            y = v16_mul(lanes_load(args->after + in, lanes), y);
        else if (args->is_silu)
            y = silu_of(y);
        lanes_store(args->out + row * out_stride + at, y, lanes);
    }
    for (uint32_t j = 0; j < n_old; j++)
        lanes_store(args->history + j * args->stride + at, old[j], lanes);
}

void KERN(conv_rows)(const struct conv_args *args)
{
    for (uint32_t at = 0; at < args->n_channels; at += 16)
        conv_lanes(args, at, args->n_channels - at < 16 ? args->n_channels - at : 16);
}

/* Returns S^T by for one stretch of columns, from S already decayed.
 * Four sums take every fourth key, then are added. */
static inline v16 delta_read(const float *state, const float *by, uint32_t n_keys, size_t stride,
                             uint32_t lanes)
{
    v16 sums[4] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};

    for (uint32_t i = 0; i < n_keys; i++)
        sums[i % 4] = v16_fma(v16_set1(by[i]), lanes_load(state + i * stride, lanes), sums[i % 4]);
    return v16_add(v16_add(sums[0], sums[1]), v16_add(sums[2], sums[3]));
}

static void delta_lanes(const struct delta_args *args, uint32_t at, uint32_t lanes)
{
    const size_t stride = args->n_values;
    float *state = args->state + at;

    for (size_t row = 0; row < args->n_rows; row++) {
        const float *q = args->q + row * args->qk_stride, *k = args->k + row * args->qk_stride;
        v16 decay = v16_set1(args->decay[row * args->by_stride]);
        v16 w = lanes_load(args->v + row * args->v_stride + at, lanes);

        for (uint32_t i = 0; i < args->n_keys; i++)
            lanes_store(state + i * stride, v16_mul(decay, lanes_load(state + i * stride, lanes)), lanes);
        if (args->is_delta)
            w = v16_sub(w, delta_read(state, k, args->n_keys, stride, lanes));
        w = v16_mul(v16_set1(args->beta[row * args->by_stride]), w);
        for (uint32_t i = 0; i < args->n_keys; i++)
            lanes_store(state + i * stride, v16_fma(v16_set1(k[i]), w, lanes_load(state + i * stride, lanes)),
                        lanes);
        lanes_store(args->out + row * args->out_stride + at,
                    delta_read(state, q, args->n_keys, stride, lanes), lanes);
    }
}

void KERN(delta_rows)(const struct delta_args *args)
{
    for (uint32_t at = 0; at < args->n_values; at += 16)
        delta_lanes(args, at, args->n_values - at < 16 ? args->n_values - at : 16);
}

void KERN(vec_gate)(float *x, const float *gate, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 16) {
        uint32_t lanes = n - i < 16 ? n - i : 16;
        v16 e = v16_exp_clamped(v16_sub(v16_zero(), lanes_load(gate + i, lanes)));

        lanes_store(x + i, v16_div(lanes_load(x + i, lanes), v16_add(v16_set1(1.0f), e)), lanes);
    }
}
