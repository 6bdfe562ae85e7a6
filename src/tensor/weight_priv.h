/* SPDX-License-Identifier: Apache-2.0 */
/* Where things are inside packed weights.
 *
 *     F32 F16 BF16   [panel] { [k][lane] }                                      padded to 64 bytes
 *     BF16 for dots  [panel] { [k/2][lane][2] }, or, for FMAs, [k/2][2][lane] with k + 1 before k
 *     Q8_0           [panel] { quants [qblk][k/4][lane][4], scales [qblk][lane] }   padded to 64 bytes
 */
#ifndef TENSOR_WEIGHT_PRIV_H
#define TENSOR_WEIGHT_PRIV_H

#include "tensor/kern_priv.h"

/* Bytes of an element of a plain type; 0 for quantised ones. */
static inline uint32_t weight_plain_bytes(enum dtype type)
{
    return type == DTYPE_F32 ? 4 : type == DTYPE_F16 || type == DTYPE_BF16 ? 2 : 0;
}

static inline uint32_t weight_n_panels(uint32_t rows)
{
    return rows / PANEL_ROWS + (rows % PANEL_ROWS != 0);
}

enum {
    WEIGHT_LANE_COLS = 256
}; /* packed at once, so that their part of a panel stays in the first-level cache */

/* Columns [from, to) of a row, at most WEIGHT_LANE_COLS, and where they go. */
struct weight_lane {
    const void *row; /* as in the file: F16 or BF16 */
    char *panel;
    uint32_t lane;
    uint32_t from, to; /* from is even */
};

/* BF16 for dots, weight_dots.c. */
void weight_dots_pack(const struct weight *weight, enum dtype source, const struct weight_lane *to);
void weight_dots_row(const struct weight *weight, const void *panel, uint32_t lane, float *out);

/* Offset of the scales in a panel of Q8_0. */
static inline size_t weight_scales_at(uint32_t cols)
{
    return (size_t)cols / QBLK_WEIGHTS * Q8_QBLK_BYTES;
}

static inline size_t weight_panel_bytes(enum dtype type, uint32_t cols)
{
    size_t len_bytes = type == DTYPE_Q8_0 ? weight_scales_at(cols) +
                                                (size_t)cols / QBLK_WEIGHTS * PANEL_ROWS * sizeof(uint16_t)
                                          : (size_t)cols * PANEL_ROWS * weight_plain_bytes(type);

    return (len_bytes + 63) / 64 * 64;
}

static inline const char *weight_panel(const struct weight *weight, uint32_t panel)
{
    return (const char *)weight->panels + panel * weight_panel_bytes(weight->type, weight->cols);
}

#endif
