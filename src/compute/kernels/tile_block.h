/* SPDX-License-Identifier: Apache-2.0 */
/* Many tokens by BF16 tiles: the interface between matmul_block.c and kern_amx_bf16.c and
 * kern_amx_quant.c. */
#ifndef COMPUTE_KERNELS_TILE_BLOCK_H
#define COMPUTE_KERNELS_TILE_BLOCK_H

#include "compute/kernels/kern.h"

enum {
    TILES_SUMS = 1024, /* floats of a tile of tokens and two panels: [half of the tokens][panel][16][lane] */
    TILES_C = TILES_SUMS / 4,
    TILES_B_BYTES = TILES_COLS * PANEL_ROWS * 2, /* bytes of 32 columns of a panel */
};

/* An expanded qblk of a panel of quantised weights: [16 pairs of columns][lane][2] BF16, u - zero; scale
 * [lane] F32; for types with a min also min [lane] F32. Of each four columns the first pair is 0 and 2,
 * the second 1 and 3: this is their order in the words of a four, and sums are exact in any order. */
static inline __attribute__((always_inline)) size_t quant_tiles_bytes(bool has_min)
{
    return TILES_B_BYTES + (has_min ? 2 : 1) * PANEL_ROWS * sizeof(float);
}

/* Multiplies one slice of K of one or two panels by n_tiles tiles of 17 to 32 tokens each, with BF16
 * tiles. The sums stay in `sums` until the last slice. */
struct tile_block {
    const void *w; /* slice of the first panel */
    size_t panel_bytes;
    const void *x; /* packed activations, tile after tile */
    float *sums;   /* [n_tiles][TILES_SUMS], 64-aligned */
    uint32_t n_k;  /* pairs, a multiple of TILES_COLS / 2; quantised weights: columns */
    uint32_t n_panels, n_tokens, n_tiles;
    bool is_first; /* start at zero; else add to sums */
    /* Quantised weights: the bases of the activations, [qblk][token], and the floats from tile to tile.
     * Then the number of turns of two panels, one after another, and the distances of their weights and of
     * their sums. */
    const float *base;
    size_t base_step;
    bool has_min;
    uint32_t n_pairs;
    size_t pair_bytes, pair_step;
    /* Prefetched meanwhile: this many bytes (of each panel) with each tile. */
    const char *next_w, *next_x;
    size_t next_panel_bytes;
    size_t next_w_bytes, next_x_bytes;
};

/* Copies the sums of blocks into rows of y. Each two panels have their own sums. */
struct tile_give {
    const float *sums;
    size_t pair_step; /* floats from two panels' sums to those of the next two */
    uint32_t n_panels, n_tokens, n_tiles;
    uint32_t n_rows; /* rows of all panels; the last panel may be ragged */
    float *y;
    size_t y_step;
};

#endif
