/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops over quantised weights, for kern_q8.c, kern_expand.c and kern_direct.c to unroll: reading
 * chunks (quant_priv.h) and the step that all types, tables and shapes share (kern_q8.c has the arithmetic).
 *
 * Everything is expanded in place with a constant form and shape, so the branches on them cost nothing.
 *
 * Hot path: no allocation, no log, no system call. */
#ifndef TENSOR_KERN_QUANT_PRIV_H
#define TENSOR_KERN_QUANT_PRIV_H

#include "tensor/kern_set_priv.h"
#include "tensor/quant_priv.h"

#ifndef KERN_Q8
#define KERN_Q8 "tensor/q8_scalar_priv.h"
#endif
#include KERN_Q8

#define INLINED static inline __attribute__((always_inline))

void Q8(tile_q8)(const struct tile_q8 *tile);
void Q8(direct_q8)(const struct tile_q8 *tile);
void Q8(expand_q8)(const struct expand *expand);
extern const struct kern_q8 Q8(kern_q8);

/* ---- reading a chunk ---- */

/* Small scales times a half, exactly: v16_second_bytes gives 2^15 + small, and one multiply-add takes the
 * 2^15 (and what the scales are biased by) off again, all of it with few enough bits to be exact. */
struct smalls {
    v16 by, less; /* the half, and minus the half times what is to go */
};

struct chunk { /* of a group of panels */
    const uint8_t *at;
    size_t panel_step;
    const uint8_t *lookup;
    struct quant_chunk parts;
    struct smalls scale[MAX_GROUP_PANELS], min[MAX_GROUP_PANELS];
};

INLINED struct smalls smalls_of(const uint8_t *halves, float unit, float bias)
{
    v16 d = v16_mul(v16_from_f16((const uint16_t *)halves), v16_set1(unit));

    return (struct smalls){d, v16_mul(d, v16_set1(-(0x1p15f + bias)))};
}

INLINED void chunk_open(struct quant_form form, uint32_t n_qblks, uint32_t n_panels, struct chunk *chunk)
{
    chunk->parts = quant_chunk(form, n_qblks);
#pragma GCC unroll 4
    for (uint32_t p = 0; p < n_panels; p++) {
        const uint8_t *at = chunk->at + p * chunk->panel_step;

        if (form.scale == SCALE_I8)
            chunk->scale[p] = smalls_of(at + chunk->parts.d, 1.0f, SMALL_BIAS);
        if (form.scale == SCALE_I8 && form.has_min)
            chunk->min[p] = smalls_of(at + chunk->parts.dmin, 1.0f, 0.0f);
        if (form.scale == SCALE_NIBBLES) {
            chunk->scale[p] = smalls_of(at + chunk->parts.d, 1.0f, 0.0f);
            chunk->min[p] = smalls_of(at + chunk->parts.dmin, 0x1p-4f, 0.0f);
        }
    }
}

/* Four columns of each lane as whole bytes, shifted (quant_shift).  at: the rows of two qblks. */
INLINED b64 four_of_3(const uint8_t *at, uint32_t i)
{
    const uint32_t f = i % 4;
    b64 row = b64_load(at + (size_t)f * 64), more = b64_load(at + (size_t)(4 + f % 2) * 64);

    if (i < 8)
        return b64_right(row, 0, i < 4 ? 0x07 : 0x38);
    if (i < 12)
        return b64_right(more, 3 * (f / 2), 0x07);
    return b64_join(row, 0xc0, b64_right(more, 1 + f / 2, 0x20));
}

INLINED b64 four_of_5(const uint8_t *at, uint32_t i)
{
    const uint32_t f = i % 8, bit = 2 * (i % 4);
    b64 row = b64_load(at + (size_t)f * 64), more;

    if (i < 8)
        return b64_right(row, 0, 0x1f);
    more = b64_load(at + (size_t)(8 + f / 4) * 64);
    return b64_join(row, 0xe0, bit < 3 ? b64_left(more, 3 - bit, 0x18) : b64_right(more, bit - 3, 0x18));
}

INLINED b64 four_of_6(const uint8_t *at, uint32_t i)
{
    if (i < 12)
        return b64_right(b64_load(at + (size_t)i * 64), 0, 0x3f);

    b64 low = b64_right(b64_load(at + (size_t)(i - 4) * 64), 4, 0x0c);
    b64 middle = b64_right(b64_load(at + (size_t)(i - 8) * 64), 2, 0x30);
    return b64_join(b64_load(at + (size_t)(i - 12) * 64), 0xc0, b64_or(middle, low));
}

/* parity: of qblk, a constant where this is expanded. */
INLINED b64 chunk_four(struct quant_form form, const struct chunk *chunk, uint32_t panel, uint32_t qblk,
                       uint32_t parity, uint32_t four)
{
    const uint8_t *at = chunk->at + panel * chunk->panel_step;
    const uint32_t i = parity * FOURS + four;

    if (form.bits == 8)
        return b64_load(at + ((size_t)qblk * FOURS + four) * 64);
    at += (size_t)(qblk / 2) * 2 * form.bits * 64;
    if (form.bits == 2)
        return b64_right(b64_load(at + (size_t)(i % 4) * 64), 0, (uint8_t)(3 << i / 4 * 2));
    if (form.bits == 3)
        return four_of_3(at, i);
    if (form.bits == 5)
        return four_of_5(at, i);
    if (form.bits == 6)
        return four_of_6(at, i);
    if (form.is_table)
        return b64_lookup(b64_right(b64_load(at + (size_t)four * 64), 4 * parity, 15), chunk->lookup);
    return b64_right(b64_load(at + (size_t)four * 64), 0, (uint8_t)(15 << 4 * parity));
}

INLINED v16 chunk_small(const uint8_t *at, uint32_t sub, uint32_t mask, const struct smalls *smalls)
{
    return v16_fma(v16_second_bytes(at + (size_t)(sub / 4) * 64 + sub % 4 - 1, mask), smalls->by,
                   smalls->less);
}

INLINED v16 chunk_scale(struct quant_form form, const struct chunk *chunk, uint32_t panel, uint32_t sub)
{
    const uint8_t *at = chunk->at + panel * chunk->panel_step + chunk->parts.scale;
    const size_t i = (size_t)sub * PANEL_ROWS;

    if (form.scale == SCALE_F32)
        return v16_load((const float *)at + i);
    if (form.scale == SCALE_F16)
        return v16_from_f16((const uint16_t *)at + i);
    if (form.scale == SCALE_BF16)
        return v16_from_bf16((const uint16_t *)at + i);
    return chunk_small(at, sub, form.scale == SCALE_I8 ? 0xff00 : 0x0f00, &chunk->scale[panel]);
}

INLINED v16 chunk_min(struct quant_form form, const struct chunk *chunk, uint32_t panel, uint32_t sub)
{
    const uint8_t *at = chunk->at + panel * chunk->panel_step + chunk->parts.min;
    const size_t i = (size_t)sub * PANEL_ROWS;

    if (form.scale == SCALE_F32)
        return v16_load((const float *)at + i);
    if (form.scale == SCALE_F16)
        return v16_from_f16((const uint16_t *)at + i);
    return chunk_small(at, sub, form.scale == SCALE_I8 ? 0xff00 : 0xf000, &chunk->min[panel]);
}

/* ---- fetching ---- */

/* Brings [done, due) of each panel nearer; both grow with the qblks that pass. */
struct fetching {
    const uint8_t *from;
    size_t panel_step;
    size_t done, due, step;
};

/* Into the first-level cache, unless that is full of expanded weights which many tiles share. */
INLINED void fetch_some(struct quant_form form, struct fetching *fetching, uint32_t n_panels)
{
    for (fetching->due += fetching->step; fetching->done < fetching->due; fetching->done += 64) {
        const uint8_t *from = fetching->from + fetching->done;

#pragma GCC unroll 4
        for (uint32_t p = 0; p < n_panels; p++, from += fetching->panel_step)
            if (form.scale != SCALE_F32)
                __builtin_prefetch(from, 0, 3);
            else
                __builtin_prefetch(from, 0, 2);
    }
}

/* ---- the step ---- */

struct qblk_step { /* which qblk, as a constant where it can be one: */
    uint32_t qblk, parity;
};

/* One sub of a qblk: dots in whole numbers, then their part of the sums.  x: the qblk's activations. */
INLINED void step_sub(struct quant_form form, const struct chunk *chunk, struct qblk_step at, uint32_t sub,
                      const uint8_t *x, uint32_t n_panels, uint32_t n_tokens, struct sums *sums)
{
    const int32_t *start = (const int32_t *)(x + (size_t)FOURS * n_tokens * Q8_QUANT_BYTES);
    const float *magic = (const float *)(start + form.n_subs * n_tokens),
                *base = magic + form.n_subs * n_tokens;
    const uint32_t fours = FOURS / form.n_subs;
    q8_sums dots[MAX_GROUP_PANELS][MAX_TILE_TOKENS];

#pragma GCC unroll 12
    for (uint32_t t = 0; t < n_tokens; t++)
#pragma GCC unroll 4
        for (uint32_t p = 0; p < n_panels; p++)
            dots[p][t] = q8_start(start[sub * n_tokens + t]);
#pragma GCC unroll 8
    for (uint32_t four = sub * fours; four < (sub + 1) * fours; four++) {
        q8_x quants[MAX_TILE_TOKENS];
#pragma GCC unroll 12
        for (uint32_t t = 0; t < n_tokens; t++)
            quants[t] = q8_load_x(x + ((size_t)four * n_tokens + t) * Q8_QUANT_BYTES);
#pragma GCC unroll 4
        for (uint32_t p = 0; p < n_panels; p++) {
            q8_weights u = q8_of_bytes(chunk_four(form, chunk, p, at.qblk, at.parity, four));
#pragma GCC unroll 12
            for (uint32_t t = 0; t < n_tokens; t++)
                dots[p][t] = q8_dot(dots[p][t], u, quants[t]);
        }
    }
#pragma GCC unroll 4
    for (uint32_t p = 0; p < n_panels; p++) {
        v16 scale = chunk_scale(form, chunk, p, at.qblk * form.n_subs + sub);
#pragma GCC unroll 12
        for (uint32_t t = 0; t < n_tokens; t++)
            sums->at[p][t] = v16_fma(q8_minus(dots[p][t], magic[sub * n_tokens + t]), scale, sums->at[p][t]);
        if (!form.has_min)
            continue;
        v16 min = chunk_min(form, chunk, p, at.qblk * form.n_subs + sub);
#pragma GCC unroll 12
        for (uint32_t t = 0; t < n_tokens; t++)
            sums->at[p][t] = v16_fma(v16_set1(base[sub * n_tokens + t]), min, sums->at[p][t]);
    }
}

INLINED const uint8_t *step_qblk(struct quant_form form, const struct chunk *chunk, struct qblk_step at,
                                 const uint8_t *x, uint32_t n_panels, uint32_t n_tokens, struct sums *sums,
                                 struct fetching *fetching)
{
    fetch_some(form, fetching, n_panels);
#pragma GCC unroll 2
    for (uint32_t sub = 0; sub < form.n_subs; sub++)
        step_sub(form, chunk, at, sub, x, n_panels, n_tokens, sums);
    return x + (size_t)n_tokens * quant_act_bytes(form, Q8_QUANT_BYTES);
}

/* A chunk of n_qblks; returns the activations behind it.  Qblks come in pairs where they share rows. */
INLINED const uint8_t *step_chunk(struct quant_form form, struct chunk *chunk, const uint8_t *x,
                                  uint32_t n_qblks, uint32_t n_panels, uint32_t n_tokens, struct sums *sums,
                                  struct fetching *fetching)
{
    chunk_open(form, n_qblks, n_panels, chunk);
    for (uint32_t qblk = 0; qblk < n_qblks; qblk++) {
        x = step_qblk(form, chunk, (struct qblk_step){qblk, 0}, x, n_panels, n_tokens, sums, fetching);
        if (form.bits < 8 && ++qblk < n_qblks)
            x = step_qblk(form, chunk, (struct qblk_step){qblk, 1}, x, n_panels, n_tokens, sums, fetching);
    }
    return x;
}

/* ---- the tile ---- */

enum { AHEAD_BYTES = 4096 };

/* What to fetch while a group of panels is read: as the caller says, or else what lies ahead in these panels.
 */
INLINED struct fetching fetching_for(const struct tile_q8 *tile, struct quant_form form, uint32_t panel,
                                     uint32_t index)
{
    if (tile->next != NULL)
        return (struct fetching){.from = tile->next + panel * tile->next_step + index * tile->next_bytes,
                                 .panel_step = tile->next_step,
                                 .step = tile->next_bytes / tile->n_qblks + 1};
    return (struct fetching){.from = tile->w + panel * tile->panel_step + AHEAD_BYTES,
                             .panel_step = tile->panel_step,
                             .step = quant_chunk(form, CHUNK_QBLKS).end / CHUNK_QBLKS};
}

/* One group of panels and one tile of tokens; their numbers are constants wherever this is expanded.  When
 * the end of the panels comes near, what is ahead is the group behind them. */
INLINED void tile_group(const struct tile_q8 *tile, struct quant_form form, uint32_t panel, uint32_t index,
                        uint32_t n_panels, uint32_t n_tokens)
{
    const size_t own_bytes = quant_panel_at(form, tile->n_qblks * QBLK_WEIGHTS);
    const size_t turn = own_bytes > AHEAD_BYTES ? own_bytes - AHEAD_BYTES : 0;
    float *y = tile->y + (size_t)index * n_tokens * tile->y_step + (size_t)panel * PANEL_ROWS;
    struct chunk chunk = {
        .at = tile->w + panel * tile->panel_step, .panel_step = tile->panel_step, .lookup = tile->lookup};
    struct fetching fetching = fetching_for(tile, form, panel, index);
    const uint8_t *x = (const uint8_t *)tile->x + index * tile->x_step;
    const uint8_t *behind = chunk.at + n_panels * tile->panel_step;
    struct sums sums;

    sums_open(&sums, y, tile->y_step, tile->is_first, n_panels, n_tokens);
    for (uint32_t b = 0; b < tile->n_qblks; b += CHUNK_QBLKS) {
        uint32_t n_qblks = tile->n_qblks - b < CHUNK_QBLKS ? tile->n_qblks - b : CHUNK_QBLKS;

        if (tile->next == NULL && fetching.done >= turn)
            fetching.from = behind - turn;
        x = step_chunk(form, &chunk, x, n_qblks, n_panels, n_tokens, &sums, &fetching);
        chunk.at += chunk.parts.end;
    }
    sums_close(&sums, y, tile->y_step, n_panels, n_tokens);
}

/* All tiles over groups of so many panels, from a panel on; returns the first that is left over. */
INLINED uint32_t tile_groups(const struct tile_q8 *tile, struct quant_form form, uint32_t panel,
                             uint32_t n_panels, uint32_t n_tokens)
{
    for (; panel + n_panels <= tile->n_panels; panel += n_panels)
        for (uint32_t i = 0; i < tile->n_tiles; i++)
            tile_group(tile, form, panel, i, n_panels, n_tokens);
    return panel;
}

#endif
