/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacks quantised blocks and converts rows of weights to numbers.
 *
 * One reader for each type turns the bits into whole numbers (struct qblk_fields).  One shared place makes
 * the numbers of the formula and floats from them.  This is the reference for kernels and quantisers.  A
 * reader sees each weight of a model once, at load, so readers take eight bytes at a time.
 *
 * K-quants have a 16-bit float for every 256 weights and small integers for each sub-block.  Q4_K and Q5_K
 * pack eight 6-bit scales and eight 6-bit mins into 12 bytes:
 *
 *     bytes 0..3    scale 0..3 in the low six bits, upper two bits of scale 4..7 above
 *     bytes 4..7    min 0..3 in the low six bits, upper two bits of min 4..7 above
 *     bytes 8..11   low four bits of scale 4..7, low four bits of min 4..7 above
 *
 * and Q3_K sixteen 6-bit scales:
 *
 *     bytes 0..7    low four bits of scale 0..7, low four bits of scale 8..15 above
 *     bytes 8..11   upper two bits of scales b, b + 4, b + 8, b + 12 from the low bits up
 */
#include "gguf/qblk_priv.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/err.h"
#include "base/wide.h"

#include <math.h>
#include <string.h>

_Static_assert(sizeof(struct qblk_q4_0) == 18, "Q4_0 in a GGUF");
_Static_assert(sizeof(struct qblk_q4_1) == 20, "Q4_1 in a GGUF");
_Static_assert(sizeof(struct qblk_q5_0) == 22, "Q5_0 in a GGUF");
_Static_assert(sizeof(struct qblk_q5_1) == 24, "Q5_1 in a GGUF");
_Static_assert(sizeof(struct qblk_q8_0) == 34, "Q8_0 in a GGUF");
_Static_assert(sizeof(struct qblk_q2_k) == 84, "Q2_K in a GGUF");
_Static_assert(sizeof(struct qblk_q3_k) == 110, "Q3_K in a GGUF");
_Static_assert(sizeof(struct qblk_q4_k) == 144, "Q4_K in a GGUF");
_Static_assert(sizeof(struct qblk_q5_k) == 176, "Q5_K in a GGUF");
_Static_assert(sizeof(struct qblk_q6_k) == 210, "Q6_K in a GGUF");
_Static_assert(sizeof(struct qblk_iq4_nl) == 18, "IQ4_NL in a GGUF");
_Static_assert(sizeof(struct qblk_iq4_xs) == 136, "IQ4_XS in a GGUF");
_Static_assert(sizeof(struct qblk_mxfp4) == 17, "MXFP4 in a GGUF");

enum { SIGN_BIT = 0x8000 }; /* of a 16-bit float */

static const int8_t nonlinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
static const int8_t e2m1_twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static uint16_t qblk_le16(const uint8_t bytes[2])
{
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}

/* Extracts the same field of each of n bytes (a multiple of 16). mask: of a byte, after the shift.  All
 * arguments except pointers should be constants, here and in the functions below. */
static inline __attribute__((always_inline)) void gguf_qblk_fields(const uint8_t *bytes, unsigned n,
                                                                   unsigned shift, uint8_t mask, uint8_t *out)
{
    for (unsigned i = 0; i < n; i += 16)
        wide_store16(wide_load16(bytes + i) >> shift & bytes_each(mask), out + i);
}

struct field {
    unsigned shift;
    uint8_t mask; /* of a byte, after the shift */
};

/* Combines two fields of 32 bytes each: the second field goes above the first. */
static inline __attribute__((always_inline)) void
two_fields(const uint8_t *lows, struct field low, const uint8_t *tops, struct field top, uint8_t *out)
{
    const unsigned to = (unsigned)__builtin_popcount(low.mask);

    for (unsigned i = 0; i < 32; i += 16)
        wide_store16((wide_load16(lows + i) >> low.shift & bytes_each(low.mask)) |
                         (wide_load16(tops + i) >> top.shift & bytes_each(top.mask)) << to,
                     out + i);
}

/* Extracts 32 nibbles: low ones first. */
static void qblk_nibbles(const uint8_t bytes[16], uint8_t out[32])
{
    gguf_qblk_fields(bytes, 16, 0, 15, out);
    gguf_qblk_fields(bytes, 16, 4, 15, out + 16);
}

/* Makes sixteen bytes with one bit of these two in each, as its fifth bit; the lowest bit goes to the first
 * byte. */
static inline wide spread_bits(const uint8_t bytes[2])
{
    static const uint8_t bit_of[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    wide each = {bytes_each(bytes[0]), bytes_each(bytes[1])};

    each = (each & wide_load16(bit_of)) + bytes_each(127); /* no carry: the sum is at most 0x80 + 0x7f */
    return each >> 3 & bytes_each(16);
}

/* Makes 32 numbers: four bits of each as in qblk_nibbles(), and one bit above. */
static void fifth_nibbles(const uint8_t low[16], const uint8_t fifth[4], uint8_t out[32])
{
    wide_store16((wide_load16(low) & bytes_each(15)) | spread_bits(fifth), out);
    wide_store16((wide_load16(low) >> 4 & bytes_each(15)) | spread_bits(fifth + 2), out + 16);
}

/* ---- 32 weights ---- */

static void one_sub(const uint8_t scale[2], struct qblk_fields *out)
{
    out->scale = qblk_le16(scale);
    out->min = 0;
    out->sub_scales[0] = 1;
    out->sub_mins[0] = 0;
}

/* The type adds a base, while the formula subtracts a min. */
static void add_base(const uint8_t base[2], struct qblk_fields *out)
{
    out->min = qblk_le16(base) ^ SIGN_BIT;
    out->sub_mins[0] = 1;
}

static void read_q4_0(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_q4_0 *q = qblk;

    one_sub(q->scale, out);
    qblk_nibbles(q->low, out->u);
}

static void read_q4_1(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_q4_1 *q = qblk;

    one_sub(q->scale, out);
    add_base(q->base, out);
    qblk_nibbles(q->low, out->u);
}

static void read_q5_0(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_q5_0 *q = qblk;

    one_sub(q->scale, out);
    fifth_nibbles(q->low, q->fifth, out->u);
}

static void read_q5_1(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_q5_1 *q = qblk;

    one_sub(q->scale, out);
    add_base(q->base, out);
    fifth_nibbles(q->low, q->fifth, out->u);
}

static void read_q8_0(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_q8_0 *q = qblk;

    one_sub(q->scale, out);
    for (unsigned i = 0; i < 32; i += 16)
        wide_store16(wide_load16((const uint8_t *)q->quants + i) ^ bytes_each(128),
                     out->u + i); /* adds 128 to each */
}

static void read_mxfp4(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_mxfp4 *q = qblk;

    /* 2^(exponent - 128) as a BF16, whose exponent has a bias of 127; the two smallest are subnormal. */
    out->scale = q->exponent >= 2 ? (uint16_t)((q->exponent - 1) << 7) : (uint16_t)(0x20 << q->exponent);
    out->min = 0;
    out->sub_scales[0] = 1;
    out->sub_mins[0] = 0;
    qblk_nibbles(q->low, out->u);
}

/* ---- 256 weights ---- */

/* Reads 64 bytes of two-bit fields in two halves: 256 numbers 0..3. */
static void two_bits(const uint8_t bytes[64], uint8_t out[256])
{
    for (unsigned half = 0; half < 2; half++, bytes += 32, out += 128) {
        gguf_qblk_fields(bytes, 32, 0, 3, out);
        gguf_qblk_fields(bytes, 32, 2, 3, out + 32);
        gguf_qblk_fields(bytes, 32, 4, 3, out + 64);
        gguf_qblk_fields(bytes, 32, 6, 3, out + 96);
    }
}

/* The same with bit r of byte b of tops as the upper bit of number 32 r + b: numbers 0..7. */
static void three_bits(const uint8_t bytes[64], const uint8_t tops[32], uint8_t out[256])
{
    const uint8_t *other = bytes + 32;

    two_fields(bytes, (struct field){0, 3}, tops, (struct field){0, 1}, out);
    two_fields(bytes, (struct field){2, 3}, tops, (struct field){1, 1}, out + 32);
    two_fields(bytes, (struct field){4, 3}, tops, (struct field){2, 1}, out + 64);
    two_fields(bytes, (struct field){6, 3}, tops, (struct field){3, 1}, out + 96);
    two_fields(other, (struct field){0, 3}, tops, (struct field){4, 1}, out + 128);
    two_fields(other, (struct field){2, 3}, tops, (struct field){5, 1}, out + 160);
    two_fields(other, (struct field){4, 3}, tops, (struct field){6, 1}, out + 192);
    two_fields(other, (struct field){6, 3}, tops, (struct field){7, 1}, out + 224);
}

/* Reads 128 bytes of nibbles in four quarters: 256 numbers 0..15. */
static void quarter_nibbles(const uint8_t bytes[128], uint8_t out[256])
{
    for (unsigned quarter = 0; quarter < 4; quarter++) {
        gguf_qblk_fields(bytes + quarter * 32, 32, 0, 15, out + quarter * 64);
        gguf_qblk_fields(bytes + quarter * 32, 32, 4, 15, out + quarter * 64 + 32);
    }
}

/* The same with bit r of byte b of tops as the upper bit of number 32 r + b: numbers 0..31. */
static void five_bits(const uint8_t bytes[128], const uint8_t tops[32], uint8_t out[256])
{
    two_fields(bytes, (struct field){0, 15}, tops, (struct field){0, 1}, out);
    two_fields(bytes, (struct field){4, 15}, tops, (struct field){1, 1}, out + 32);
    two_fields(bytes + 32, (struct field){0, 15}, tops, (struct field){2, 1}, out + 64);
    two_fields(bytes + 32, (struct field){4, 15}, tops, (struct field){3, 1}, out + 96);
    two_fields(bytes + 64, (struct field){0, 15}, tops, (struct field){4, 1}, out + 128);
    two_fields(bytes + 64, (struct field){4, 15}, tops, (struct field){5, 1}, out + 160);
    two_fields(bytes + 96, (struct field){0, 15}, tops, (struct field){6, 1}, out + 192);
    two_fields(bytes + 96, (struct field){4, 15}, tops, (struct field){7, 1}, out + 224);
}

static void read_q2_k(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_q2_k *q = qblk;

    out->scale = qblk_le16(q->scale);
    out->min = qblk_le16(q->min);
    gguf_qblk_fields(q->subs, 16, 0, 15, (uint8_t *)out->sub_scales);
    gguf_qblk_fields(q->subs, 16, 4, 15, out->sub_mins);
    two_bits(q->quants, out->u);
}

static void read_q3_k(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_q3_k *q = qblk;

    out->scale = qblk_le16(q->scale);
    out->min = 0;
    memset(out->sub_mins, 0, sizeof(out->sub_mins));
    for (unsigned i = 0; i < 4; i++) {
        uint32_t low = wide_load4(q->subs + i % 2 * 4) >> i / 2 * 4 & bytes_each4(15);
        uint32_t top = wide_load4(q->subs + 8) >> i * 2 & bytes_each4(3);
        uint32_t raised = (low | top << 4 | bytes_each4(128)) - bytes_each4(32); /* by 128: no borrow */

        wide_store4(raised ^ bytes_each4(128), (uint8_t *)out->sub_scales + 4 * i);
    }
    three_bits(q->quants, q->third, out->u);
}

static void six_bit_subs(const uint8_t subs[12], struct qblk_fields *out)
{
    uint32_t scales = wide_load4(subs), mins = wide_load4(subs + 4), rest = wide_load4(subs + 8);

    wide_store4(scales & bytes_each4(63), (uint8_t *)out->sub_scales);
    wide_store4(mins & bytes_each4(63), out->sub_mins);
    wide_store4((rest & bytes_each4(15)) | (scales >> 6 & bytes_each4(3)) << 4,
                (uint8_t *)out->sub_scales + 4);
    wide_store4((rest >> 4 & bytes_each4(15)) | (mins >> 6 & bytes_each4(3)) << 4, out->sub_mins + 4);
}

static void read_q4_k(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_q4_k *q = qblk;

    out->scale = qblk_le16(q->scale);
    out->min = qblk_le16(q->min);
    six_bit_subs(q->subs, out);
    quarter_nibbles(q->quants, out->u);
}

static void read_q5_k(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_q5_k *q = qblk;

    out->scale = qblk_le16(q->scale);
    out->min = qblk_le16(q->min);
    six_bit_subs(q->subs, out);
    five_bits(q->quants, q->fifth, out->u);
}

static void read_q6_k(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_q6_k *q = qblk;

    out->scale = qblk_le16(q->scale);
    out->min = 0;
    memcpy(out->sub_scales, q->subs, sizeof(q->subs));
    memset(out->sub_mins, 0, sizeof(out->sub_mins));
    for (unsigned half = 0; half < 2; half++) {
        const uint8_t *low = q->low + half * 64, *top = q->top + half * 32;
        uint8_t *u = out->u + half * 128;

        two_fields(low, (struct field){0, 15}, top, (struct field){0, 3}, u);
        two_fields(low + 32, (struct field){0, 15}, top, (struct field){2, 3}, u + 32);
        two_fields(low, (struct field){4, 15}, top, (struct field){4, 3}, u + 64);
        two_fields(low + 32, (struct field){4, 15}, top, (struct field){6, 3}, u + 96);
    }
}

static void read_iq4_xs(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_iq4_xs *q = qblk;

    out->scale = qblk_le16(q->scale);
    out->min = 0;
    for (unsigned s = 0; s < 8; s++) {
        int low = q->subs_low[s / 2] >> s % 2 * 4 & 15;
        int top = qblk_le16(q->subs_top) >> s * 2 & 3;

        out->sub_scales[s] = (int8_t)((low | top << 4) - 32);
        out->sub_mins[s] = 0;
        qblk_nibbles(q->low + s * 16, out->u + s * 32);
    }
}

/* ---- the types ---- */

static const struct codec {
    struct qblk_form form;
    qblk_reader read;
    const int8_t *table;
    qblk_points_reader read_points;
} codecs[] = {
    [DTYPE_Q4_0] = {{32, 32, 1, -8, 7, false, false}, read_q4_0, NULL},
    [DTYPE_Q4_1] = {{32, 32, 1, 0, 15, true, false}, read_q4_1, NULL},
    [DTYPE_Q5_0] = {{32, 32, 1, -16, 15, false, false}, read_q5_0, NULL},
    [DTYPE_Q5_1] = {{32, 32, 1, 0, 31, true, false}, read_q5_1, NULL},
    [DTYPE_Q8_0] = {{32, 32, 1, -128, 127, false, false}, read_q8_0, NULL},
    [DTYPE_Q2_K] = {{256, 16, 16, 0, 3, true, false}, read_q2_k, NULL},
    [DTYPE_Q3_K] = {{256, 16, 16, -4, 3, false, false}, read_q3_k, NULL},
    [DTYPE_Q4_K] = {{256, 32, 8, 0, 15, true, false}, read_q4_k, NULL},
    [DTYPE_Q5_K] = {{256, 32, 8, 0, 31, true, false}, read_q5_k, NULL},
    [DTYPE_Q6_K] = {{256, 16, 16, -32, 31, false, false}, read_q6_k, NULL},
    [DTYPE_IQ4_NL] = {{32, 32, 1, -127, 113, false, true}, read_q4_0, nonlinear},
    [DTYPE_IQ4_XS] = {{256, 32, 8, -127, 113, false, true}, read_iq4_xs, nonlinear},
    [DTYPE_MXFP4] = {{32, 32, 1, -12, 12, false, true}, read_mxfp4, e2m1_twice},
    [DTYPE_IQ1_S] = {{256, 32, 8, -9, 9, false, true, 3}, qblk_read_iq1_s, qblk_levels_iq1},
    [DTYPE_IQ1_M] = {{256, 16, 16, -9, 9, false, true, 3}, qblk_read_iq1_m, qblk_levels_iq1},
    [DTYPE_IQ2_XXS] = {{256, 32, 8, -43, 43, false, true, 3},
                       qblk_read_iq2_xxs,
                       qblk_levels_iq2,
                       qblk_points_iq2_xxs},
    [DTYPE_IQ2_XS] = {{256, 16, 16, -43, 43, false, true, 3},
                      qblk_read_iq2_xs,
                      qblk_levels_iq2,
                      qblk_points_iq2_xs},
    [DTYPE_IQ2_S] = {{256, 16, 16, -43, 43, false, true, 3},
                     qblk_read_iq2_s,
                     qblk_levels_iq2,
                     qblk_points_iq2_s},
    [DTYPE_IQ3_XXS] = {{256, 32, 8, -62, 62, false, true, 2},
                       qblk_read_iq3_xxs,
                       qblk_levels_iq3_xxs,
                       qblk_points_iq3_xxs},
    [DTYPE_IQ3_S] = {{256, 32, 8, -15, 15, false, true},
                     qblk_read_iq3_s,
                     qblk_levels_iq3_s,
                     qblk_points_iq3_s},
    [DTYPE_TQ1_0] = {{256, 16, 16, 0, 2, true, false}, qblk_read_tq1_0, NULL},
    [DTYPE_TQ2_0] = {{256, 16, 16, 0, 3, true, false}, qblk_read_tq2_0, NULL},
    [DTYPE_NVFP4] = {{64, 16, 4, -12, 12, false, true, 0, true}, qblk_read_nvfp4, e2m1_twice},
    [DTYPE_Q1_0] = {{128, 32, 4, -1, 1, false, false}, qblk_read_q1_0, NULL},
    [DTYPE_Q2_0] = {{64, 32, 2, -1, 2, false, false}, qblk_read_q2_0, NULL},
};

static const struct codec *codec_of(enum dtype type)
{
    return (unsigned)type < ARRAY_LEN(codecs) && codecs[type].read != NULL ? &codecs[type] : NULL;
}

const struct qblk_form *qblk_form(enum dtype type)
{
    const struct codec *codec = codec_of(type);

    return codec != NULL ? &codec->form : NULL;
}

const int8_t *qblk_table(enum dtype type)
{
    const struct codec *codec = codec_of(type);

    return codec != NULL ? codec->table : NULL;
}

qblk_reader qblk_reader_of(enum dtype type)
{
    const struct codec *codec = codec_of(type);

    return codec != NULL ? codec->read : NULL;
}

qblk_points_reader qblk_points_reader_of(enum dtype type)
{
    const struct codec *codec = codec_of(type);

    return codec != NULL ? codec->read_points : NULL;
}

void qblk_parts(enum dtype type, const void *qblk, struct qblk_parts *out)
{
    const struct codec *codec = codec_of(type);
    struct qblk_fields read;

    ASSERT(codec != NULL);
    codec->read(qblk, &read);
    out->scale = codec->form.has_sub_halves ? 1
                 : type == DTYPE_MXFP4      ? bf16_to_f32(read.scale)
                                            : f16_to_f32(read.scale) / (float)(1 << codec->form.unit_bits);
    out->min = codec->form.has_min ? f16_to_f32(read.min) : 0;
    for (uint32_t s = 0; s < codec->form.n_subs; s++)
        out->own_scales[s] = codec->form.has_sub_halves ? f16_to_f32(read.sub_halves[s]) : 1;
    memcpy(out->sub_scales, read.sub_scales, codec->form.n_subs);
    memcpy(out->sub_mins, read.sub_mins, codec->form.n_subs);
    for (uint32_t i = 0; i < codec->form.weights; i++)
        out->quants[i] =
            codec->table != NULL ? codec->table[read.u[i]] : (int8_t)(read.u[i] + codec->form.quant_low);
}

/* ---- numbers ---- */

static float plain_value(enum dtype type, const void *row, size_t i)
{
    uint16_t half;
    float value;

    if (type == DTYPE_F32) {
        memcpy(&value, (const char *)row + i * 4, 4);
        return value;
    }
    memcpy(&half, (const char *)row + i * 2, 2);
    return type == DTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

static bool qblk_is_plain(enum dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16;
}

int qblk_row_f32(enum dtype type, const void *row, size_t n, float *out)
{
    const struct qblk_form *form = qblk_form(type);
    struct qblk_parts parts;

    if (form == NULL && !qblk_is_plain(type))
        return E_UNSUPPORTED;
    if (form == NULL) {
        for (size_t i = 0; i < n; i++)
            out[i] = plain_value(type, row, i);
        return 0;
    }
    if (n % form->weights != 0)
        return E_INVAL;
    for (size_t b = 0; b < n / form->weights; b++) {
        qblk_parts(type, (const char *)row + b * dtype_info(type)->qblk_bytes, &parts);
        for (uint32_t i = 0; i < form->weights; i++) {
            uint32_t s = i / form->sub_weights;
            float value = qblk_sub_scale(&parts, s) * (float)parts.quants[i];

            out[b * form->weights + i] = form->has_min ? value - qblk_sub_min(&parts, s) : value;
        }
    }
    return 0;
}

int qblk_row_f64(enum dtype type, const void *row, size_t n, double *out)
{
    const struct qblk_form *form = qblk_form(type);
    struct qblk_parts parts;

    if (form == NULL && !qblk_is_plain(type))
        return E_UNSUPPORTED;
    if (form == NULL) {
        for (size_t i = 0; i < n; i++)
            out[i] = (double)plain_value(type, row, i);
        return 0;
    }
    if (n % form->weights != 0)
        return E_INVAL;
    for (size_t b = 0; b < n / form->weights; b++) {
        qblk_parts(type, (const char *)row + b * dtype_info(type)->qblk_bytes, &parts);
        for (uint32_t i = 0; i < form->weights; i++) {
            uint32_t s = i / form->sub_weights;
            double value = (double)parts.scale * parts.own_scales[s] * parts.sub_scales[s] * parts.quants[i];

            out[b * form->weights + i] =
                form->has_min ? value - (double)parts.min * parts.sub_mins[s] : value;
        }
    }
    return 0;
}
