/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of one kernel table: its vector type, and the prototypes of its functions.
 *
 * The build chooses the v16 and q8 headers (src/compute/kernels/local.mk); without a choice they are the
 * plain C ones. */
#ifndef COMPUTE_KERNELS_KERN_SET_PRIV_H
#define COMPUTE_KERNELS_KERN_SET_PRIV_H

#include "compute/kernels/attn.h"
#include "compute/kernels/index.h"
#include "compute/kernels/kern.h"
#include "compute/kernels/recurrent.h"

#ifndef KERN_V16
#define KERN_V16 "compute/kernels/v16_scalar_priv.h"
#endif
#include KERN_V16

void KERN(tile_f32)(const struct tile *tile);
void KERN(tile_f16)(const struct tile *tile);
void KERN(tile_bf16)(const struct tile *tile);
void KERN(slices_f32)(const struct tile *tile);
void KERN(pack_f32)(const struct pack *pack);
void KERN(pack_swapped)(const struct pack *pack);
void KERN(pack_slices)(const struct pack *pack);
void KERN(widen_f16)(const uint16_t *in, float *out, size_t n);
void KERN(widen_bf16)(const uint16_t *in, float *out, size_t n);

void KERN(attn_unit)(const struct attn_unit *unit);
void KERN(attn_merge)(const struct attn_unit *unit);
void KERN(attn_scores)(const struct attn_scores *tile, uint32_t n_rows);
void KERN(attn_values)(const struct attn_values *tile, uint32_t n_rows);
void KERN(attn_direct_scores)(const struct attn_direct *tile);
void KERN(attn_direct_values)(const struct attn_direct *tile);
void KERN(kv_find)(const struct attn_args *args, const struct kv_tile *tile, struct attn_direct *out);
void KERN(kv_ahead)(const struct attn_args *args, const struct kv_tile *tile, struct kv_ahead *ahead_out);
void KERN(kv_load)(const struct attn_args *args, const struct kv_tile *tile);
void KERN(kv_store)(const struct kv_store_args *args);
void KERN(kv_gather)(const struct kv_gather_args *args);
void KERN(index_scores)(const struct index_args *args, float *scores_out);

void KERN(rms_norm)(const float *x, const float *gain, uint32_t n, float eps, float *out);
void KERN(layer_norm)(const float *x, const struct layer_gain *gain, uint32_t n, float eps, float *out);
void KERN(vec_add)(float *x, const float *y, uint32_t n);
void KERN(swiglu)(float *gate, const float *up, uint32_t n);
void KERN(geglu)(float *gate, const float *up, uint32_t n);
void KERN(gelu)(float *x, uint32_t n);
void KERN(gelu_exact)(float *x, uint32_t n);
void KERN(vec_scale)(float *x, float by, uint32_t n);
void KERN(vec_cap)(float *x, float cap, uint32_t n);
void KERN(rope)(const struct rope_args *args);
void KERN(conv_rows)(const struct conv_args *args);
void KERN(delta_rows)(const struct delta_args *args);
void KERN(vec_gate)(float *x, const float *gate, uint32_t n);
void KERN(mix_rows)(const float *const *rows, const float *weights, uint32_t n_rows, uint32_t n, float *out);

float KERN(read_memory)(const void *from, size_t len_bytes, struct reading reading);
float KERN(peak)(uint32_t rounds);

extern const struct kern_vec KERN(kern_vec);

enum { MAX_GROUP_PANELS = 4 };

/* Rows of attention in a pass over the arena: as many as registers allow. */
enum {
    PASS_ROWS = (int)TILE_TOKENS >= 12                   ? (int)ATTN_PASS_ROWS
                : (int)TILE_TOKENS < (int)ATTN_TILE_ROWS ? (int)TILE_TOKENS
                                                         : (int)ATTN_TILE_ROWS
};

/* The sums of a tile in registers: [panel][token], sixteen outputs each.
 * All indices are constants after inlining. */
struct sums {
    v16 at[MAX_GROUP_PANELS][MAX_TILE_TOKENS];
};

/* Starts at zero or continues from y. The next tile most likely has the next tokens, so its part of y is
 * prefetched meanwhile. */
static inline __attribute__((always_inline)) void sums_open(struct sums *sums, const float *y, size_t y_step,
                                                            bool is_first, uint32_t n_panels,
                                                            uint32_t n_tokens)
{
#pragma GCC unroll 12
    for (uint32_t t = 0; t < n_tokens; t++)
#pragma GCC unroll 4
        for (uint32_t p = 0; p < n_panels; p++) {
            sums->at[p][t] = is_first ? v16_zero() : v16_load(y + t * y_step + p * PANEL_ROWS);
            __builtin_prefetch(y + (t + n_tokens) * y_step + p * PANEL_ROWS, 1);
        }
}

static inline __attribute__((always_inline)) void sums_close(const struct sums *sums, float *y, size_t y_step,
                                                             uint32_t n_panels, uint32_t n_tokens)
{
#pragma GCC unroll 12
    for (uint32_t t = 0; t < n_tokens; t++)
#pragma GCC unroll 4
        for (uint32_t p = 0; p < n_panels; p++)
            v16_store(y + t * y_step + p * PANEL_ROWS, sums->at[p][t]);
}

/* 2^x: 0 below -126, else at most 1 unit in the last place off (tests/unit/compute/tensor/test_ops.c
 * measures this). Not for infinity or for more than 127.
 *
 * x = n + r with n whole and |r| <= 1/2; adding 1.5 * 2^23 rounds x to n and leaves n in the low bits. A
 * polynomial gives 2^r (minimax in relative error); then n is added to the exponent. */
static inline v16 v16_exp2_parts(v16 x, v16 r, v16 shifted)
{
    v16 p = v16_set1(0x1.4c20bcp-13f);
    p = v16_fma(p, r, v16_set1(0x1.5fc20cp-10f));
    p = v16_fma(p, r, v16_set1(0x1.3b2176p-7f));
    p = v16_fma(p, r, v16_set1(0x1.c6ada8p-5f));
    p = v16_fma(p, r, v16_set1(0x1.ebfbe6p-3f));
    p = v16_fma(p, r, v16_set1(0x1.62e432p-1f));
    p = v16_fma(p, r, v16_set1(1.0f));
    return v16_if_below(x, v16_set1(-126.0f), v16_zero(), v16_scale2(p, shifted));
}

static inline v16 v16_exp2(v16 x)
{
    v16 magic = v16_set1(0x1.8p23f);
    v16 shifted = v16_add(x, magic);

    return v16_exp2_parts(x, v16_sub(x, v16_sub(shifted, magic)), shifted);
}

/* e^x for |x| up to 87.  Below -87 it is 0; above 87 it is e^87.  x * log2(e) is computed in two parts, so
 * that the fraction is right to the last bit or two. */
static inline v16 v16_exp_clamped(v16 x)
{
    v16 log2e = v16_set1(0x1.715476p0f), log2e_rest = v16_set1(0x1.4ae0cp-26f), magic = v16_set1(0x1.8p23f);

    x = v16_if_below(x, v16_set1(87.0f), x, v16_set1(87.0f));
    v16 shifted = v16_fma(x, log2e, magic);
    v16 whole = v16_sub(shifted, magic);
    v16 r = v16_fma(x, log2e, v16_sub(v16_zero(), whole));
    return v16_exp2_parts(whole, v16_fma(x, log2e_rest, r), shifted);
}

/* tanh(x). Near zero a polynomial (minimax in relative error), else 1 - 2 / (1 + e^2x) of |x|. */
static inline v16 v16_tanh(v16 x)
{
    v16 one = v16_set1(1.0f), size = v16_abs(x), square = v16_mul(x, x);
    v16 p = v16_set1(-0x1.8f8de4p-8f);
    p = v16_fma(p, square, v16_set1(0x1.58048ep-6f));
    p = v16_fma(p, square, v16_set1(-0x1.b9258ap-5f));
    p = v16_fma(p, square, v16_set1(0x1.110e1cp-3f));
    p = v16_fma(p, square, v16_set1(-0x1.555552p-2f));
    v16 near = v16_fma(v16_mul(x, square), p, x);
    v16 e = v16_exp_clamped(v16_add(size, size));
    v16 far = v16_sub(one, v16_div(v16_set1(2.0f), v16_add(one, e)));

    far = v16_if_below(x, v16_zero(), v16_sub(v16_zero(), far), far);
    return v16_if_below(size, v16_set1(0.625f), near, far);
}

#endif
