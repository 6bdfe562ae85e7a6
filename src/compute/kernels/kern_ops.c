/* SPDX-License-Identifier: Apache-2.0 */
/* Row operations: RMSNorm, addition, scaling, SwiGLU, GEGLU, RoPE.
 *
 * A row is processed sixteen floats at a time; a ragged end is padded with zeros. The one sum here (of
 * squares) is kept in sixteen lanes: lane i adds elements i, i + 16, i + 32 and so on. The lanes are then
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

void KERN(vec_add)(float *x, const float *y, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 16)
        store_at(x, i, n, v16_add(load_at(x, i, n), load_at(y, i, n)));
}

/* e^x for |x| up to 87: below it is 0, above it stays where it was.  x * log2(e) is taken in two parts, so
 * that the fraction is right to the last bit or two. */
static inline v16 exp_clamped(v16 x)
{
    v16 log2e = v16_set1(0x1.715476p0f), log2e_rest = v16_set1(0x1.4ae0cp-26f), magic = v16_set1(0x1.8p23f);

    x = v16_if_below(x, v16_set1(87.0f), x, v16_set1(87.0f));
    v16 shifted = v16_fma(x, log2e, magic);
    v16 whole = v16_sub(shifted, magic);
    v16 r = v16_fma(x, log2e, v16_sub(v16_zero(), whole));
    return v16_exp2_parts(whole, v16_fma(x, log2e_rest, r), shifted);
}

void KERN(swiglu)(float *gate, const float *up, uint32_t n)
{
    v16 one = v16_set1(1.0f);

    for (uint32_t i = 0; i < n; i += 16) {
        v16 g = load_at(gate, i, n);
        v16 e = exp_clamped(v16_sub(v16_zero(), g));
        store_at(gate, i, n, v16_mul(v16_div(g, v16_add(one, e)), load_at(up, i, n)));
    }
}

/* x (1 + tanh u) / 2 with u = sqrt(2/pi) (x + 0.044715 x^3) is x / (1 + e^-2u). */
void KERN(geglu)(float *gate, const float *up, uint32_t n)
{
    v16 one = v16_set1(1.0f), cubed = v16_set1(0.044715f);
    v16 minus_two_root = v16_set1(-0x1.988454p+0f); /* -2 sqrt(2/pi) */

    for (uint32_t i = 0; i < n; i += 16) {
        v16 g = load_at(gate, i, n);
        v16 inner = v16_mul(g, v16_fma(v16_mul(g, g), cubed, one));
        v16 e = exp_clamped(v16_mul(inner, minus_two_root));
        store_at(gate, i, n, v16_mul(v16_div(g, v16_add(one, e)), load_at(up, i, n)));
    }
}

void KERN(vec_scale)(float *x, float by, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 16)
        store_at(x, i, n, v16_mul(load_at(x, i, n), v16_set1(by)));
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
