/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised blocks taken apart, and rows of weights as numbers.
 *
 * One reader per type brings its bits into the common form (qblk.h); numbers are made from that form in one
 * place.  This is the definition that kernels and quantisers are held against, so it is written for the eye:
 * fast readers belong to the kernels.
 *
 * K-quants keep a 16-bit float per 256 weights and small integers per sub-block.  Q4_K and Q5_K pack eight
 * 6-bit scales and eight 6-bit mins into 12 bytes:
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
#include "gguf/qblk.h"

#include "base/check.h"
#include "base/err.h"

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

static const int8_t nonlinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
static const int8_t e2m1_twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static uint16_t le16(const uint8_t bytes[2])
{
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}

static float half_at(const uint8_t bytes[2])
{
    return f16_to_f32(le16(bytes));
}

/* 32 nibbles: low ones first. */
static void nibbles(const uint8_t bytes[16], int8_t out[32])
{
    for (unsigned i = 0; i < 16; i++) {
        out[i] = (int8_t)(bytes[i] & 15);
        out[i + 16] = (int8_t)(bytes[i] >> 4);
    }
}

static void shift_all(int8_t *quants, unsigned n, int by)
{
    for (unsigned i = 0; i < n; i++)
        quants[i] = (int8_t)(quants[i] + by);
}

static void look_up(int8_t *quants, unsigned n, const int8_t table[16])
{
    for (unsigned i = 0; i < n; i++)
        quants[i] = table[quants[i]];
}

static void add_fifth(const uint8_t fifth[4], int8_t quants[32])
{
    for (unsigned i = 0; i < 32; i++)
        quants[i] = (int8_t)(quants[i] | (fifth[i / 8] >> i % 8 & 1) << 4);
}

/* ---- 32 weights ---- */

static void one_sub(const uint8_t scale[2], struct qblk_parts *out)
{
    out->scale = half_at(scale);
    out->min = 0;
    out->sub_scales[0] = 1;
    out->sub_mins[0] = 0;
}

static void add_base(const uint8_t base[2], struct qblk_parts *out)
{
    out->min = -half_at(base);
    out->sub_mins[0] = 1;
}

static void parts_q4_0(const void *qblk, struct qblk_parts *out)
{
    const struct qblk_q4_0 *q = qblk;

    one_sub(q->scale, out);
    nibbles(q->low, out->quants);
    shift_all(out->quants, 32, -8);
}

static void parts_q4_1(const void *qblk, struct qblk_parts *out)
{
    const struct qblk_q4_1 *q = qblk;

    one_sub(q->scale, out);
    add_base(q->base, out);
    nibbles(q->low, out->quants);
}

static void parts_q5_0(const void *qblk, struct qblk_parts *out)
{
    const struct qblk_q5_0 *q = qblk;

    one_sub(q->scale, out);
    nibbles(q->low, out->quants);
    add_fifth(q->fifth, out->quants);
    shift_all(out->quants, 32, -16);
}

static void parts_q5_1(const void *qblk, struct qblk_parts *out)
{
    const struct qblk_q5_1 *q = qblk;

    one_sub(q->scale, out);
    add_base(q->base, out);
    nibbles(q->low, out->quants);
    add_fifth(q->fifth, out->quants);
}

static void parts_q8_0(const void *qblk, struct qblk_parts *out)
{
    const struct qblk_q8_0 *q = qblk;

    one_sub(q->scale, out);
    memcpy(out->quants, q->quants, sizeof(q->quants));
}

static void parts_iq4_nl(const void *qblk, struct qblk_parts *out)
{
    const struct qblk_iq4_nl *q = qblk;

    one_sub(q->scale, out);
    nibbles(q->low, out->quants);
    look_up(out->quants, 32, nonlinear);
}

static void parts_mxfp4(const void *qblk, struct qblk_parts *out)
{
    const struct qblk_mxfp4 *q = qblk;

    out->scale = ldexpf(1, (int)q->exponent - 128);
    out->min = 0;
    out->sub_scales[0] = 1;
    out->sub_mins[0] = 0;
    nibbles(q->low, out->quants);
    look_up(out->quants, 32, e2m1_twice);
}

/* ---- 256 weights ---- */

/* 64 bytes of two-bit fields in two halves: 256 numbers 0..3. */
static void two_bits(const uint8_t bytes[64], int8_t out[256])
{
    for (unsigned i = 0; i < 256; i++)
        out[i] = (int8_t)(bytes[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3);
}

/* 128 bytes of nibbles in four quarters: 256 numbers 0..15. */
static void quarter_nibbles(const uint8_t bytes[128], int8_t out[256])
{
    for (unsigned i = 0; i < 256; i++)
        out[i] = (int8_t)(bytes[i / 64 * 32 + i % 32] >> i / 32 % 2 * 4 & 15);
}

static void parts_q2_k(const void *qblk, struct qblk_parts *out)
{
    const struct qblk_q2_k *q = qblk;

    out->scale = half_at(q->scale);
    out->min = half_at(q->min);
    for (unsigned s = 0; s < 16; s++) {
        out->sub_scales[s] = (int8_t)(q->subs[s] & 15);
        out->sub_mins[s] = q->subs[s] >> 4;
    }
    two_bits(q->quants, out->quants);
}

static void parts_q3_k(const void *qblk, struct qblk_parts *out)
{
    const struct qblk_q3_k *q = qblk;

    out->scale = half_at(q->scale);
    out->min = 0;
    for (unsigned s = 0; s < 16; s++) {
        int low = q->subs[s % 8] >> s / 8 * 4 & 15;
        int top = q->subs[8 + s % 4] >> s / 4 * 2 & 3;

        out->sub_scales[s] = (int8_t)((low | top << 4) - 32);
        out->sub_mins[s] = 0;
    }
    two_bits(q->quants, out->quants);
    for (unsigned i = 0; i < 256; i++)
        out->quants[i] = (int8_t)(out->quants[i] - ((q->third[i % 32] >> i / 32 & 1) != 0 ? 0 : 4));
}

static void six_bit_subs(const uint8_t subs[12], struct qblk_parts *out)
{
    for (unsigned s = 0; s < 4; s++) {
        out->sub_scales[s] = (int8_t)(subs[s] & 63);
        out->sub_mins[s] = subs[4 + s] & 63;
        out->sub_scales[4 + s] = (int8_t)((subs[8 + s] & 15) | subs[s] >> 6 << 4);
        out->sub_mins[4 + s] = (uint8_t)(subs[8 + s] >> 4 | subs[4 + s] >> 6 << 4);
    }
}

static void parts_q4_k(const void *qblk, struct qblk_parts *out)
{
    const struct qblk_q4_k *q = qblk;

    out->scale = half_at(q->scale);
    out->min = half_at(q->min);
    six_bit_subs(q->subs, out);
    quarter_nibbles(q->quants, out->quants);
}

static void parts_q5_k(const void *qblk, struct qblk_parts *out)
{
    const struct qblk_q5_k *q = qblk;

    out->scale = half_at(q->scale);
    out->min = half_at(q->min);
    six_bit_subs(q->subs, out);
    quarter_nibbles(q->quants, out->quants);
    for (unsigned i = 0; i < 256; i++)
        out->quants[i] = (int8_t)(out->quants[i] | (q->fifth[i % 32] >> i / 32 & 1) << 4);
}

static void parts_q6_k(const void *qblk, struct qblk_parts *out)
{
    const struct qblk_q6_k *q = qblk;

    out->scale = half_at(q->scale);
    out->min = 0;
    memcpy(out->sub_scales, q->subs, sizeof(q->subs));
    memset(out->sub_mins, 0, sizeof(out->sub_mins));
    two_bits(q->top, out->quants);
    for (unsigned i = 0; i < 256; i++) {
        int low = q->low[i / 128 * 64 + i % 64] >> i / 64 % 2 * 4 & 15;

        out->quants[i] = (int8_t)((low | out->quants[i] << 4) - 32);
    }
}

static void parts_iq4_xs(const void *qblk, struct qblk_parts *out)
{
    const struct qblk_iq4_xs *q = qblk;

    out->scale = half_at(q->scale);
    out->min = 0;
    for (unsigned s = 0; s < 8; s++) {
        int low = q->subs_low[s / 2] >> s % 2 * 4 & 15;
        int top = le16(q->subs_top) >> s * 2 & 3;

        out->sub_scales[s] = (int8_t)((low | top << 4) - 32);
        out->sub_mins[s] = 0;
        nibbles(q->low + s * 16, out->quants + s * 32);
    }
    look_up(out->quants, 256, nonlinear);
}

/* ---- the types ---- */

static const struct codec {
    struct qblk_form form;
    void (*parts)(const void *qblk, struct qblk_parts *out);
    const int8_t *table;
} codecs[] = {
    [DTYPE_Q4_0] = {{32, 32, 1, -8, 7, false, false}, parts_q4_0, NULL},
    [DTYPE_Q4_1] = {{32, 32, 1, 0, 15, true, false}, parts_q4_1, NULL},
    [DTYPE_Q5_0] = {{32, 32, 1, -16, 15, false, false}, parts_q5_0, NULL},
    [DTYPE_Q5_1] = {{32, 32, 1, 0, 31, true, false}, parts_q5_1, NULL},
    [DTYPE_Q8_0] = {{32, 32, 1, -128, 127, false, false}, parts_q8_0, NULL},
    [DTYPE_Q2_K] = {{256, 16, 16, 0, 3, true, false}, parts_q2_k, NULL},
    [DTYPE_Q3_K] = {{256, 16, 16, -4, 3, false, false}, parts_q3_k, NULL},
    [DTYPE_Q4_K] = {{256, 32, 8, 0, 15, true, false}, parts_q4_k, NULL},
    [DTYPE_Q5_K] = {{256, 32, 8, 0, 31, true, false}, parts_q5_k, NULL},
    [DTYPE_Q6_K] = {{256, 16, 16, -32, 31, false, false}, parts_q6_k, NULL},
    [DTYPE_IQ4_NL] = {{32, 32, 1, -127, 113, false, true}, parts_iq4_nl, nonlinear},
    [DTYPE_IQ4_XS] = {{256, 32, 8, -127, 113, false, true}, parts_iq4_xs, nonlinear},
    [DTYPE_MXFP4] = {{32, 32, 1, -12, 12, false, true}, parts_mxfp4, e2m1_twice},
};

static const struct codec *codec_of(enum dtype type)
{
    return (unsigned)type < ARRAY_LEN(codecs) && codecs[type].parts != NULL ? &codecs[type] : NULL;
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

void qblk_parts(enum dtype type, const void *qblk, struct qblk_parts *out)
{
    const struct codec *codec = codec_of(type);

    ASSERT(codec != NULL);
    codec->parts(qblk, out);
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

static bool is_plain(enum dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16;
}

int qblk_row_f32(enum dtype type, const void *row, size_t n, float *out)
{
    const struct qblk_form *form = qblk_form(type);
    struct qblk_parts parts;

    if (form == NULL && !is_plain(type))
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

    if (form == NULL && !is_plain(type))
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
            double value = (double)parts.scale * parts.sub_scales[s] * parts.quants[i];

            out[b * form->weights + i] =
                form->has_min ? value - (double)parts.min * parts.sub_mins[s] : value;
        }
    }
    return 0;
}
