/* SPDX-License-Identifier: Apache-2.0 */
/* What matmul.c, matmul_block.c and matmul_ways.c share: a product on its way, and where its packed
 * activations lie. */
#ifndef COMPUTE_TENSOR_MATMUL_PRIV_H
#define COMPUTE_TENSOR_MATMUL_PRIV_H

#include "compute/tensor/tensor.h"
#include "compute/kernels/kern.h"
#include "compute/kernels/quant.h"
#include "compute/tensor/weight_priv.h"
#include "compute/tensor/work_priv.h"

enum {
    MAX_UNIT_PANELS = 16,
    QBLK_TILES_BYTES = QBLK_WEIGHTS * 2 + 4, /* of a token: BF16, and apart from them a base */
    TILES_QUANT_TOKENS = 64,                 /* fewer do not make up for taking quantised weights apart */
    TILES_BLOCK_TOKENS = 512, /* a slice of them and its sums are half a MiB each, of two MiB of cache */
};

struct scratch { /* what matmul_args.scratch holds */
    struct work work;
    float x[]; /* and behind it the sums of each rank, for BF16 tiles */
};

struct panel_range {
    uint32_t from, to;
};

struct product {
    const struct matmul_args *args;
    const struct kern_table *table;
    struct team *team;
    struct scratch *scratch;
    const float *x; /* packed: tile after tile */
    float *sums;    /* of blocks, [ranks][matmul_block_sums()] */
    bool is_q8;
    void (*pack)(const struct pack *pack);
    void (*close)(void);    /* see kern_dots; may be NULL */
    size_t qblk_bytes;      /* of q8's packed activations, per token */
    uint32_t n_k;           /* elements along K: columns, or pairs of them */
    uint32_t element_cols;  /* 1 or 2 */
    float *bases;           /* quantised weights in blocks: [tile][qblk][token]; else NULL */
    uint32_t slice_k;       /* elements; q8 takes all at once, but in blocks */
    uint32_t element_bytes; /* of plain types */
    uint32_t n_tiles;
    uint32_t n_panels;
    uint32_t unit_panels;
    uint32_t slice_panels;  /* that all tiles go past before the next; of quantised weights */
    uint32_t slice_cols;    /* so many columns of them */
    uint32_t direct_panels; /* that go together where quantised weights are used as they are */
    bool is_direct;         /* few tiles: weights are used as they are */
    bool has_blocks;        /* BF16 tiles by instruction, many tokens; of quantised weights too */
};

struct col_range { /* multiples of QBLK_WEIGHTS, or up to the last */
    uint32_t from, to;
};

struct token_tile {
    uint32_t first, n;
};

/* What multiplies this weight's pairs. */
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

/* Where element k of a tile's packed activations begins.  [slice][tile][k of the slice][token]: a slice of
 * all tiles lies together, so that it spreads over all sets of a cache however long the rows are. */
static inline const void *packed_at(const struct product *product, struct token_tile tokens, uint32_t k)
{
    uint32_t within = k % product->slice_k, before = k - within, left = product->n_k - before;
    uint32_t slice = left < product->slice_k ? left : product->slice_k;

    return (const char *)product->x + product->args->n * packed_bytes(product, before) +
           tokens.first * packed_bytes(product, slice) + tokens.n * packed_bytes(product, within);
}

/* The same of what is packed apart of a tile's activations. */
static inline float *bases_at(const struct product *product, struct token_tile tokens, uint32_t k)
{
    return product->bases + tokens.first * (size_t)(product->n_k / QBLK_WEIGHTS) +
           tokens.n * (size_t)(k / QBLK_WEIGHTS);
}

/* ---- the steps of a product (matmul.c), for those that take them one by one ---- */

/* Decides how it goes; args->n and the weight's rows are not 0.  The product points to args. */
void matmul_open(struct product *product, struct team *team, const struct matmul_args *args);
/* Packs columns of all tokens; x: the first token's from cols.from on, rows x_stride floats apart. */
void matmul_pack(const struct product *product, const float *x, size_t x_stride, struct col_range cols);
/* In a job of the team: a rank's share of args->x. */
void matmul_pack_share(const struct product *product, unsigned rank, unsigned n_ranks);
/* When all is packed: units, until there are no more. */
void matmul_units(const struct product *product, unsigned rank, unsigned n_ranks);
/* Or some whole panels of the weight, at most MAX_UNIT_PANELS, to y [n][panels * PANEL_ROWS]. */
void matmul_rows(const struct product *product, unsigned rank, struct panel_range panels, float *y,
                 size_t y_stride);

/* ---- which way (matmul_ways.c) ---- */

/* Tokens of a tile of a quantised weight's, at most. */
uint32_t way_tile_tokens(const struct weight *weight, uint32_t n_tokens);
/* So many such tiles: whether the weight is used as it is, or expanded first. */
bool way_is_direct(const struct weight *weight, uint32_t tile_tokens, uint32_t n_tiles);
/* And if it is, how many panels go at once. */
uint32_t way_direct_panels(const struct weight *weight, uint32_t tile_tokens, uint32_t n_tiles);
/* Several tiles: how many panels they go past before the next, and how many of their columns; what is
 * expanded for it is at most WAY_SLICE_PANELS and _CHUNKS. */
enum { WAY_SLICE_PANELS = 4, WAY_SLICE_CHUNKS = 2 };
uint32_t way_slice_panels(const struct weight *weight, bool is_direct, uint32_t direct_panels,
                          uint32_t *cols_out);
/* How a tile of so many tokens fetches quantised weights. */
struct fetch_ahead way_ahead(const struct weight *weight, uint32_t n_tokens);
/* Whether a tile fetches plain weights into the first-level cache (is_told: it is told which): they are only
 * loaded, for which some processors' second is near enough. */
bool way_is_near(bool is_told);

/* ---- blocks of BF16 tiles (matmul_block.c) ---- */

/* Quantised weights that many tokens meet by blocks. */
bool matmul_block_takes(const struct weight *weight);
/* Floats of scratch for each rank. */
size_t matmul_block_sums(uint32_t max_tokens);
/* Elements along K that a slice holds. */
uint32_t matmul_block_slice(const struct product *product);
/* Panels [from, to), at most MAX_UNIT_PANELS, for the tiles [first_tile, end_tile), of at most
 * TILES_BLOCK_TOKENS tokens.  On any rank; sums: its own. */
void matmul_block(const struct product *product, float *sums, struct panel_range panels, uint32_t first_tile,
                  uint32_t end_tile);

#endif
