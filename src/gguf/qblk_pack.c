/* SPDX-License-Identifier: Apache-2.0 */
/* Packs the parts of a quantised block into bytes: the inverse of qblk.c, type by type.
 *
 * For every type here, unpacking and packing are inverse to each other, bit for bit. */
#include "gguf/qblk_write.h"

#include "base/check.h"

#include <string.h>

static void qblk_pack_put_half(uint8_t out[2], float value)
{
    uint16_t half = f32_to_f16(value);

    out[0] = (uint8_t)half;
    out[1] = (uint8_t)(half >> 8);
}

/* Packs 32 quants, plus offset, into nibbles; bits above the fourth are dropped. */
static void put_nibbles(uint8_t out[16], const int8_t quants[32], int offset)
{
    for (unsigned i = 0; i < 16; i++)
        out[i] = (uint8_t)(((quants[i] + offset) & 15) | ((quants[i + 16] + offset) & 15) << 4);
}

static void put_fifth(uint8_t out[4], const int8_t quants[32], int offset)
{
    memset(out, 0, 4);
    for (unsigned i = 0; i < 32; i++)
        out[i / 8] |= (uint8_t)(((quants[i] + offset) >> 4 & 1) << i % 8);
}

static void pack_q4_0(const struct qblk_parts *parts, void *qblk)
{
    struct qblk_q4_0 *q = qblk;

    qblk_pack_put_half(q->scale, parts->scale);
    put_nibbles(q->low, parts->quants, 8);
}

static void pack_q4_1(const struct qblk_parts *parts, void *qblk)
{
    struct qblk_q4_1 *q = qblk;

    qblk_pack_put_half(q->scale, parts->scale);
    qblk_pack_put_half(q->base, -parts->min);
    put_nibbles(q->low, parts->quants, 0);
}

static void pack_q5_0(const struct qblk_parts *parts, void *qblk)
{
    struct qblk_q5_0 *q = qblk;

    qblk_pack_put_half(q->scale, parts->scale);
    put_nibbles(q->low, parts->quants, 16);
    put_fifth(q->fifth, parts->quants, 16);
}

static void pack_q5_1(const struct qblk_parts *parts, void *qblk)
{
    struct qblk_q5_1 *q = qblk;

    qblk_pack_put_half(q->scale, parts->scale);
    qblk_pack_put_half(q->base, -parts->min);
    put_nibbles(q->low, parts->quants, 0);
    put_fifth(q->fifth, parts->quants, 0);
}

static void pack_q8_0(const struct qblk_parts *parts, void *qblk)
{
    struct qblk_q8_0 *q = qblk;

    qblk_pack_put_half(q->scale, parts->scale);
    memcpy(q->quants, parts->quants, sizeof(q->quants));
}

/* ---- 256 weights ---- */

/* Packs bits shift and shift + 1 of 256 quants, plus offset. */
static void put_two_bits(uint8_t out[64], const int8_t quants[256], int offset, int shift)
{
    memset(out, 0, 64);
    for (unsigned i = 0; i < 256; i++)
        out[i / 128 * 32 + i % 32] |= (uint8_t)(((quants[i] + offset) >> shift & 3) << i / 32 % 4 * 2);
}

static void put_quarter_nibbles(uint8_t out[128], const int8_t quants[256])
{
    memset(out, 0, 128);
    for (unsigned i = 0; i < 256; i++)
        out[i / 64 * 32 + i % 32] |= (uint8_t)((quants[i] & 15) << i / 32 % 2 * 4);
}

/* Packs bit number `bit` of 256 quants, plus offset. */
static void put_bit(uint8_t out[32], const int8_t quants[256], int offset, int bit)
{
    memset(out, 0, 32);
    for (unsigned i = 0; i < 256; i++)
        out[i % 32] |= (uint8_t)(((quants[i] + offset) >> bit & 1) << i / 32);
}

static void put_six_bit_subs(uint8_t out[12], const struct qblk_parts *parts)
{
    const int8_t *scales = parts->sub_scales;
    const uint8_t *mins = parts->sub_mins;

    for (unsigned s = 0; s < 4; s++) {
        out[s] = (uint8_t)(scales[s] | scales[4 + s] >> 4 << 6);
        out[4 + s] = (uint8_t)(mins[s] | mins[4 + s] >> 4 << 6);
        out[8 + s] = (uint8_t)((scales[4 + s] & 15) | (mins[4 + s] & 15) << 4);
    }
}

static void pack_q2_k(const struct qblk_parts *parts, void *qblk)
{
    struct qblk_q2_k *q = qblk;

    qblk_pack_put_half(q->scale, parts->scale);
    qblk_pack_put_half(q->min, parts->min);
    for (unsigned s = 0; s < 16; s++)
        q->subs[s] = (uint8_t)(parts->sub_scales[s] | parts->sub_mins[s] << 4);
    put_two_bits(q->quants, parts->quants, 0, 0);
}

static void pack_q3_k(const struct qblk_parts *parts, void *qblk)
{
    struct qblk_q3_k *q = qblk;

    qblk_pack_put_half(q->scale, parts->scale);
    memset(q->subs, 0, sizeof(q->subs));
    for (unsigned s = 0; s < 16; s++) {
        unsigned scale = (unsigned)(parts->sub_scales[s] + 32);

        q->subs[s % 8] |= (uint8_t)((scale & 15) << s / 8 * 4);
        q->subs[8 + s % 4] |= (uint8_t)(scale >> 4 << s / 4 * 2);
    }
    put_two_bits(q->quants, parts->quants, 4, 0);
    put_bit(q->third, parts->quants, 4, 2);
}

static void pack_q4_k(const struct qblk_parts *parts, void *qblk)
{
    struct qblk_q4_k *q = qblk;

    qblk_pack_put_half(q->scale, parts->scale);
    qblk_pack_put_half(q->min, parts->min);
    put_six_bit_subs(q->subs, parts);
    put_quarter_nibbles(q->quants, parts->quants);
}

static void pack_q5_k(const struct qblk_parts *parts, void *qblk)
{
    struct qblk_q5_k *q = qblk;

    qblk_pack_put_half(q->scale, parts->scale);
    qblk_pack_put_half(q->min, parts->min);
    put_six_bit_subs(q->subs, parts);
    put_quarter_nibbles(q->quants, parts->quants);
    put_bit(q->fifth, parts->quants, 0, 4);
}

static void pack_q6_k(const struct qblk_parts *parts, void *qblk)
{
    struct qblk_q6_k *q = qblk;

    qblk_pack_put_half(q->scale, parts->scale);
    memcpy(q->subs, parts->sub_scales, sizeof(q->subs));
    memset(q->low, 0, sizeof(q->low));
    for (unsigned i = 0; i < 256; i++)
        q->low[i / 128 * 64 + i % 64] |= (uint8_t)(((parts->quants[i] + 32) & 15) << i / 64 % 2 * 4);
    put_two_bits(q->top, parts->quants, 32, 4);
}

static void (*const packers[])(const struct qblk_parts *parts, void *qblk) = {
    [DTYPE_Q4_0] = pack_q4_0, [DTYPE_Q4_1] = pack_q4_1, [DTYPE_Q5_0] = pack_q5_0, [DTYPE_Q5_1] = pack_q5_1,
    [DTYPE_Q8_0] = pack_q8_0, [DTYPE_Q2_K] = pack_q2_k, [DTYPE_Q3_K] = pack_q3_k, [DTYPE_Q4_K] = pack_q4_k,
    [DTYPE_Q5_K] = pack_q5_k, [DTYPE_Q6_K] = pack_q6_k,
};

bool qblk_can_write(enum dtype type)
{
    return (unsigned)type < ARRAY_LEN(packers) && packers[type] != NULL;
}

void qblk_pack(enum dtype type, const struct qblk_parts *parts, void *qblk)
{
    ASSERT(qblk_can_write(type));
    packers[type](parts, qblk);
}
