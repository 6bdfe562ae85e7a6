/* SPDX-License-Identifier: Apache-2.0 */
/* Many tokens by BF16 tiles: what matmul_block.c asks of kern_amx_bf16.c. */
#ifndef TENSOR_TILE_BLOCK_PRIV_H
#define TENSOR_TILE_BLOCK_PRIV_H

#include "tensor/kern_priv.h"

enum { TILES_SUMS = 1024 /* floats, of a tile of tokens and two panels */ };

/* One slice of K of one or two panels by n_tiles tiles of 17 to 32 tokens each, whose sums rest in `sums`
 * until the last slice: BF16 tiles. */
struct tile_block {
    const void *w; /* the slice of the first panel */
    size_t panel_bytes;
    const void *x; /* packed, tile after tile */
    float *sums;   /* [n_tiles][TILES_SUMS], 64-aligned */
    uint32_t n_k;  /* pairs, a multiple of TILES_COLS / 2 */
    uint32_t n_panels, n_tokens, n_tiles;
    bool is_first; /* start at zero, else go on from sums */
    /* Fetched meanwhile, so many bytes (of each panel) with each tile. */
    const char *next_w, *next_x;
    size_t next_w_bytes, next_x_bytes;
};

/* The sums of blocks into rows of y: each two panels have sums of their own. */
struct tile_give {
    const float *sums;
    size_t pair_step; /* floats from two panels' sums to those of the next two */
    uint32_t n_panels, n_tokens, n_tiles;
    uint32_t n_rows; /* of the panels together: the last may be ragged */
    float *y;
    size_t y_step;
};

#endif
