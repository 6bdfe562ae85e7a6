/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the types of one to three bits, and NVFP4.
 *
 * IQ types store the number of a lattice point for every eight (IQ1, IQ2) or four (IQ3) weights, and the signs.
 * Here each weight becomes an index into a table of levels, which includes the signs:
 *
 *     IQ1    8 g + 1 and 8 g - 1 for g = -1, 0, 1: the shift of an eighth, which a bit chooses, is in the table
 *     IQ2    8, 25, 43 and their negatives
 *     IQ3    eight levels and their negatives
 *
 * Their scales count in eighths (IQ1, IQ2), quarters (IQ3_XXS) or ones (IQ3_S) of the 16-bit float (qblk_form.unit_bits),
 * so that all other numbers are whole. TQ types have the digits 0, 1, 2, less 1. */
#include "gguf/qblk_priv.h"

#include "base/bytes.h"
#include "base/wide.h"

#include <string.h>

_Static_assert(sizeof(struct qblk_iq1_s) == 50, "IQ1_S in a GGUF");
_Static_assert(sizeof(struct qblk_iq1_m) == 56, "IQ1_M in a GGUF");
_Static_assert(sizeof(struct qblk_iq2_xxs) == 66, "IQ2_XXS in a GGUF");
_Static_assert(sizeof(struct qblk_iq2_xs) == 74, "IQ2_XS in a GGUF");
_Static_assert(sizeof(struct qblk_iq2_s) == 82, "IQ2_S in a GGUF");
_Static_assert(sizeof(struct qblk_iq3_xxs) == 98, "IQ3_XXS in a GGUF");
_Static_assert(sizeof(struct qblk_iq3_s) == 110, "IQ3_S in a GGUF");
_Static_assert(sizeof(struct qblk_tq1_0) == 54, "TQ1_0 in a GGUF");
_Static_assert(sizeof(struct qblk_tq2_0) == 66, "TQ2_0 in a GGUF");
_Static_assert(sizeof(struct qblk_nvfp4) == 36, "NVFP4 in a GGUF");
_Static_assert(sizeof(struct qblk_q1_0) == 18, "Q1_0 in a GGUF");
_Static_assert(sizeof(struct qblk_q2_0) == 18, "Q2_0 in a GGUF");

enum { SUBS_32 = 8, SUBS_16 = 16 }; /* sub-blocks of 32 and of 16 in 256 weights */

const int8_t qblk_levels_iq1[16] = {-7, 1, 9, 0, -9, -1, 7, 0};
const int8_t qblk_levels_iq2[16] = {8, 25, 43, 0, -8, -25, -43, 0};
const int8_t qblk_levels_iq3_xxs[16] = {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62};
const int8_t qblk_levels_iq3_s[16] = {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15};

static void qblk_iq_begin(uint16_t scale, struct qblk_fields *out)
{
    out->scale = scale;
    out->min = 0;
    memset(out->sub_mins, 0, sizeof(out->sub_mins));
}

/* Eight weights: two bits of the point for each, and above them its sign. */
static void put_eight(uint16_t point, uint8_t signs, uint8_t out[8])
{
    uint64_t levels = (point | (uint64_t)point << 24) & UINT64_C(0x000000ff000000ff);
    uint64_t ones = signs * bytes_each(1) & UINT64_C(0x8040201008040201); /* byte i has bit i, if any */

    levels = (levels | levels << 12) & UINT64_C(0x000f000f000f000f);
    levels = (levels | levels << 6) & bytes_each(3);
    ones = (ones + bytes_each(127)) >> 7 & bytes_each(1);
    wide_store8(levels | ones << 2, out);
}

/* Four weights: three bits of the point for each, and above them its sign. */
static void put_four(uint16_t point, unsigned signs, uint8_t out[4])
{
    uint32_t levels = (point | (uint32_t)point << 10) & 0x003f003f;
    uint32_t ones = (signs & 15) * bytes_each4(1) & 0x08040201;

    levels = (levels | levels << 5) & bytes_each4(7);
    ones = (ones + bytes_each4(127)) >> 7 & bytes_each4(1);
    wide_store4(levels | ones << 3, out);
}

/* Signs of eight weights from seven bits: the eighth makes the number of negative signs even. */
static uint8_t even_signs(unsigned seven)
{
    return (uint8_t)(seven | (unsigned)__builtin_parity(seven) << 7);
}

static int8_t qblk_iq_odd(unsigned scale)
{
    return (int8_t)(2 * scale + 1);
}

/* ---- IQ1 ---- */

void qblk_read_iq1_s(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_iq1_s *q = qblk;

    qblk_iq_begin(get_u16(q->scale), out);
    for (unsigned s = 0; s < SUBS_32; s++) {
        unsigned top = get_u16(q->top + 2 * s);

        out->sub_scales[s] = qblk_iq_odd(top >> 12 & 7);
        for (unsigned i = 0; i < 4; i++)
            put_eight(qblk_grid_iq1[q->low[4 * s + i] | (top >> 3 * i & 7) << 8], top >> 15 ? 255 : 0,
                      out->u + 32 * s + 8 * i);
    }
}

void qblk_read_iq1_m(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_iq1_m *q = qblk;
    unsigned scale = 0;

    for (unsigned i = 0; i < 4; i++)
        scale |= (get_u16(q->subs + 2 * i) >> 12 & 15u) << 4 * i;
    qblk_iq_begin((uint16_t)scale, out);
    for (unsigned s = 0; s < SUBS_16; s++)
        out->sub_scales[s] = qblk_iq_odd(get_u16(q->subs + s / 4 * 2) >> s % 4 * 3 & 7);
    for (unsigned i = 0; i < 32; i++) {
        unsigned top = q->top[i / 2] >> i % 2 * 4;

        put_eight(qblk_grid_iq1[q->low[i] | (top & 7) << 8], top & 8 ? 255 : 0, out->u + 8 * i);
    }
}

/* ---- IQ2 and IQ3: points, as the file has them ---- */

void qblk_points_iq2_xxs(const void *qblk, struct qblk_points *out)
{
    const struct qblk_iq2_xxs *q = qblk;

    out->scale = get_u16(q->scale);
    for (unsigned s = 0; s < SUBS_32; s++) {
        const uint8_t *points = q->quants + 8 * s;
        uint32_t word = get_u32(points + 4);

        out->sub_scales[s] = (uint8_t)(word >> 28);
        for (unsigned i = 0; i < 4; i++) {
            out->numbers[4 * s + i] = points[i];
            out->signs[4 * s + i] = even_signs(word >> 7 * i & 127);
        }
    }
}

static void nibble_scales(const uint8_t *subs, unsigned n, struct qblk_points *out)
{
    for (unsigned s = 0; s < n; s++)
        out->sub_scales[s] = subs[s / 2] >> s % 2 * 4 & 15;
}

void qblk_points_iq2_xs(const void *qblk, struct qblk_points *out)
{
    const struct qblk_iq2_xs *q = qblk;

    out->scale = get_u16(q->scale);
    nibble_scales(q->subs, SUBS_16, out);
    for (unsigned i = 0; i < 32; i++) {
        unsigned word = get_u16(q->quants + 2 * i);

        out->numbers[i] = word & 511;
        out->signs[i] = even_signs(word >> 9);
    }
}

void qblk_points_iq2_s(const void *qblk, struct qblk_points *out)
{
    const struct qblk_iq2_s *q = qblk;

    out->scale = get_u16(q->scale);
    nibble_scales(q->subs, SUBS_16, out);
    for (unsigned i = 0; i < 32; i++)
        out->numbers[i] = (uint16_t)(q->low[i] | (q->top[i / 4] >> i % 4 * 2 & 3u) << 8);
    memcpy(out->signs, q->signs, sizeof(out->signs));
}

void qblk_points_iq3_xxs(const void *qblk, struct qblk_points *out)
{
    const struct qblk_iq3_xxs *q = qblk;

    out->scale = get_u16(q->scale);
    for (unsigned s = 0; s < SUBS_32; s++) {
        uint32_t word = get_u32(q->signs + 4 * s);

        out->sub_scales[s] = (uint8_t)(word >> 28);
        for (unsigned i = 0; i < 4; i++)
            out->signs[4 * s + i] = even_signs(word >> 7 * i & 127);
    }
    for (unsigned i = 0; i < 64; i++)
        out->numbers[i] = q->points[i];
}

void qblk_points_iq3_s(const void *qblk, struct qblk_points *out)
{
    const struct qblk_iq3_s *q = qblk;

    out->scale = get_u16(q->scale);
    nibble_scales(q->subs, SUBS_32, out);
    for (unsigned i = 0; i < 64; i++)
        out->numbers[i] = (uint16_t)(q->low[i] | (q->top[i / 8] >> i % 8 & 1u) << 8);
    memcpy(out->signs, q->signs, sizeof(out->signs));
}

struct qblk_grid qblk_grid(enum dtype type)
{
    switch ((uint32_t)type) {
    case DTYPE_IQ2_XXS:
        return (struct qblk_grid){qblk_grid_iq2_xxs, 256, 8};
    case DTYPE_IQ2_XS:
        return (struct qblk_grid){qblk_grid_iq2_xs, 512, 8};
    case DTYPE_IQ2_S:
        return (struct qblk_grid){qblk_grid_iq2_s, 1024, 8};
    case DTYPE_IQ3_XXS:
        return (struct qblk_grid){qblk_grid_iq3_xxs, 256, 4};
    case DTYPE_IQ3_S:
        return (struct qblk_grid){qblk_grid_iq3_s, 512, 4};
    default:
        return (struct qblk_grid){0};
    }
}

/* ---- IQ2 and IQ3: an index for each weight ---- */

static void read_levels(enum dtype type, const void *qblk, struct qblk_fields *out)
{
    const struct qblk_grid grid = qblk_grid(type);
    struct qblk_points points;

    qblk_points_reader_of(type)(qblk, &points);
    qblk_iq_begin(points.scale, out);
    for (unsigned s = 0; s < qblk_form(type)->n_subs; s++)
        out->sub_scales[s] = qblk_iq_odd(points.sub_scales[s]);
    for (unsigned i = 0; i < QBLK_MAX_WEIGHTS / grid.n_weights; i++) {
        uint16_t point = grid.points[points.numbers[i]];

        if (grid.n_weights == 8)
            put_eight(point, points.signs[i], out->u + 8 * i);
        else
            put_four(point, points.signs[i / 2] >> i % 2 * 4, out->u + 4 * i);
    }
}

void qblk_read_iq2_xxs(const void *qblk, struct qblk_fields *out)
{
    read_levels(DTYPE_IQ2_XXS, qblk, out);
}

void qblk_read_iq2_xs(const void *qblk, struct qblk_fields *out)
{
    read_levels(DTYPE_IQ2_XS, qblk, out);
}

void qblk_read_iq2_s(const void *qblk, struct qblk_fields *out)
{
    read_levels(DTYPE_IQ2_S, qblk, out);
}

void qblk_read_iq3_xxs(const void *qblk, struct qblk_fields *out)
{
    read_levels(DTYPE_IQ3_XXS, qblk, out);
}

void qblk_read_iq3_s(const void *qblk, struct qblk_fields *out)
{
    read_levels(DTYPE_IQ3_S, qblk, out);
}

/* ---- TQ ---- */

/* Here the min of the formula (qblk.h) is the scale: d * digit - d. */
static void begin_ternary(const uint8_t scale[2], struct qblk_fields *out)
{
    out->scale = get_u16(scale);
    out->min = out->scale;
    memset(out->sub_scales, 1, sizeof(out->sub_scales));
    memset(out->sub_mins, 1, sizeof(out->sub_mins));
}

typedef uint8_t sixteen __attribute__((vector_size(16)));

/* The five digits of each of sixteen bytes, fractions of 256 in base 3.  out: digit `place` of all, `step` apart. */
static void qblk_iq_digits(const uint8_t bytes[16], unsigned step, uint8_t *out)
{
    sixteen rest;

    memcpy(&rest, bytes, sizeof(rest));
    for (unsigned place = 0; place < 5; place++, out += step) {
        sixteen digits = -((sixteen)(rest > 85) + (sixteen)(rest > 170)); /* 3 rest / 256 */

        memcpy(out, &digits, sizeof(digits));
        rest = rest + rest + rest;
    }
}

void qblk_read_tq1_0(const void *qblk, struct qblk_fields *out)
{
    static const uint8_t powers[4] = {1, 3, 9, 27};
    const struct qblk_tq1_0 *q = qblk;

    begin_ternary(q->scale, out);
    qblk_iq_digits(q->fives, 32, out->u);
    qblk_iq_digits(q->fives + 16, 32, out->u + 16);
    qblk_iq_digits(q->fives + 32, 16, out->u + 160);
    for (unsigned i = 0; i < 16; i++)
        out->u[240 + i] = (uint8_t)((uint8_t)(q->fours[i % 4] * powers[i / 4]) * 3u >> 8);
}

void qblk_read_tq2_0(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_tq2_0 *q = qblk;

    begin_ternary(q->scale, out);
    for (unsigned i = 0; i < 256; i++)
        out->u[i] = q->quants[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

/* ---- one and two bits with one scale ---- */

static void begin_plain(const uint8_t scale[2], unsigned n_subs, struct qblk_fields *out)
{
    qblk_iq_begin(get_u16(scale), out);
    memset(out->sub_scales, 1, n_subs);
}

void qblk_read_q1_0(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_q1_0 *q = qblk;

    begin_plain(q->scale, 4, out);
    for (unsigned i = 0; i < 128; i++)
        out->u[i] = (uint8_t)(2 * (q->bits[i / 8] >> i % 8 & 1));
}

void qblk_read_q2_0(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_q2_0 *q = qblk;

    begin_plain(q->scale, 2, out);
    for (unsigned i = 0; i < 64; i++)
        out->u[i] = q->quants[i / 4] >> i % 4 * 2 & 3;
}

/* ---- NVFP4 ---- */

/* Half of an unsigned E4M3 as an F16, exactly. NaN becomes 0, and the top bit is ignored. */
static uint16_t half_of_e4m3(uint8_t bits)
{
    unsigned exponent = bits >> 3 & 15, mantissa = bits & 7;

    if (bits == 0x7f)
        return 0;
    return exponent > 0 ? (uint16_t)((exponent + 7) << 10 | mantissa << 7)
                        : f32_to_f16((float)mantissa * 0x1p-10F);
}

void qblk_read_nvfp4(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_nvfp4 *q = qblk;

    qblk_iq_begin(0, out);
    for (unsigned s = 0; s < 4; s++) {
        out->sub_halves[s] = half_of_e4m3(q->scales[s]);
        out->sub_scales[s] = 1;
        for (unsigned i = 0; i < 8; i++) {
            out->u[16 * s + i] = q->low[8 * s + i] & 15;
            out->u[16 * s + 8 + i] = q->low[8 * s + i] >> 4;
        }
    }
}
