/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: the split into units and the order in which memory is read. The arithmetic is in
 * kern_tile.c, kern_bf16.c, kern_amx_bf16.c and kern_q8.c.
 *
 *                 K                    tokens
 *          +-------------+        +----+----+----+--       1. every rank packs its share of K of all
 *    unit  | panel panel |        |tile|tile|tile|            activations; barrier
 *          | panel panel |   x  K |    |    |    |         2. ranks take units (a few panels) until
 *    unit  | ...         |        |    |    |    |            there are no more
 *          +-------------+        +----+----+----+--
 *
 * Few tokens: a unit is read once, front to back, and converted in registers; memory is the limit. Many
 * tokens: a unit is cut along K into slices. A few panels of a slice are converted once (16-bit floats to
 * F32, quantised types to bytes and floats). They stay in the cache while all tiles use them. Sums wait in
 * y between slices:
 *
 *     for tokens (BLOCK_TOKENS: their slice of x and their part of y fit the second-level cache)
 *       for slices of K
 *         for a few panels:  convert;  for tiles of tokens:  tile += x slice . panels
 *
 * BF16 tiles, also for most quantised types, take the same steps in matmul_block.c. Its kernels take all
 * tiles of tokens at once. Sums wait side by side in scratch and go to y after the last slice.
 *
 * matmul_choice.c explains which variant is fast on which processor.
 *
 * In any order of these loops, each output adds its products along K from first to last.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/tensor/matmul_priv.h"

#include <string.h>

#include "base/check.h"
#include "compute/tensor/weight_priv.h"

enum {
    SLICE_K = 256,
    MAX_SLICE_PANELS = 2,
    BLOCK_TOKENS = 512,
    /* An expanded chunk: bytes, and scales and mins of up to two subs per qblk. */
    EXPANDED_BYTES = CHUNK_COLS * PANEL_ROWS + 4 * CHUNK_QBLKS * PANEL_ROWS * 4,
    UNITS_PER_RANK = 8,
    FLOAT_UNITS_PER_RANK = 4,
    GROUP_PANELS = 4,
    SUMS_ALIGN = 4096,              /* one page for a tile's sums */
    DIRECT_UNIT_BYTES = 128 * 1024, /* about ten microseconds of reading */
    NEXT_BYTES = 512 * 1024,        /* prefetched by a waiting rank: a quarter or half of its cache */
};

/* Packs columns [from, to) of one tile, within a slice. x: the first token's, from `from` on. */
static void pack_tile(const struct product *product, const float *x, size_t x_stride,
                      struct token_tile tokens, struct col_range cols)
{
    uint32_t k = cols.from / product->element_cols;
    /* Pack functions count from column 0. */
    size_t before_bytes = tokens.n * packed_bytes(product, k);

    product->pack(&(struct pack){
        .type = product->args->weight->type,
        .x = x + tokens.first * x_stride,
        .x_stride = x_stride,
        .n_tokens = tokens.n,
        .from = cols.from,
        .to = cols.to,
        .out = (char *)product->scratch +
               ((const char *)packed_at(product, tokens, k) - (const char *)product->scratch - before_bytes),
        .base = product->bases != NULL ? bases_at(product, tokens, 0) : NULL,
    });
}

void matmul_pack(const struct product *product, const float *x, size_t x_stride, struct col_range cols)
{
    const uint32_t slice_cols = product->slice_k * product->element_cols, to = cols.to;

    while (cols.from < to) {
        uint32_t left = slice_cols - cols.from % slice_cols;

        cols.to = to - cols.from < left ? to : cols.from + left;
        for (uint32_t i = 0; i < product->n_tiles; i++)
            pack_tile(product, x, x_stride, tile_at(product, i), cols);
        x += cols.to - cols.from;
        cols.from = cols.to;
    }
}

void matmul_pack_share(const struct product *product, unsigned rank, unsigned n_ranks)
{
    const struct matmul_args *args = product->args;

    const struct team_range range = team_split(args->weight->cols, QBLK_WEIGHTS, rank, n_ranks);
    matmul_pack(product, args->x + range.from, args->x_stride,
                (struct col_range){(uint32_t)range.from, (uint32_t)range.to});
}

/* The panels of one call of a tile function; k in elements. */
struct region {
    const void *w;
    void (*tile)(const struct tile *tile);
    void (*tile_q8)(const struct tile_q8 *tile);
    size_t panel_step; /* elements, or bytes (quantised) */
    uint32_t panel, n_panels;
    uint32_t k, n_k;
    const void *next; /* see struct tile */
    size_t next_k_bytes, next_panel_bytes;
    size_t next_bytes; /* quantised: bytes of each panel, with each tile */
};

struct tile_out {
    float *y;
    size_t step; /* from one token to the next */
};

/* Multiplies n_tiles tiles, from the one with these tokens on: one, or for quantised types several of
 * equal height. */
static void call_tile(const struct product *product, const struct region *region, struct token_tile tokens,
                      uint32_t n_tiles, struct tile_out out)
{
    const void *x = packed_at(product, tokens, region->k);

    if (product->is_q8)
        region->tile_q8(&(struct tile_q8){
            .type = product->args->weight->type,
            .w = region->w,
            .panel_step = region->panel_step,
            .lookup = product->args->weight->lookup,
            .points = product->args->weight->points,
            .unit = product->args->weight->unit,
            .x = x,
            .x_step = tokens.n * packed_bytes(product, product->n_k),
            .y = out.y,
            .y_step = out.step,
            .n_qblks = region->n_k / QBLK_WEIGHTS,
            .n_panels = region->n_panels,
            .n_tokens = tokens.n,
            .n_tiles = n_tiles,
            .is_first = region->k == 0,
            .next = region->next,
            .next_step = region->next_panel_bytes,
            .next_bytes = region->next_bytes,
            .ahead = matmul_fetch_ahead(product->args->weight, tokens.n),
            .direct_panels = product->direct_panels,
        });
    else
        region->tile(&(struct tile){
            .w = region->w,
            .panel_step = region->panel_step,
            .x = x,
            .y = out.y,
            .y_step = out.step,
            .n_k = region->n_k,
            .n_panels = region->n_panels,
            .n_tokens = tokens.n,
            .is_first = region->k == 0,
            .next = region->next,
            .is_near = matmul_fetches_near(region->next != NULL),
            .next_k_bytes = region->next_k_bytes,
            .next_panel_bytes = region->next_panel_bytes,
        });
}

/* Calls the tile function; a panel with fewer than 16 rows goes through a buffer of whole panels. */
static void run_tile(const struct product *product, const struct region *region, struct token_tile tokens,
                     uint32_t n_tiles)
{
    const struct matmul_args *args = product->args;
    uint32_t row = region->panel * PANEL_ROWS;
    uint32_t n_rows = args->weight->rows - row;
    float *y = args->y + tokens.first * args->y_stride + row;

    if (n_rows >= region->n_panels * PANEL_ROWS) {
        call_tile(product, region, tokens, n_tiles, (struct tile_out){y, args->y_stride});
        return;
    }
    for (; n_tiles > 0; n_tiles--, tokens.first += tokens.n, y += tokens.n * args->y_stride) {
        _Alignas(64) float whole[TILES_TOKENS][PANEL_ROWS] = {{0}};

        for (uint32_t t = 0; t < tokens.n && region->k > 0; t++)
            memcpy(whole[t], y + t * args->y_stride, n_rows * sizeof(float));
        call_tile(product, region, tokens, 1, (struct tile_out){whole[0], PANEL_ROWS});
        for (uint32_t t = 0; t < tokens.n; t++)
            memcpy(y + t * args->y_stride, whole[t], n_rows * sizeof(float));
    }
}

/* Panels [panel, panel + n_panels), columns [k, k + n_k), as they lie in memory. */
static struct region region_of(const struct product *product, uint32_t panel, uint32_t n_panels, uint32_t k,
                               uint32_t n_k)
{
    const struct weight *weight = product->args->weight;
    const struct kern_vec *vec = product->table->vec;
    const char *base = weight_panel(weight, panel);
    size_t panel_bytes = weight_panel_bytes(weight);
    struct region region = {.panel = panel, .n_panels = n_panels, .k = k, .n_k = n_k};

    if (product->is_q8) {
        region.w = base + quant_panel_at(quant_form(weight->type), k);
        region.panel_step = panel_bytes;
        region.tile_q8 = weight_direct_kernel(weight); /* NULL, or not a whole group: expand first */
        if (!product->is_direct || n_panels % product->direct_panels != 0)
            region.tile_q8 = NULL;
        return region;
    }
    region.w = base + (size_t)k * PANEL_ROWS * product->element_bytes;
    region.panel_step = panel_bytes / product->element_bytes;
    region.tile = weight->is_paired            ? dots_of(weight)->tile
                  : weight->type == DTYPE_F16  ? vec->tile_f16
                  : weight->type == DTYPE_BF16 ? vec->tile_bf16
                                               : vec->tile_f32;
    return region;
}

/* Replaces 16-bit weights by a copy in F32. */
static void widen_region(const struct product *product, struct region *region, float *buffer)
{
    const struct kern_vec *vec = product->table->vec;
    enum dtype type = product->args->weight->type;
    size_t n = (size_t)region->n_k * PANEL_ROWS;

    if (product->element_bytes != 2)
        return;
    for (uint32_t p = 0; p < region->n_panels; p++)
        (type == DTYPE_F16 ? vec->widen_f16 : vec->widen_bf16)(
            (const uint16_t *)region->w + p * region->panel_step, buffer + p * n, n);
    region->w = buffer;
    region->panel_step = n;
    region->tile = product->args->weight->is_tiles ? vec->slices_f32 : vec->tile_f32;
}

/* Sets up the prefetch of the same slice of other panels during this region. */
static void matmul_fetch_next(const struct product *product, struct region *region, uint32_t panel)
{
    region->next = region_of(product, panel, 1, region->k, region->n_k).w;
    region->next_k_bytes = PANEL_ROWS * product->element_bytes;
    region->next_panel_bytes = region->panel_step * product->element_bytes;
}

/* Panels [from, to) for the tiles [first_tile, end_tile), one slice of K after another. */
static void run_sliced(const struct product *product, uint32_t from, uint32_t to, uint32_t first_tile,
                       uint32_t end_tile)
{
    _Alignas(64) float buffer[MAX_SLICE_PANELS * SLICE_K * PANEL_ROWS];
    uint32_t slice = product->slice_k;

    for (uint32_t k = 0; k < product->n_k; k += slice) {
        uint32_t n_k = product->n_k - k < slice ? product->n_k - k : slice;

        for (uint32_t panel = from; panel < to; panel += product->slice_panels) {
            uint32_t n_panels = to - panel < product->slice_panels ? to - panel : product->slice_panels;
            struct region region = region_of(product, panel, n_panels, k, n_k);

            matmul_fetch_next(product, &region, panel + n_panels < to ? panel + n_panels : from);
            widen_region(product, &region, buffer);
            for (uint32_t i = first_tile; i < end_tile; i++)
                run_tile(product, &region, tile_at(product, i), 1);
        }
    }
}

/* Replaces chunks by expanded ones. */
static void expand_region(const struct product *product, struct region *region, uint8_t *buffer)
{
    const struct weight *weight = product->args->weight;
    const struct quant_form form = quant_form(weight->type);
    const size_t step = quant_panel_at(quant_expanded(form), region->n_k);
    void (*expand_chunk)(const struct expand *) = weight_expander(weight);

    for (uint32_t p = 0; p < region->n_panels; p++) {
        struct expand expand = {.type = weight->type,
                                .chunk = (const uint8_t *)region->w + p * region->panel_step,
                                .lookup = weight->lookup,
                                .points = weight->points,
                                .unit = weight->unit,
                                .out = buffer + p * step};

        for (uint32_t k = 0; k < region->n_k; k += CHUNK_COLS) {
            uint32_t rest = (region->n_k - k) / QBLK_WEIGHTS;

            expand.n_qblks = rest < CHUNK_QBLKS ? rest : CHUNK_QBLKS;
            expand_chunk(&expand);
            expand.chunk += quant_chunk(form, expand.n_qblks).end;
            expand.out += quant_chunk(quant_expanded(form), expand.n_qblks).end;
        }
    }
    region->w = buffer;
    region->panel_step = step;
    region->tile_q8 = product->table->q8->tile;
}

/* The same for quantised types. The next data is prefetched a little with each tile. */
static void run_sliced_q8(const struct product *product, uint32_t from, uint32_t to, uint32_t first_tile,
                          uint32_t end_tile)
{
    _Alignas(64) uint8_t buffer[MATMUL_SLICE_PANELS * MATMUL_SLICE_CHUNKS * EXPANDED_BYTES];
    const struct weight *weight = product->args->weight;
    const uint32_t cols = weight->cols, each = product->slice_panels, slice = product->slice_cols;

    for (uint32_t k = 0; k < cols; k += slice) {
        uint32_t n_k = cols - k < slice ? cols - k : slice;

        for (uint32_t panel = from; panel < to; panel += each) {
            uint32_t n_panels = to - panel < each ? to - panel : each;
            struct region region = region_of(product, panel, n_panels, k, n_k);
            bool is_last = panel + n_panels >= to;
            uint32_t next_k = is_last && k + slice < cols ? k + slice : k;
            const char *next = region_of(product, is_last ? from : panel + n_panels, 1, next_k, n_k).w;

            region.next_panel_bytes = region.panel_step;
            region.next_bytes = quant_panel_at(quant_form(weight->type), n_k) / (end_tile - first_tile) + 1;
            if (region.tile_q8 == NULL)
                expand_region(product, &region, buffer);
            for (uint32_t i = first_tile; i < end_tile;) {
                uint32_t n_tiles = 1;

                while (i + n_tiles < end_tile && tile_at(product, i + n_tiles).n == tile_at(product, i).n)
                    n_tiles++;
                region.next = next + (i - first_tile) * region.next_bytes;
                run_tile(product, &region, tile_at(product, i), n_tiles);
                i += n_tiles;
            }
        }
    }
}

static void run_panels(const struct product *product, unsigned rank, uint32_t from, uint32_t to)
{
    if (from == to)
        return;
    if (product->n_tiles == 1 && product->is_direct) {
        uint32_t whole_to = to - (product->is_q8 ? (to - from) % product->direct_panels : 0);
        struct region region = region_of(product, from, whole_to - from, 0, product->n_k);

        if (whole_to > from)
            run_tile(product, &region, tile_at(product, 0), 1);
        from = whole_to;
        if (from == to)
            return;
    }
    uint32_t block_tokens = product->has_blocks ? TILES_BLOCK_TOKENS : BLOCK_TOKENS;
    uint32_t n_blocks = (product->args->n + block_tokens - 1) / block_tokens;
    uint32_t at_once = (product->n_tiles + n_blocks - 1) / n_blocks;
    for (uint32_t i = 0; i < product->n_tiles; i += at_once) {
        uint32_t end = product->n_tiles - i < at_once ? product->n_tiles : i + at_once;

        if (product->has_blocks)
            matmul_block(product, product->sums + rank * matmul_block_sums(product->args->n),
                         (struct panel_range){from, to}, i, end);
        else
            (product->is_q8 ? run_sliced_q8 : run_sliced)(product, from, to, i, end);
    }
}

/* Panels per unit. Several units per rank let ranks end together, and a unit should fill a tile function's
 * group of panels. If both are not possible, every rank gets a unit. */
static uint32_t matmul_unit_panels(uint32_t n_panels, unsigned n_ranks, uint32_t units_per_rank)
{
    uint32_t each = n_panels / (n_ranks * units_per_rank) / GROUP_PANELS * GROUP_PANELS;

    if (each > 0)
        return each < MAX_UNIT_PANELS ? each : MAX_UNIT_PANELS;
    each = n_panels / n_ranks;
    return each < 1 ? 1 : each < GROUP_PANELS ? each : GROUP_PANELS;
}

/* For a weight used without expansion by one tile: a unit costs only its reading, so units are small. */
static uint32_t direct_unit_panels(const struct weight *weight, unsigned n_ranks)
{
    uint32_t n_panels = weight_n_panels(weight->rows), each = GROUP_PANELS;
    uint32_t most = matmul_unit_panels(n_panels, n_ranks, UNITS_PER_RANK);

    while (each < most && each * weight_panel_bytes(weight) < DIRECT_UNIT_BYTES)
        each += GROUP_PANELS;
    return each < most ? each : most;
}

void matmul_ahead(struct team *team, unsigned rank, const struct weight *weight)
{
    unsigned n_ranks = team_size(team);

    team_ahead(team, rank, NULL, 0);
    if (weight == NULL)
        return;
    const unsigned node = team_node_of(team, rank);
    const struct weight near = weight_near(weight, node);
    const struct team_ranks ranks =
        weight_is_divided(weight, team) ? team_node_ranks(team, node) : (struct team_ranks){0, n_ranks};
    const struct panel_range panels = matmul_panels_of(weight, team, rank);
    uint32_t n_panels = panels.to - panels.from, each = direct_unit_panels(weight, n_ranks);
    const struct team_range range = team_split((n_panels + each - 1) / each, 1, rank - ranks.first, ranks.n);
    if (range.from == range.to) /* more ranks than units */
        return;
    uint64_t end = range.to * each < n_panels ? range.to * each : n_panels;
    uint64_t len_bytes = (end - range.from * each) * weight_panel_bytes(weight);
    team_ahead(team, rank, weight_panel(&near, panels.from + (uint32_t)range.from * each),
               len_bytes < NEXT_BYTES ? len_bytes : NEXT_BYTES);
}

void matmul_run_unit(const struct product *product, unsigned rank, uint32_t from, uint32_t to)
{
    uint32_t n_whole = product->has_blocks ? product->n_panels : product->args->weight->rows / PANEL_ROWS;
    uint32_t whole_to = to < n_whole ? to : n_whole;
    bool is_flushed = product->args->weight->is_dots && !product->args->weight->is_paired;
    uint32_t before = is_flushed ? kern_flush_begin() : 0;

    run_panels(product, rank, from, whole_to);
    if (to >= product->n_panels && n_whole < product->n_panels) /* the ragged last panel */
        run_panels(product, rank, n_whole, product->n_panels);
    if (is_flushed)
        kern_flush_end(before);
}

static void product_job(void *arg, unsigned rank, unsigned n_ranks)
{
    const struct product *product = arg;

    if ((const float *)product->x == product->scratch->x) {
        matmul_pack_share(product, rank, n_ranks);
        team_barrier(product->team, rank);
    }
    matmul_units(product, rank);
    matmul_ahead(product->team, rank,
                 product->is_direct && product->n_tiles == 1 ? product->args->next : NULL);
    if (product->close != NULL)
        product->close();
}

/* Number of elements along K. */
static uint32_t n_elements(const struct weight *weight)
{
    uint32_t cols = weight->is_tiles  ? weight_tiles_cols(weight)
                    : weight->is_dots ? (weight->cols + 1) / 2 * 2
                                      : weight->cols;

    return weight->is_paired ? cols / 2 : cols;
}

/* ---- scratch ---- */

/* Bytes of a qblk of one of n tokens' activations, packed for dots with quantised weights. */
static uint32_t act_bytes(const struct weight *weight, uint32_t n)
{
    const struct kern_q8 *q8 = weight->table->q8;
    const struct quant_form form = quant_form(weight->type);
    const bool is_narrow = form.most <= q8->narrow_most ||
                           (n == 1 && q8->has_signed && quant_has_wide_levels(form, q8->narrow_most));

    return quant_act_bytes(form, is_narrow ? q8->narrow_bytes : q8->quant_bytes);
}

/* Bytes of packed activations, in the larger of the forms that the weight may need. */
static size_t x_bytes(const struct weight *weight, uint32_t n)
{
    const size_t by_dots = act_bytes(weight, n);

    if (!weight_is_quant(weight->type))
        return (size_t)n * n_elements(weight) * sizeof(float);
    return (size_t)n * (weight->cols / QBLK_WEIGHTS) *
           (matmul_block_takes(weight) && by_dots < QBLK_TILES_BYTES ? QBLK_TILES_BYTES : by_dots);
}

static bool may_have_blocks(const struct weight *weight)
{
    return (weight->is_tiles && weight->is_paired) || matmul_block_takes(weight);
}

static size_t scratch_bytes(size_t max_x_bytes, size_t n_sums)
{
    return sizeof(struct scratch) + max_x_bytes + (n_sums > 0 ? SUMS_ALIGN + n_sums * sizeof(float) : 0);
}

size_t matmul_scratch_bytes(const struct weight *weight, uint32_t max_tokens, uint32_t n_ranks)
{
    return scratch_bytes(x_bytes(weight, max_tokens),
                         may_have_blocks(weight) ? n_ranks * matmul_block_sums(max_tokens) : 0);
}

/* No form of packed activations is larger than F32. */
size_t matmul_scratch_most(uint32_t max_tokens, uint32_t max_cols, uint32_t n_ranks)
{
    return scratch_bytes((size_t)max_tokens * (max_cols + QBLK_WEIGHTS) * sizeof(float),
                         n_ranks * matmul_block_sums(max_tokens));
}

static float *sums_behind(struct scratch *scratch, const struct weight *weight, uint32_t n)
{
    uintptr_t end = (uintptr_t)scratch->x + x_bytes(weight, n);

    return (float *)((end + SUMS_ALIGN - 1) / SUMS_ALIGN * SUMS_ALIGN);
}

/* ---- a product ---- */

/* Sets up quantised weights by BF16 tiles instead of dots of bytes. */
static void quants_by_tiles(struct product *product)
{
    const struct kern_dots *tiles = product->table->tiles;
    const uint32_t n = product->args->n;

    product->pack = tiles->quant_pack;
    product->close = tiles->close;
    product->qblk_bytes = QBLK_TILES_BYTES - sizeof(float);
    product->bases = product->scratch->x + n * packed_bytes(product, product->n_k) / sizeof(float);
    product->n_tiles = (n + TILES_TOKENS - 1) / TILES_TOKENS;
    product->is_direct = false;
    product->has_blocks = true;
}

void matmul_open(struct product *product, struct team *team, const struct matmul_args *args)
{
    const struct weight *weight = args->weight;
    const struct kern_q8 *q8 = weight->table->q8;
    bool is_q8 = weight_is_quant(weight->type);
    bool is_tiles = weight->is_tiles && weight->is_paired;
    uint32_t tile_tokens = is_q8      ? matmul_tile_tokens(weight, args->n)
                           : is_tiles ? (uint32_t)TILES_TOKENS
                                      : weight->table->vec->tile_tokens;

    *product = (struct product){
        .args = args,
        .table = weight->table,
        .team = team,
        .scratch = args->scratch,
        .is_q8 = is_q8,
        .pack = is_q8               ? q8->pack
                : weight->is_paired ? dots_of(weight)->pack
                : weight->is_tiles  ? weight->table->vec->pack_slices
                : weight->is_dots   ? weight->table->vec->pack_swapped
                                    : weight->table->vec->pack_f32,
        .close = !is_q8 && weight->is_paired ? dots_of(weight)->close : NULL,
        .qblk_bytes = act_bytes(weight, args->n),
        .n_k = n_elements(weight),
        .element_cols = weight->is_paired ? 2 : 1,
        .slice_k = is_q8      ? weight->cols
                   : is_tiles ? n_elements(weight)
                              : SLICE_K,
        .element_bytes = weight->is_paired ? 4 : weight_plain_bytes(weight->type),
        .n_tiles = (args->n + tile_tokens - 1) / tile_tokens,
        .n_panels = weight_n_panels(weight->rows),
        .slice_panels = weight->table->vec->tile_panels,
    };

    ASSERT((uintptr_t)args->scratch % 64 == 0);
    product->direct_panels = matmul_direct_panels(weight, tile_tokens, product->n_tiles);
    product->is_direct = is_q8 ? matmul_is_direct(weight, tile_tokens, product->n_tiles)
                               : product->n_tiles == 1 && (is_tiles || !weight->is_tiles);
    ASSERT(!is_q8 || args->n > 1 || !q8->has_signed || product->is_direct); /* see kern_q8.has_signed */
    if (is_q8)
        product->slice_panels =
            matmul_slice_panels(weight, product->is_direct, product->direct_panels, &product->slice_cols);
    product->has_blocks = is_tiles && product->n_tiles > 1 && args->n / product->n_tiles > TILES_TOKENS / 2;
    if (args->n >= TILES_QUANT_TOKENS && matmul_block_takes(weight))
        quants_by_tiles(product);
    if (product->has_blocks) {
        product->slice_k = matmul_block_slice(product);
        product->sums = sums_behind(args->scratch, weight, args->n);
    }
    product->unit_panels = product->is_direct && product->n_tiles == 1
                               ? direct_unit_panels(weight, team_size(team))
                               : matmul_unit_panels(product->n_panels, team_size(team),
                                                    is_q8 ? UNITS_PER_RANK : FLOAT_UNITS_PER_RANK);
    /* One row of floats needs no packing. */
    product->x = !is_q8 && !weight->is_dots && args->n == 1 ? args->x : product->scratch->x;
    matmul_work_init(product);
}

void matmul(struct team *team, const struct matmul_args *args)
{
    struct product product;

    if (args->n == 0 || args->weight->rows == 0)
        return;
    matmul_open(&product, team, args);
    team_run(team, product_job, &product);
}
