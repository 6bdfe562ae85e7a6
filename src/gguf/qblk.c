/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised blocks taken apart, and rows of weights as numbers.
 *
 * One reader per type brings its bits into whole numbers (struct qblk_fields); numbers of the common form and
 * floats are made from those in one place.  This is the definition that kernels and quantisers are held
 * against.  Each weight of a model passes a reader once, when it is loaded, so readers take eight bytes at a
 * time.
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

#include "base/bytes.h"
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

enum { SIGN_BIT = 0x8000 }; /* of a 16-bit float */

static const int8_t nonlinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
static const int8_t e2m1_twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static uint16_t le16(const uint8_t bytes[2])
{
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}

/* The same field of each of n bytes (a multiple of 8), eight bytes at a time.  mask: of a byte, after the
 * shift. */
static inline void fields(const uint8_t *bytes, unsigned n, unsigned shift, uint8_t mask, uint8_t *out)
{
    for (unsigned i = 0; i < n; i += 8) {
        uint64_t eight;

        memcpy(&eight, bytes + i, 8);
        eight = eight >> shift & bytes_each(mask);
        memcpy(out + i, &eight, 8);
    }
}

/* Bit `from` of each of n bytes becomes bit `to` of out's, which has it clear. */
static inline void add_bits(const uint8_t *bytes, unsigned n, unsigned from, unsigned to, uint8_t *out)
{
    for (unsigned i = 0; i < n; i += 8) {
        uint64_t eight, sum;

        memcpy(&eight, bytes + i, 8);
        memcpy(&sum, out + i, 8);
        sum |= (eight >> from & bytes_each(1)) << to;
        memcpy(out + i, &sum, 8);
    }
}

/* 32 nibbles: low ones first. */
static void nibbles(const uint8_t bytes[16], uint8_t out[32])
{
    fields(bytes, 16, 0, 15, out);
    fields(bytes, 16, 4, 15, out + 16);
}

/* Eight bytes that are a bit of this one each, the lowest first in memory. */
static inline uint64_t spread_bits(uint8_t byte)
{
    static const uint8_t bit_of[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    uint64_t eight;

    memcpy(&eight, bit_of, 8);
    eight &= bytes_each(byte);
    return (eight + bytes_each(0x7f)) >> 7 & bytes_each(1); /* no carry: at most 0x80 + 0x7f */
}

static void add_fifth(const uint8_t fifth[4], uint8_t out[32])
{
    for (unsigned i = 0; i < 4; i++) {
        uint64_t eight;

        memcpy(&eight, out + 8 * i, 8);
        eight |= spread_bits(fifth[i]) << 4;
        memcpy(out + 8 * i, &eight, 8);
    }
}

/* ---- 32 weights ---- */

static void one_sub(const uint8_t scale[2], struct qblk_fields *out)
{
    out->scale = le16(scale);
    out->min = 0;
    out->sub_scales[0] = 1;
    out->sub_mins[0] = 0;
}

/* A base is added where a min is taken off. */
static void add_base(const uint8_t base[2], struct qblk_fields *out)
{
    out->min = le16(base) ^ SIGN_BIT;
    out->sub_mins[0] = 1;
}

static void read_q4_0(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_q4_0 *q = qblk;

    one_sub(q->scale, out);
    nibbles(q->low, out->u);
}

static void read_q4_1(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_q4_1 *q = qblk;

    one_sub(q->scale, out);
    add_base(q->base, out);
    nibbles(q->low, out->u);
}

static void read_q5_0(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_q5_0 *q = qblk;

    one_sub(q->scale, out);
    nibbles(q->low, out->u);
    add_fifth(q->fifth, out->u);
}

static void read_q5_1(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_q5_1 *q = qblk;

    one_sub(q->scale, out);
    add_base(q->base, out);
    nibbles(q->low, out->u);
    add_fifth(q->fifth, out->u);
}

static void read_q8_0(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_q8_0 *q = qblk;

    one_sub(q->scale, out);
    for (unsigned i = 0; i < 32; i += 8) {
        uint64_t eight;

        memcpy(&eight, q->quants + i, 8);
        eight ^= bytes_each(0x80); /* adds 128 to each */
        memcpy(out->u + i, &eight, 8);
    }
}

static void read_mxfp4(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_mxfp4 *q = qblk;

    /* 2^(exponent - 128) as a BF16, whose exponent has a bias of 127; the two smallest are subnormal. */
    out->scale = q->exponent >= 2 ? (uint16_t)((q->exponent - 1) << 7) : (uint16_t)(0x20 << q->exponent);
    out->min = 0;
    out->sub_scales[0] = 1;
    out->sub_mins[0] = 0;
    nibbles(q->low, out->u);
}

/* ---- 256 weights ---- */

/* 64 bytes of two-bit fields in two halves: 256 numbers 0..3. */
static void two_bits(const uint8_t bytes[64], uint8_t out[256])
{
    for (unsigned half = 0; half < 2; half++)
        for (unsigned i = 0; i < 4; i++)
            fields(bytes + half * 32, 32, 2 * i, 3, out + half * 128 + i * 32);
}

/* 128 bytes of nibbles in four quarters: 256 numbers 0..15. */
static void quarter_nibbles(const uint8_t bytes[128], uint8_t out[256])
{
    for (unsigned quarter = 0; quarter < 4; quarter++) {
        fields(bytes + quarter * 32, 32, 0, 15, out + quarter * 64);
        fields(bytes + quarter * 32, 32, 4, 15, out + quarter * 64 + 32);
    }
}

/* Bit r of byte b is bit `to` of number 32 r + b. */
static void eight_bits(const uint8_t bytes[32], unsigned to, uint8_t out[256])
{
    for (unsigned r = 0; r < 8; r++)
        add_bits(bytes, 32, r, to, out + r * 32);
}

static void read_q2_k(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_q2_k *q = qblk;

    out->scale = le16(q->scale);
    out->min = le16(q->min);
    for (unsigned s = 0; s < 16; s++) {
        out->sub_scales[s] = (int8_t)(q->subs[s] & 15);
        out->sub_mins[s] = q->subs[s] >> 4;
    }
    two_bits(q->quants, out->u);
}

static void read_q3_k(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_q3_k *q = qblk;

    out->scale = le16(q->scale);
    out->min = 0;
    for (unsigned s = 0; s < 16; s++) {
        int low = q->subs[s % 8] >> s / 8 * 4 & 15;
        int top = q->subs[8 + s % 4] >> s / 4 * 2 & 3;

        out->sub_scales[s] = (int8_t)((low | top << 4) - 32);
        out->sub_mins[s] = 0;
    }
    two_bits(q->quants, out->u);
    eight_bits(q->third, 2, out->u);
}

static void six_bit_subs(const uint8_t subs[12], struct qblk_fields *out)
{
    for (unsigned s = 0; s < 4; s++) {
        out->sub_scales[s] = (int8_t)(subs[s] & 63);
        out->sub_mins[s] = subs[4 + s] & 63;
        out->sub_scales[4 + s] = (int8_t)((subs[8 + s] & 15) | subs[s] >> 6 << 4);
        out->sub_mins[4 + s] = (uint8_t)(subs[8 + s] >> 4 | subs[4 + s] >> 6 << 4);
    }
}

static void read_q4_k(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_q4_k *q = qblk;

    out->scale = le16(q->scale);
    out->min = le16(q->min);
    six_bit_subs(q->subs, out);
    quarter_nibbles(q->quants, out->u);
}

static void read_q5_k(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_q5_k *q = qblk;

    out->scale = le16(q->scale);
    out->min = le16(q->min);
    six_bit_subs(q->subs, out);
    quarter_nibbles(q->quants, out->u);
    eight_bits(q->fifth, 4, out->u);
}

static void read_q6_k(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_q6_k *q = qblk;

    out->scale = le16(q->scale);
    out->min = 0;
    memcpy(out->sub_scales, q->subs, sizeof(q->subs));
    memset(out->sub_mins, 0, sizeof(out->sub_mins));
    for (unsigned half = 0; half < 2; half++) {
        fields(q->low + half * 64, 64, 0, 15, out->u + half * 128);
        fields(q->low + half * 64, 64, 4, 15, out->u + half * 128 + 64);
    }
    for (unsigned i = 0; i < 8; i++)
        for (unsigned bit = 0; bit < 2; bit++)
            add_bits(q->top + i / 4 * 32, 32, i % 4 * 2 + bit, 4 + bit, out->u + i * 32);
}

static void read_iq4_xs(const void *qblk, struct qblk_fields *out)
{
    const struct qblk_iq4_xs *q = qblk;

    out->scale = le16(q->scale);
    out->min = 0;
    for (unsigned s = 0; s < 8; s++) {
        int low = q->subs_low[s / 2] >> s % 2 * 4 & 15;
        int top = le16(q->subs_top) >> s * 2 & 3;

        out->sub_scales[s] = (int8_t)((low | top << 4) - 32);
        out->sub_mins[s] = 0;
        nibbles(q->low + s * 16, out->u + s * 32);
    }
}

/* ---- the types ---- */

static const struct codec {
    struct qblk_form form;
    void (*read)(const void *qblk, struct qblk_fields *out);
    const int8_t *table;
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

void qblk_read(enum dtype type, const void *qblk, struct qblk_fields *out)
{
    const struct codec *codec = codec_of(type);

    ASSERT(codec != NULL);
    codec->read(qblk, out);
}

void qblk_parts(enum dtype type, const void *qblk, struct qblk_parts *out)
{
    const struct codec *codec = codec_of(type);
    struct qblk_fields read;

    ASSERT(codec != NULL);
    codec->read(qblk, &read);
    out->scale = type == DTYPE_MXFP4 ? bf16_to_f32(read.scale) : f16_to_f32(read.scale);
    out->min = codec->form.has_min ? f16_to_f32(read.min) : 0;
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
