/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised weights times the activations of many tokens, by BF16 tiles: kern_q8.c's arithmetic, bit for bit.
 *
 *     A  up to 16 tokens x 32 columns      B  32 columns x 16 lanes: a qblk of a panel
 *     C  tokens x lanes: 2^e * sum of (u - zero) q
 *
 * q has 7 bits, 2^e is a power of two, and u - zero has at most 8 bits: both are exact BF16 numbers. Their
 * products have 15 bits, and sums of 32 of them 20 bits. So every intermediate sum of a tile is exact, in any
 * order: C is kern_q8.c's value before it multiplies by the scale. Vectors compute the rest,
 *
 *     sum = fma(C, scale, sum),  then  fma(-2^e * sum of q, min, sum)
 *
 * which is one operation; with byte dots it takes ten (eight dots, a subtraction, this one).  A scale per 32
 * columns uses the whole depth of a tile.  A scale per 16 columns (Q2_K, Q3_K, Q6_K) would use half of it, so
 * those types use byte dots.
 *
 *     activations packed   [qblk][token][32] BF16: q * 2^e        base  [qblk][token]: -2^e * sum of q
 *
 * with every four columns in the order 0, 2, 1, 3 (tile_block.h explains it); for points, the fours of
 * kern_points_priv.h.
 *
 * Two tiles of tokens by two panels are computed together: four C, two A, two B. A step is 32 columns, four
 * products; a turn is two steps. C passes through the first-level cache. Vectors add the two steps of a turn
 * at once.  They work one or two turns behind the tiles, also across the border between tiles of tokens.
 *
 * The order of a step's tile instructions is one of the best of about a thousand.  They were measured on an
 * idle core and on a core whose other thread also uses tiles.  There, an instruction that writes a tile waits
 * for those that read it, and the plain order (load, load, multiply, store) takes twice as long.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/kernels/amx_priv.h"
#include "compute/kernels/kern_act_priv.h"
#include "compute/kernels/tile_block.h"

enum {
    C_TILES = 4, /* 0 and 1: first half of the tokens, by each panel; 2 and 3: second half */
    TURN = 2,    /* steps in a turn */
    LINE = 64,
};

void kern_tiles_quant_block(const struct tile_block *block);
void kern_tiles_quant_pack(const struct pack *pack);

/* Values common to all turns of a call. */
struct walk {
    size_t x_step, w_step; /* bytes from step to step */
    size_t panel_step;     /* bytes from panel to panel; 0: one panel, used twice */
    uint32_t n_tokens, high;
};

struct turn {
    const uint8_t *x[TURN], *w[TURN]; /* inputs of each step; without a second step, the first one again */
    const float *base;
    float *sums; /* [C_TILES][AMX_ROWS][PANEL_ROWS] */
    bool has_second;
    float (*dots)[C_TILES][AMX_ROWS][PANEL_ROWS]; /* [TURN] */
};

/* ---- vectors ---- */

struct lanes {
    v16 scale, min;
    const float *base;
};

INLINED struct lanes lanes_of(const struct walk *walk, const struct turn *turn, uint32_t c, uint32_t step,
                              bool has_min)
{
    const float *from = (const float *)(turn->w[step] + c % 2 * walk->panel_step + TILES_B_BYTES);

    return (struct lanes){v16_load(from), has_min ? v16_load(from + PANEL_ROWS) : v16_zero(),
                          turn->base + step * walk->n_tokens + c / 2 * walk->high};
}

INLINED v16 add_dots(const struct lanes *lanes, const float *dots, uint32_t row, bool has_min, v16 sum)
{
    sum = v16_fma(v16_load(dots), lanes->scale, sum);
    return has_min ? v16_fma(v16_set1(lanes->base[row]), lanes->min, sum) : sum;
}

/* Adds a turn's C to the sums.  n and has_second are constants for full turns. */
INLINED void add_rows(const struct walk *walk, const struct turn *turn, uint32_t c, uint32_t n,
                      bool has_second, bool has_min)
{
    const struct lanes first = lanes_of(walk, turn, c, 0, has_min);
    const struct lanes second = lanes_of(walk, turn, c, 1, has_min);
    float *at = turn->sums + c * TILES_C;

#pragma GCC unroll 16
    for (uint32_t t = 0; t < n; t++, at += PANEL_ROWS) {
        v16 sum = add_dots(&first, turn->dots[0][c][t], t, has_min, v16_load(at));

        if (has_second)
            sum = add_dots(&second, turn->dots[1][c][t], t, has_min, sum);
        v16_store(at, sum);
    }
}

static __attribute__((noinline)) void add_some(const struct walk *walk, const struct turn *turn, uint32_t c,
                                               uint32_t n, bool has_min)
{
    add_rows(walk, turn, c, n, turn->has_second, has_min);
}

INLINED void add_turn(const struct walk *walk, const struct turn *turn, uint32_t c, bool has_min)
{
    const uint32_t n = c < 2 ? walk->high : walk->n_tokens - walk->high;

    if (n == AMX_ROWS && turn->has_second)
        add_rows(walk, turn, c, AMX_ROWS, true, has_min);
    else
        add_some(walk, turn, c, n, has_min);
}

/* ---- a turn ---- */

/* Loads activations with the hint "not used again soon", so that the weights stay in the cache. */
INLINED void load_a(const struct walk *walk, const struct turn *turn, uint32_t step, int tile)
{
    if (tile == 4)
        _tile_stream_loadd(4, turn->x[step], AMX_ROW_BYTES);
    else
        _tile_stream_loadd(5, turn->x[step] + walk->high * AMX_ROW_BYTES, AMX_ROW_BYTES);
}

INLINED void load_b(const struct walk *walk, const struct turn *turn, uint32_t step, int tile)
{
    if (tile == 6)
        _tile_loadd(6, turn->w[step], AMX_ROW_BYTES);
    else
        _tile_loadd(7, turn->w[step] + walk->panel_step, AMX_ROW_BYTES);
}

/* Interleaves the stages of several turns.  It loads a step of one turn, multiplies the step before it and
 * stores its C 1 and 3.  It stores C 0 and 2 of the step before that, and adds two C to the sums.  NULL: no
 * such turn. */
INLINED void do_step(const struct walk *walk, const struct turn *load, const struct turn *product,
                     const struct turn *store, const struct turn *add, uint32_t step, bool has_min)
{
    const uint32_t other = 1 - step; /* of the step whose products C has now */

    if (store != NULL)
        _tile_stored(0, store->dots[step][0], AMX_ROW_BYTES);
    if (product != NULL) {
        _tile_zero(0);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
    }
    if (add != NULL)
        add_turn(walk, add, step, has_min);
    if (store != NULL)
        _tile_stored(2, store->dots[step][2], AMX_ROW_BYTES);
    if (load != NULL)
        load_a(walk, load, step, 4);
    if (product != NULL) {
        _tile_dpbf16ps(3, 5, 7);
        _tile_zero(2);
        _tile_dpbf16ps(2, 5, 6);
    }
    if (add != NULL)
        add_turn(walk, add, 2 + step, has_min);
    if (product != NULL)
        _tile_stored(1, product->dots[other][1], AMX_ROW_BYTES);
    if (load != NULL)
        load_b(walk, load, step, 6);
    if (product != NULL)
        _tile_stored(3, product->dots[other][3], AMX_ROW_BYTES);
    if (load != NULL) {
        load_a(walk, load, step, 5);
        _tile_zero(3);
        _tile_zero(1);
        load_b(walk, load, step, 7);
    }
}

/* Runs a turn: this one, the previous one and the one
 * before that are in the pipeline.  NULL: no such turn. */
INLINED void do_turn(const struct walk *walk, const struct turn *now, const struct turn *before,
                     const struct turn *last, bool has_min)
{
    do_step(walk, now, before, before, last, 0, has_min);
    do_step(walk, now, now, before, before, 1, has_min);
}

/* Fills or drains the pipeline, at the first two turns and after the last. */
static void edge_turn(const struct walk *walk, const struct turn *now, const struct turn *before,
                      const struct turn *last, bool has_min)
{
    do_turn(walk, now, before, last, has_min);
}

/* ---- blocks ---- */

/* Prefetches for the next block.  Each turn, counted from the block's first, fetches a few lines of weights
 * and activations.  n_turns: turns in a tile of tokens. */
INLINED void fetch_next(const struct tile_block *block, uint32_t turn, uint32_t n_turns)
{
    const uint32_t each = block->n_tiles * n_turns, pair = turn / each, within = turn % each;
    const char *panels = block->next_w + 2 * pair * block->next_panel_bytes;
    const char *w = panels + within * block->next_w_bytes / n_turns;
    const char *w_end = panels + (within + 1) * block->next_w_bytes / n_turns;
    const char *x = block->next_x + turn * block->next_x_bytes / n_turns;
    const char *x_end = block->next_x + (turn + 1) * block->next_x_bytes / n_turns;

    for (; w < w_end; w += LINE) {
        __builtin_prefetch(w, 0, 2);
        __builtin_prefetch(w + block->next_panel_bytes, 0, 2);
    }
    for (; x < x_end; x += LINE)
        __builtin_prefetch(x, 0, 2);
}

/* Begins a turn: two panels, a tile of tokens, and two qblks from qblk on. */
INLINED void turn_begin(const struct tile_block *block, const struct walk *walk, uint32_t index,
                        uint32_t qblk, struct turn *out)
{
    const uint32_t pair = index / block->n_tiles, tile = index % block->n_tiles;
    const uint32_t n_qblks = block->n_k / QBLK_WEIGHTS;

    out->has_second = qblk + 1 < n_qblks;
    out->x[0] = (const uint8_t *)block->x + ((size_t)tile * n_qblks + qblk) * walk->x_step;
    out->x[1] = out->x[0] + (out->has_second ? walk->x_step : 0);
    out->w[0] = (const uint8_t *)block->w + pair * block->pair_bytes + qblk * walk->w_step;
    out->w[1] = out->w[0] + (out->has_second ? walk->w_step : 0);
    out->base = block->base + tile * block->base_step + (size_t)qblk * block->n_tokens;
    out->sums = block->sums + pair * block->pair_step + (size_t)tile * TILES_SUMS;
    if (block->is_first && qblk == 0)
        memset(out->sums, 0, TILES_SUMS * sizeof(float));
}

/* Computes a block.  If the number of panels is odd, the last panel is used twice. */
INLINED void block_form(const struct tile_block *block, bool has_min)
{
    _Alignas(64) float dots[2][TURN][C_TILES][AMX_ROWS][PANEL_ROWS];
    const struct walk walk = {
        .x_step = (size_t)block->n_tokens * AMX_ROW_BYTES,
        .w_step = quant_tiles_bytes(has_min),
        .panel_step = block->n_panels == 2 ? block->panel_bytes : 0,
        .n_tokens = block->n_tokens,
        .high = (block->n_tokens + 1) / 2,
    };
    const uint32_t n_qblks = block->n_k / QBLK_WEIGHTS, each = (n_qblks + TURN - 1) / TURN;
    const uint32_t n = block->n_pairs * block->n_tiles * each;
    struct turn turns[3] = {[0] = {.has_second = false}}, *now = &turns[0], *before = &turns[1],
                *last = &turns[2];

    for (uint32_t j = 0; j < n; j++) {
        turn_begin(block, &walk, j / each, j % each * TURN, now);
        now->dots = dots[j % 2];
        fetch_next(block, j, each);
        if (j >= 2)
            do_turn(&walk, now, before, last, has_min);
        else
            edge_turn(&walk, now, j == 1 ? before : NULL, NULL, has_min);

        struct turn *free = last;
        last = before;
        before = now;
        now = free;
    }
    edge_turn(&walk, NULL, before, n > 1 ? last : NULL, has_min);
    edge_turn(&walk, NULL, NULL, before, has_min);
}

void kern_tiles_quant_block(const struct tile_block *block)
{
    kern_tiles_shape(block->n_tokens);
    amx_memory_is_written();
    if (block->has_min)
        block_form(block, true);
    else
        block_form(block, false);
    amx_memory_is_written();
}

/* ---- activations ---- */

/* Orders every four columns as the packed weights have them. */
INLINED __m512i amx_paired(__m512i columns)
{
    const __m128i places = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);

    return _mm512_shuffle_epi8(columns, _mm512_broadcast_i32x4(places));
}

/* Packs a qblk.  NaN, infinity and values that are too large become NaN through `step`. */
INLINED void amx_pack_qblk(const struct pack *pack, struct quant_form form, const float *x,
                           const struct act_scales *scales, uint32_t i, struct act_place place)
{
    const size_t at = (size_t)place.qblk * pack->n_tokens + place.token;
    const v16 magic = v16_set1(ACT_MAGIC), step = v16_set1(scales->step[i]);
    v16 low = v16_sub(act_quantize(x, scales->by[i]), magic);
    v16 high = v16_sub(act_quantize(x + 16, scales->by[i]), magic);

    if (quant_is_points(form)) { /* as act_order_points() for one sub */
        const __m512i first = _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
        const v16 columns = low;

        low = _mm512_permutex2var_ps(columns, first, high);
        high = _mm512_permutex2var_ps(columns, _mm512_add_epi32(first, _mm512_set1_epi32(4)), high);
    }
    _mm512_store_si512((uint8_t *)pack->out + at * AMX_ROW_BYTES,
                       amx_paired((__m512i)_mm512_cvtne2ps_pbh(v16_mul(high, step), v16_mul(low, step))));
    if (form.has_min)
        pack->base[at] = -scales->step[i] * v16_sum(v16_add(low, high));
}

void kern_tiles_quant_pack(const struct pack *pack)
{
    act_pack_each(pack, quant_form(pack->type), amx_pack_qblk);
}
