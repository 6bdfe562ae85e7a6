/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the arena (layout in tensor.h) sixteen numbers at a time: one number of sixteen keys, or sixteen
 * numbers of a value. kern_kv.c and kern_attn_direct.c unroll these functions.
 *
 *                 keys, a number per row        values, a token per row        scales of quantised rows
 *     plain       [k_dim][block_tokens]         [block_tokens][v_dim]
 *     Q8_0        [k_dim][block_tokens]         [block_tokens][v_dim]          keys   [run][block_tokens]
 *     Q4_0        [run][16][block_tokens]       [block_tokens][run][16]        values [block_tokens][run]
 *
 * A byte of Q4_0 has number i of its run in the low half, 16 + i in the high half. Functions are inlined
 * with a constant type, so their branches on it cost nothing. Results are exact: a scale of 11 bits times
 * a quant of at most 8.
 *
 * Hot path: no allocation, no log, no system call. */
#ifndef COMPUTE_KERNELS_KERN_KV_PRIV_H
#define COMPUTE_KERNELS_KERN_KV_PRIV_H

#include "compute/kernels/kern_set_priv.h"

#define KV_INLINED static inline __attribute__((always_inline))

enum {
    KV_SPAN = 16, /* numbers of a row with equal layout */
    KV_MAX_RUNS = ATTN_MAX_DIM / KV_RUN,
};

/* Bytes from a key to its neighbour. */
KV_INLINED size_t kv_key_bytes(enum dtype type)
{
    return type == DTYPE_F32 ? 4 : kv_is_quantised(type) ? 1 : 2;
}

/* Bytes of n numbers of a row without scales; n: a multiple of 2. */
KV_INLINED size_t kv_bytes(enum dtype type, size_t n)
{
    return type == DTYPE_F32 ? 4 * n : type == DTYPE_Q8_0 ? n : type == DTYPE_Q4_0 ? n / 2 : 2 * n;
}

KV_INLINED uint32_t kv_runs(uint32_t dim)
{
    return (dim + KV_RUN - 1) / KV_RUN;
}

/* Stored bytes of a row without scales; runs are padded. */
KV_INLINED size_t kv_filled_bytes(enum dtype type, uint32_t dim)
{
    return kv_bytes(type, kv_is_quantised(type) ? (size_t)kv_runs(dim) * KV_RUN : dim);
}

/* Sixteen consecutive numbers; is_high: the high halves of Q4_0's bytes. */
KV_INLINED v16 kv_numbers(enum dtype type, const char *from, bool is_high)
{
    switch (type) {
    case DTYPE_F32:
        return v16_load((const float *)from);
    case DTYPE_F16:
        return v16_from_f16((const uint16_t *)from);
    case DTYPE_BF16:
        return v16_from_bf16((const uint16_t *)from);
    case DTYPE_Q8_0:
        return v16_from_i8((const int8_t *)from);
    default:
        return is_high ? v16_from_high4((const uint8_t *)from) : v16_from_low4((const uint8_t *)from);
    }
}

/* A span of sixteen keys: numbers [d, d + KV_SPAN). */
struct kv_key_span {
    const char *at; /* first number; the others follow step_bytes apart */
    size_t step_bytes;
    v16 scale; /* if quantised */
};

/* keys: number 0 of the sixteen keys; scales likewise; d: a multiple of KV_SPAN. */
KV_INLINED struct kv_key_span kv_key_span(enum dtype type, const char *keys, const uint16_t *scales,
                                          uint32_t block_tokens, uint32_t d)
{
    const size_t before = type == DTYPE_Q4_0 ? (size_t)d / KV_RUN * KV_SPAN : d; /* rows */
    struct kv_key_span span = {.step_bytes = block_tokens * kv_key_bytes(type)};

    span.at = keys + before * span.step_bytes;
    if (kv_is_quantised(type))
        span.scale = v16_from_f16(scales + (size_t)(d / KV_RUN) * block_tokens);
    return span;
}

/* Number i of the span; is_high: whether the span is a run's second half. */
KV_INLINED v16 kv_key(enum dtype type, const struct kv_key_span *span, uint32_t i, bool is_high)
{
    v16 numbers = kv_numbers(type, span->at + i * span->step_bytes, is_high);

    return kv_is_quantised(type) ? v16_mul(numbers, span->scale) : numbers;
}

/* The scales of sixteen values: out [token][run], at most ATTN_GROUP_KEYS * KV_MAX_RUNS. */
KV_INLINED void kv_value_scales(const uint16_t *halves, uint32_t n_runs, float *out)
{
    for (uint32_t i = 0; i < n_runs * ATTN_GROUP_KEYS; i += 16)
        v16_store(out + i, v16_from_f16(halves + i));
}

/* Numbers [16 vector, 16 vector + 16) of the value whose row begins at row. scales: of its runs, if
 * quantised. is_high: whether vector is odd. */
KV_INLINED v16 kv_value(enum dtype type, const char *row, const float *scales, uint32_t vector, bool is_high)
{
    const size_t before =
        type == DTYPE_Q4_0 ? (size_t)vector / 2 * KV_SPAN : kv_bytes(type, vector * KV_SPAN);
    v16 numbers = kv_numbers(type, row + before, is_high);

    return kv_is_quantised(type) ? v16_mul(numbers, v16_set1(scales[vector / 2])) : numbers;
}

#endif
