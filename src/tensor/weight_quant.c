/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised rows to chunks of panels, and back.
 *
 *     qblk of a row   qblk_parts()    scale, min, small scales and mins, quants
 *                         |
 *                         v           u = quant - the lowest quant of the type, or an index to its table
 *     16 rows of u    [qblk][four][lane][4]        as kernels see them, a byte each
 *                         |
 *                         v           bit fields of two rows of 64 bytes and more in one
 *     chunk           low | high | scales          quant_priv.h
 *
 * One chunk at a time stays in the first-level cache, and the last step works on whole rows of 64 bytes, so
 * it is the reading of the file's qblks that takes the time.
 */
#include "tensor/weight_priv.h"

#include <string.h>

#include "base/check.h"
#include "gguf/qblk.h"

struct bytes_of_chunk { /* u of all lanes, a byte each */
    uint8_t u[CHUNK_QBLKS][FOURS][FOUR_BYTES];
};

void quant_lookup(enum dtype type, uint8_t lookup[16])
{
    const int8_t *table = qblk_table(type);

    for (int i = 0; i < 16; i++)
        lookup[i] = table != NULL ? (uint8_t)(table[i] + quant_form(type).zero) : 0;
}

/* For each quant + 128, what stands for it. */
static void invert(enum dtype type, uint8_t u_of[256])
{
    const struct quant_form form = quant_form(type);
    const int8_t *table = qblk_table(type);

    for (int i = 0; i < 256; i++)
        u_of[i] = (uint8_t)(i - 128 + form.zero);
    for (int i = 0; table != NULL && i < 16; i++)
        u_of[table[i] + 128] = (uint8_t)i;
}

static void put_u16(uint8_t *to, uint32_t lane, uint16_t value)
{
    memcpy(to + lane * sizeof(value), &value, sizeof(value));
}

/* The scales of n_subs subs from sub on: of one qblk of 32, or of 256. */
static void pack_scales(struct quant_form form, const struct qblk_parts *parts, uint32_t sub, uint32_t n_subs,
                        uint32_t n_qblks, uint8_t *chunk, uint32_t lane)
{
    const struct quant_chunk at = quant_chunk(form, n_qblks);
    const size_t first = (size_t)sub * PANEL_ROWS;

    if (form.scale == SCALE_F16 || form.scale == SCALE_BF16) {
        put_u16(chunk + at.scale + first * 2, lane,
                form.scale == SCALE_F16 ? f32_to_f16(parts->scale) : f32_to_bf16(parts->scale));
        if (form.has_min)
            put_u16(chunk + at.min + first * 2, lane, f32_to_f16(parts->min));
        return;
    }
    for (uint32_t s = 0; s < n_subs; s++) {
        size_t i = first + s * PANEL_ROWS + lane;

        if (form.scale == SCALE_NIBBLES) {
            chunk[at.scale + i] = (uint8_t)(parts->sub_scales[s] | parts->sub_mins[s] << 4);
            continue;
        }
        chunk[at.scale + i] = (uint8_t)parts->sub_scales[s];
        if (form.has_min)
            chunk[at.min + i] = parts->sub_mins[s];
    }
    put_u16(chunk + at.d, lane, f32_to_f16(parts->scale));
    if (form.has_min)
        put_u16(chunk + at.dmin, lane, f32_to_f16(parts->min));
}

/* One row's share. */
static void pack_lane(const struct quant_source *source, const uint8_t u_of[256], uint32_t lane,
                      struct bytes_of_chunk *bytes, uint8_t *chunk)
{
    const struct quant_form form = quant_form(source->type);
    const struct dtype_info *info = dtype_info(source->type);
    const uint32_t qblks_each = info->qblk_weights / QBLK_WEIGHTS;
    const char *qblk = source->rows[lane] + source->k / info->qblk_weights * info->qblk_bytes;

    for (uint32_t q = 0; q < source->n_qblks; q += qblks_each, qblk += info->qblk_bytes) {
        struct qblk_parts parts;

        qblk_parts(source->type, qblk, &parts);
        pack_scales(form, &parts, q * form.n_subs, qblks_each * form.n_subs, source->n_qblks, chunk, lane);
        for (uint32_t i = 0; i < info->qblk_weights; i += 4) {
            uint8_t *four = bytes->u[q][i / 4] + lane * 4; /* fours of the qblks that follow lie behind */

            for (uint32_t j = 0; j < 4; j++)
                four[j] = u_of[(uint8_t)(parts.quants[i + j] + 128)];
        }
    }
}

/* Fields of bits of u above from, as many to a byte as there is room for. */
static void pack_bits(const struct bytes_of_chunk *bytes, uint32_t n_qblks, uint32_t from, uint32_t bits,
                      uint8_t *out)
{
    const uint32_t per_row = 8 / bits;
    const uint8_t mask = (uint8_t)((1u << bits) - 1);

    for (uint32_t row = 0; row < n_qblks * FOURS / per_row; row++, out += FOUR_BYTES) {
        const uint8_t *u = bytes->u[0][0] + (size_t)row * per_row * FOUR_BYTES;

        memset(out, 0, FOUR_BYTES);
        for (uint32_t field = 0; field < per_row; field++, u += FOUR_BYTES)
            for (uint32_t i = 0; i < FOUR_BYTES; i++)
                out[i] |= (uint8_t)((u[i] >> from & mask) << field * bits);
    }
}

void quant_pack_chunk(const struct quant_source *source, uint8_t *chunk)
{
    const struct quant_form form = quant_form(source->type);
    struct bytes_of_chunk bytes = {0};
    uint8_t u_of[256];

    invert(source->type, u_of);
    for (uint32_t lane = 0; lane < PANEL_ROWS; lane++)
        if (source->rows[lane] != NULL)
            pack_lane(source, u_of, lane, &bytes, chunk);
    pack_bits(&bytes, source->n_qblks, 0, form.low_bits, chunk);
    if (form.high_bits > 0)
        pack_bits(&bytes, source->n_qblks, form.low_bits, form.high_bits,
                  chunk + quant_chunk(form, source->n_qblks).high);
}

/* ---- and back ---- */

static uint16_t get_lane16(const uint8_t *from, uint32_t lane)
{
    uint16_t value;

    memcpy(&value, from + lane * sizeof(value), sizeof(value));
    return value;
}

/* The bits of byte i of a qblk's u. */
static uint32_t bits_at(const uint8_t *rows, uint32_t bits, uint32_t four, uint32_t i)
{
    const uint32_t per_row = 8 / bits;

    return rows[four / per_row * FOUR_BYTES + i] >> four % per_row * bits & ((1u << bits) - 1);
}

/* Scale and min of a sub in one lane. */
static void sub_of(struct quant_form form, const uint8_t *chunk, const struct quant_chunk *at, size_t i,
                   uint32_t lane, float *scale, float *min)
{
    *min = 0;
    if (form.scale == SCALE_BF16 || form.scale == SCALE_F16) {
        uint16_t bits = get_lane16(chunk + at->scale + i * 2, lane);

        *scale = form.scale == SCALE_F16 ? f16_to_f32(bits) : bf16_to_f32(bits);
        if (form.has_min)
            *min = f16_to_f32(get_lane16(chunk + at->min + i * 2, lane));
        return;
    }
    float d = f16_to_f32(get_lane16(chunk + at->d, lane));
    float dmin = form.has_min ? f16_to_f32(get_lane16(chunk + at->dmin, lane)) : 0;
    uint8_t small = chunk[at->scale + i + lane], small_min = form.has_min ? chunk[at->min + i + lane] : 0;

    *scale = d * (float)(form.scale == SCALE_NIBBLES ? small & 15 : (int8_t)small);
    *min = dmin * (float)(form.scale == SCALE_NIBBLES ? small_min >> 4 : small_min);
}

/* The whole number of column i of a chunk. */
static uint32_t u_at(const struct weight *weight, const uint8_t *chunk, const struct quant_chunk *at,
                     uint32_t i, uint32_t lane)
{
    const struct quant_form form = quant_form(weight->type);
    const size_t q = i / QBLK_WEIGHTS;
    const uint32_t four = i % QBLK_WEIGHTS / 4, byte = lane * 4 + i % 4;
    uint32_t u = bits_at(chunk + q * 64 * form.low_bits, form.low_bits, four, byte);

    if (form.high_bits > 0)
        u |= bits_at(chunk + at->high + q * 64 * form.high_bits, form.high_bits, four, byte) << form.low_bits;
    return form.is_table ? weight->lookup[u] : u;
}

void quant_row(const struct weight *weight, const uint8_t *panel, uint32_t lane, float *out)
{
    const struct quant_form form = quant_form(weight->type);
    const uint32_t sub_cols = QBLK_WEIGHTS / form.n_subs;

    for (uint32_t k = 0; k < weight->cols; k += CHUNK_COLS) {
        uint32_t rest = weight->cols - k, n_qblks = rest < CHUNK_COLS ? rest / QBLK_WEIGHTS : CHUNK_QBLKS;
        struct quant_chunk at = quant_chunk(form, n_qblks);

        for (uint32_t sub = 0; sub < n_qblks * form.n_subs; sub++) {
            float scale, min;

            sub_of(form, panel, &at, (size_t)sub * PANEL_ROWS, lane, &scale, &min);
            for (uint32_t i = sub * sub_cols; i < (sub + 1) * sub_cols; i++) {
                float value = scale * (float)((int32_t)u_at(weight, panel, &at, i, lane) - form.zero);

                out[k + i] = form.has_min ? value - min : value;
            }
        }
        panel += at.end;
    }
}
