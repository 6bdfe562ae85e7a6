/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrences: rows of a sequence one after another, with state between them.
 *
 * Every table gives the same bits, and the bits of a row depend on the state before it and on the row. */
#ifndef COMPUTE_KERNELS_RECURRENT_H
#define COMPUTE_KERNELS_RECURRENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kern_table;

/* A causal convolution along the rows, each channel by itself:
 *
 *     u = before * x                  (u = x if before is NULL)
 *     y = bias + sum over j of taps[j] * u[n_taps - 1 - j rows ago], oldest row first
 *     out = after * y                 (if after is NULL: y, or silu(y) with is_silu) */
struct conv_args {
    const float *x, *before, *after; /* rows in_stride floats apart */
    size_t in_stride;
    const float *taps; /* [n_taps] rows, stride floats apart */
    const float *bias; /* [n_channels], or NULL */
    float *history;    /* [n_taps - 1] rows: u of the rows before, the oldest first; updated */
    float *out;        /* rows out_stride apart, or stride if that is 0; may be x */
    size_t stride, out_stride;
    uint32_t n_taps, n_rows, n_channels;
    bool is_silu;
};
enum { CONV_MOST_TAPS = 8 };
void conv_rows(const struct kern_table *table, const struct conv_args *args);

/* One head of a gated delta net (Yang et al. 2024) or, without is_delta, of Mamba 2 (Dao & Gu 2024).  For each
 * row, with S [n_keys][n_values]:
 *
 *     S   = decay S
 *     w   = beta (v - S^T k)          (without is_delta: beta v)
 *     S   = S + k w^T
 *     out = S^T q
 *
 * Mamba's C, B, x and time step are q, k, v and beta. */
struct delta_args {
    const float *q, *k, *v;    /* rows qk_stride, qk_stride and v_stride floats apart */
    const float *decay, *beta; /* one of each per row, by_stride apart */
    size_t qk_stride, v_stride, by_stride, out_stride;
    float *state; /* [n_keys][n_values]; updated */
    float *out;
    uint32_t n_rows, n_keys, n_values;
    bool is_delta;
};
void delta_rows(const struct kern_table *table, const struct delta_args *args);
/* x[i] *= sigmoid(gate[i]) */
void vec_gate(const struct kern_table *table, float *x, const float *gate, uint32_t n);

#endif
