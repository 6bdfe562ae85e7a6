/* SPDX-License-Identifier: Apache-2.0 */
/* Inner loops over quantised weights, unrolled by kern_q8.c and kern_direct.c: the step common to all
 * types, tables and shapes. kern_q8.c explains the arithmetic; kern_chunk_priv.h reads the weights.
 *
 * All functions are inlined with a constant form and shape, so their branches on them cost nothing.
 *
 * Hot path: no allocation, no log, no system call. */
#ifndef COMPUTE_KERNELS_KERN_QUANT_PRIV_H
#define COMPUTE_KERNELS_KERN_QUANT_PRIV_H

#include "compute/kernels/kern_fetch_priv.h"
#include "compute/kernels/kern_narrow_priv.h"

/* Defaults for headers without wide tiles. */
#ifndef Q8_WIDE_HEIGHTS
#define Q8_WIDE_HEIGHTS(H)
enum { Q8_WIDE_TOKENS = 0, Q8_WIDE_LEAST = 0 };
#define q8_dot_at(sums, w, from) q8_dot(sums, w, q8_load_x(from))
#endif

/* Fours of a qblk that kern_expand.c unrolls. */
#ifdef Q8_LOOPS
enum { Q8_UNROLLED_FOURS = 1 };
#else
enum { Q8_UNROLLED_FOURS = FOURS };
#endif

void Q8(tile_q8)(const struct tile_q8 *tile);
void Q8(direct_q8)(const struct tile_q8 *tile);
void Q8(expand_q8)(const struct expand *expand);
extern const struct kern_q8 Q8(kern_q8);

/* More tokens than several panels allow. */
INLINED bool is_wide(uint32_t n_tokens)
{
    return n_tokens > Q8_TILE_TOKENS;
}

/* ---- the step ---- */

/* The dots of one sub of a qblk. x: the qblk's activations; start: initial value of the dots. */
INLINED void whole_dots(struct quant_form form, const struct chunk *chunk, struct sub_at at, const uint8_t *x,
                        const int32_t *start, uint32_t n_panels, uint32_t n_tokens, struct dots *dots)
{
    const uint32_t fours = FOURS / form.n_subs;

#pragma GCC unroll 12
    for (uint32_t t = 0; t < n_tokens; t++)
#pragma GCC unroll 4
        for (uint32_t p = 0; p < n_panels; p++)
            dots->at[p][t] = q8_start(start[t]);
#pragma GCC unroll 8
    for (uint32_t four = at.sub * fours; four < (at.sub + 1) * fours; four++) {
        const uint8_t *at_four = x + (size_t)four * n_tokens * Q8_QUANT_BYTES;
        q8_x quants[MAX_TILE_TOKENS];

        if (is_wide(n_tokens)) {
            q8_weights u = q8_of_bytes(chunk_four(form, chunk, 0, at.qblk, at.parity, four));
#pragma GCC unroll 12
            for (uint32_t t = 0; t < n_tokens; t++)
                dots->at[0][t] = q8_dot_at(dots->at[0][t], u, at_four + (size_t)t * Q8_QUANT_BYTES);
            continue;
        }
#pragma GCC unroll 12
        for (uint32_t t = 0; t < n_tokens; t++)
            quants[t] = q8_load_x(at_four + (size_t)t * Q8_QUANT_BYTES);
#pragma GCC unroll 4
        for (uint32_t p = 0; p < n_panels; p++) {
            q8_weights u = q8_of_bytes(chunk_four(form, chunk, p, at.qblk, at.parity, four));
#pragma GCC unroll 12
            for (uint32_t t = 0; t < n_tokens; t++)
                dots->at[p][t] = q8_dot(dots->at[p][t], u, quants[t]);
        }
    }
}

/* One sub of a qblk: integer dots, then their contribution to the sums. */
INLINED void step_sub(struct quant_form form, const struct chunk *chunk, struct sub_at at, const uint8_t *x,
                      uint32_t n_panels, uint32_t n_tokens, struct sums *sums)
{
    const int32_t *start = (const int32_t *)(x + (size_t)FOURS * n_tokens * act_quant_bytes(form));
    const float *magic = (const float *)(start + form.n_subs * n_tokens),
                *base = magic + form.n_subs * n_tokens;
    struct dots dots;

    (is_narrow(form) ? narrow_dots : whole_dots)(form, chunk, at, x, start + at.sub * n_tokens, n_panels,
                                                 n_tokens, &dots);
#pragma GCC unroll 4
    for (uint32_t p = 0; p < n_panels; p++) {
        v16 scale = chunk_scale(form, chunk, p, at);
#pragma GCC unroll 12
        for (uint32_t t = 0; t < n_tokens; t++)
            sums->at[p][t] =
                v16_fma(q8_minus(dots.at[p][t], magic[at.sub * n_tokens + t]), scale, sums->at[p][t]);
        if (!form.has_min)
            continue;
        v16 min = chunk_min(form, chunk, p, at);
#pragma GCC unroll 12
        for (uint32_t t = 0; t < n_tokens; t++)
            sums->at[p][t] = v16_fma(v16_set1(base[at.sub * n_tokens + t]), min, sums->at[p][t]);
    }
}

INLINED const uint8_t *step_qblk(struct quant_form form, const struct chunk *chunk, struct sub_at at,
                                 const uint8_t *x, uint32_t n_panels, uint32_t n_tokens, struct sums *sums,
                                 struct fetching *fetching)
{
    /* Without this the compiler increments the address of each word separately, in memory. */
    __asm__("" : "+r"(x));
    fetch_some(form, fetching, n_panels);
#pragma GCC unroll 2
    for (at.sub = 0; at.sub < form.n_subs; at.sub++)
        step_sub(form, chunk, at, x, n_panels, n_tokens, sums);
    return x + (size_t)n_tokens * quant_act_bytes(form, act_quant_bytes(form));
}

/* A chunk of n_qblks; returns the activations after it. Qblks come in pairs where they share rows. */
INLINED const uint8_t *step_chunk(struct quant_form form, struct chunk *chunk, const uint8_t *x,
                                  uint32_t n_qblks, uint32_t n_panels, uint32_t n_tokens, struct sums *sums,
                                  struct fetching *fetching)
{
    chunk_open(form, n_qblks, n_panels, chunk);
    for (uint32_t qblk = 0; qblk < n_qblks; qblk++) {
        x = step_qblk(form, chunk, (struct sub_at){qblk, 0, 0}, x, n_panels, n_tokens, sums, fetching);
        if (form.bits < 8 && ++qblk < n_qblks)
            x = step_qblk(form, chunk, (struct sub_at){qblk, 1, 0}, x, n_panels, n_tokens, sums, fetching);
    }
    return x;
}

/* ---- the tile ---- */

/* True if the tile prefetches tile->next, which the caller chose; with expanded weights always. */
INLINED bool fetches_next(const struct tile_q8 *tile, struct quant_form form)
{
    return form.scale == SCALE_F32 || tile->next != NULL;
}

/* The prefetch while a group of panels is read: tile->next, else the data ahead in these panels. */
INLINED struct fetching fetching_for(const struct tile_q8 *tile, struct quant_form form, uint32_t panel,
                                     uint32_t index)
{
    const uint8_t *own = tile->w + panel * tile->panel_step;
    const struct fetch_ahead ahead = tile->ahead;

    if (fetches_next(tile, form))
        return (struct fetching){.near = tile->next + panel * tile->next_step + index * tile->next_bytes,
                                 .is_near = ahead.next_is_near,
                                 .panel_step = tile->next_step,
                                 .step = tile->next_bytes / tile->n_qblks + 1};
    return (struct fetching){.near = own + ahead.near_bytes,
                             .far = ahead.far_bytes ? own + ahead.far_bytes : NULL,
                             .is_near = true,
                             .is_spread = ahead.is_spread,
                             .panel_step = tile->panel_step,
                             .step = quant_chunk(form, CHUNK_QBLKS).end / CHUNK_QBLKS};
}

/* This many bytes before the end of the panels, the prefetch moves on to the next group. */
INLINED void turn_over(const uint8_t **ahead, uint32_t ahead_bytes, size_t done, size_t own_bytes,
                       const uint8_t *behind)
{
    const size_t turn = own_bytes > ahead_bytes ? own_bytes - ahead_bytes : 0;

    if (*ahead != NULL && done >= turn)
        *ahead = behind - turn;
}

/* One group of panels and one tile of tokens; their numbers are constants after inlining. */
INLINED void tile_group(const struct tile_q8 *tile, struct quant_form form, uint32_t panel, uint32_t index,
                        uint32_t n_panels, uint32_t n_tokens)
{
    const size_t own_bytes = quant_panel_at(form, tile->n_qblks * QBLK_WEIGHTS);
    float *y = tile->y + (size_t)index * n_tokens * tile->y_step + (size_t)panel * PANEL_ROWS;
    struct chunk chunk = {.at = tile->w + panel * tile->panel_step,
                          .panel_step = tile->panel_step,
                          .lookup = tile->lookup,
                          .points = tile->points,
                          .unit = tile->unit};
    struct fetching fetching = fetching_for(tile, form, panel, index);
    const uint8_t *x = (const uint8_t *)tile->x + index * tile->x_step;
    const uint8_t *behind = chunk.at + n_panels * tile->panel_step;
    struct signed_levels tables;
    struct sums sums;

    if (is_signed(form))
        signed_open(form, &tables, &chunk);
    sums_open(&sums, y, tile->y_step, tile->is_first, n_panels, n_tokens);
    for (uint32_t b = 0; b < tile->n_qblks; b += CHUNK_QBLKS) {
        uint32_t n_qblks = tile->n_qblks - b < CHUNK_QBLKS ? tile->n_qblks - b : CHUNK_QBLKS;

        if (!fetches_next(tile, form)) {
            turn_over(&fetching.near, tile->ahead.near_bytes, fetching.done, own_bytes, behind);
            turn_over(&fetching.far, tile->ahead.far_bytes, fetching.done, own_bytes, behind);
        }
        x = step_chunk(form, &chunk, x, n_qblks, n_panels, n_tokens, &sums, &fetching);
        chunk.at += chunk.parts.end;
    }
    sums_close(&sums, y, tile->y_step, n_panels, n_tokens);
}

/* All tiles over groups of this many panels, from a panel on; returns the first panel that is left over. */
INLINED uint32_t tile_groups(const struct tile_q8 *tile, struct quant_form form, uint32_t panel,
                             uint32_t n_panels, uint32_t n_tokens)
{
    for (; panel + n_panels <= tile->n_panels; panel += n_panels)
        for (uint32_t i = 0; i < tile->n_tiles; i++)
            tile_group(tile, form, panel, i, n_panels, n_tokens);
    return panel;
}

#endif
