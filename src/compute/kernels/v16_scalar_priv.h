/* SPDX-License-Identifier: Apache-2.0 */
/* Sixteen floats at once, in plain C: the definition, bit for bit, of every other v16 header.
 *
 * Each operation is one IEEE operation per lane, rounded to nearest even; fma rounds once. Another instruction set needs
 * this list only. */
#ifndef COMPUTE_KERNELS_V16_SCALAR_PRIV_H
#define COMPUTE_KERNELS_V16_SCALAR_PRIV_H

#include <math.h>

#include "base/wide.h"
#include "gguf/dtype.h"

#define KERN(name) name##_scalar
#define V16_TURN   static __attribute__((noinline)) /* kern_kv.c */
/* Heights (tokens) for which tile functions exist, and the number of panels for each height. */
#define TILE_HEIGHTS(H) H(1)
enum { TILE_TOKENS = 1, TILE_PANELS = 1 };

typedef struct {
    float at[16];
} v16;

static inline uint32_t tile_panels(uint32_t n_tokens)
{
    return TILE_PANELS;
}

static inline v16 v16_set1(float value)
{
    v16 out;
    for (int i = 0; i < 16; i++)
        out.at[i] = value;
    return out;
}

static inline v16 v16_zero(void)
{
    return v16_set1(0.0f);
}

static inline v16 v16_load(const float *from)
{
    v16 out;
    memcpy(out.at, from, sizeof(out.at));
    return out;
}

static inline void v16_store(float *to, v16 a)
{
    memcpy(to, a.at, sizeof(a.at));
}

/* Loads the first n lanes from memory, zeros in the others; reads only those n floats. */
static inline v16 v16_load_n(const float *from, uint32_t n)
{
    v16 out = v16_zero();
    memcpy(out.at, from, n * sizeof(float));
    return out;
}

static inline void v16_store_n(float *to, v16 a, uint32_t n)
{
    memcpy(to, a.at, n * sizeof(float));
}

static inline v16 v16_add(v16 a, v16 b)
{
    for (int i = 0; i < 16; i++)
        a.at[i] += b.at[i];
    return a;
}

static inline v16 v16_sub(v16 a, v16 b)
{
    for (int i = 0; i < 16; i++)
        a.at[i] -= b.at[i];
    return a;
}

static inline v16 v16_mul(v16 a, v16 b)
{
    for (int i = 0; i < 16; i++)
        a.at[i] *= b.at[i];
    return a;
}

static inline v16 v16_div(v16 a, v16 b)
{
    for (int i = 0; i < 16; i++)
        a.at[i] /= b.at[i];
    return a;
}

/* a * b + c, rounded once */
static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
    for (int i = 0; i < 16; i++)
        c.at[i] = fmaf(a.at[i], b.at[i], c.at[i]);
    return c;
}

static inline v16 v16_max(v16 a, v16 b)
{
    for (int i = 0; i < 16; i++)
        a.at[i] = a.at[i] > b.at[i] ? a.at[i] : b.at[i];
    return a;
}

static inline v16 v16_abs(v16 a)
{
    for (int i = 0; i < 16; i++)
        a.at[i] = fabsf(a.at[i]);
    return a;
}

/* x < limit ? a : b */
static inline v16 v16_if_below(v16 x, v16 limit, v16 a, v16 b)
{
    for (int i = 0; i < 16; i++)
        a.at[i] = x.at[i] < limit.at[i] ? a.at[i] : b.at[i];
    return a;
}

/* The first n lanes of a, the others of b; any n. */
static inline v16 v16_first_n(v16 a, v16 b, uint32_t n)
{
    for (uint32_t i = n; i < 16; i++)
        a.at[i] = b.at[i];
    return a;
}

/* Adds halves to each other until one lane is left: i + (i + 8), then 4, 2, 1. */
static inline float v16_sum(v16 a)
{
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            a.at[i] += a.at[i + half];
    return a.at[0];
}

static inline float v16_top(v16 a)
{
    float top = a.at[0];
    for (int i = 1; i < 16; i++)
        top = a.at[i] > top ? a.at[i] : top;
    return top;
}

static inline bool v16_any_above(v16 a, float limit)
{
    return v16_top(a) > limit;
}

/* a * 2^n; the low bits of shifted's pattern hold n. The result must be normal. */
static inline v16 v16_scale2(v16 a, v16 shifted)
{
    uint32_t bits[16], by[16];
    memcpy(bits, a.at, sizeof(bits));
    memcpy(by, shifted.at, sizeof(by));
    for (int i = 0; i < 16; i++)
        bits[i] += by[i] << 23;
    memcpy(a.at, bits, sizeof(bits));
    return a;
}

/* (0 1)(2 3).. -> (1 0)(3 2).. */
static inline v16 v16_swap_pairs(v16 a)
{
    v16 out;
    for (int i = 0; i < 16; i++)
        out.at[i] = a.at[i ^ 1];
    return out;
}

/* a0 b0 a1 b1 .. to a, a8 b8 a9 b9 .. to b */
static inline void v16_zip(v16 *a, v16 *b)
{
    v16 x = *a, y = *b;
    for (int i = 0; i < 32; i++)
        (i < 16 ? a : b)->at[i % 16] = (i % 2 == 0 ? x : y).at[i / 2];
}

static inline v16 v16_from_f16(const uint16_t *from)
{
    v16 out;
    for (int i = 0; i < 16; i++)
        out.at[i] = f16_to_f32(from[i]);
    return out;
}

static inline v16 v16_from_bf16(const uint16_t *from)
{
    v16 out;
    for (int i = 0; i < 16; i++)
        out.at[i] = bf16_to_f32(from[i]);
    return out;
}

static inline v16 v16_from_i8(const int8_t *from)
{
    v16 out;
    for (int i = 0; i < 16; i++)
        out.at[i] = from[i];
    return out;
}

/* 2^15 + the masked second byte of each lane, + 1/2 if odd. A lane is four bytes, shifted left first (by less than zero:
 * right). mask: within 0xff00. */
static inline v16 v16_second_bytes(const uint8_t *from, int left, uint32_t mask, bool is_odd)
{
    v16 out;
    for (int i = 0; i < 16; i++)
        out.at[i] = (float)(((uint64_t)wide_load4(from + 4 * i) << (left + 32) >> 32 & mask) >> 8);
    return v16_add(out, v16_set1(is_odd ? 0x1p15f + 0.5f : 0x1p15f));
}

/* The low (high) halves of sixteen bytes, minus 8. */
static inline v16 v16_from_low4(const uint8_t *from)
{
    v16 out;
    for (int i = 0; i < 16; i++)
        out.at[i] = (float)((from[i] & 15) - 8);
    return out;
}

static inline v16 v16_from_high4(const uint8_t *from)
{
    v16 out;
    for (int i = 0; i < 16; i++)
        out.at[i] = (float)((from[i] >> 4) - 8);
    return out;
}

static inline void v16_to_f16(uint16_t *to, v16 a)
{
    for (int i = 0; i < 16; i++)
        to[i] = f32_to_f16(a.at[i]);
}

/* The lowest byte of each lane's pattern. */
static inline void v16_store_low8(int8_t *to, v16 a)
{
    uint32_t bits[16];
    memcpy(bits, a.at, sizeof(bits));
    for (int i = 0; i < 16; i++)
        to[i] = (int8_t)bits[i];
}

#endif
