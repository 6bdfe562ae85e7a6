/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised weights in panels: one scheme for all types, read by weights and kernels alike.
 *
 *     w[row][k] = scale[row][sub] * (u[row][k] - zero)  -  min[row][sub]           a sub is 16 or 32 columns
 *
 * u is an integer of a few bits (for types with a table, an index to it); scale and min are exact floats. A panel is a
 * row of chunks of 8 qblks (256 columns; the last chunk may be shorter), so it is read as one stream:
 *
 *     chunk   u       [qblk / 2][2 * bits rows of 64 bytes]        see below
 *             scale and min, by kind:
 *             SCALE_F16, SCALE_BF16   scale [sub][lane] 16 bits, min [sub][lane] F16
 *             SCALE_I8                scale + 128 [sub / 4][lane][4] bytes, d [lane] F16; with mins
 *                                     (scale + 128)[2] min[2] [qblk / 2][lane] bytes, d [lane] F16, dmin
 *                                     [lane] F16
 *             SCALE_NIBBLES           scale | min << 4 [sub / 4][lane][4], d [lane] F16, dmin [lane] F16
 *             SCALE_ODD               s [sub / 8][lane][8] 4 bits, d [lane] F16: the scale is d (2s + 1)
 *             SCALE_F16_64, _128      scale [64 or 128 columns][lane] F16
 *             SCALE_ONE               d [lane] F16, the scale of all subs
 *             SCALE_HALVES            scale [sub][lane] F16, d [lane] F32: the scale is their product, rounded
 *             SCALE_F32               scale [sub][lane] F32, min [sub][lane] F32       (expanded chunks only)
 *
 * Expanded, the u of a qblk are eight rows of 64 bytes, as integer dots need them: four f holds columns 4f to 4f + 3
 * of lane 0, then of lane 1, and so on. Packed, two qblks (fours 0 to 7 and 8 to 15) share rows in bit fields that
 * are not shifted. One AND extracts a field, whose value is then 2^shift times too large. The shift is the same for a
 * whole sub, so the activations' exponent can compensate for it (kern_q8.c). Fields of 3, 5 and 6 bits leave free
 * bits in each row; together these hold the fours that have no row.
 *
 *     1 bit    f of qblk q          is bit f of row q; extracted to bit 1, so u is 0 or 2
 *     2 bits   four 4s + f          is bits 2s, 2s + 1 of row f
 *     3 bits   f, 4 + f             are bits 0 to 2 and 3 to 5 of row f
 *              8 + f                is bits 0 to 2 (f < 2) or 3 to 5 of row 4 + f % 2
 *              12 + f               is bits 6 and 7 of row f, below them bit 6 (f < 2) or 7 of row 4 + f % 2
 *     4 bits   f, 8 + f             are bits 0 to 3 and 4 to 7 of row f
 *     5 bits   f                    is bits 0 to 4 of row f
 *              8 + f                is bits 5 to 7 of row f, below them bits 2 (f % 4) and the next of
 *                                   row 8 + f / 4
 *     6 bits   4s + f, s < 3        is bits 0 to 5 of row 4s + f
 *              12 + f               is bits 6 and 7 of row f, then of row 4 + f, then of row 8 + f
 *     8 bits   f                    is row f
 *
 * Lattice points and digits have rows of their own, points also their own order of columns: kern_points_priv.h. */
#ifndef COMPUTE_KERNELS_QUANT_H
#define COMPUTE_KERNELS_QUANT_H

#include "compute/kernels/kern.h"

enum {
    CHUNK_QBLKS = 8,
    CHUNK_COLS = CHUNK_QBLKS * QBLK_WEIGHTS,
    FOURS = QBLK_WEIGHTS / 4,
    FOUR_BYTES = 4 * PANEL_ROWS,
    SMALL_BIAS = 128,  /* of the scales in SCALE_I8 */
    POINTS_TABLE = 64, /* entries of a table (kern_points_priv.h) */
    TRITS_MORE = 192,  /* numbers of digits from here on have a table of their own */
    TRITS_UP = 2,      /* u of a point of IQ1 that is shifted up has this more */
};

enum quant_scale {
    SCALE_F16,
    SCALE_BF16,
    SCALE_I8,
    SCALE_NIBBLES,
    SCALE_ODD,
    SCALE_ONE,
    SCALE_HALVES,
    SCALE_F16_64,
    SCALE_F16_128,
    SCALE_F32
};

/* How rows hold u. */
enum quant_code {
    CODE_FIELDS,  /* in bit fields */
    CODE_POINTS8, /* a lattice point for 8 columns, and signs; chunks are whole */
    CODE_POINTS4, /* the same for 4 columns */
    CODE_TRITS,   /* five digits of base 3 in a byte; chunks are whole */
};

struct quant_form {
    uint8_t bits;   /* 1 to 6 or 8; 0: not a quantised type */
    uint8_t n_subs; /* subs per qblk: 1 or 2; 2 where each half of a qblk has its own scale */
    uint8_t zero;
    uint8_t most; /* largest u after the table lookup */
    enum quant_scale scale;
    bool has_min;
    bool is_table;
    enum quant_code code;
    uint8_t n_tops; /* bits of a point's number above the eighth */
};

/* Forms that no file has: an index of three bits to the levels of IQ1 and IQ2, with a scale for 32 or 16 columns, and one
 * of four bits to those of IQ3.  No level is above 62, so u has seven bits (kern_narrow_priv.h). */
#define QUANT_LEVELS_32     ((enum dtype)(DTYPE_COUNT + 1))
#define QUANT_LEVELS_16     ((enum dtype)(DTYPE_COUNT + 2))
#define QUANT_LEVELS_OF_IQ3 ((enum dtype)(DTYPE_COUNT + 3))

/* Lists of the types that kernels multiply packed, with their forms, for X(type, ...).  Others are packed as one of them
 * (weight_packed_type()).  POINT_TYPES are for tables that look up whole points (kern_table.points).  u of IQ1 is 8 times
 * the digit, + 2 if the point is shifted up: 9 more than the level.
 * How to change it: docs/changes-worker.md, "A weight type (quantisation)". */
#define QUANT_TYPES(X)                                                                                       \
    X(DTYPE_Q4_0, 4, 1, 8, 15, SCALE_F16, false, false, CODE_FIELDS, 0)                                      \
    X(DTYPE_Q4_1, 4, 1, 0, 15, SCALE_F16, true, false, CODE_FIELDS, 0)                                       \
    X(DTYPE_Q5_0, 5, 1, 16, 31, SCALE_F16, false, false, CODE_FIELDS, 0)                                     \
    X(DTYPE_Q5_1, 5, 1, 0, 31, SCALE_F16, true, false, CODE_FIELDS, 0)                                       \
    X(DTYPE_Q8_0, 8, 1, 128, 255, SCALE_F16, false, false, CODE_FIELDS, 0)                                   \
    X(DTYPE_Q2_K, 2, 2, 0, 3, SCALE_NIBBLES, true, false, CODE_FIELDS, 0)                                    \
    X(DTYPE_Q3_K, 3, 2, 4, 7, SCALE_I8, false, false, CODE_FIELDS, 0)                                        \
    X(DTYPE_Q4_K, 4, 1, 0, 15, SCALE_I8, true, false, CODE_FIELDS, 0)                                        \
    X(DTYPE_Q5_K, 5, 1, 0, 31, SCALE_I8, true, false, CODE_FIELDS, 0)                                        \
    X(DTYPE_Q6_K, 6, 2, 32, 63, SCALE_I8, false, false, CODE_FIELDS, 0)                                      \
    X(QUANT_LEVELS_32, 3, 1, 64, 126, SCALE_I8, false, true, CODE_FIELDS, 0)                                 \
    X(QUANT_LEVELS_16, 3, 2, 64, 126, SCALE_I8, false, true, CODE_FIELDS, 0)                                 \
    X(QUANT_LEVELS_OF_IQ3, 4, 1, 64, 126, SCALE_I8, false, true, CODE_FIELDS, 0)                             \
    X(DTYPE_TQ2_0, 2, 2, 1, 3, SCALE_ONE, false, false, CODE_FIELDS, 0)                                      \
    X(DTYPE_IQ4_NL, 4, 1, 127, 240, SCALE_F16, false, true, CODE_FIELDS, 0)                                  \
    X(DTYPE_IQ4_XS, 4, 1, 127, 240, SCALE_I8, false, true, CODE_FIELDS, 0)                                   \
    X(DTYPE_MXFP4, 4, 1, 12, 24, SCALE_BF16, false, true, CODE_FIELDS, 0)                                    \
    X(DTYPE_NVFP4, 4, 2, 12, 24, SCALE_HALVES, false, true, CODE_FIELDS, 0)                                  \
    X(DTYPE_Q1_0, 1, 1, 1, 2, SCALE_F16_128, false, false, CODE_FIELDS, 0)                                   \
    X(DTYPE_Q2_0, 2, 2, 1, 3, SCALE_F16_64, false, false, CODE_FIELDS, 0)
#define POINT_TYPES(X)                                                                                       \
    X(DTYPE_IQ1_S, 2, 1, 9, 18, SCALE_ODD, false, true, CODE_TRITS, 0)                                       \
    X(DTYPE_IQ1_M, 2, 2, 9, 18, SCALE_ODD, false, true, CODE_TRITS, 0)                                       \
    X(DTYPE_IQ2_XXS, 2, 1, 127, 240, SCALE_ODD, false, true, CODE_POINTS8, 0)                                \
    X(DTYPE_IQ2_XS, 2, 2, 127, 240, SCALE_ODD, false, true, CODE_POINTS8, 1)                                 \
    X(DTYPE_IQ2_S, 2, 2, 127, 240, SCALE_ODD, false, true, CODE_POINTS8, 2)                                  \
    X(DTYPE_IQ3_XXS, 3, 1, 127, 240, SCALE_ODD, false, true, CODE_POINTS4, 0)                                \
    X(DTYPE_IQ3_S, 3, 1, 127, 240, SCALE_ODD, false, true, CODE_POINTS4, 1)                                  \
    X(DTYPE_TQ1_0, 2, 2, 1, 2, SCALE_ONE, false, false, CODE_TRITS, 0)

/* quant_shift() knows where such a field lies by its sub. */
#define TWO_SUBS(type, bits, n_subs, zero, most, scale, has_min, is_table, ...)                              \
    _Static_assert((is_table) || ((bits) != 2 && (bits) != 3 && (bits) != 6) || (n_subs) == 2,               \
                   #type ": fields of 2, 3 and 6 bits without a table take two subs");
QUANT_TYPES(TWO_SUBS)
#undef TWO_SUBS

/* The form of a packed type; a constant if the type is one. */
static inline __attribute__((always_inline)) struct quant_form quant_form(enum dtype type)
{
    switch ((uint32_t)type) {
#define FORM(type, ...)                                                                                      \
    case type:                                                                                               \
        return (struct quant_form){__VA_ARGS__};
        QUANT_TYPES(FORM)
        POINT_TYPES(FORM)
#undef FORM
    default:
        return (struct quant_form){0};
    }
}

/* True for tables whose u are too wide for dots of at most narrow_most, but whose levels are not. */
static inline __attribute__((always_inline)) bool quant_has_wide_levels(struct quant_form form,
                                                                        uint32_t narrow_most)
{
    return form.is_table && form.code == CODE_FIELDS && form.most > narrow_most && form.zero <= narrow_most &&
           form.most - form.zero <= form.zero;
}

/* The form of expanded chunks: whole bytes (tables looked up) and floats. */
static inline __attribute__((always_inline)) struct quant_form quant_expanded(struct quant_form form)
{
    return (struct quant_form){8,     form.n_subs, form.zero, form.most, SCALE_F32, form.has_min,
                               false, CODE_FIELDS, 0};
}

/* Number of bits by which the extracted u of a sub are shifted left. parity: of the qblk's number in its
 * chunk. */
static inline __attribute__((always_inline)) uint32_t quant_shift(struct quant_form form, uint32_t parity,
                                                                  uint32_t sub)
{
    const uint32_t quarter = 2 * parity + sub; /* with two subs */

    if (form.is_table)
        return 0;
    switch (form.bits) {
    case 2:
        return 2 * quarter;
    case 3:
        return quarter == 1 ? 3 : quarter == 3 ? 5 : 0;
    case 4:
        return 4 * parity;
    case 5:
        return 3 * parity;
    case 6:
        return quarter == 3 ? 2 : 0;
    default:
        return 0;
    }
}

/* True for rows of points, whose fours hold columns in an order of their own (kern_points_priv.h). */
static inline __attribute__((always_inline)) bool quant_is_points(struct quant_form form)
{
    return form.code == CODE_POINTS8 || form.code == CODE_POINTS4;
}

/* True for IQ1: a bit of each point moves its levels up or down. */
static inline __attribute__((always_inline)) bool quant_has_shifts(struct quant_form form)
{
    return form.code == CODE_TRITS && form.scale == SCALE_ODD;
}

/* True for qblks whose columns have an order of their own (act_order_points()). */
static inline __attribute__((always_inline)) bool quant_has_order(struct quant_form form)
{
    return quant_is_points(form) || (quant_has_shifts(form) && form.n_subs == 2);
}

#endif
