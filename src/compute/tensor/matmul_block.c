/* SPDX-License-Identifier: Apache-2.0 */
/* Many tokens by BF16 tiles: a unit of a product is computed in blocks.
 *
 *     for slices of K (512 columns)
 *       for two panels:        32 KiB of weights, which stay in the first-level cache while
 *         for tiles of tokens:   their slice (half a MiB of 512 tokens) streams from the second-level cache;
 *                                sums of 4 KiB are loaded (except in the first slice) and stored
 *     sums to y
 *
 * Meanwhile the next two panels' weights are prefetched from memory, and a part of the activations of the
 * next slice. The activations of all slices exceed the second-level cache, so each unit reads them again.
 * The sums lie side by side, because rows of y are so far apart that they would share a few sets of each
 * cache.
 *
 * Slices change no bit: between slices an output is stored as the same F32 number that it is in the tile.
 *
 * Quantised weights with a scale per qblk take the same steps (kern_amx_quant.c). Their slice is a chunk
 * of 256 columns. Two panels of it (eight, with few tokens) are taken apart right before the tiles of
 * tokens use them.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/tensor/matmul_priv.h"

#include "base/check.h"
#include "compute/kernels/tile_block.h"

enum {
    SLICE_PAIRS = 256, /* of two panels: two thirds of the first-level cache */
    SLICE_PANELS = 2,
    BLOCK_TILES = TILES_BLOCK_TOKENS / TILES_TOKENS,
    GROUP_PAIRS = 4, /* pairs of panels, with fewer tiles of tokens than GROUP_TILES */
    GROUP_TILES = 4,
    EXPANDED_BYTES = CHUNK_QBLKS * (TILES_B_BYTES + 2 * PANEL_ROWS * 4), /* of an expanded chunk */
};

/* Types with a scale per qblk. */
bool matmul_block_takes(const struct weight *weight)
{
    const struct kern_dots *tiles = weight->table->tiles;

    return quant_form(weight->type).n_subs == 1 && tiles != NULL && tiles->is_usable();
}

/* Nearly equal slices of whole TILES_COLS; for quantised weights a chunk. */
uint32_t matmul_block_slice(const struct product *product)
{
    uint32_t n_k = product->n_k;

    if (product->is_q8)
        return CHUNK_COLS;
    uint32_t n_slices = (n_k + SLICE_PAIRS - 1) / SLICE_PAIRS, step = TILES_COLS / 2;

    return ((n_k + n_slices - 1) / n_slices + step - 1) / step * step;
}

/* Sums of as many tokens as a block may hold, by as many panels as a unit may have. */
size_t matmul_block_sums(uint32_t max_tokens)
{
    uint32_t n_tiles = (max_tokens + TILES_TOKENS - 1) / TILES_TOKENS;

    return (size_t)(n_tiles < BLOCK_TILES ? n_tiles : BLOCK_TILES) * TILES_SUMS *
           (MAX_UNIT_PANELS / SLICE_PANELS);
}

/* The tiles and panels of a unit, and its current slice of K. */
struct block {
    uint32_t from, to; /* panels */
    uint32_t first_tile, end_tile;
    uint32_t k, n_k;
    float *sums;
};

/* Number of tiles, from this one on, with its height. */
static uint32_t equal_tiles(const struct product *product, uint32_t tile, uint32_t end_tile)
{
    uint32_t n = 1;

    while (tile + n < end_tile && tile_at(product, tile + n).n == tile_at(product, tile).n)
        n++;
    return n;
}

static float *sums_at(const struct block *block, uint32_t panel, uint32_t tile)
{
    uint32_t pair = (panel - block->from) / SLICE_PANELS;

    return block->sums +
           ((size_t)pair * (block->end_tile - block->first_tile) + tile - block->first_tile) * TILES_SUMS;
}

/* Start of a slice of a panel. */
static const char *slice_of(const struct product *product, uint32_t panel, uint32_t k)
{
    const struct weight *weight = product->args->weight;
    size_t before_bytes = product->is_q8 ? quant_panel_at(quant_form(weight->type), k)
                                         : (size_t)k * PANEL_ROWS * sizeof(uint32_t);

    return (const char *)weight_panel(weight, panel) + before_bytes;
}

/* Expands the slice of these panels. */
static void expand_slice(const struct product *product, const struct block *block, struct panel_range panels,
                         uint8_t *out)
{
    const struct weight *weight = product->args->weight;
    const uint32_t n_qblks = block->n_k / QBLK_WEIGHTS;

    for (uint32_t panel = panels.from; panel < panels.to; panel++) {
        weight->table->tiles->quant_expand(
            &(struct expand){.type = weight->type,
                             .chunk = (const uint8_t *)slice_of(product, panel, block->k),
                             .lookup = weight->lookup,
                             .points = weight->points,
                             .unit = weight->unit,
                             .n_qblks = n_qblks,
                             .out = out});
        out += n_qblks * quant_tiles_bytes(quant_form(weight->type).has_min);
    }
}

/* Panels of one call: two; more with few tokens, so that the turns at both ends of a call weigh less.
 * Tiles of two heights need separate calls in any case. */
static uint32_t group_panels(const struct product *product, const struct block *block, uint32_t panel)
{
    const uint32_t n_tiles = block->end_tile - block->first_tile, left = block->to - panel;
    uint32_t n = SLICE_PANELS;

    if (product->is_q8 && n_tiles < GROUP_TILES &&
        equal_tiles(product, block->first_tile, block->end_tile) == n_tiles)
        n *= GROUP_PAIRS;
    return left >= n ? n : left > SLICE_PANELS ? left / SLICE_PANELS * SLICE_PANELS : left;
}

/* Also prefetches the slice of the next panels, and a share of the activations of the next slice. */
static void run_group(const struct product *product, const struct block *block, struct panel_range panels)
{
    const struct kern_dots *tiles = product->args->weight->table->tiles;
    _Alignas(64) uint8_t expanded[GROUP_PAIRS * SLICE_PANELS * EXPANDED_BYTES];
    uint32_t n_tiles = block->end_tile - block->first_tile;
    uint32_t n_pairs = (block->to - block->from + SLICE_PANELS - 1) / SLICE_PANELS;
    uint32_t end_k = block->k + block->n_k, next_k = end_k < product->n_k ? end_k : 0;
    bool is_last = panels.to == block->to;
    uint32_t begin = next_k == 0 && block->to < product->n_panels ? block->to : block->from; /* of a slice */
    struct token_tile first = tile_at(product, block->first_tile),
                      last = tile_at(product, block->end_tile - 1);
    size_t x_bytes = (last.first + last.n - first.first) * packed_bytes(product, block->n_k);
    const char *w = slice_of(product, panels.from, block->k);
    const char *next_w = is_last ? slice_of(product, begin, next_k) : slice_of(product, panels.to, block->k);
    const char *next_x = packed_at(product, first, next_k);
    struct tile_block call = {
        .w = w,
        .panel_bytes = weight_panel_bytes(product->args->weight),
        .n_k = block->n_k,
        .n_panels = panels.to - panels.from < SLICE_PANELS ? 1 : SLICE_PANELS,
        .n_pairs = (panels.to - panels.from + 1) / SLICE_PANELS,
        .is_first = block->k == 0,
        .next_panel_bytes = weight_panel_bytes(product->args->weight),
        .next_w_bytes = (size_t)(slice_of(product, panels.from, end_k) - w) / n_tiles,
        .next_x_bytes = next_k == block->k ? 0 : x_bytes / n_pairs / n_tiles,
    };

    if (product->is_q8) {
        expand_slice(product, block, panels, expanded);
        call.w = expanded;
        call.has_min = quant_form(product->args->weight->type).has_min;
        call.panel_bytes = block->n_k / QBLK_WEIGHTS * quant_tiles_bytes(call.has_min);
        call.pair_bytes = SLICE_PANELS * call.panel_bytes;
        call.pair_step = (size_t)n_tiles * TILES_SUMS;
    }
    for (uint32_t tile = block->first_tile; tile < block->end_tile; tile += call.n_tiles) {
        uint32_t done = tile - block->first_tile;
        struct token_tile tokens = tile_at(product, tile);

        call.x = packed_at(product, tokens, block->k);
        if (product->is_q8) {
            call.base = bases_at(product, tokens, block->k);
            call.base_step = tokens.n * (size_t)(product->n_k / QBLK_WEIGHTS);
        }
        call.sums = sums_at(block, panels.from, tile);
        call.n_tokens = tokens.n;
        call.n_tiles = equal_tiles(product, tile, block->end_tile);
        call.next_w = next_w + done * call.next_w_bytes;
        call.next_x =
            next_x + ((panels.from - block->from) / SLICE_PANELS * n_tiles + done) * call.next_x_bytes;
        (product->is_q8 ? tiles->quant_block : tiles->block)(&call);
    }
}

static void give_sums(const struct product *product, const struct block *block)
{
    const struct matmul_args *args = product->args;
    uint32_t row = block->from * PANEL_ROWS, left = args->weight->rows - row, n_tiles;
    uint32_t n_panels = block->to - block->from;

    for (uint32_t tile = block->first_tile; tile < block->end_tile; tile += n_tiles) {
        struct token_tile tokens = tile_at(product, tile);

        n_tiles = equal_tiles(product, tile, block->end_tile);
        args->weight->table->tiles->give(&(struct tile_give){
            .sums = sums_at(block, block->from, tile),
            .pair_step = (size_t)(block->end_tile - block->first_tile) * TILES_SUMS,
            .n_panels = n_panels,
            .n_tokens = tokens.n,
            .n_tiles = n_tiles,
            .n_rows = left < n_panels * PANEL_ROWS ? left : n_panels * PANEL_ROWS,
            .y = args->y + tokens.first * args->y_stride + row,
            .y_step = args->y_stride,
        });
    }
}

void matmul_block(const struct product *product, float *sums, struct panel_range panels, uint32_t first_tile,
                  uint32_t end_tile)
{
    struct block block = {
        .from = panels.from, .to = panels.to, .first_tile = first_tile, .end_tile = end_tile, .sums = sums};
    uint32_t slice = product->slice_k;

    ASSERT(panels.to - panels.from <= MAX_UNIT_PANELS && end_tile - first_tile <= BLOCK_TILES);
    for (; block.k < product->n_k; block.k += slice) {
        block.n_k = product->n_k - block.k < slice ? product->n_k - block.k : slice;
        for (uint32_t panel = block.from, n; panel < block.to; panel += n) {
            n = group_panels(product, &block, panel);
            run_group(product, &block, (struct panel_range){panel, panel + n});
        }
    }
    give_sums(product, &block);
}
