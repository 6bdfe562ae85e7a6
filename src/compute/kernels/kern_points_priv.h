/* SPDX-License-Identifier: Apache-2.0 */
/* Reads u from rows of lattice points and of digits, as small as in the file (IQ1 to IQ3, TQ1_0).  Tables have 64 entries:
 * AVX-512 VBMI looks up 64 bytes in one of them at once, also for some of the bytes only.
 *
 * A point is the levels of 8 or 4 columns, without signs.  It is looked up in two parts of a byte: columns 0 to 3 and 4 to
 * 7, or 0 and 2 and 1 and 3.  To move the levels of a part into four bytes would take an operation for each four.  So they
 * stay, and a four holds columns that lie apart, one of each byte; act_order_points() gives the activations the same order:
 *
 *     one sub       four 4h + c, byte b: column 8b + 4h + c                                    c = 0 to 3, h = 0 or 1
 *     two subs      four c,      byte b: column 4b + c
 *                   four 4 + c,  bytes 0 to 3: columns 28 + c, 16 + c, 20 + c, 24 + c
 *     IQ1_M         four 4h + c, byte b: column 16h + 4b + c, so its point is that of half a lane
 *
 * Rows of a chunk, all [lane][4 bytes]:
 *
 *     CODE_POINTS8   [qblk] numbers: the lower eight bits of points 0 to 3 (two subs: of 0, 2, 1, 3)
 *                           signs: bits 2 to 5 of byte b are those of byte b of fours 0 to 3; those of fours 4 to 7 have
 *                           the same places after the lane is rotated left by four bits
 *                    [top]  bit q of byte b: a further bit of that point's number in qblk q
 *     CODE_POINTS4   [qblk] numbers of points 0, 2, 4, 6, then of 1, 3, 5, 7;  signs: the same, but bits 1 to 4
 *                    tops of the first numbers, tops of the second
 *     CODE_TRITS     [pair] three rows of a pair of qblks: row j has the digits of fours 4s + j, s = 0 to 3, and the fifth
 *                           digit of four 4j + 3; four i has columns 4i to 4i + 3, except in IQ1_M
 *                    the digit of four 15: bits 2p and 2p + 1 for pair p
 *                    IQ1_M: bit 2q + h of the lower or upper word of a lane: point 2h or 2h + 1 of qblk q is shifted up
 *
 * The numbers of points are not those of the file: points are ordered so that fewer tables need to be looked up.  The lower
 * six bits are the place in a table, the others that of the table.  Points with the same first part have the same place in
 * half of all tables, others in half of the rest, and so on, so one table of first parts serves them all:
 *
 *     tables, by the upper bits    00    01    10    11                000 to 011   100, 101   110   111
 *     first parts                 [ 0         ][ 1  ][ 2  ]           [ 0         ][ 1       ][ 2  ][ 3  ]
 *     second parts                [ 0  ][ 1  ][ 2  ][ 3  ]            eight
 *
 * The tables of a weight (chunk.points) are those of the first parts, of the second parts, and four that turn a level and
 * its sign, wherever these stand among six bits, into u, and ignore the other bits.  So nothing has to be masked, and one
 * index of points of 8 serves two fours:
 *
 *     points         c = 0              1                  2                  3
 *     of 8           level 4, sign 2 *  level 6, sign 3 *  level 0, sign 4    level 2, sign 5      * moved by two bits
 *     of 4           level 3, sign 1    level 3, sign 2    level 0, sign 3    level 0, sign 4
 *
 * A number of digits is v + 64 f, with v = 0 to 63 for the first four digits and f for the fifth, or at least 192.  The
 * tables of digits:
 *
 *     0    bits 2s and 2s + 1: digit s of v
 *     1    the same for numbers from 192 on
 *     2    their fifth digits, at each place where one is wanted
 *
 * All functions are inlined with a constant form, so their branches on it cost nothing.
 *
 * Hot path: no allocation, no log, no system call. */
#ifndef COMPUTE_KERNELS_KERN_POINTS_PRIV_H
#define COMPUTE_KERNELS_KERN_POINTS_PRIV_H

#include "compute/kernels/kern_set_priv.h"
#include "compute/kernels/quant_chunk.h"

#ifndef KERN_Q8
#define KERN_Q8 "compute/kernels/q8_scalar_priv.h"
#endif
#include KERN_Q8

#define POINTS_INLINED static inline __attribute__((always_inline))

/* Chunk of one panel, and the number of a qblk. */
struct points_chunk {
    const uint8_t *at;
    const uint8_t *scales;
    const uint8_t *points;
    uint32_t qblk;
};

#ifdef B64_POINTS

/* The places of a row of numbers by their upper bits. */
struct points_where {
    b64_where seventh, eighth, both, tops[2];
};

POINTS_INLINED struct points_where points_where(struct quant_form form, b64 numbers, const uint8_t *tops,
                                                uint32_t qblk)
{
    const size_t step = form.code == CODE_POINTS8 ? FOUR_BYTES : 2 * FOUR_BYTES;
    struct points_where where = {.seventh = b64_where_bit(numbers, 0x40),
                                 .eighth = b64_where_eighth(numbers)};

    where.both = b64_where_both(where.seventh, where.eighth);
    for (uint32_t top = 0; top < form.n_tops; top++)
        where.tops[top] = b64_where_bit(b64_load(tops + top * step), (uint8_t)(1u << qblk));
    return where;
}

/* The first parts of points. */
POINTS_INLINED b64 points_first(struct quant_form form, const struct points_where *where, b64 numbers,
                                const uint8_t *tables)
{
    b64 out = b64_lookup_64(numbers, tables);
    b64_where upper = where->eighth;

    if (form.n_tops > 0) {
        upper = where->tops[form.n_tops - 1];
        out = b64_lookup_where(upper, numbers, tables += POINTS_TABLE, out);
    }
    if (form.n_tops > 1) {
        upper = b64_where_both(upper, where->tops[0]);
        out = b64_lookup_where(upper, numbers, tables += POINTS_TABLE, out);
    }
    if (form.n_tops > 0)
        upper = b64_where_both(upper, where->eighth);
    out = b64_lookup_where(upper, numbers, tables += POINTS_TABLE, out);
    upper = b64_where_both(upper, where->seventh);
    return b64_lookup_where(upper, numbers, tables + POINTS_TABLE, out);
}

/* Entries of numbers below 256. */
POINTS_INLINED b64 points_entries(const struct points_where *where, b64 numbers, const uint8_t *tables)
{
    b64 out = b64_lookup_64(numbers, tables);

    out = b64_lookup_where(where->seventh, numbers, tables + POINTS_TABLE, out);
    out = b64_lookup_where(where->eighth, numbers, tables + 2 * POINTS_TABLE, out);
    return b64_lookup_where(where->both, numbers, tables + 3 * POINTS_TABLE, out);
}

/* The second parts. */
POINTS_INLINED b64 points_second(struct quant_form form, const struct points_where *where, b64 numbers,
                                 const uint8_t *tables)
{
    const size_t step = 4 * POINTS_TABLE;
    b64 low = points_entries(where, numbers, tables), high;

    if (form.n_tops == 0)
        return low;
    low = b64_choose(where->tops[0], points_entries(where, numbers, tables + step), low);
    if (form.n_tops == 1)
        return low;
    high = b64_choose(where->tops[0], points_entries(where, numbers, tables + 3 * step),
                      points_entries(where, numbers, tables + 2 * step));
    return b64_choose(where->tops[1], high, low);
}

/* u of four c of a half by its index. */
POINTS_INLINED b64 points_signed(struct quant_form form, const struct points_chunk *chunk, b64 index,
                                 uint32_t c)
{
    return b64_lookup_64(index, chunk->points + points_signed_at(form) + (size_t)c * POINTS_TABLE);
}

/* Signs of a half of the fours, at their places. */
POINTS_INLINED b64 points_signs(const uint8_t *signs, uint32_t half)
{
    return b64_rotated(b64_load(signs), 4 * half);
}

POINTS_INLINED b64 four_of_points8(struct quant_form form, const struct points_chunk *chunk, uint32_t four)
{
    const uint8_t *rows = chunk->at + (size_t)chunk->qblk * 2 * FOUR_BYTES;
    const uint8_t *tops = chunk->at + (size_t)CHUNK_QBLKS * 2 * FOUR_BYTES;
    const uint32_t c = four % 4;
    const b64 numbers = b64_load(rows);
    const struct points_where where = points_where(form, numbers, tops, chunk->qblk);
    b64 first = points_first(form, &where, numbers, chunk->points);
    b64 second = points_second(form, &where, numbers, chunk->points + points_second_at(form));

    if (form.n_subs == 2) { /* the parts of points 0 and 1, and those of 2 and 3 */
        const b64 moved = b64_rotated(second, 8);

        second = b64_alternate(moved, first);
        first = b64_alternate(first, moved);
    }
    b64 index =
        b64_pick(c < 2 ? 0xf0 : 0x0f, four < 4 ? first : second, points_signs(rows + FOUR_BYTES, four / 4));
    return points_signed(form, chunk, c < 2 ? b64_right(index, 2, 0xff) : index, c);
}

POINTS_INLINED b64 four_of_points4(struct quant_form form, const struct points_chunk *chunk, uint32_t four)
{
    const uint8_t *rows = chunk->at + (size_t)chunk->qblk * 3 * FOUR_BYTES;
    const uint32_t row = four / 4 * FOUR_BYTES, c = four % 4;
    const uint8_t *tops = chunk->at + (size_t)CHUNK_QBLKS * 3 * FOUR_BYTES + row;
    const b64 numbers = b64_load(rows + row);
    const struct points_where where = points_where(form, numbers, tops, chunk->qblk);
    b64 levels = c % 2 == 0 ? points_first(form, &where, numbers, chunk->points)
                            : points_second(form, &where, numbers, chunk->points + points_second_at(form));

    return points_signed(
        form, chunk,
        b64_pick(c < 2 ? 0x38 : 0x07, levels, points_signs(rows + (size_t)2 * FOUR_BYTES, four / 4)), c);
}

/* The digits of four i of a pair of qblks, at a bit of each byte; the bits beside them are undefined. */
POINTS_INLINED b64 digits_at(const struct points_chunk *chunk, uint32_t i, uint32_t bit)
{
    const uint32_t s = i / 4, j = i % 4, pair = chunk->qblk / 2;
    const uint8_t *rows = chunk->at + (size_t)pair * 3 * FOUR_BYTES;
    const uint8_t *last = chunk->at + (size_t)CHUNK_QBLKS / 2 * 3 * FOUR_BYTES;

    if (j == 3 && s == 3)
        return b64_left(b64_right_by(b64_load(last), 2 * pair), bit, 0xff);
    const b64 numbers = b64_load(rows + (j == 3 ? s : j) * FOUR_BYTES);
    const b64_where is_more = b64_where_least(numbers, TRITS_MORE);

    if (j == 3)
        return b64_lookup_where(is_more, numbers, chunk->points + 2 * POINTS_TABLE,
                                b64_right(numbers, 6 - bit, 0xff));
    b64 digits = b64_lookup_where(is_more, numbers, chunk->points + POINTS_TABLE,
                                  b64_lookup_64(numbers, chunk->points));
    return bit < 2 * s ? b64_right(digits, 2 * s - bit, 0xff) : b64_left(digits, bit - 2 * s, 0xff);
}

/* Shifted by 2 * (i / 4) bits without shifts (quant_shift), else eight times the digit. */
POINTS_INLINED b64 four_of_trits(struct quant_form form, const struct points_chunk *chunk, uint32_t i)
{
    const bool is_short = form.n_subs == 2;
    const uint8_t *own = chunk->at + (size_t)(CHUNK_QBLKS / 2 * 3 + 1) * FOUR_BYTES;

    if (!quant_has_shifts(form))
        return b64_right(digits_at(chunk, i, i / 4 * 2), 0, (uint8_t)(3u << i / 4 * 2));
    b64 shifts = is_short ? b64_in_words(b64_load(own), 2 * chunk->qblk + i % FOURS / 4, TRITS_UP)
                          : b64_in_lanes(b64_load(chunk->scales), 4 * chunk->qblk + 3, TRITS_UP);
    return b64_join(digits_at(chunk, i, 3), 3 << 3, shifts);
}

/* Four i of a pair of qblks, as chunk_four(). */
POINTS_INLINED b64 points_four(struct quant_form form, const struct points_chunk *chunk, uint32_t i)
{
    return form.code == CODE_POINTS8   ? four_of_points8(form, chunk, i % FOURS)
           : form.code == CODE_POINTS4 ? four_of_points4(form, chunk, i % FOURS)
                                       : four_of_trits(form, chunk, i);
}

#else /* no types have points */

POINTS_INLINED b64 points_four(struct quant_form form, const struct points_chunk *chunk, uint32_t i)
{
    (void)form;
    (void)i;
    return b64_load(chunk->at);
}

#endif
#endif
