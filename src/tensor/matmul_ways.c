/* SPDX-License-Identifier: Apache-2.0 */
/* Which way a product goes where several are open, with the same bits: how many tokens make a tile, whether
 * quantised weights are used as they are or expanded first, and how what comes from memory is fetched.
 *
 * All of it is measured (docs/performance.md), on an Xeon and on a Zen 4, whose likes differ: the Xeon reads
 * fastest in several streams at once, the Zen 4 in one whose lines are fetched twice, first to the
 * second-level cache.  So what the one or the other was found to gain by goes by the maker of the processor,
 * and everybody else's goes the Xeon's way.
 *
 * Hot path: no allocation, no log, no system call.
 */
#include "tensor/matmul_priv.h"

#include "base/cpu.h"

enum {
    /* At most, of quantised weights: more are worth expanding them for. */
    DIRECT_TILES = 3,
    DIRECT_TILES_FOURS = 6,  /* one AND takes a field out */
    DIRECT_TILES_BYTES = 20, /* nothing has to be taken apart: only scales are converted */
    WIDE_TOKENS = 32,        /* at most, where tiles are wide, */
    WIDE_LEAST = 6,          /* and at least in each */
    LONG_SLICE = 2048,       /* columns that several tiles go past, of weights that are used as they are */
};

static enum way_maker maker = WAY_OF_THIS;

void way_set_maker(enum way_maker as)
{
    maker = as;
}

static bool is_amd(void)
{
    return maker == WAY_OF_THIS ? cpu_features_get()->is_amd : maker == WAY_OF_AMD;
}

/* Wide tiles take weights apart once for more tokens, from one stream.  An Xeon gains by that where there is
 * something to take apart, from six tokens on; a Zen 4 always. */
uint32_t way_tile_tokens(const struct weight *weight, uint32_t n_tokens)
{
    const struct kern_q8 *q8 = weight->table->q8;
    const uint32_t wide = q8->wide_tokens, least = is_amd() ? q8->wide_least : WIDE_LEAST;

    if (wide == 0 || n_tokens > WIDE_TOKENS || (!is_amd() && quant_form(weight->type).bits == 8))
        return q8->tile_tokens;
    return n_tokens / ((n_tokens + wide - 1) / wide) >= least ? wide : q8->tile_tokens;
}

static uint32_t direct_tiles(const struct kern_table *table, struct quant_form form)
{
    if (!table->has_int8_dot) /* then bytes are spread to words for each tile */
        return DIRECT_TILES;
    if (form.bits == 8)
        return DIRECT_TILES_BYTES;
    return form.bits == 4 && !form.is_table ? DIRECT_TILES_FOURS : DIRECT_TILES;
}

bool way_is_direct(const struct weight *weight, uint32_t tile_tokens, uint32_t n_tiles)
{
    const struct kern_q8 *q8 = weight->table->q8;

    return q8->direct != NULL && (tile_tokens > q8->tile_tokens ||
                                  n_tiles <= direct_tiles(weight->table, quant_form(weight->type)));
}

/* One panel after the other makes one stream of what a tile alone reads. */
uint32_t way_direct_panels(const struct weight *weight, uint32_t tile_tokens, uint32_t n_tiles)
{
    const struct kern_q8 *q8 = weight->table->q8;

    return tile_tokens > q8->tile_tokens || (n_tiles == 1 && is_amd()) ? 1 : q8->direct_panels;
}

/* What is expanded has to stay in the first-level cache.  What is used as it is need not: few slices load and
 * store sums less often, and one panel is fetched soon before it is used. */
uint32_t way_slice_panels(const struct weight *weight, bool is_direct, uint32_t direct_panels,
                          uint32_t *cols_out)
{
    const bool is_long = is_direct && direct_panels == 1 && is_amd();

    *cols_out = is_long ? LONG_SLICE : WAY_SLICE_CHUNKS * CHUNK_COLS;
    return is_long ? 1 : weight->table->q8->tile_panels;
}

struct fetch_ahead way_ahead(const struct weight *weight, uint32_t n_tokens)
{
    static const struct fetch_ahead once = {.near_bytes = 4096, .is_told_near = true},
                                    fours = {.near_bytes = 1024,
                                             .far_bytes = 8192,
                                             .is_spread = true,
                                             .is_told_near = true};
    const uint32_t bits = quant_form(weight->type).bits;

    if (is_amd())
        return (struct fetch_ahead){
            .near_bytes = 4096, .far_bytes = 12288, .is_spread = n_tokens == 1 && bits == 8};
    /* One token's fields of four bits leave time to fetch twice. */
    return n_tokens == 1 && bits == 4 ? fours : once;
}

bool way_is_near(bool is_told)
{
    return !is_told && !is_amd();
}
