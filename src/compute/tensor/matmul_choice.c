/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel choice for a product, among variants with the same bits: how many tokens form a tile, whether
 * quantised weights are expanded first, and how data from memory is prefetched.
 *
 * Processors differ in the fastest variant. One reads fastest in several streams at once. Another reads
 * fastest in one stream whose lines are prefetched twice, first to the second-level cache. Maker and model
 * do not predict this. So each process measures it at start (tune.c); kern_choice_get() has the result.
 * Without a measurement the defaults apply.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/tensor/matmul_priv.h"

#include "compute/tensor/choice.h"

enum {
    /* Most tiles without expansion; with more tiles expansion pays. */
    DIRECT_TILES = 3,
    DIRECT_TILES_FOURS = 6,  /* one AND extracts a field */
    DIRECT_TILES_BYTES = 20, /* no fields to extract: only scales are converted */
    WIDE_TOKENS = 32,        /* most tokens with wide tiles, */
    WIDE_LEAST = 6,          /* and least tokens in each */
    LONG_SLICE = 2048,       /* columns per slice for several tiles, without expansion */
};

static bool matmul_choice_chose(enum kern_field field, uint32_t variant)
{
    return kern_choice_get()->at[field] == variant;
}

/* Looking points up takes longer than extracting fields: once for all tokens. */
static bool is_looked_up(const struct weight *weight)
{
    return quant_form(weight->type).code != CODE_FIELDS;
}

/* Wide tiles extract weights once for more tokens, from one stream. On some processors this is faster only
 * with fields to extract, from six tokens on; on others always. */
uint32_t matmul_tile_tokens(const struct weight *weight, uint32_t n_tokens)
{
    const struct kern_q8 *q8 = weight->table->q8;
    const bool is_all = matmul_choice_chose(KERN_WIDE, WIDE_ALL);
    const uint32_t wide = q8->wide_tokens, least = is_all ? q8->wide_least : WIDE_LEAST;

    if (wide == 0 || n_tokens > (is_looked_up(weight) ? wide : WIDE_TOKENS) ||
        (!is_all && quant_form(weight->type).bits == 8))
        return q8->tile_tokens;
    return n_tokens / ((n_tokens + wide - 1) / wide) >= least ? wide : q8->tile_tokens;
}

static uint32_t direct_tiles(const struct kern_table *table, struct quant_form form)
{
    if (form.code != CODE_FIELDS)
        return 1;
    if (!table->has_int8_dot) /* bytes are widened to words for each tile */
        return DIRECT_TILES;
    if (form.bits == 8)
        return DIRECT_TILES_BYTES;
    return form.bits == 4 && !form.is_table ? DIRECT_TILES_FOURS : DIRECT_TILES;
}

bool matmul_is_direct(const struct weight *weight, uint32_t tile_tokens, uint32_t n_tiles)
{
    const struct kern_q8 *q8 = weight->table->q8;

    return weight_direct_kernel(weight) != NULL &&
           (tile_tokens > q8->tile_tokens ||
            n_tiles <= direct_tiles(weight->table, quant_form(weight->type)));
}

/* Panels one after another make one stream for a single tile. */
uint32_t matmul_direct_panels(const struct weight *weight, uint32_t tile_tokens, uint32_t n_tiles)
{
    const struct kern_q8 *q8 = weight->table->q8;

    return tile_tokens > q8->tile_tokens || (n_tiles == 1 && matmul_choice_chose(KERN_PANELS, PANELS_ONE))
               ? 1
               : q8->direct_panels;
}

/* Expanded weights must stay in the first-level cache. Weights used without expansion need not: fewer
 * slices load and store sums less often, and a single panel is prefetched soon before its use. */
uint32_t matmul_slice_panels(const struct weight *weight, bool is_direct, uint32_t direct_panels,
                             uint32_t *cols_out)
{
    const bool is_long = is_direct && direct_panels == 1 && matmul_choice_chose(KERN_SLICES, SLICES_LONG);

    *cols_out = is_long ? LONG_SLICE : MATMUL_SLICE_CHUNKS * CHUNK_COLS;
    return is_long ? 1 : weight->table->q8->tile_panels;
}

struct fetch_ahead matmul_fetch_ahead(const struct weight *weight, uint32_t n_tokens)
{
    static const struct fetch_ahead once = {.near_bytes = 4096, .next_is_near = true},
                                    fours = {.near_bytes = 1024,
                                             .far_bytes = 8192,
                                             .is_spread = true,
                                             .next_is_near = true};
    const uint32_t bits = quant_form(weight->type).bits;

    if (is_looked_up(weight)) /* leaves no time to prefetch twice */
        return once;
    if (!matmul_choice_chose(KERN_FETCH, FETCH_NEAR))
        return (struct fetch_ahead){.near_bytes = 4096,
                                    .far_bytes = 12288,
                                    .is_spread = matmul_choice_chose(KERN_FETCH, FETCH_SPREAD) ||
                                                 (n_tokens == 1 && bits == 8)};
    /* With one token, fields of four bits leave time to prefetch twice. */
    return n_tokens == 1 && bits == 4 ? fours : once;
}

bool matmul_fetches_near(bool has_next)
{
    return !has_next && matmul_choice_chose(KERN_PLAIN, CACHE_FIRST);
}
