/* SPDX-License-Identifier: Apache-2.0 */
/* Grouped GEMM: many small products in one run of the team. Used for chosen experts and for the heads of
 * latent attention.
 *
 * A piece is some rows of a weight times some rows of activations. All pieces are shared out together:
 * ranks meet once per call and not once per expert, and each piece's weights are read once. The bits of an
 * output are those that matmul() gives for a weight of these rows alone. */
#ifndef COMPUTE_TENSOR_GROUPED_H
#define COMPUTE_TENSOR_GROUPED_H

#include "compute/tensor/tensor.h"

struct grouped_piece {
    const struct weight *weight;
    uint32_t first_row; /* a multiple of 16 */
    uint32_t n_rows;    /* a multiple of 16, or up to the weight's last row */
    uint32_t n;         /* rows of x and y */
    const float *x;     /* [n][cols], rows x_stride apart; not used with load */
    size_t x_stride;
    /* Used instead of x: computes row i of the piece, [cols]. Any rank may call it, several times for a
     * row. */
    void (*load)(const struct grouped_piece *piece, uint32_t i, float *out);
    const void *arg; /* for load */
    uint32_t first;  /* for load */
    float *y;        /* [n][n_rows], rows y_stride apart */
    size_t y_stride;
};

struct grouped_args {
    const struct grouped_piece *pieces;
    uint32_t n_pieces;
    struct team *const *solos; /* [ranks of the team]: a team of one for each rank */
    uint32_t max_cols;         /* the value that the scratch was sized for */
    void *scratch;             /* 64-aligned, grouped_scratch_bytes() */
};
size_t grouped_scratch_bytes(uint32_t max_pieces, uint32_t max_cols, uint32_t n_ranks);
void matmul_grouped(struct team *team, const struct grouped_args *args);

struct weighted_rows {
    const float *const *rows; /* [n_rows], each [n] */
    const float *weights;     /* [n_rows] */
    uint32_t n_rows;
};
/* out[i] = weights[0] rows[0][i] + weights[1] rows[1][i] + ..., added from first to last. */
void mix_rows(const struct kern_table *table, const struct weighted_rows *from, uint32_t n, float *out);

#endif
