/* SPDX-License-Identifier: Apache-2.0 */
/* Reads u from rows of lattice points and of digits, as small as in the file (IQ1 to IQ3, TQ1_0).  Their tables of 256
 * entries stay in the first-level cache; AVX-512 VBMI looks up 64 entries at once, half of a table per instruction.
 *
 * A point is the levels of 8 or 4 columns, without signs.  A byte of its table holds the levels of four columns, two bits
 * each.  To move them into four bytes would take an operation for each four.  So they stay, and a four holds columns that
 * lie four apart, one of each byte; act_order_points() gives the activations the same order:
 *
 *     four c        bytes 0 to 3 are columns c, 4 + c, 8 + c, 12 + c                     c = 0 to 3
 *     four 4 + c    bytes 0 to 3 are columns 28 + c, 16 + c, 20 + c, 24 + c
 *
 * Rows of a chunk, all [lane][4 bytes]:
 *
 *     CODE_POINTS8   [qblk] numbers: the lower eight bits of points 0, 2, 1, 3
 *                           signs: bits 4, 5, 2, 3 of byte b are those of byte b of fours 0, 1, 2, 3; those of fours
 *                           4 to 7 have the same places after the lane is rotated left by four bits
 *                    [top]  bit q of byte b: a further bit of that point's number in qblk q
 *     CODE_POINTS4   [qblk] numbers of columns 0 to 15: points 0, 1, 2, 3
 *                           numbers of columns 16 to 31: points 7, 4, 5, 6;  signs, as above
 *                    tops of the first numbers, tops of the second
 *     CODE_TRITS     [pair] three rows of a pair of qblks: row j has the digits of fours 4s + j, s = 0 to 3, and
 *                           81 times the digit of four 4j + 3; four i has columns 4i to 4i + 3
 *                    the digit of four 15: bits 2p and 2p + 1 for pair p
 *                    IQ1_M: bit 4q + g of a lane: that point of qblk q is shifted up
 *
 * The table of a weight (chunk.points) has two parts, with one entry for each number:
 *
 *     points of 8    bits 2c and 2c + 1: level of column c; the second part has columns 4 to 7
 *     points of 4    bits 2c and 2c + 1: lower bits of the level of column c; second part, with the lower eight bits of a
 *                    number: bits 3, 0, 1, 2 are the third bits of columns 0 to 3; bits 7, 4, 5, 6 with the ninth bit
 *     digits         bits 2s and 2s + 1: digit s of four; one part
 *
 * After the parts of points come tables of 64 entries for c = 0 to 3.  They turn a level and its sign, wherever these
 * stand among six bits, into u, and ignore the other bits.  So nothing has to be masked, and one index of points of 8
 * serves two fours:
 *
 *              c = 0              1                  2                       3
 *     8        level 0, sign 4    level 2, sign 5    level 2, sign 0 *       level 4, sign 1 *
 *     4        level 0, sign 4,   level 2, sign 5,   level 4, sign 2,        level 4, sign 1,
 *              third bit 3        third bit 0        third bit 1             third bit 0 *         * moved by two bits
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

POINTS_INLINED size_t points_part_bytes(struct quant_form form)
{
    return (size_t)POINTS_PART << form.n_tops;
}

/* The entries of numbers with form.n_tops further bits. */
POINTS_INLINED b64 points_entries(struct quant_form form, b64 numbers, const uint8_t *tops, uint32_t qblk,
                                  const uint8_t *part)
{
    const uint8_t bit = (uint8_t)(1u << qblk);
    b64 low = b64_entries(numbers, part), high;

    if (form.n_tops == 0)
        return low;
    low = b64_choose(b64_load(tops), bit, b64_entries(numbers, part + POINTS_PART), low);
    if (form.n_tops == 1)
        return low;
    high = b64_choose(b64_load(tops), bit, b64_entries(numbers, part + 3 * POINTS_PART),
                      b64_entries(numbers, part + 2 * POINTS_PART));
    return b64_choose(b64_load(tops + FOUR_BYTES), bit, high, low);
}

/* u of four c of a half by its index. */
POINTS_INLINED b64 points_signed(struct quant_form form, const struct points_chunk *chunk, b64 index,
                                 uint32_t c)
{
    return b64_lookup_64(index, chunk->points + points_signed_at(form) + (size_t)c * POINTS_INDEXES);
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
    b64 numbers = b64_load(rows);
    b64 first = points_entries(form, numbers, tops, chunk->qblk, chunk->points);
    b64 second = points_entries(form, numbers, tops, chunk->qblk, chunk->points + points_part_bytes(form));

    /* The second parts of points 0 and 1 stand where the first parts of points 2 and 3 do, and fill their places. */
    second = b64_rotated(second, 8);
    b64 levels = four < 4 ? b64_alternate(first, second) : b64_alternate(second, first);
    b64 index = b64_pick(c < 2 ? 0x0f : 0xf0, levels, points_signs(rows + FOUR_BYTES, four / 4));
    return points_signed(form, chunk, c < 2 ? index : b64_right(index, 2, 0xff), c);
}

POINTS_INLINED b64 four_of_points4(struct quant_form form, const struct points_chunk *chunk, uint32_t four)
{
    const uint8_t *rows = chunk->at + (size_t)chunk->qblk * 3 * FOUR_BYTES;
    const uint32_t row = four / 4 * FOUR_BYTES, c = four % 4;
    const uint8_t *tops = chunk->at + (size_t)CHUNK_QBLKS * 3 * FOUR_BYTES + row;
    b64 numbers = b64_load(rows + row);
    b64 levels = points_entries(form, numbers, tops, chunk->qblk, chunk->points);
    b64 third = b64_entries(numbers, chunk->points + points_part_bytes(form));

    if (form.n_tops == 1)
        third = b64_choose(b64_load(tops), (uint8_t)(1u << chunk->qblk), b64_right(third, 4, 0xff), third);
    b64 beside = b64_pick(c < 3 ? 0x34 : 0x08, points_signs(rows + 2 * FOUR_BYTES, four / 4), third);
    b64 index = b64_pick((uint8_t)(3u << 2 * c), levels, beside);
    return points_signed(form, chunk, c < 3 ? index : b64_right(index, 2, 0xff), c);
}

/* The digits of four i of a pair of qblks, at a bit of each byte; the bits beside them are undefined. */
POINTS_INLINED b64 digits_at(const struct points_chunk *chunk, uint32_t i, uint32_t bit)
{
    const uint32_t s = i / 4, j = i % 4, pair = chunk->qblk / 2;
    const uint8_t *rows = chunk->at + (size_t)pair * 3 * FOUR_BYTES;
    const uint8_t *last = chunk->at + (size_t)CHUNK_QBLKS / 2 * 3 * FOUR_BYTES;

    if (j == 3 && s == 3)
        return b64_left(b64_right_by(b64_load(last), 2 * pair), bit, 0xff);
    if (j == 3)
        return b64_times_81(b64_load(rows + s * FOUR_BYTES), (uint8_t)(1u << bit));
    b64 digits = b64_entries(b64_load(rows + j * FOUR_BYTES), chunk->points);
    return bit < 2 * s ? b64_right(digits, 2 * s - bit, 0xff) : b64_left(digits, bit - 2 * s, 0xff);
}

/* Shifted by 2 * (i / 4) bits without shifts (quant_shift), else eight times the digit. */
POINTS_INLINED b64 four_of_trits(struct quant_form form, const struct points_chunk *chunk, uint32_t i)
{
    const bool is_short = form.n_subs == 2;
    const uint8_t *own = chunk->at + (size_t)(CHUNK_QBLKS / 2 * 3 + 1) * FOUR_BYTES;

    if (!quant_has_shifts(form))
        return b64_right(digits_at(chunk, i, i / 4 * 2), 0, (uint8_t)(3u << i / 4 * 2));
    b64 shifts = b64_in_lanes(b64_load(is_short ? own : chunk->scales),
                              4 * chunk->qblk + (is_short ? i % FOURS / 2 : 3), TRITS_UP);
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
