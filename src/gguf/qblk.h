/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised blocks of weights (qblk): their bytes in a file and the weights that these bytes stand for.
 *
 * One formula covers every type.  A qblk has 32, 64, 128 or 256 weights in sub-blocks of 16 or 32.  For weight i in
 * sub-block s:
 *
 *     w[i] = scale * sub_scale[s] * quants[i]  -  min * sub_min[s]
 *
 * scale and min come from 16-bit floats (for MXFP4, scale is a power of two; for NVFP4, each sub-block has a
 * scale).  Everything else is a small integer; the tables hold integers too.  So the products scale * sub_scale *
 * quant, scale * sub_scale and min * sub_min are exact in a float for every type.  Only the subtraction
 * rounds.  So the float form of a weight is correctly rounded, with or without fused multiply-adds.  In
 * double nothing rounds. (A scale that is infinite or NaN gives weights that are not finite, as it must.)
 *
 * The structs contain only bytes, so they may lie at any address; 16-bit values are little-endian.
 * How to change it: docs/changes-worker.md, "A weight type (quantisation)". */
#ifndef GGUF_QBLK_H
#define GGUF_QBLK_H

#include "gguf/dtype.h"

enum { QBLK_MAX_WEIGHTS = 256, QBLK_MAX_SUBS = 16 };

/* ---- bytes ---- */

struct qblk_q4_0 { /* quants 0..15, minus 8; low nibbles are weights 0..15, high nibbles 16..31 */
    uint8_t scale[2];
    uint8_t low[16];
};
struct qblk_q4_1 { /* quants 0..15; base is added */
    uint8_t scale[2];
    uint8_t base[2];
    uint8_t low[16];
};
struct qblk_q5_0 { /* as Q4_0, minus 16, with the fifth bits of weights 0..31 in order */
    uint8_t scale[2];
    uint8_t fifth[4];
    uint8_t low[16];
};
struct qblk_q5_1 {
    uint8_t scale[2];
    uint8_t base[2];
    uint8_t fifth[4];
    uint8_t low[16];
};
struct qblk_q8_0 {
    uint8_t scale[2];
    int8_t quants[32];
};
struct qblk_q2_k {      /* 16 sub-blocks of 16 */
    uint8_t subs[16];   /* low nibble: scale, high nibble: min */
    uint8_t quants[64]; /* byte b of half h: weights 128h + b + {0, 32, 64, 96}, from its low bits up */
    uint8_t scale[2];
    uint8_t min[2];
};
struct qblk_q3_k {      /* 16 sub-blocks of 16 */
    uint8_t third[32];  /* bit r of byte b: weight 32r + b; a clear bit subtracts 4 */
    uint8_t quants[64]; /* as in Q2_K */
    uint8_t subs[12];   /* 6-bit scales, minus 32 */
    uint8_t scale[2];
};
struct qblk_q4_k { /* 8 sub-blocks of 32 */
    uint8_t scale[2];
    uint8_t min[2];
    uint8_t subs[12];    /* 6-bit scales and mins */
    uint8_t quants[128]; /* byte b of quarter r: weights 64r + b (low nibble), 64r + 32 + b (high) */
};
struct qblk_q5_k { /* 8 sub-blocks of 32 */
    uint8_t scale[2];
    uint8_t min[2];
    uint8_t subs[12];
    uint8_t fifth[32];   /* bit r of byte b: weight 32r + b */
    uint8_t quants[128]; /* as in Q4_K */
};
struct qblk_q6_k {    /* 16 sub-blocks of 16; quants 0..63, minus 32 */
    uint8_t low[128]; /* byte b of half h: low nibble weight 128h + b, high nibble 128h + 64 + b, b < 64 */
    uint8_t top[64];  /* byte b of half h: upper bits of weights 128h + b + {0, 32, 64, 96}, low bits up */
    int8_t subs[16];
    uint8_t scale[2];
};
struct qblk_iq4_nl { /* nibbles as in Q4_0, indexes of a table */
    uint8_t scale[2];
    uint8_t low[16];
};
struct qblk_iq4_xs { /* 8 sub-blocks of 32, each with its nibbles as in Q4_0 */
    uint8_t scale[2];
    uint8_t subs_top[2]; /* two bits for each sub-block */
    uint8_t subs_low[4]; /* four bits for each sub-block; 6-bit scales, minus 32 */
    uint8_t low[128];
};
struct qblk_iq1_s { /* 8 sub-blocks of 32; a point of the lattice for every 8 weights (qblk_iq.c) */
    uint8_t scale[2];
    uint8_t low[32]; /* of a point's number */
    uint8_t top[16]; /* 16 bits a sub-block: 3 for each of 4 points, scale (3), shift down instead of up */
};
struct qblk_iq1_m {  /* 16 sub-blocks of 16 */
    uint8_t low[32]; /* of a point's number */
    uint8_t top[16]; /* 4 bits a point: 3 of its number, shift down instead of up */
    uint8_t subs[8]; /* 16 bits for 4 sub-blocks: 3 each, then 4 bits of the 16-bit scale */
};
struct qblk_iq2_xxs { /* 8 sub-blocks of 32 */
    uint8_t scale[2];
    uint8_t quants[64]; /* a sub-block: 4 points, 4 times 7 bits of signs, scale (4) */
};
struct qblk_iq2_xs { /* 16 sub-blocks of 16 */
    uint8_t scale[2];
    uint8_t quants[64]; /* 9 bits of a point, 7 of its signs */
    uint8_t subs[8];    /* nibbles */
};
struct qblk_iq2_s { /* 16 sub-blocks of 16 */
    uint8_t scale[2];
    uint8_t low[32]; /* of a point's number */
    uint8_t signs[32];
    uint8_t top[8];  /* 2 bits for each point */
    uint8_t subs[8]; /* nibbles */
};
struct qblk_iq3_xxs { /* 8 sub-blocks of 32; a point for every 4 weights */
    uint8_t scale[2];
    uint8_t points[64];
    uint8_t signs[32]; /* a sub-block: 4 times 7 bits of signs, scale (4) */
};
struct qblk_iq3_s { /* 8 sub-blocks of 32; a point for every 4 weights */
    uint8_t scale[2];
    uint8_t low[64]; /* of a point's number */
    uint8_t top[8];  /* a bit for each point */
    uint8_t signs[32];
    uint8_t subs[4]; /* nibbles */
};
struct qblk_tq1_0 { /* digits 0 to 2, minus 1 */
    uint8_t fives
        [48]; /* 5 digits a byte: byte b < 32 weights b + {0, 32 .. 128}, others 160 + b - 32 + {0, 16 .. 64} */
    uint8_t fours[4]; /* 4 digits: byte b weights 240 + b + {0, 4, 8, 12} */
    uint8_t scale[2];
};
struct qblk_tq2_0 {     /* 0 to 3, minus 1 */
    uint8_t quants[64]; /* as in Q2_K */
    uint8_t scale[2];
};
struct qblk_nvfp4 {    /* 4 sub-blocks of 16 */
    uint8_t scales[4]; /* twice the scale as unsigned E4M3 */
    uint8_t
        low[32]; /* byte b of sub-block s: weights 16s + b (low nibble), 16s + 8 + b; the table of MXFP4 */
};
struct qblk_q1_0 { /* bit r of byte b: weight 8b + r is 1, else -1 */
    uint8_t scale[2];
    uint8_t bits[16];
};
struct qblk_q2_0 { /* 0 to 3, minus 1; byte b: weights 4b to 4b + 3, from its low bits up */
    uint8_t scale[2];
    uint8_t quants[16];
};
struct qblk_mxfp4 { /* scale 2^(exponent - 128); nibbles as in Q4_0, indexes of twice the E2M1 values */
    uint8_t exponent;
    uint8_t low[16];
};

/* ---- meaning ---- */

struct qblk_form { /* properties that all qblks of a type share */
    uint32_t weights;
    uint32_t sub_weights; /* 16 or 32 */
    uint32_t n_subs;
    int8_t quant_low, quant_high; /* range of every quant */
    bool has_min;
    bool is_table;       /* quants are entries of qblk_table() */
    uint8_t unit_bits;   /* the 16-bit scale counts in 2^-unit_bits */
    bool has_sub_halves; /* each sub-block has a scale of its own: sub_halves */
};

/* NULL: not a quantised type of the list above. */
const struct qblk_form *qblk_form(enum dtype type);
/* The 16 integers that the indexes mean (3-bit types use 8).  NULL unless is_table. */
const int8_t *qblk_table(enum dtype type);

/* A qblk's fields as the file has them, as whole numbers. */
struct qblk_fields {
    uint16_t scale;              /* bits of an F16; for MXFP4 bits of a BF16 */
    uint16_t min;                /* bits of an F16 */
    uint16_t sub_halves[4];      /* bits of an F16, with has_sub_halves; scale is not used then */
    uint8_t u[QBLK_MAX_WEIGHTS]; /* quant - quant_low; with is_table, a table index */
    int8_t sub_scales[QBLK_MAX_SUBS];
    uint8_t sub_mins[QBLK_MAX_SUBS];
};
/* Unpacks one qblk.  Leaves array entries beyond the type's counts unchanged. */
typedef void (*qblk_reader)(const void *qblk, struct qblk_fields *out);
/* NULL: a type without a form.  Look the reader up once and use it for each qblk. */
qblk_reader qblk_reader_of(enum dtype type);

/* A qblk of IQ2 or IQ3 as the file has it: the numbers of lattice points, for 8 (IQ2) or 4 (IQ3) weights each. */
struct qblk_points {
    uint16_t scale;                    /* bits of an F16, in units of 2^-unit_bits */
    uint16_t numbers[64];              /* indexes to qblk_grid(): 32 of them for IQ2 */
    uint8_t signs[32];                 /* bit i of byte b: weight 8b + i is negative */
    uint8_t sub_scales[QBLK_MAX_SUBS]; /* s, 0..15: the sub-scale is 2s + 1 */
};
typedef void (*qblk_points_reader)(const void *qblk, struct qblk_points *out);
/* NULL: a type without points. */
qblk_points_reader qblk_points_reader_of(enum dtype type);
/* The lattice of such a type: each point has the level of each weight, 8 times 2 bits (IQ2) or 4 times 3 (IQ3), from
 * its low bits up. */
struct qblk_grid {
    const uint16_t *points;
    uint32_t n, n_weights;
};
struct qblk_grid qblk_grid(enum dtype type);

struct qblk_parts {
    float scale;
    float min;                       /* 0 without has_min */
    float own_scales[QBLK_MAX_SUBS]; /* of a sub-block with has_sub_halves, else 1 */
    int8_t quants[QBLK_MAX_WEIGHTS];
    int8_t sub_scales[QBLK_MAX_SUBS]; /* 1 where the type has no sub-blocks */
    uint8_t sub_mins[QBLK_MAX_SUBS];  /* 0..63 */
};
/* Unpacks one qblk into the numbers of the formula. */
void qblk_parts(enum dtype type, const void *qblk, struct qblk_parts *out);
/* The exact scale and min of a sub-block: w = scale * quant - min. */
static inline float qblk_sub_scale(const struct qblk_parts *parts, uint32_t sub)
{
    return parts->scale * parts->own_scales[sub] * (float)parts->sub_scales[sub];
}
static inline float qblk_sub_min(const struct qblk_parts *parts, uint32_t sub)
{
    return parts->min * (float)parts->sub_mins[sub];
}

/* Converts n weights of a row (whole qblks) to floats, from the quantised types and F32, F16, BF16.
 * E_UNSUPPORTED: another type.  E_INVAL: n ends inside a qblk. */
int qblk_row_f32(enum dtype type, const void *row, size_t n, float *out);
int qblk_row_f64(enum dtype type, const void *row, size_t n, double *out);

#endif
