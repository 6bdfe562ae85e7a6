/* SPDX-License-Identifier: Apache-2.0 */
/* Dots of narrow weights, for processors without an instruction that multiplies bytes and adds into 32
 * bits. vpmaddubsw adds pairs of products in 16 bits, where it saturates from 2^15 on. One pair fits if u
 * has at most seven bits, several if it has fewer. The pairs of a run of fours are added as words before they are widened:
 *
 *     u up to      products of a pair       fours in a run
 *     15           2 * 15 * 127 = 3810      8
 *     31           2 * 31 * 127 = 7874      4
 *     63           2 * 63 * 127 = 16002     2
 *     127          2 * 127 * 127 = 32258    1
 *
 * Signed levels of IQ4 are seven bits and a sign, which goes to the activations (vpsignb): for one token, since each has
 * signs of its own.
 *
 * This halves the instructions that whole bytes need there (q8_dot). It needs bit fields moved to bit 0,
 * which elsewhere stay in place (quant_shift).
 *
 * Hot path: no allocation, no log, no system call. */
#ifndef COMPUTE_KERNELS_KERN_NARROW_PRIV_H
#define COMPUTE_KERNELS_KERN_NARROW_PRIV_H

#include "compute/kernels/kern_chunk_priv.h"

#ifdef Q8_SIGNED
#define Q8_HAS_SIGNED true
#else
#define Q8_HAS_SIGNED                     false
#define q8_signed_pairs(sizes, levels, x) q8_pairs(levels, x)
#endif

/* The form as which a tile of so many tokens is computed. For one token, tables of wide levels give signed levels from
 * -zero to zero in place of u. */
INLINED struct quant_form form_for(struct quant_form form, uint32_t n_tokens)
{
    if (Q8_HAS_SIGNED && n_tokens == 1 && quant_has_wide_levels(form, Q8_NARROW_MOST)) {
        form.most = form.zero;
        form.zero = 0;
    }
    return form;
}

/* True for signed levels: no table of u has the zero 0. */
INLINED bool is_signed(struct quant_form form)
{
    return form.is_table && form.zero == 0;
}

/* Signed levels and their sizes. */
struct signed_levels {
    uint8_t levels[16], sizes[16];
};

INLINED void signed_open(struct quant_form form, struct signed_levels *tables, struct chunk *chunk)
{
    for (uint32_t i = 0; i < 16; i++) {
        const int level = chunk->lookup[i] - form.most;

        tables->levels[i] = (uint8_t)level;
        tables->sizes[i] = (uint8_t)(level < 0 ? -level : level);
    }
    chunk->lookup = tables->levels;
    chunk->sizes = tables->sizes;
}

#ifdef Q8_NARROW

/* Number of fours in a run, within a sub's. */
INLINED uint32_t narrow_run(struct quant_form form)
{
    const uint32_t run = form.most <= 15   ? 8
                         : form.most <= 31 ? 4
                         : form.most <= 63 ? 2
                                           : 1,
                   fours = FOURS / form.n_subs;

    return run < fours ? run : fours;
}

/* The sizes of a four of signed levels. */
INLINED b64 chunk_four_sizes(struct quant_form form, const struct chunk *chunk, uint32_t panel, uint32_t qblk,
                             uint32_t parity, uint32_t four)
{
    const struct chunk sizes = {.at = chunk->at, .panel_step = chunk->panel_step, .lookup = chunk->sizes};

    return chunk_four(form, &sizes, panel, qblk, parity, four);
}

/* One sub of a qblk. x: the qblk's activations; start: initial value of the dots. */
INLINED void narrow_dots(struct quant_form form, const struct chunk *chunk, struct sub_at at,
                         const uint8_t *x, const int32_t *start, uint32_t n_panels, uint32_t n_tokens,
                         struct dots *dots)
{
    const uint32_t fours = FOURS / form.n_subs, from = at.sub * fours, run = narrow_run(form);
    q8_words words[MAX_GROUP_PANELS][MAX_TILE_TOKENS];

#pragma GCC unroll 8
    for (uint32_t four = from; four < from + fours; four++) {
        const uint8_t *at_four = x + (size_t)four * n_tokens * Q8_NARROW_BYTES;

#pragma GCC unroll 4
        for (uint32_t p = 0; p < n_panels; p++) {
            b64 u = chunk_four(form, chunk, p, at.qblk, at.parity, four);
#pragma GCC unroll 12
            for (uint32_t t = 0; t < n_tokens; t++) {
                q8_narrow_x quants = q8_narrow_load_x(at_four + (size_t)t * Q8_NARROW_BYTES);
                q8_words pairs =
                    is_signed(form)
                        ? q8_signed_pairs(chunk_four_sizes(form, chunk, p, at.qblk, at.parity, four), u,
                                          quants)
                        : q8_pairs(u, quants);

                words[p][t] = four % run == 0 ? pairs : q8_words_add(words[p][t], pairs);
                if (four % run < run - 1)
                    continue;
                q8_sums sums = four < from + run ? q8_start(start[t]) : dots->at[p][t];
                dots->at[p][t] = q8_widen(sums, words[p][t]);
            }
        }
    }
}

#else /* no weights are narrow */

#define narrow_dots whole_dots
#define q8_again(x) (*(x))

#endif
#endif
