/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and offsets in the chunks of packed weights that quant.h draws. */
#ifndef COMPUTE_KERNELS_QUANT_CHUNK_H
#define COMPUTE_KERNELS_QUANT_CHUNK_H

#include "compute/kernels/quant.h"

/* Number of rows of 64 bytes that hold u of n qblks. */
static inline __attribute__((always_inline)) size_t quant_n_rows(struct quant_form form, uint32_t n)
{
    switch (form.code) {
    case CODE_POINTS8:
        return 2 * (size_t)n + form.n_tops;
    case CODE_POINTS4:
        return 3 * (size_t)n + 2u * form.n_tops;
    case CODE_TRITS: /* a scale for 32 columns leaves a bit for their shift */
        return 3 * (size_t)n / 2 + 1 + (quant_has_shifts(form) && form.n_subs == 2);
    default:
        return form.bits == 8 ? (size_t)n * FOURS : (size_t)(n + 1) / 2 * 2 * form.bits;
    }
}

/* Number of qblks that share one scale of 16 bits; 0: other scales. */
static inline __attribute__((always_inline)) uint32_t quant_common_qblks(struct quant_form form)
{
    return form.scale == SCALE_F16_64 ? 2 : form.scale == SCALE_F16_128 ? 4 : 0;
}

/* Offsets of the tables of second parts, and of those by level and sign, in a type with points (kern_points_priv.h). */
static inline __attribute__((always_inline)) size_t points_second_at(struct quant_form form)
{
    return (3u + form.n_tops) * POINTS_TABLE;
}

static inline __attribute__((always_inline)) size_t points_signed_at(struct quant_form form)
{
    return points_second_at(form) + ((size_t)4 * POINTS_TABLE << form.n_tops);
}

/* Offsets of the parts of a chunk of n qblks, in bytes from its start. */
struct quant_chunk {
    size_t scale, min; /* min: equal to scale where both lie in the same four bytes of a lane */
    size_t d, dmin;
    size_t end; /* offset of the next chunk */
};

static inline __attribute__((always_inline)) struct quant_chunk quant_chunk(struct quant_form form,
                                                                            uint32_t n)
{
    const size_t lanes = PANEL_ROWS, subs = (size_t)n * form.n_subs, common = quant_common_qblks(form);
    const size_t each = common > 0                ? (n + common - 1) / common * lanes * 2
                        : form.scale == SCALE_F32 ? subs * lanes * 4
                        : form.scale <= SCALE_BF16 || form.scale == SCALE_HALVES ? subs * lanes * 2
                        : form.scale == SCALE_ONE                                ? 0
                        : form.scale == SCALE_ODD                                ? (subs + 7) / 8 * 4 * lanes
                                                                                 : (subs + 3) / 4 * 4 * lanes;
    const bool is_mixed = form.scale == SCALE_I8 && form.has_min;
    const size_t d_bytes = form.scale == SCALE_HALVES                                          ? 4
                           : form.scale == SCALE_F32 || form.scale <= SCALE_BF16 || common > 0 ? 0
                                                                                               : 2;
    struct quant_chunk chunk = {.scale = quant_n_rows(form, n) * FOUR_BYTES};

    chunk.min = form.scale == SCALE_NIBBLES || is_mixed ? chunk.scale : chunk.scale + each;
    chunk.d = is_mixed ? chunk.scale + 2 * each : form.has_min ? chunk.min + each : chunk.scale + each;
    chunk.dmin = chunk.d + lanes * d_bytes;
    chunk.end = chunk.dmin + (form.has_min ? lanes * d_bytes : 0);
    if (form.code == CODE_FIELDS) /* else the bytes matter more than loads that cross lines */
        chunk.end = (chunk.end + 63) / 64 * 64;
    return chunk;
}

/* Bytes before column k (a multiple of CHUNK_COLS, or the end) in a panel of cols columns. */
static inline size_t quant_panel_at(struct quant_form form, uint32_t k)
{
    uint32_t rest = k % CHUNK_COLS / QBLK_WEIGHTS;

    return k / CHUNK_COLS * quant_chunk(form, CHUNK_QBLKS).end + (rest > 0 ? quant_chunk(form, rest).end : 0);
}

/* Bytes of packed activations per token and qblk; four quants take quant_bytes (see kern_q8.c). */
static inline __attribute__((always_inline)) uint32_t quant_act_bytes(struct quant_form form,
                                                                      uint32_t quant_bytes)
{
    return FOURS * quant_bytes + form.n_subs * (form.has_min ? 12u : 8u);
}

#endif
