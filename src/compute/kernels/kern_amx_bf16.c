/* SPDX-License-Identifier: Apache-2.0 */
/* BF16 tiles of AMX (tdpbf16ps): 16 tokens x 16 rows of W x 32 columns in one instruction.
 *
 *       A: x packed [k/32][token][32]           B: a panel, [k/2][lane][2]           C: y
 *      16 tokens [ 32 columns, 64 bytes ]   x   16 pairs [ 16 lanes, 64 bytes ]   =  16 tokens [ 16 lanes ]
 *
 * The instruction computes an output as follows. Each product and sum is rounded once to nearest even;
 * subnormal inputs and results count as zero:
 *
 *     even = odd = 0;  for the 16 pairs:  even = fma(x[k], w[k], even);  odd = fma(x[k + 1], w[k + 1], odd)
 *     y = y + (even + odd)
 *
 * So FMAs on a CPU set to flush give the same bits (slices_* in kern_tile.c; amx.c tests the instruction
 * itself before it is used). An output's bits depend neither on the tile's height nor on its place. If K is
 * no multiple of 32, weights and activations are padded with zeros.
 *
 * 17 tokens and more: four C (two of tokens, two panels) stay in tiles along K; a step along K loads two A
 * and two B for four products. Up to 16 tokens: one A and four panels. One or two tokens: memory is the
 * limit, and FMAs read memory best; a tile of two rows would load 64 lines of weights through one port.
 *
 * Many tokens are computed in blocks: a slice of two panels (32 KiB) stays in the first-level cache while the
 * tiles of tokens stream from the second. Three measures achieve this:
 *
 *     activations are loaded with a non-temporal hint, or they would evict the weights;
 *     between slices, sums lie side by side, 4 KiB per tile of tokens, because rows of y lie so far apart
 *         that they share few sets of a cache and need a page each;
 *     at a tile's first step each C is stored right before the next one is loaded into its place: the
 *         products of one tile end while those of the next begin.
 *
 * The shapes of tiles depend on the number of tokens. A thread sets them when they change, and releases the
 * tiles in kern_tiles_close().
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/kernels/amx_priv.h"
#include "compute/kernels/kern_set_priv.h"
#include "compute/kernels/tile_block.h"

enum {
    AHEAD_BYTES = 4096,
    FEW_TOKENS = 2,
    LINE = 64,
    AHEAD_COLS = 64,
    GIVE_AHEAD = 3, /* prefetches so many rows of y ahead */
};

void kern_tiles_tile(const struct tile *tile);
void kern_tiles_pack(const struct pack *pack);
void kern_tiles_block(const struct tile_block *block);
void kern_tiles_give(const struct tile_give *give);
void kern_tiles_close(void);
float kern_peak_amx_bf16(uint32_t rounds);

/* The number of tokens that this thread's tiles have shapes for; 0: no shapes. */
static _Thread_local uint32_t shaped_tokens;

void kern_tiles_shape(uint32_t n_tokens)
{
    const uint32_t high = n_tokens > AMX_ROWS ? (n_tokens + 1) / 2 : n_tokens;
    const uint32_t low = n_tokens > AMX_ROWS ? n_tokens / 2 : n_tokens;
    struct amx_shapes shapes = {0};

    if (shaped_tokens == n_tokens)
        return;
    for (int i = 0; i < AMX_TILES; i++)
        amx_shape(&shapes, i, AMX_ROWS, AMX_ROW_BYTES);
    amx_shape(&shapes, 0, high, AMX_ROW_BYTES);
    amx_shape(&shapes, 1, high, AMX_ROW_BYTES);
    amx_shape(&shapes, 2, low, AMX_ROW_BYTES);
    amx_shape(&shapes, 3, low, AMX_ROW_BYTES);
    amx_shape(&shapes, 4, high, AMX_ROW_BYTES);
    if (n_tokens > AMX_ROWS)
        amx_shape(&shapes, 5, low, AMX_ROW_BYTES);
    amx_configure(&shapes);
    shaped_tokens = n_tokens;
}

void kern_tiles_close(void)
{
    if (shaped_tokens != 0)
        amx_release();
    shaped_tokens = 0;
}

/* ---- tiles ---- */

/* A group of panels, and the pointers that move along K. */
struct walk {
    const struct tile *tile;
    const char *w; /* weights of the first panel */
    size_t panel_bytes;
    const char *x;
    float *y;
    size_t y_bytes; /* from one token to the next */
    size_t n_steps;
};

static inline __attribute__((always_inline)) struct walk walk_begin(const struct tile *tile, uint32_t panel)
{
    const size_t panel_bytes = tile->panel_step * sizeof(uint32_t);

    return (struct walk){
        .tile = tile,
        .w = (const char *)tile->w + panel * panel_bytes,
        .panel_bytes = panel_bytes,
        .x = (const char *)tile->x,
        .y = tile->y + (size_t)panel * PANEL_ROWS,
        .y_bytes = tile->y_step * sizeof(float),
        .n_steps = tile->n_k / (TILES_COLS / 2),
    };
}

/* Returns the address to prefetch for weights that are read once.  It lies ahead in the same panel; near the
 * panel's end, at the start of the panel that replaces it in the next group. */
static inline const char *ahead_of(const struct walk *walk, size_t step, uint32_t n_panels)
{
    size_t len_bytes = walk->n_steps * TILES_B_BYTES, to = step * TILES_B_BYTES + AHEAD_BYTES;

    return walk->w + (to < len_bytes ? to : to - len_bytes + n_panels * walk->panel_bytes);
}

static inline __attribute__((always_inline)) void walk_fetch(const struct walk *walk, size_t step,
                                                             uint32_t n_panels)
{
    const char *ahead = ahead_of(walk, step, n_panels);

    for (uint32_t p = 0; p < n_panels; p++)
#pragma GCC unroll 16
        for (int i = 0; i < TILES_B_BYTES; i += LINE)
            __builtin_prefetch(ahead + p * walk->panel_bytes + i, 0, 3);
}

/* Multiplies 17 to 32 tokens by one or two panels. */
static inline __attribute__((always_inline)) void tall_group(const struct tile *tile, uint32_t panel,
                                                             bool has_two)
{
    const struct walk walk = walk_begin(tile, panel);
    const size_t high = (tile->n_tokens + 1) / 2, x_step = (size_t)tile->n_tokens * AMX_ROW_BYTES;
    float *below = walk.y + high * tile->y_step;

    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (!tile->is_first) {
        _tile_loadd(0, walk.y, walk.y_bytes);
        _tile_loadd(2, below, walk.y_bytes);
        if (has_two) {
            _tile_loadd(1, walk.y + PANEL_ROWS, walk.y_bytes);
            _tile_loadd(3, below + PANEL_ROWS, walk.y_bytes);
        }
    }
    for (size_t step = 0; step < walk.n_steps; step++) {
        const char *x = walk.x + step * x_step, *w = walk.w + step * TILES_B_BYTES;

        _tile_loadd(6, w, AMX_ROW_BYTES);
        _tile_loadd(4, x, AMX_ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, x + high * AMX_ROW_BYTES, AMX_ROW_BYTES);
        _tile_dpbf16ps(2, 5, 6);
        if (has_two) {
            _tile_loadd(7, w + walk.panel_bytes, AMX_ROW_BYTES);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(3, 5, 7);
        }
        walk_fetch(&walk, step, has_two ? 2 : 1);
    }
    _tile_stored(0, walk.y, walk.y_bytes);
    _tile_stored(2, below, walk.y_bytes);
    if (has_two) {
        _tile_stored(1, walk.y + PANEL_ROWS, walk.y_bytes);
        _tile_stored(3, below + PANEL_ROWS, walk.y_bytes);
    }
}

/* Multiplies up to 16 tokens by four, two or one panels. */
static inline __attribute__((always_inline)) void flat_group(const struct tile *tile, uint32_t panel,
                                                             uint32_t n_panels)
{
    const struct walk walk = walk_begin(tile, panel);
    const size_t x_step = (size_t)tile->n_tokens * AMX_ROW_BYTES;

    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (!tile->is_first) {
        _tile_loadd(0, walk.y, walk.y_bytes);
        if (n_panels > 1)
            _tile_loadd(1, walk.y + PANEL_ROWS, walk.y_bytes);
        if (n_panels > 2) {
            _tile_loadd(2, walk.y + (size_t)2 * PANEL_ROWS, walk.y_bytes);
            _tile_loadd(3, walk.y + (size_t)3 * PANEL_ROWS, walk.y_bytes);
        }
    }
    for (size_t step = 0; step < walk.n_steps; step++) {
        const char *w = walk.w + step * TILES_B_BYTES;

        _tile_loadd(4, walk.x + step * x_step, AMX_ROW_BYTES);
        walk_fetch(&walk, step, n_panels);
        _tile_loadd(5, w, AMX_ROW_BYTES);
        _tile_dpbf16ps(0, 4, 5);
        if (n_panels > 1) {
            _tile_loadd(6, w + walk.panel_bytes, AMX_ROW_BYTES);
            _tile_dpbf16ps(1, 4, 6);
        }
        if (n_panels > 2) {
            _tile_loadd(7, w + 2 * walk.panel_bytes, AMX_ROW_BYTES);
            _tile_dpbf16ps(2, 4, 7);
            _tile_loadd(5, w + 3 * walk.panel_bytes, AMX_ROW_BYTES);
            _tile_dpbf16ps(3, 4, 5);
        }
    }
    _tile_stored(0, walk.y, walk.y_bytes);
    if (n_panels > 1)
        _tile_stored(1, walk.y + PANEL_ROWS, walk.y_bytes);
    if (n_panels > 2) {
        _tile_stored(2, walk.y + (size_t)2 * PANEL_ROWS, walk.y_bytes);
        _tile_stored(3, walk.y + (size_t)3 * PANEL_ROWS, walk.y_bytes);
    }
}

/* ---- blocks ---- */

enum { MAX_ROW_PANELS = 2 };

/* Stores the sums of one C, and loads others in their place.  old NULL: there are none to store.  new NULL:
 * starts at zero. */
static inline __attribute__((always_inline)) void change_sums(int c, float *old, const float *new)
{
    switch (c) { /* the register number is part of the instruction */
    case 0:
        if (old != NULL)
            _tile_stored(0, old, AMX_ROW_BYTES);
        if (new == NULL)
            _tile_zero(0);
        else
            _tile_loadd(0, new, AMX_ROW_BYTES);
        break;
    case 1:
        if (old != NULL)
            _tile_stored(1, old + TILES_C, AMX_ROW_BYTES);
        if (new == NULL)
            _tile_zero(1);
        else
            _tile_loadd(1, new + TILES_C, AMX_ROW_BYTES);
        break;
    case 2:
        if (old != NULL)
            _tile_stored(2, old + (size_t)2 * TILES_C, AMX_ROW_BYTES);
        if (new == NULL)
            _tile_zero(2);
        else
            _tile_loadd(2, new + (size_t)2 * TILES_C, AMX_ROW_BYTES);
        break;
    default:
        if (old != NULL)
            _tile_stored(3, old + (size_t)3 * TILES_C, AMX_ROW_BYTES);
        if (new == NULL)
            _tile_zero(3);
        else
            _tile_loadd(3, new + (size_t)3 * TILES_C, AMX_ROW_BYTES);
    }
}

/* Lines that each step prefetches: the next weights and activations, and the next tile's sums. */
struct ahead {
    const char *w, *x, *sums;
    uint32_t w_lines, x_lines, sums_lines;
};

static inline struct ahead ahead_begin(const struct tile_block *block, uint32_t tile, const float *sums)
{
    const uint32_t n_steps = block->n_k / (TILES_COLS / 2), step_bytes = n_steps * LINE;

    return (struct ahead){
        .w = block->next_w + tile * block->next_w_bytes,
        .x = block->next_x + tile * block->next_x_bytes,
        .sums = (const char *)(sums + TILES_SUMS),
        .w_lines = (uint32_t)(block->next_w_bytes + step_bytes - 1) / step_bytes,
        .x_lines = (uint32_t)(block->next_x_bytes + step_bytes - 1) / step_bytes,
        .sums_lines =
            block->is_first ? 0 : (TILES_SUMS * (uint32_t)sizeof(float) + step_bytes - 1) / step_bytes,
    };
}

static inline __attribute__((always_inline)) void ahead_fetch(struct ahead *ahead, size_t panel_bytes,
                                                              bool has_two)
{
    for (uint32_t i = 0; i < ahead->sums_lines; i++, ahead->sums += LINE)
        __builtin_prefetch(ahead->sums, 1, 3);
    for (uint32_t i = 0; i < ahead->w_lines; i++, ahead->w += LINE) {
        __builtin_prefetch(ahead->w, 0, 2);
        if (has_two)
            __builtin_prefetch(ahead->w + panel_bytes, 0, 2);
    }
    for (uint32_t i = 0; i < ahead->x_lines; i++, ahead->x += LINE)
        __builtin_prefetch(ahead->x, 0, 2);
}

/* Computes the products of one tile of tokens.  old: sums of the previous tile, which C still has. */
static inline __attribute__((always_inline)) void block_tile(const struct tile_block *block, uint32_t tile,
                                                             float *old, bool has_two)
{
    const size_t n_steps = block->n_k / (TILES_COLS / 2), x_step = (size_t)block->n_tokens * AMX_ROW_BYTES;
    const size_t below = (size_t)(block->n_tokens + 1) / 2 * AMX_ROW_BYTES;
    const char *x = (const char *)block->x + tile * n_steps * x_step, *w = block->w;
    const float *sums = block->sums + (size_t)tile * TILES_SUMS, *new = block->is_first ? NULL : sums;
    struct ahead ahead = ahead_begin(block, tile, sums);

    _tile_stream_loadd(4, x, AMX_ROW_BYTES);
    _tile_loadd(6, w, AMX_ROW_BYTES);
    change_sums(0, old, new);
    _tile_dpbf16ps(0, 4, 6);
    if (has_two) {
        _tile_loadd(7, w + block->panel_bytes, AMX_ROW_BYTES);
        change_sums(1, old, new);
        _tile_dpbf16ps(1, 4, 7);
    }
    _tile_stream_loadd(5, x + below, AMX_ROW_BYTES);
    change_sums(2, old, new);
    _tile_dpbf16ps(2, 5, 6);
    if (has_two) {
        change_sums(3, old, new);
        _tile_dpbf16ps(3, 5, 7);
    }
    ahead_fetch(&ahead, block->next_panel_bytes, has_two);
    for (size_t step = 1; step < n_steps; step++) {
        x += x_step;
        w += TILES_B_BYTES;
        _tile_stream_loadd(4, x, AMX_ROW_BYTES);
        _tile_loadd(6, w, AMX_ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        if (has_two) {
            _tile_loadd(7, w + block->panel_bytes, AMX_ROW_BYTES);
            _tile_dpbf16ps(1, 4, 7);
        }
        _tile_stream_loadd(5, x + below, AMX_ROW_BYTES);
        _tile_dpbf16ps(2, 5, 6);
        if (has_two)
            _tile_dpbf16ps(3, 5, 7);
        ahead_fetch(&ahead, block->next_panel_bytes, has_two);
    }
}

static inline __attribute__((always_inline)) void block_tiles(const struct tile_block *block, bool has_two)
{
    float *sums = NULL;

    for (uint32_t tile = 0; tile < block->n_tiles; tile++) {
        block_tile(block, tile, sums, has_two);
        sums = block->sums + (size_t)tile * TILES_SUMS;
    }
    _tile_stored(0, sums, AMX_ROW_BYTES);
    _tile_stored(2, sums + (size_t)2 * TILES_C, AMX_ROW_BYTES);
    if (has_two) {
        _tile_stored(1, sums + TILES_C, AMX_ROW_BYTES);
        _tile_stored(3, sums + (size_t)3 * TILES_C, AMX_ROW_BYTES);
    }
}

void kern_tiles_block(const struct tile_block *block)
{
    kern_tiles_shape(block->n_tokens);
    amx_memory_is_written();
    if (block->n_panels == MAX_ROW_PANELS)
        block_tiles(block, true);
    else
        block_tiles(block, false);
    amx_memory_is_written();
}

/* Copies row by row, so that each row is written from its first byte to its last. */
void kern_tiles_give(const struct tile_give *give)
{
    const uint32_t high = (give->n_tokens + 1) / 2;
    const __mmask16 last = (__mmask16)((1u << (give->n_rows - (give->n_panels - 1) * PANEL_ROWS)) - 1);

    for (uint32_t i = 0; i < give->n_tiles * give->n_tokens; i++) {
        const uint32_t tile = i / give->n_tokens, t = i % give->n_tokens;
        const float *sums =
            give->sums + (size_t)tile * TILES_SUMS +
            (t < high ? (size_t)t * PANEL_ROWS : 2 * TILES_C + (size_t)(t - high) * PANEL_ROWS);
        float *y = give->y + i * give->y_step;

        for (uint32_t p = 0; p < give->n_panels; p++, y += PANEL_ROWS) {
            const float *from = sums + p / 2 * give->pair_step + (size_t)p % 2 * TILES_C;

            __builtin_prefetch(y + GIVE_AHEAD * give->y_step, 1);
            _mm512_mask_storeu_ps(y, p + 1 < give->n_panels ? 0xffff : last, _mm512_load_ps(from));
        }
    }
}

/* ---- FMAs ---- */

static inline v16 even_of(__m512i pairs)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

static inline v16 odd_of(__m512i pairs)
{
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000)));
}

struct chains {
    v16 even[MAX_GROUP_PANELS][FEW_TOKENS], odd[MAX_GROUP_PANELS][FEW_TOKENS];
};

static inline __attribute__((always_inline)) void
few_pair(const struct walk *walk, size_t pair, struct chains *chains, uint32_t n_panels, uint32_t n_tokens)
{
    const size_t step = pair / (TILES_COLS / 2), within = pair % (TILES_COLS / 2);
    const int *x = (const int *)walk->x + step * n_tokens * (TILES_COLS / 2) + within;
    v16 even[FEW_TOKENS], odd[FEW_TOKENS];

#pragma GCC unroll 2
    for (uint32_t t = 0; t < n_tokens; t++) {
        __m512i pairs = _mm512_set1_epi32(x[(size_t)t * (TILES_COLS / 2)]);

        even[t] = even_of(pairs);
        odd[t] = odd_of(pairs);
    }
#pragma GCC unroll 4
    for (uint32_t p = 0; p < n_panels; p++) {
        __m512i pairs = _mm512_loadu_si512(walk->w + p * walk->panel_bytes + pair * LINE);

#pragma GCC unroll 2
        for (uint32_t t = 0; t < n_tokens; t++) {
            chains->even[p][t] = v16_fma(even[t], even_of(pairs), chains->even[p][t]);
            chains->odd[p][t] = v16_fma(odd[t], odd_of(pairs), chains->odd[p][t]);
        }
    }
}

static inline __attribute__((always_inline)) void few_group(const struct tile *tile, uint32_t panel,
                                                            uint32_t n_panels, uint32_t n_tokens)
{
    const struct walk walk = walk_begin(tile, panel);
    struct sums sums;

    sums_open(&sums, walk.y, tile->y_step, tile->is_first, n_panels, n_tokens);
    for (size_t step = 0; step < walk.n_steps; step++) {
        const char *ahead = ahead_of(&walk, step, n_panels);
        struct chains chains;

#pragma GCC unroll 4
        for (uint32_t p = 0; p < n_panels; p++)
#pragma GCC unroll 2
            for (uint32_t t = 0; t < n_tokens; t++)
                chains.even[p][t] = chains.odd[p][t] = v16_zero();
        for (size_t i = 0; i < TILES_COLS / 2; i++, ahead += LINE) {
            few_pair(&walk, step * (TILES_COLS / 2) + i, &chains, n_panels, n_tokens);
#pragma GCC unroll 4
            for (uint32_t p = 0; p < n_panels; p++)
                __builtin_prefetch(ahead + p * walk.panel_bytes, 0, 3);
        }
#pragma GCC unroll 4
        for (uint32_t p = 0; p < n_panels; p++)
#pragma GCC unroll 2
            for (uint32_t t = 0; t < n_tokens; t++)
                sums.at[p][t] = v16_add(sums.at[p][t], v16_add(chains.even[p][t], chains.odd[p][t]));
    }
    sums_close(&sums, walk.y, tile->y_step, n_panels, n_tokens);
}

static inline __attribute__((always_inline)) void few_panels(const struct tile *tile, uint32_t n_tokens)
{
    uint32_t before = kern_flush_begin(), p = 0;

    for (; p + 4 <= tile->n_panels; p += 4)
        few_group(tile, p, 4, n_tokens);
    for (; p < tile->n_panels; p++)
        few_group(tile, p, 1, n_tokens);
    kern_flush_end(before);
}

/* ---- */

void kern_tiles_tile(const struct tile *tile)
{
    uint32_t p = 0;

    if (tile->n_tokens <= FEW_TOKENS) {
        if (tile->n_tokens == 1)
            few_panels(tile, 1);
        else
            few_panels(tile, 2);
        return;
    }
    kern_tiles_shape(tile->n_tokens);
    amx_memory_is_written();
    if (tile->n_tokens > AMX_ROWS) {
        for (; p + 2 <= tile->n_panels; p += 2)
            tall_group(tile, p, true);
        if (p < tile->n_panels)
            tall_group(tile, p, false);
        return;
    }
    for (; p + 4 <= tile->n_panels; p += 4)
        flat_group(tile, p, 4);
    for (; p + 2 <= tile->n_panels; p += 2)
        flat_group(tile, p, 2);
    if (p < tile->n_panels)
        flat_group(tile, p, 1);
}

/* Packs rows of 32 columns: for each step, a whole A row for each token. */
void kern_tiles_pack(const struct pack *pack)
{
    for (uint32_t k = pack->from; k < pack->to; k += TILES_COLS) {
        uint16_t *out = (uint16_t *)pack->out + (size_t)k * pack->n_tokens;
        uint32_t n = pack->to - k < TILES_COLS ? pack->to - k : TILES_COLS;

        for (uint32_t t = 0; t < pack->n_tokens; t++, out += TILES_COLS) {
            const float *x = pack->x + t * pack->x_stride + (k - pack->from);
            v16 low = n >= 16 ? v16_load(x) : v16_load_n(x, n);
            v16 high = n >= 32 ? v16_load(x + 16) : n > 16 ? v16_load_n(x + 16, n - 16) : v16_zero();

            __builtin_prefetch(x + AHEAD_COLS);
            __builtin_prefetch(x + AHEAD_COLS + 16);
            _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(high, low));
        }
    }
}

/* ---- the machine's limit ---- */

/* Four products of whole tiles a round, from registers only. */
float kern_peak_amx_bf16(uint32_t rounds)
{
    float sums[AMX_ROWS][PANEL_ROWS];

    kern_tiles_shape(2 * AMX_ROWS);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    for (uint32_t round = 0; round < rounds; round++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, AMX_ROW_BYTES);
    kern_tiles_close();
    return sums[0][0];
}
