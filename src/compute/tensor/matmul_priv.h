/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by matmul.c, matmul_block.c, matmul_choice.c and matmul_nodes.c: a product in progress, and the layout of its
 * packed activations. */
#ifndef COMPUTE_TENSOR_MATMUL_PRIV_H
#define COMPUTE_TENSOR_MATMUL_PRIV_H

#include "compute/tensor/tensor.h"
#include "compute/kernels/kern.h"
#include "compute/kernels/quant_chunk.h"
#include "compute/tensor/weight_priv.h"
#include "compute/tensor/work_priv.h"

enum {
    MAX_UNIT_PANELS = 16,
    QBLK_TILES_BYTES = QBLK_WEIGHTS * 2 + 4, /* per token: BF16, and a base stored apart */
    TILES_QUANT_TOKENS = 64,  /* with fewer, taking quantised weights apart costs more than it saves */
    TILES_BLOCK_TOKENS = 512, /* their slice and their sums are half a MiB each, of a two-MiB cache */
};

struct scratch { /* layout of matmul_args.scratch */
    struct work work;
    float x[]; /* followed by the sums of each rank, for BF16 tiles */
};

struct panel_range {
    uint32_t from, to;
};

struct product {
    const struct matmul_args *args;
    const struct kern_table *table;
    struct team *team;
    struct scratch *scratch;
    const float *x; /* packed activations, tile after tile */
    float *sums;    /* sums of blocks, [ranks][matmul_block_sums()] */
    bool is_q8;
    void (*pack)(const struct pack *pack);
    void (*close)(void);    /* see kern_dots; may be NULL */
    size_t qblk_bytes;      /* bytes of q8's packed activations, per token and qblk */
    uint32_t n_k;           /* elements along K: columns, or pairs of them */
    uint32_t element_cols;  /* 1 or 2 */
    float *bases;           /* for quantised weights in blocks: [tile][qblk][token]; else NULL */
    uint32_t slice_k;       /* elements per slice; q8 has one slice, except in blocks */
    uint32_t element_bytes; /* bytes of an element of a plain type */
    uint32_t n_tiles;
    uint32_t n_panels;
    uint32_t unit_panels;
    uint32_t slice_panels;  /* quantised: panels that all tiles use before the next ones */
    uint32_t slice_cols;    /* and columns of them */
    uint32_t direct_panels; /* panels used together, of quantised weights without expansion */
    bool is_direct;         /* few tiles: weights are used without expansion */
    bool has_blocks;        /* BF16 tile instructions, many tokens; also of quantised weights */
};

struct col_range { /* multiples of QBLK_WEIGHTS, or up to the last column */
    uint32_t from, to;
};

struct token_tile {
    uint32_t first, n;
};

/* The kernels that multiply this weight's pairs. */
static inline const struct kern_dots *dots_of(const struct weight *weight)
{
    return weight->is_tiles ? weight->table->tiles : weight->table->dots;
}

/* Tiles of nearly equal height. */
static inline struct token_tile tile_at(const struct product *product, uint32_t index)
{
    uint32_t each = product->args->n / product->n_tiles, extra = product->args->n % product->n_tiles;

    return (struct token_tile){index * each + (index < extra ? index : extra), each + (index < extra)};
}

/* Bytes of n_k elements of one token's packed activations. */
static inline size_t packed_bytes(const struct product *product, uint32_t n_k)
{
    return product->is_q8 ? n_k / QBLK_WEIGHTS * product->qblk_bytes : n_k * sizeof(float);
}

/* Address of element k of a tile's packed activations. The layout is [slice][tile][k of the slice][token].
 * A slice of all tiles lies together, so it spreads over all sets of a cache however long the rows are. */
static inline const void *packed_at(const struct product *product, struct token_tile tokens, uint32_t k)
{
    uint32_t within = k % product->slice_k, before = k - within, left = product->n_k - before;
    uint32_t slice = left < product->slice_k ? left : product->slice_k;

    return (const char *)product->x + product->args->n * packed_bytes(product, before) +
           tokens.first * packed_bytes(product, slice) + tokens.n * packed_bytes(product, within);
}

/* The same for the bases, which are packed apart. */
static inline float *bases_at(const struct product *product, struct token_tile tokens, uint32_t k)
{
    return product->bases + tokens.first * (size_t)(product->n_k / QBLK_WEIGHTS) +
           tokens.n * (size_t)(k / QBLK_WEIGHTS);
}

/* ---- the steps of a product (matmul.c), for callers that take them one by one ---- */

/* Plans the product; args->n and the weight's rows are not 0. The product keeps a pointer to args. */
void matmul_open(struct product *product, struct team *team, const struct matmul_args *args);
/* Packs columns of all tokens. x points to column cols.from of the first token; rows are x_stride floats
 * apart. */
void matmul_pack(const struct product *product, const float *x, size_t x_stride, struct col_range cols);
/* In a job of the team: packs a rank's share of args->x. */
void matmul_pack_share(const struct product *product, unsigned rank, unsigned n_ranks);
/* Computes panels [from, to), at most MAX_UNIT_PANELS that follow each other in memory. */
void matmul_run_unit(const struct product *product, unsigned rank, uint32_t from, uint32_t to);

/* ---- memory nodes (matmul_nodes.c) ---- */

/* After all is packed: computes units until none is left. */
void matmul_units(const struct product *product, unsigned rank);
/* Alternative: computes whole panels of the weight, at most MAX_UNIT_PANELS, to y [n][panels *
 * PANEL_ROWS]. */
void matmul_rows(const struct product *product, unsigned rank, struct panel_range panels, float *y,
                 size_t y_stride);
/* The panels, in the order of memory, from which a rank takes units: all, or those of its node if the weight is
 * divided among nodes. */
struct panel_range matmul_panels_of(const struct weight *weight, const struct team *team, unsigned rank);
/* Deals the product's units of unit_panels panels to the ranks. Unit numbers count from the first panel of
 * matmul_panels_of(). */
void matmul_work_init(const struct product *product);

/* ---- choice of variants (matmul_choice.c) ---- */

/* Most tokens of a tile, for this weight. */
uint32_t matmul_tile_tokens(const struct weight *weight, uint32_t n_tokens);
/* True if the weight is used without expansion, for n_tiles tiles. */
bool matmul_is_direct(const struct weight *weight, uint32_t tile_tokens, uint32_t n_tiles);
/* If it is: the number of panels used together. */
uint32_t matmul_direct_panels(const struct weight *weight, uint32_t tile_tokens, uint32_t n_tiles);
/* For several tiles: the number of panels, and of their columns, that all tiles use before the next ones.
 * Expansion covers at most MATMUL_SLICE_PANELS panels and MATMUL_SLICE_CHUNKS chunks. */
enum { MATMUL_SLICE_PANELS = 4, MATMUL_SLICE_CHUNKS = 2 };
uint32_t matmul_slice_panels(const struct weight *weight, bool is_direct, uint32_t direct_panels,
                             uint32_t *cols_out);
/* How a tile of n_tokens prefetches quantised weights. */
struct fetch_ahead matmul_fetch_ahead(const struct weight *weight, uint32_t n_tokens);
/* True if a tile prefetches plain weights into the first-level cache (has_next: the caller chose the data).
 * They are only loaded, so on some processors the second-level cache is near enough. */
bool matmul_fetches_near(bool has_next);

/* ---- blocks of BF16 tiles (matmul_block.c) ---- */

/* True if many tokens go through this quantised weight in blocks. */
bool matmul_block_takes(const struct weight *weight);
/* Floats of scratch for each rank. */
size_t matmul_block_sums(uint32_t max_tokens);
/* Elements along K of a slice. */
uint32_t matmul_block_slice(const struct product *product);
/* Multiplies panels [from, to), at most MAX_UNIT_PANELS, by the tiles [first_tile, end_tile), at most
 * TILES_BLOCK_TOKENS tokens. Any rank; sums belong to it. */
void matmul_block(const struct product *product, float *sums, struct panel_range panels, uint32_t first_tile,
                  uint32_t end_tile);

#endif
