/* SPDX-License-Identifier: Apache-2.0 */
/* The feed-forward of many tokens in one run of the team (SwiGLU and GEGLU, Shazeer 2020):
 *
 *     y = (act(x . gate^T) * (x . up^T)) . down^T
 *
 * The outputs of gate and up take eight bytes per token and row, and never exist as a whole. For a llama
 * of 8B parameters and 512 tokens they would take 117 MB. The bits are those of matmul(), act and
 * matmul(). */
#ifndef COMPUTE_TENSOR_GATED_H
#define COMPUTE_TENSOR_GATED_H

#include "compute/tensor/tensor.h"

/* gate[i] = act(gate[i]) * up[i]: swiglu() or geglu(). */
typedef void (*gated_act)(const struct kern_table *table, float *gate, const float *up, uint32_t n);

struct gated_args {
    const struct weight *gate_up; /* [2 F][cols]: rows of gate, then rows of up */
    const struct weight *down;    /* [rows][F] */
    gated_act act;
    const float *x;  /* [n][cols], rows x_stride apart */
    size_t x_stride; /* in floats */
    uint32_t n;      /* more than one */
    float *y;        /* [n][rows], rows y_stride apart; may be x */
    size_t y_stride;
    void *scratch; /* 64-aligned, gated_scratch_bytes() */
};
/* True if F is a multiple of the activations' packing width; true for all but tiny models. */
bool gated_takes(const struct weight *gate_up, const struct weight *down);
size_t gated_scratch_bytes(const struct weight *gate_up, const struct weight *down, uint32_t max_tokens,
                           uint32_t n_ranks);
void matmul_gated(struct team *team, const struct gated_args *args);

#endif
