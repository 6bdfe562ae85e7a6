/* SPDX-License-Identifier: Apache-2.0 */
/* Row operations: RMSNorm, LayerNorm, addition, scaling, soft caps, SwiGLU, GEGLU, GELU, RoPE.
 *
 * A row is processed sixteen floats at a time; a ragged end is padded with zeros. The sums here (of
 * numbers and of squares) are kept in sixteen lanes: lane i adds elements i, i + 16, i + 32 and so on. The lanes are then
 * added in a fixed tree. So every instruction set adds the same numbers in the same order.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/kernels/kern_set_priv.h"

#include <math.h>

static inline uint32_t lanes_at(uint32_t i, uint32_t n)
{
    return n - i < 16 ? n - i : 16;
}

static inline v16 load_at(const float *row, uint32_t i, uint32_t n)
{
    return n - i < 16 ? v16_load_n(row + i, n - i) : v16_load(row + i);
}

static inline void store_at(float *row, uint32_t i, uint32_t n, v16 value)
{
    if (n - i < 16)
        v16_store_n(row + i, value, n - i);
    else
        v16_store(row + i, value);
}

void KERN(rms_norm)(const float *x, const float *gain, uint32_t n, float eps, float *out)
{
    v16 squares = v16_zero();

    for (uint32_t i = 0; i < n; i += 16) {
        v16 at = load_at(x, i, n);
        squares = v16_fma(at, at, squares);
    }
    v16 by = v16_set1(1.0f / sqrtf(v16_sum(squares) / (float)n + eps));
    for (uint32_t i = 0; i < n; i += 16)
        store_at(out, i, n, v16_mul(v16_mul(load_at(x, i, n), by), load_at(gain, i, n)));
}

/* Two passes over the row: the mean, then the squares of the differences from it. */
void KERN(layer_norm)(const float *x, const struct layer_gain *gain, uint32_t n, float eps, float *out)
{
    v16 sum = v16_zero(), squares = v16_zero();

    for (uint32_t i = 0; i < n; i += 16)
        sum = v16_add(sum, load_at(x, i, n));
    v16 mean = v16_set1(v16_sum(sum) / (float)n);
    for (uint32_t i = 0; i < n; i += 16) {
        v16 apart = v16_first_n(v16_sub(load_at(x, i, n), mean), v16_zero(), lanes_at(i, n));
        squares = v16_fma(apart, apart, squares);
    }
    v16 by = v16_set1(1.0f / sqrtf(v16_sum(squares) / (float)n + eps));
    for (uint32_t i = 0; i < n; i += 16) {
        v16 at = v16_mul(v16_mul(v16_sub(load_at(x, i, n), mean), by), load_at(gain->gain, i, n));
        store_at(out, i, n, gain->bias ? v16_add(at, load_at(gain->bias, i, n)) : at);
    }
}

void KERN(vec_add)(float *x, const float *y, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 16)
        store_at(x, i, n, v16_add(load_at(x, i, n), load_at(y, i, n)));
}

void KERN(swiglu)(float *gate, const float *up, uint32_t n)
{
    v16 one = v16_set1(1.0f);

    for (uint32_t i = 0; i < n; i += 16) {
        v16 g = load_at(gate, i, n);
        v16 e = v16_exp_clamped(v16_sub(v16_zero(), g));
        store_at(gate, i, n, v16_mul(v16_div(g, v16_add(one, e)), load_at(up, i, n)));
    }
}

/* x (1 + tanh u) / 2 with u = sqrt(2/pi) (x + 0.044715 x^3) is x / (1 + e^-2u). */
static inline v16 gelu_of(v16 x)
{
    v16 one = v16_set1(1.0f), cubed = v16_set1(0.044715f);
    v16 minus_two_root = v16_set1(-0x1.988454p+0f); /* -2 sqrt(2/pi) */
    v16 inner = v16_mul(x, v16_fma(v16_mul(x, x), cubed, one));

    return v16_div(x, v16_add(one, v16_exp_clamped(v16_mul(inner, minus_two_root))));
}

void KERN(geglu)(float *gate, const float *up, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 16)
        store_at(gate, i, n, v16_mul(gelu_of(load_at(gate, i, n)), load_at(up, i, n)));
}

void KERN(gelu)(float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 16)
        store_at(x, i, n, gelu_of(load_at(x, i, n)));
}

/* x Phi(x), Phi the normal distribution. The part of it beyond |x| is e^(-x^2/2) t P(t) / 2, where
 * t = 1 / (1 + 0.3 |x| / sqrt(2)); P is a minimax polynomial. */
void KERN(gelu_exact)(float *x, uint32_t n)
{
    static const float TERMS[] = {-0x1.0ac1acp-3f, 0x1.f51c3cp-2f,  -0x1.0a9ep-1f,
                                  0x1.1dca3cp-1f,  -0x1.a3dc14p-4f, 0x1.bfa748p-3f,
                                  0x1.2db1dp-3f,   0x1.5df36cp-3f,  0x1.5a79cap-3f};
    v16 one = v16_set1(1.0f), half = v16_set1(0.5f);
    v16 root = v16_set1(0x1.6a09e6p-1f), slope = v16_set1(0.3f); /* 1/sqrt(2) */

    for (uint32_t i = 0; i < n; i += 16) {
        v16 at = load_at(x, i, n), z = v16_mul(v16_abs(at), root);
        v16 t = v16_div(one, v16_fma(z, slope, one)), p = v16_set1(TERMS[0]);

        for (unsigned k = 1; k < sizeof(TERMS) / sizeof(TERMS[0]); k++)
            p = v16_fma(p, t, v16_set1(TERMS[k]));
        v16 e = v16_exp_clamped(v16_mul(v16_mul(at, at), v16_set1(-0.5f)));
        v16 beyond = v16_mul(v16_mul(v16_mul(p, t), e), half);

        store_at(x, i, n, v16_mul(at, v16_if_below(at, v16_zero(), beyond, v16_sub(one, beyond))));
    }
}

void KERN(vec_scale)(float *x, float by, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 16)
        store_at(x, i, n, v16_mul(load_at(x, i, n), v16_set1(by)));
}

void KERN(vec_cap)(float *x, float cap, uint32_t n)
{
    v16 by = v16_set1(1.0f / cap), most = v16_set1(cap);

    for (uint32_t i = 0; i < n; i += 16)
        store_at(x, i, n, v16_mul(v16_tanh(v16_mul(load_at(x, i, n), by)), most));
}

/* (x0, x1) -> (x0 c - x1 s, x1 c + x0 s), pairs side by side: with the cosines twice and the sines as (-s,
 * s). */
static void rope_adjacent(const struct rope_args *args)
{
    for (uint32_t i = 0; i < args->dims; i += 16) {
        uint32_t n = lanes_at(i, args->dims);
        float c[16] = {0}, s[16] = {0};

        for (uint32_t j = 0; j < n; j++) {
            c[j] = args->cos[(i + j) / 2];
            s[j] = j % 2 ? args->sin[(i + j) / 2] : -args->sin[(i + j) / 2];
        }
        v16 cos = v16_load(c), sin = v16_load(s);
        for (uint32_t h = 0; h < args->n_heads; h++) {
            float *head = args->x + (size_t)h * args->head_dim;
            v16 x = load_at(head, i, args->dims);

            store_at(head, i, args->dims, v16_fma(v16_swap_pairs(x), sin, v16_mul(x, cos)));
        }
    }
}

static void rope_halves(const struct rope_args *args)
{
    uint32_t half = args->dims / 2;

    for (uint32_t i = 0; i < half; i += 16) {
        v16 cos = load_at(args->cos, i, half), sin = load_at(args->sin, i, half);
        v16 minus_sin = v16_sub(v16_zero(), sin);

        for (uint32_t h = 0; h < args->n_heads; h++) {
            float *low = args->x + (size_t)h * args->head_dim, *high = low + half;
            v16 x0 = load_at(low, i, half), x1 = load_at(high, i, half);

            store_at(low, i, half, v16_fma(x1, minus_sin, v16_mul(x0, cos)));
            store_at(high, i, half, v16_fma(x0, sin, v16_mul(x1, cos)));
        }
    }
}

void KERN(rope)(const struct rope_args *args)
{
    if (args->pairs == ROPE_ADJACENT)
        rope_adjacent(args);
    else
        rope_halves(args);
}
