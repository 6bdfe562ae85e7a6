/* SPDX-License-Identifier: Apache-2.0 */
/* Sixteen floats at once: four registers of NEON. v16_scalar_priv.h defines each function.
 *
 * Two operations differ from NEON's own. NEON's maximum spreads NaN where the other sets take the second
 * operand, so maxima are compared and selected here. NEON's vector sums add neighbours where the other
 * sets fold halves, so they are written out here.
 *
 * Compiled with -march=armv8-a: every 64-bit ARM has this. */
#ifndef COMPUTE_KERNELS_V16_NEON_PRIV_H
#define COMPUTE_KERNELS_V16_NEON_PRIV_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define KERN(name) name##_neon

/* 32 registers: 1 panel x 6 tokens are 24 sums; the others hold the weights and a broadcast. */
#define TILE_HEIGHTS(H) H(1) H(2) H(3) H(4) H(5) H(6)
enum { TILE_TOKENS = 6, TILE_PANELS = 1 };

typedef struct {
    float32x4_t at[4];
} v16;

/* The same for each of the four registers. */
#define V16_EACH(expression)                                                                                 \
    do {                                                                                                     \
        v16 out_;                                                                                            \
        for (int i = 0; i < 4; i++)                                                                          \
            out_.at[i] = (expression);                                                                       \
        return out_;                                                                                         \
    } while (0)

static inline uint32_t tile_panels(uint32_t n_tokens)
{
    return n_tokens <= 3 ? 2 : TILE_PANELS;
}

static inline v16 v16_set1(float value)
{
    V16_EACH(vdupq_n_f32(value));
}

static inline v16 v16_zero(void)
{
    return v16_set1(0.0f);
}

static inline v16 v16_load(const float *from)
{
    V16_EACH(vld1q_f32(from + i * 4));
}

static inline void v16_store(float *to, v16 a)
{
    for (int i = 0; i < 4; i++)
        vst1q_f32(to + i * 4, a.at[i]);
}

static inline v16 v16_load_n(const float *from, uint32_t n)
{
    float lanes[16] = {0};

    memcpy(lanes, from, n * sizeof(float));
    return v16_load(lanes);
}

static inline void v16_store_n(float *to, v16 a, uint32_t n)
{
    float lanes[16];

    v16_store(lanes, a);
    memcpy(to, lanes, n * sizeof(float));
}

static inline v16 v16_add(v16 a, v16 b)
{
    V16_EACH(vaddq_f32(a.at[i], b.at[i]));
}

static inline v16 v16_sub(v16 a, v16 b)
{
    V16_EACH(vsubq_f32(a.at[i], b.at[i]));
}

static inline v16 v16_mul(v16 a, v16 b)
{
    V16_EACH(vmulq_f32(a.at[i], b.at[i]));
}

static inline v16 v16_div(v16 a, v16 b)
{
    V16_EACH(vdivq_f32(a.at[i], b.at[i]));
}

static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
    V16_EACH(vfmaq_f32(c.at[i], a.at[i], b.at[i]));
}

static inline v16 v16_max(v16 a, v16 b)
{
    V16_EACH(vbslq_f32(vcgtq_f32(a.at[i], b.at[i]), a.at[i], b.at[i]));
}

static inline v16 v16_abs(v16 a)
{
    V16_EACH(vabsq_f32(a.at[i]));
}

static inline v16 v16_if_below(v16 x, v16 limit, v16 a, v16 b)
{
    V16_EACH(vbslq_f32(vcltq_f32(x.at[i], limit.at[i]), a.at[i], b.at[i]));
}

static inline v16 v16_first_n(v16 a, v16 b, uint32_t n)
{
    static const uint32_t lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

    V16_EACH(vbslq_f32(vcltq_u32(vld1q_u32(lanes + i * 4), vdupq_n_u32(n)), a.at[i], b.at[i]));
}

static inline float v16_sum(v16 a)
{
    float32x4_t four = vaddq_f32(vaddq_f32(a.at[0], a.at[2]), vaddq_f32(a.at[1], a.at[3]));
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));

    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

static inline float v16_top(v16 a)
{
    float lanes[16], top;

    v16_store(lanes, a);
    top = lanes[0];
    for (int i = 1; i < 16; i++)
        top = lanes[i] > top ? lanes[i] : top;
    return top;
}

static inline bool v16_any_above(v16 a, float limit)
{
    return v16_top(a) > limit;
}

static inline v16 v16_scale2(v16 a, v16 shifted)
{
    V16_EACH(vreinterpretq_f32_u32(
        vaddq_u32(vreinterpretq_u32_f32(a.at[i]), vshlq_n_u32(vreinterpretq_u32_f32(shifted.at[i]), 23))));
}

static inline v16 v16_swap_pairs(v16 a)
{
    V16_EACH(vrev64q_f32(a.at[i]));
}

static inline void v16_zip(v16 *a, v16 *b)
{
    v16 x = *a, y = *b;

    for (int i = 0; i < 4; i++) {
        float32x4x2_t pair = vzipq_f32(x.at[i], y.at[i]);

        (i < 2 ? a : b)->at[2 * i % 4] = pair.val[0];
        (i < 2 ? a : b)->at[2 * i % 4 + 1] = pair.val[1];
    }
}

static inline v16 v16_from_f16(const uint16_t *from)
{
    V16_EACH(vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from + i * 4))));
}

static inline v16 v16_from_bf16(const uint16_t *from)
{
    V16_EACH(vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(from + i * 4), 16)));
}

static inline v16 v16_from_s8x16(int8x16_t bytes)
{
    int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));

    return (v16){
        .at = {vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
               vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}

static inline v16 v16_from_i8(const int8_t *from)
{
    return v16_from_s8x16(vld1q_s8(from));
}

/* 0x47000000 is 2^15, whose mantissa counts from bit 8 on. */
static inline v16 v16_second_bytes(const uint8_t *from, int left, uint32_t mask, bool is_odd)
{
    v16 out;

    for (int i = 0; i < 4; i++) {
        uint32x4_t bits = vreinterpretq_u32_u8(vld1q_u8(from + 16 * i));

        bits = vandq_u32(vshlq_u32(bits, vdupq_n_s32(left)), vdupq_n_u32(mask));
        out.at[i] = vreinterpretq_f32_u32(vorrq_u32(bits, vdupq_n_u32(is_odd ? 0x47000080 : 0x47000000)));
    }
    return out;
}

/* The low (high) halves of sixteen bytes, less 8. */
static inline v16 v16_from_low4(const uint8_t *from)
{
    uint8x16_t low = vandq_u8(vld1q_u8(from), vdupq_n_u8(15));

    return v16_from_s8x16(vsubq_s8(vreinterpretq_s8_u8(low), vdupq_n_s8(8)));
}

static inline v16 v16_from_high4(const uint8_t *from)
{
    uint8x16_t high = vshrq_n_u8(vld1q_u8(from), 4);

    return v16_from_s8x16(vsubq_s8(vreinterpretq_s8_u8(high), vdupq_n_s8(8)));
}

static inline void v16_to_f16(uint16_t *to, v16 a)
{
    for (int i = 0; i < 4; i++)
        vst1_u16(to + i * 4, vreinterpret_u16_f16(vcvt_f16_f32(a.at[i])));
}

static inline void v16_store_low8(int8_t *to, v16 a)
{
    for (int half = 0; half < 2; half++) {
        uint16x4_t low = vmovn_u32(vreinterpretq_u32_f32(a.at[2 * half]));
        uint16x4_t high = vmovn_u32(vreinterpretq_u32_f32(a.at[2 * half + 1]));

        vst1_s8(to + 8 * half, vreinterpret_s8_u8(vmovn_u16(vcombine_u16(low, high))));
    }
}

#undef V16_EACH

#endif
