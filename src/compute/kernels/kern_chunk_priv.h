/* SPDX-License-Identifier: Apache-2.0 */
/* Reads chunks (quant.h): fours of columns as bytes, scales and mins as floats. kern_quant_priv.h and
 * kern_expand.c unroll these functions.
 *
 * All functions are inlined with a constant form, so their branches on it cost nothing.
 *
 * Hot path: no allocation, no log, no system call. */
#ifndef COMPUTE_KERNELS_KERN_CHUNK_PRIV_H
#define COMPUTE_KERNELS_KERN_CHUNK_PRIV_H

#include "compute/kernels/kern_points_priv.h"

#define INLINED static inline __attribute__((always_inline))

/* The types that kern_expand.c and kern_direct.c are compiled for. */
#ifdef Q8_ONLY_POINTS
#define KERN_TYPES(X) POINT_TYPES(X)
#elif defined B64_POINTS
#define KERN_TYPES(X) QUANT_TYPES(X) POINT_TYPES(X)
#else
#define KERN_TYPES(X) QUANT_TYPES(X)
#endif

/* A sub's sums as integers: [panel][token]. */
struct dots {
    q8_sums at[MAX_GROUP_PANELS][MAX_TILE_TOKENS];
};

/* Defaults for headers without narrow weights. */
#ifndef Q8_NARROW_MOST
#define Q8_NARROW_MOST 0
enum { Q8_NARROW_BYTES = Q8_QUANT_BYTES };
#endif

/* True for weights whose dots are added as words (kern_narrow_priv.h). */
INLINED bool is_narrow(struct quant_form form)
{
    return form.most <= Q8_NARROW_MOST;
}

/* Packed bytes of four quants of an activation for these weights. */
INLINED uint32_t act_quant_bytes(struct quant_form form)
{
    return is_narrow(form) ? Q8_NARROW_BYTES : Q8_QUANT_BYTES;
}

/* As quant_shift, but 0 for fields that are moved to bit 0. */
INLINED uint32_t field_shift(struct quant_form form, uint32_t parity, uint32_t sub)
{
    return is_narrow(form) ? 0 : quant_shift(form, parity, sub);
}

/* Small scales times a half, exactly. v16_second_bytes gives 2^15 + small (or + 1/2); one multiply-add removes the
 * 2^15 and the scales' bias. All numbers have few enough bits to be exact. */
struct smalls {
    v16 by, less; /* the half, and minus the half times the part to remove */
};

struct chunk { /* of a group of panels */
    const uint8_t *at;
    size_t panel_step;
    const uint8_t *lookup, *sizes, *points; /* sizes: of signed levels (kern_narrow_priv.h) */
    float unit;
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

        if (form.scale == SCALE_ONE)
            chunk->scale[p].by = v16_from_f16((const uint16_t *)(at + chunk->parts.d));
        if (form.scale == SCALE_HALVES)
            chunk->scale[p].by = v16_load((const float *)(at + chunk->parts.d));
        if (form.scale == SCALE_I8)
            chunk->scale[p] = smalls_of(at + chunk->parts.d, form.is_table ? chunk->unit : 1.0f, SMALL_BIAS);
        if (form.scale == SCALE_ODD)
            chunk->scale[p] = smalls_of(at + chunk->parts.d, 2.0f * chunk->unit, 0.0f);
        if (form.scale == SCALE_I8 && form.has_min)
            chunk->min[p] = smalls_of(at + chunk->parts.dmin, 1.0f, 0.0f);
        if (form.scale == SCALE_NIBBLES) {
            chunk->scale[p] = smalls_of(at + chunk->parts.d, 1.0f, 0.0f);
            chunk->min[p] = smalls_of(at + chunk->parts.dmin, 0x1p-4f, 0.0f);
        }
    }
}

/* A field of a row, either left at its shift or moved to bit 0. */
INLINED b64 b64_field(b64 row, uint32_t shift, uint8_t mask, bool is_moved)
{
    return is_moved ? b64_right(row, shift, mask) : b64_right(row, 0, (uint8_t)(mask << shift));
}

/* Four columns of each lane as whole bytes, shifted (field_shift). at: the rows of two qblks. */
INLINED b64 four_of_3(const uint8_t *at, uint32_t i, bool is_moved)
{
    const uint32_t f = i % 4;
    b64 row = b64_load(at + (size_t)f * 64), more = b64_load(at + (size_t)(4 + f % 2) * 64);

    if (i < 8)
        return b64_field(row, i < 4 ? 0 : 3, 7, is_moved);
    if (i < 12)
        return b64_right(more, 3 * (f / 2), 0x07);
    row = b64_join(row, 0xc0, b64_right(more, 1 + f / 2, 0x20));
    return is_moved ? b64_right(row, 5, 0xff) : row; /* no bits are below the field */
}

INLINED b64 four_of_5(const uint8_t *at, uint32_t i, bool is_moved)
{
    const uint32_t f = i % 8, bit = 2 * (i % 4);
    b64 row = b64_load(at + (size_t)f * 64), more;

    if (i < 8)
        return b64_right(row, 0, 0x1f);
    more = b64_load(at + (size_t)(8 + f / 4) * 64);
    row = b64_join(row, 0xe0, bit < 3 ? b64_left(more, 3 - bit, 0x18) : b64_right(more, bit - 3, 0x18));
    return is_moved ? b64_right(row, 3, 0xff) : row;
}

INLINED b64 four_of_6(const uint8_t *at, uint32_t i, bool is_moved)
{
    if (i < 12)
        return b64_right(b64_load(at + (size_t)i * 64), 0, 0x3f);

    b64 low = b64_right(b64_load(at + (size_t)(i - 4) * 64), 4, 0x0c);
    b64 middle = b64_right(b64_load(at + (size_t)(i - 8) * 64), 2, 0x30);
    b64 row = b64_join(b64_load(at + (size_t)(i - 12) * 64), 0xc0, b64_or(middle, low));
    return is_moved ? b64_right(row, 2, 0xff) : row;
}

/* Bit i of each byte, at bit 1. */
INLINED b64 bit_at_one(b64 row, uint32_t i)
{
    return i == 0 ? b64_left(row, 1, 2) : b64_right(row, i - 1, 2);
}

/* parity: of qblk; a constant after inlining. */
INLINED b64 chunk_four(struct quant_form form, const struct chunk *chunk, uint32_t panel, uint32_t qblk,
                       uint32_t parity, uint32_t four)
{
    const uint8_t *at = chunk->at + panel * chunk->panel_step;
    const uint32_t i = parity * FOURS + four;

    if (form.code != CODE_FIELDS)
        return points_four(form, &(struct points_chunk){at, at + chunk->parts.scale, chunk->points, qblk}, i);
    if (form.bits == 8)
        return b64_load(at + ((size_t)qblk * FOURS + four) * 64);
    at += (size_t)(qblk / 2) * 2 * form.bits * 64;
    if (form.bits == 1)
        return bit_at_one(b64_load(at + (size_t)parity * 64), four);
    if (form.bits == 2 && is_narrow(form)) /* four fields share the load of a row: masks come last */
        return b64_right(b64_right(b64_load(at + (size_t)(i % 4) * 64), i / 4 * 2, 0xff), 0, 3);
    if (form.bits == 2)
        return b64_field(b64_load(at + (size_t)(i % 4) * 64), i / 4 * 2, 3, false);
    if (form.bits == 3 && form.is_table)
        return b64_lookup(four_of_3(at, i, true), chunk->lookup);
    if (form.bits == 3)
        return four_of_3(at, i, is_narrow(form));
    if (form.bits == 5)
        return four_of_5(at, i, is_narrow(form));
    if (form.bits == 6)
        return four_of_6(at, i, is_narrow(form));
    if (form.is_table)
        return b64_lookup(b64_right(b64_load(at + (size_t)four * 64), 4 * parity, 15), chunk->lookup);
    return b64_field(b64_load(at + (size_t)four * 64), 4 * parity, 15, is_narrow(form));
}

/* Place of a sub; parity and sub are constants after inlining. */
struct sub_at {
    uint32_t qblk, parity, sub;
};

/* A small scale or min: one byte of a lane's four; the mask selects its bits. */
INLINED v16 chunk_small(const uint8_t *at, int byte, uint32_t mask, const struct smalls *smalls)
{
    return v16_fma(v16_second_bytes(at, 8 * (1 - byte), mask, false), smalls->by, smalls->less);
}

/* Small scales of four bits: one dword of each lane has eight.  The wanted half byte is moved to the second byte; the
 * bytes before the first scale belong to a row.  The scale is twice the half times s + 1/2. */
INLINED v16 chunk_odd_scale(struct quant_form form, const struct chunk *chunk, uint32_t panel,
                            struct sub_at sub)
{
    const uint8_t *at = chunk->at + panel * chunk->panel_step + chunk->parts.scale;
    const bool is_high = (form.n_subs == 1 ? sub.parity : sub.sub) != 0;
    const uint32_t mask = quant_has_shifts(form) ? 0x0700 : 0x0f00;
    const struct smalls *smalls = &chunk->scale[panel];

    at += form.n_subs == 1 ? sub.qblk / 2 : (size_t)(sub.qblk / 4) * FOUR_BYTES + sub.qblk % 4;
    return v16_fma(v16_second_bytes(at - 1, is_high ? -4 : 0, mask, true), smalls->by, smalls->less);
}

INLINED v16 chunk_scale(struct quant_form form, const struct chunk *chunk, uint32_t panel, struct sub_at sub)
{
    const uint8_t *at = chunk->at + panel * chunk->panel_step + chunk->parts.scale;
    const size_t i = ((size_t)sub.qblk * form.n_subs + sub.sub) * PANEL_ROWS;
    const struct smalls *smalls = &chunk->scale[panel];

    if (quant_common_qblks(form) > 0)
        return v16_from_f16((const uint16_t *)at + sub.qblk / quant_common_qblks(form) * PANEL_ROWS);
    if (form.scale == SCALE_ONE)
        return smalls->by;
    if (form.scale == SCALE_ODD)
        return chunk_odd_scale(form, chunk, panel, sub);
    if (form.scale == SCALE_F32)
        return v16_load((const float *)at + i);
    if (form.scale == SCALE_F16)
        return v16_from_f16((const uint16_t *)at + i);
    if (form.scale == SCALE_HALVES)
        return v16_mul(v16_from_f16((const uint16_t *)at + i), smalls->by);
    if (form.scale == SCALE_BF16)
        return v16_from_bf16((const uint16_t *)at + i);
    if (form.n_subs == 1 && !form.has_min) /* any of the four; the byte before the first belongs to a row */
        return chunk_small(at + (size_t)(sub.qblk / 4) * 64 + sub.qblk % 4 - 1, 1, 0xff00, smalls);
    return chunk_small(at + (size_t)(sub.qblk / 2) * 64, (int)(sub.parity * form.n_subs + sub.sub),
                       form.scale == SCALE_I8 ? 0xff00 : 0x0f00, smalls);
}

INLINED v16 chunk_min(struct quant_form form, const struct chunk *chunk, uint32_t panel, struct sub_at sub)
{
    const uint8_t *at = chunk->at + panel * chunk->panel_step + chunk->parts.min;
    const size_t i = ((size_t)sub.qblk * form.n_subs + sub.sub) * PANEL_ROWS;

    if (form.scale == SCALE_F32)
        return v16_load((const float *)at + i);
    if (form.scale == SCALE_F16)
        return v16_from_f16((const uint16_t *)at + i);
    if (form.scale == SCALE_I8)
        return chunk_small(at + (size_t)(sub.qblk / 2) * 64, (int)(2 + sub.parity), 0xff00,
                           &chunk->min[panel]);
    return chunk_small(at + (size_t)(sub.qblk / 2) * 64, (int)(2 * sub.parity + sub.sub), 0xf000,
                       &chunk->min[panel]);
}

#endif
