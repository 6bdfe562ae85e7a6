/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised rows to chunks of panels, and back.
 *
 *     qblk of a row   qblk_read()     scale, min, small scales and mins, u
 *                         |
 *                         v           u = quant - the lowest quant of the type, or an index to its table
 *     16 rows of u    [qblk][four][lane][4]        as kernels see them, a byte each
 *                         |
 *                         v           bit fields of two qblks in the rows of 64 bytes that they share
 *     chunk           u | scales                   quant_priv.h
 *
 * One chunk at a time stays in the first-level cache, and all steps take eight bytes of u at a time or four.
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

static void put_u16(uint8_t *to, uint32_t lane, uint16_t value)
{
    memcpy(to + lane * sizeof(value), &value, sizeof(value));
}

/* Where a lane has a small scale, from the first of them; its min, where it has a byte of its own, is two
 * further. */
static size_t small_at(struct quant_form form, size_t sub, uint32_t lane)
{
    const size_t each = form.scale == SCALE_I8 && form.has_min ? 2 : 4;

    return sub / each * FOUR_BYTES + lane * 4 + sub % each;
}

/* The scales of n_subs subs from sub on: of one qblk of 32, or of 256. */
static void pack_scales(struct quant_form form, const struct qblk_fields *fields, uint32_t sub,
                        uint32_t n_subs, uint32_t n_qblks, uint8_t *chunk, uint32_t lane)
{
    const struct quant_chunk at = quant_chunk(form, n_qblks);
    const size_t first = (size_t)sub * PANEL_ROWS;

    if (form.scale == SCALE_F16 || form.scale == SCALE_BF16) {
        put_u16(chunk + at.scale + first * 2, lane, fields->scale);
        if (form.has_min)
            put_u16(chunk + at.min + first * 2, lane, fields->min);
        return;
    }
    for (uint32_t s = 0; s < n_subs; s++) {
        size_t i = small_at(form, sub + s, lane);

        if (form.scale == SCALE_NIBBLES) {
            chunk[at.scale + i] = (uint8_t)(fields->sub_scales[s] | fields->sub_mins[s] << 4);
            continue;
        }
        chunk[at.scale + i] = (uint8_t)(fields->sub_scales[s] + SMALL_BIAS);
        if (form.has_min)
            chunk[at.min + i + 2] = fields->sub_mins[s];
    }
    put_u16(chunk + at.d, lane, fields->scale);
    if (form.has_min)
        put_u16(chunk + at.dmin, lane, fields->min);
}

/* One row's share. */
static void pack_lane(const struct quant_source *source, uint32_t lane, struct bytes_of_chunk *bytes,
                      uint8_t *chunk)
{
    const struct quant_form form = quant_form(source->type);
    const struct dtype_info *info = dtype_info(source->type);
    const uint32_t qblks_each = info->qblk_weights / QBLK_WEIGHTS;
    const char *qblk = source->rows[lane] + source->k / info->qblk_weights * info->qblk_bytes;

    for (uint32_t q = 0; q < source->n_qblks; q += qblks_each, qblk += info->qblk_bytes) {
        struct qblk_fields fields;

        qblk_read(source->type, qblk, &fields);
        pack_scales(form, &fields, q * form.n_subs, qblks_each * form.n_subs, source->n_qblks, chunk, lane);
        uint8_t *four = bytes->u[q][0] + lane * 4; /* those of the qblks that follow lie behind */
        for (uint32_t i = 0; i < info->qblk_weights; i += 4, four += FOUR_BYTES)
            memcpy(four, fields.u + i, 4);
    }
}

/* A piece of u and where it is among the rows of two qblks (quant_priv.h). */
struct place {
    uint8_t row, bit; /* in the rows */
    uint8_t from, n;  /* of u's bits */
};
enum { MAX_PLACES = 3 };

/* Of four i of the sixteen of two qblks; returns how many. */
static uint32_t places_of(uint32_t bits, uint32_t i, struct place places[MAX_PLACES])
{
    const uint8_t f = i % 4, part = (uint8_t)(i / 4), four = i % FOURS;

    if (bits == 8)
        places[0] = (struct place){(uint8_t)i, 0, 0, 8};
    else if (bits == 4)
        places[0] = (struct place){four, i < FOURS ? 0 : 4, 0, 4};
    else if (bits == 2)
        places[0] = (struct place){f, 2 * part, 0, 2};
    else if (bits == 5 && i < FOURS)
        places[0] = (struct place){four, 0, 0, 5};
    else if (bits == 3 && part < 2)
        places[0] = (struct place){f, 3 * part, 0, 3};
    else if (bits == 3 && part == 2)
        places[0] = (struct place){4 + f % 2, 3 * (f / 2), 0, 3};
    else if (bits == 6 && part < 3)
        places[0] = (struct place){(uint8_t)i, 0, 0, 6};
    else if (bits == 5) {
        places[0] = (struct place){four, 5, 2, 3};
        places[1] = (struct place){8 + four / 4, 2 * f, 0, 2};
        return 2;
    } else if (bits == 3) {
        places[0] = (struct place){f, 6, 1, 2};
        places[1] = (struct place){4 + f % 2, 6 + f / 2, 0, 1};
        return 2;
    } else {
        for (uint8_t k = 0; k < 3; k++)
            places[k] = (struct place){4 * k + f, 6, 4 - 2 * k, 2};
        return 3;
    }
    return 1;
}

static uint8_t mask_of(struct place place)
{
    return (uint8_t)((1u << place.n) - 1);
}

/* A piece of each u of a four to its row, eight bytes at a time. */
static void add_piece(const uint8_t u[FOUR_BYTES], struct place place, uint8_t row[FOUR_BYTES])
{
    const uint64_t mask = mask_of(place) * UINT64_C(0x0101010101010101);

    for (uint32_t b = 0; b < FOUR_BYTES; b += 8) {
        uint64_t eight, sum;

        memcpy(&eight, u + b, 8);
        memcpy(&sum, row + b, 8);
        sum |= (eight >> place.from & mask) << place.bit;
        memcpy(row + b, &sum, 8);
    }
}

/* All u of a chunk to its rows. */
static void pack_bits(const struct bytes_of_chunk *bytes, uint32_t n_qblks, uint32_t bits, uint8_t *out)
{
    memset(out, 0, quant_chunk((struct quant_form){.bits = (uint8_t)bits}, n_qblks).scale);
    for (uint32_t four = 0; four < n_qblks * FOURS; four++) {
        const uint8_t *u = bytes->u[four / FOURS][four % FOURS];
        uint8_t *rows = out + (size_t)(four / (2 * FOURS)) * 2 * bits * FOUR_BYTES;
        struct place places[MAX_PLACES];
        uint32_t n = places_of(bits, four % (2 * FOURS), places);

        for (uint32_t j = 0; j < n; j++)
            add_piece(u, places[j], rows + (size_t)places[j].row * FOUR_BYTES);
    }
}

void quant_pack_chunk(const struct quant_source *source, uint8_t *chunk)
{
    const struct quant_form form = quant_form(source->type);
    struct bytes_of_chunk bytes = {0};

    for (uint32_t lane = 0; lane < PANEL_ROWS; lane++)
        if (source->rows[lane] != NULL)
            pack_lane(source, lane, &bytes, chunk);
    pack_bits(&bytes, source->n_qblks, form.bits, chunk);
}

/* ---- and back ---- */

static uint16_t get_lane16(const uint8_t *from, uint32_t lane)
{
    uint16_t value;

    memcpy(&value, from + lane * sizeof(value), sizeof(value));
    return value;
}

/* Scale and min of a sub in one lane. */
static void sub_of(struct quant_form form, const uint8_t *chunk, const struct quant_chunk *at, size_t sub,
                   uint32_t lane, float *scale, float *min)
{
    *min = 0;
    if (form.scale == SCALE_BF16 || form.scale == SCALE_F16) {
        uint16_t bits = get_lane16(chunk + at->scale + sub * PANEL_ROWS * 2, lane);

        *scale = form.scale == SCALE_F16 ? f16_to_f32(bits) : bf16_to_f32(bits);
        if (form.has_min)
            *min = f16_to_f32(get_lane16(chunk + at->min + sub * PANEL_ROWS * 2, lane));
        return;
    }
    float d = f16_to_f32(get_lane16(chunk + at->d, lane));
    float dmin = form.has_min ? f16_to_f32(get_lane16(chunk + at->dmin, lane)) : 0;
    const uint8_t *small = chunk + at->scale + small_at(form, sub, lane);

    *scale = d * (float)(form.scale == SCALE_NIBBLES ? small[0] & 15 : small[0] - SMALL_BIAS);
    if (form.has_min)
        *min = dmin * (float)(form.scale == SCALE_NIBBLES ? small[0] >> 4 : small[2]);
}

/* The whole number of column i of a chunk. */
static uint32_t u_at(const struct weight *weight, const uint8_t *chunk, uint32_t i, uint32_t lane)
{
    const struct quant_form form = quant_form(weight->type);
    const uint8_t *rows = chunk + (size_t)(i / (2 * QBLK_WEIGHTS)) * 2 * form.bits * FOUR_BYTES;
    struct place places[MAX_PLACES];
    uint32_t n = places_of(form.bits, i % (2 * QBLK_WEIGHTS) / 4, places), u = 0;

    for (uint32_t j = 0; j < n; j++) {
        uint32_t byte = rows[(size_t)places[j].row * FOUR_BYTES + lane * 4 + i % 4];

        u |= (byte >> places[j].bit & mask_of(places[j])) << places[j].from;
    }
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

            sub_of(form, panel, &at, sub, lane, &scale, &min);
            for (uint32_t i = sub * sub_cols; i < (sub + 1) * sub_cols; i++) {
                float value = scale * (float)((int32_t)u_at(weight, panel, i, lane) - form.zero);

                out[k + i] = form.has_min ? value - min : value;
            }
        }
        panel += at.end;
    }
}
