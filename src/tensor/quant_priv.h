/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised weights as panels hold them: one scheme for all types, read by weights and kernels alike.
 *
 *     w[row][k] = scale[row][sub] * (u[row][k] - zero)  -  min[row][sub]           a sub is 16 or 32 columns
 *
 * u is a whole number of low_bits + high_bits bits (or, for types with a table, an index to one), scale and
 * min exact floats.  A panel is a row of chunks of 8 qblks (256 columns; the last one may be shorter), so
 * that it is read as one stream:
 *
 *     chunk   low   [qblk][64 * low_bits]      bits of u, sixteen rows interleaved, see below
 *             high  [qblk][64 * high_bits]
 *             scale and min, by kind:
 *             SCALE_F16, SCALE_BF16   scale [qblk][lane] 16 bits, min [qblk][lane] F16
 *             SCALE_I8                scale [sub][lane] i8, min [sub][lane] i8, d [lane] F16, dmin [lane] F16
 *             SCALE_NIBBLES           scale | min << 4 [sub][lane], d [lane] F16, dmin [lane] F16
 *             SCALE_F32               scale [sub][lane] F32, min [sub][lane] F32       (expanded chunks only)
 *
 * Expanded, the u of a qblk are eight rows of 64 bytes: four f holds columns 4f to 4f + 3 of lane 0, then of
 * lane 1, .. which is what integer dots take.  Packed, they are bit fields of the same 64 bytes:
 *
 *     8 bits   four f is row f                        2 bits   four f is field f % 4 of row f / 4
 *     4 bits   four f is nibble f % 2 of row f / 2    1 bit    four f is bit f of the only row
 */
#ifndef TENSOR_QUANT_PRIV_H
#define TENSOR_QUANT_PRIV_H

#include "tensor/kern_priv.h"

enum {
    CHUNK_QBLKS = 8,
    CHUNK_COLS = CHUNK_QBLKS * QBLK_WEIGHTS,
    FOURS = QBLK_WEIGHTS / 4,
    FOUR_BYTES = 4 * PANEL_ROWS
};

enum quant_scale { SCALE_F16, SCALE_BF16, SCALE_I8, SCALE_NIBBLES, SCALE_F32 };

struct quant_form {
    uint8_t low_bits;  /* 2, 4 or 8; 0: not a quantised type */
    uint8_t high_bits; /* 0, 1 or 2, above them */
    uint8_t n_subs;    /* per qblk: 1 or 2 */
    uint8_t zero;
    enum quant_scale scale;
    bool has_min;
    bool is_table;
};

/* The quantised types, for X(type). */
#define QUANT_TYPES(X)                                                                                       \
    X(DTYPE_Q4_0)                                                                                            \
    X(DTYPE_Q4_1)                                                                                            \
    X(DTYPE_Q5_0)                                                                                            \
    X(DTYPE_Q5_1)                                                                                            \
    X(DTYPE_Q8_0)                                                                                            \
    X(DTYPE_Q2_K)                                                                                            \
    X(DTYPE_Q3_K)                                                                                            \
    X(DTYPE_Q4_K)                                                                                            \
    X(DTYPE_Q5_K)                                                                                            \
    X(DTYPE_Q6_K)                                                                                            \
    X(DTYPE_IQ4_NL)                                                                                          \
    X(DTYPE_IQ4_XS)                                                                                          \
    X(DTYPE_MXFP4)

/* A constant where the type is one. */
static inline __attribute__((always_inline)) struct quant_form quant_form(enum dtype type)
{
    switch ((uint32_t)type) {
    case DTYPE_Q4_0:
        return (struct quant_form){4, 0, 1, 8, SCALE_F16, false, false};
    case DTYPE_Q4_1:
        return (struct quant_form){4, 0, 1, 0, SCALE_F16, true, false};
    case DTYPE_Q5_0:
        return (struct quant_form){4, 1, 1, 16, SCALE_F16, false, false};
    case DTYPE_Q5_1:
        return (struct quant_form){4, 1, 1, 0, SCALE_F16, true, false};
    case DTYPE_Q8_0:
        return (struct quant_form){8, 0, 1, 128, SCALE_F16, false, false};
    case DTYPE_Q2_K:
        return (struct quant_form){2, 0, 2, 0, SCALE_NIBBLES, true, false};
    case DTYPE_Q3_K:
        return (struct quant_form){2, 1, 2, 4, SCALE_I8, false, false};
    case DTYPE_Q4_K:
        return (struct quant_form){4, 0, 1, 0, SCALE_I8, true, false};
    case DTYPE_Q5_K:
        return (struct quant_form){4, 1, 1, 0, SCALE_I8, true, false};
    case DTYPE_Q6_K:
        return (struct quant_form){4, 2, 2, 32, SCALE_I8, false, false};
    case DTYPE_IQ4_NL:
        return (struct quant_form){4, 0, 1, 127, SCALE_F16, false, true};
    case DTYPE_IQ4_XS:
        return (struct quant_form){4, 0, 1, 127, SCALE_I8, false, true};
    case DTYPE_MXFP4:
        return (struct quant_form){4, 0, 1, 12, SCALE_BF16, false, true};
    default:
        return (struct quant_form){0};
    }
}

/* What kernels turn a form into: whole bytes (tables looked up) and floats. */
static inline __attribute__((always_inline)) struct quant_form quant_expanded(struct quant_form form)
{
    return (struct quant_form){8, 0, form.n_subs, form.zero, SCALE_F32, form.has_min, false};
}

/* Where the parts of a chunk of n qblks are; bytes from its beginning. */
struct quant_chunk {
    size_t high, scale, min; /* min of nibbles: the same as scale */
    size_t d, dmin;
    size_t end; /* where the next chunk begins */
};

static inline __attribute__((always_inline)) struct quant_chunk quant_chunk(struct quant_form form,
                                                                            uint32_t n)
{
    const size_t lanes = PANEL_ROWS, subs = (size_t)n * form.n_subs;
    const size_t each = form.scale == SCALE_F32                               ? subs * lanes * 4
                        : form.scale == SCALE_F16 || form.scale == SCALE_BF16 ? subs * lanes * 2
                                                                              : subs * lanes;
    const bool has_d = form.scale == SCALE_I8 || form.scale == SCALE_NIBBLES;
    struct quant_chunk chunk = {.high = (size_t)n * 64 * form.low_bits};

    chunk.scale = chunk.high + (size_t)n * 64 * form.high_bits;
    chunk.min = form.scale == SCALE_NIBBLES ? chunk.scale : chunk.scale + each;
    chunk.d = form.has_min ? chunk.min + each : chunk.scale + each;
    chunk.dmin = chunk.d + (has_d ? lanes * 2 : 0);
    chunk.end = (chunk.dmin + (has_d && form.has_min ? lanes * 2 : 0) + 63) / 64 * 64;
    return chunk;
}

/* Bytes before column k (a multiple of CHUNK_COLS, or the end) of a panel of cols columns. */
static inline size_t quant_panel_at(struct quant_form form, uint32_t k)
{
    uint32_t rest = k % CHUNK_COLS / QBLK_WEIGHTS;

    return k / CHUNK_COLS * quant_chunk(form, CHUNK_QBLKS).end + (rest > 0 ? quant_chunk(form, rest).end : 0);
}

/* Bytes of packed activations per token and qblk, four quants taking quant_bytes (see kern_q8.c). */
static inline __attribute__((always_inline)) uint32_t quant_act_bytes(struct quant_form form,
                                                                      uint32_t quant_bytes)
{
    return FOURS * quant_bytes + 4 + form.n_subs * (form.has_min ? 8u : 4u);
}

#endif
