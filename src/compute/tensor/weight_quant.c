/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised rows to chunks of panels, and back.
 *
 *     qblk of a row   qblk_reader     scale, min, small scales and mins, u
 *                         |
 *                         v           u = quant - the lowest quant of the type, or an index to its table
 *     two qblks       [2 * bits words]    the four bytes that the row has in each line of 64 that two qblks
 *                         |               share: bit fields, all of it within the row (quant.h)
 *                         v
 *     chunk           u | scales      each word to its line
 *
 * Bits are packed within a row before rows are interleaved, so that the data spread over the lines is no
 * larger than in the file. One chunk at a time stays in the first-level cache. All steps process sixteen
 * or four bytes of u at a time. Each type has its own copy of the code, in which its widths are constants. */
#include "compute/tensor/weight_priv.h"

#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/wide.h"
#include "gguf/qblk.h"

enum { MOST_WORDS = 2 * 6 }; /* words of a lane in two qblks; 8-bit types do not use it */

void quant_levels(enum dtype source, struct weight *weight)
{
    const int8_t *table = qblk_table(source);
    const struct qblk_form *form = qblk_form(source);

    for (int i = 0; i < 16; i++)
        weight->lookup[i] = table != NULL ? (uint8_t)(table[i] + quant_form(weight->type).zero) : 0;
    weight->unit = form != NULL ? 1.0f / (float)(1u << form->unit_bits) : 1.0f;
    weight->points = points_table(weight->type);
}

/* Place of a lane's small scale, relative to the first one.
 * Its min, if it has a byte of its own, is two bytes further. */
static size_t small_at(struct quant_form form, size_t sub, uint32_t lane)
{
    const size_t each = form.scale == SCALE_I8 && form.has_min ? 2 : 4;

    return sub / each * FOUR_BYTES + lane * 4 + sub % each;
}

/* Writes four small scales of a lane: one word of it, or two with their mins in SCALE_I8. */
static inline __attribute__((always_inline)) void
pack_small(struct quant_form form, const struct qblk_fields *fields, uint32_t sub, uint8_t *to)
{
    uint32_t scales = wide_load4((const uint8_t *)fields->sub_scales + sub),
             mins = wide_load4(fields->sub_mins + sub);

    if (form.scale == SCALE_NIBBLES) {
        wide_store4(scales | mins << 4, to);
        return;
    }
    scales ^= bytes_each4(SMALL_BIAS); /* adds the bias to each */
    if (!form.has_min) {
        wide_store4(scales, to);
        return;
    }
    memcpy(to, &scales, 2);
    memcpy(to + 2, &mins, 2);
    memcpy(to + FOUR_BYTES, (const uint8_t *)&scales + 2, 2);
    memcpy(to + FOUR_BYTES + 2, (const uint8_t *)&mins + 2, 2);
}

struct scales_place {
    uint8_t *chunk;
    uint32_t n_qblks; /* of the chunk */
    uint32_t q, lane;
};

/* The scales of qblk q of 32 columns; all scales of a qblk of 256 columns. */
static inline __attribute__((always_inline)) void
pack_scales(struct quant_form form, const struct qblk_fields *fields, struct scales_place to)
{
    const struct quant_chunk at = quant_chunk(form, to.n_qblks);
    const size_t first = (size_t)to.q * PANEL_ROWS;

    if (form.scale == SCALE_F16 || form.scale == SCALE_BF16) {
        quant_put_half(to.chunk + at.scale + first * 2, to.lane, fields->scale);
        if (form.has_min)
            quant_put_half(to.chunk + at.min + first * 2, to.lane, fields->min);
        return;
    }
    for (uint32_t sub = 0; sub < CHUNK_QBLKS * form.n_subs && form.scale != SCALE_ONE; sub += 4)
        pack_small(form, fields, sub, to.chunk + at.scale + small_at(form, sub, to.lane));
    quant_put_half(to.chunk + at.d, to.lane, fields->scale);
    if (form.has_min)
        quant_put_half(to.chunk + at.dmin, to.lane, fields->min);
}

/* ---- u of two qblks, a and b, as the words of a lane ---- */

/* Bit f of byte b of a qblk's word is the number at 4f + b, halved: 0 or 1. */
static uint32_t join_bits(const uint8_t *u)
{
    uint32_t word = 0;

    for (uint32_t f = 0; f < FOURS; f++)
        word |= (wide_load4(u + (size_t)f * 4) >> 1 & bytes_each4(1)) << f;
    return word;
}

static void join_1(const uint8_t *a, const uint8_t *b, uint8_t *out)
{
    wide_store4(join_bits(a), out);
    wide_store4(join_bits(b), out + 4);
}

static void join_2(const uint8_t *a, const uint8_t *b, uint8_t *out)
{
    wide_store16(wide_load16(a) | wide_load16(a + 16) << 2 | wide_load16(b) << 4 | wide_load16(b + 16) << 6,
                 out);
}

static void join_3(const uint8_t *a, const uint8_t *b, uint8_t *out)
{
    wide_store16(wide_load16(a) | wide_load16(a + 16) << 3 | (wide_load16(b + 16) & bytes_each(6)) << 5, out);
    wide_store8(bytes_load8(b) | bytes_load8(b + 8) << 3 | (bytes_load8(b + 16) & bytes_each(1)) << 6 |
                    (bytes_load8(b + 24) & bytes_each(1)) << 7,
                out + 16);
}

static void join_4(const uint8_t *a, const uint8_t *b, uint8_t *out)
{
    wide_store16(wide_load16(a) | wide_load16(b) << 4, out);
    wide_store16(wide_load16(a + 16) | wide_load16(b + 16) << 4, out + 16);
}

/* The two lower bits of each byte of four. */
static inline uint32_t two_of(uint32_t four)
{
    return four & bytes_each4(3);
}

static void join_5(const uint8_t *a, const uint8_t *b, uint8_t *out)
{
    wide_store16(wide_load16(a) | (wide_load16(b) & bytes_each(28)) << 3, out);
    wide_store16(wide_load16(a + 16) | (wide_load16(b + 16) & bytes_each(28)) << 3, out + 16);
    for (uint32_t row = 0; row < 2; row++, b += 16, out += 4)
        wide_store4(two_of(wide_load4(b)) | two_of(wide_load4(b + 4)) << 2 | two_of(wide_load4(b + 8)) << 4 |
                        two_of(wide_load4(b + 12)) << 6,
                    out + 32);
}

static void join_6(const uint8_t *a, const uint8_t *b, uint8_t *out)
{
    wide spread = wide_load16(b + 16);

    wide_store16(wide_load16(a) | (spread & bytes_each(48)) << 2, out);
    wide_store16(wide_load16(a + 16) | (spread & bytes_each(12)) << 4, out + 16);
    wide_store16(wide_load16(b) | (spread & bytes_each(3)) << 6, out + 32);
}

/* Writes n_words of a lane to as many lines. */
static inline __attribute__((always_inline)) void spread_words(const uint8_t *words, uint32_t n_words,
                                                               uint32_t lane, uint8_t *lines)
{
    for (uint32_t i = 0; i < n_words; i++)
        wide_store4(wide_load4(words + (size_t)i * 4), lines + (size_t)i * FOUR_BYTES + lane * 4);
}

/* Writes u of two qblks to a lane's words in the lines that they share. a, b: [QBLK_WEIGHTS] */
static inline __attribute__((always_inline)) void pack_pair(uint32_t bits, const uint8_t *a, const uint8_t *b,
                                                            uint32_t lane, uint8_t *lines)
{
    uint8_t words[MOST_WORDS * 4];

    (bits == 1   ? join_1
     : bits == 2 ? join_2
     : bits == 3 ? join_3
     : bits == 4 ? join_4
     : bits == 5 ? join_5
                 : join_6)(a, b, words);
    spread_words(words, 2 * bits, lane, lines);
}

struct lane { /* a row, and its index in the panel */
    qblk_reader read;
    uint32_t qblk_bytes;
    const char *qblk; /* the row's first qblk of the chunk */
    uint32_t number;
};

/* Packs one row's part of a qblk of 256 columns. */
static inline __attribute__((always_inline)) void pack_long(struct quant_form form, const struct lane *lane,
                                                            uint8_t *chunk)
{
    struct qblk_fields all;

    lane->read(lane->qblk, &all);
    pack_scales(form, &all, (struct scales_place){chunk, CHUNK_QBLKS, 0, lane->number});
    for (uint32_t q = 0; q < CHUNK_QBLKS; q += 2)
        pack_pair(form.bits, all.u + (size_t)q * QBLK_WEIGHTS, all.u + (size_t)(q + 1) * QBLK_WEIGHTS,
                  lane->number, chunk + (size_t)q * form.bits * FOUR_BYTES);
}

/* Packs one row's part of n qblks of 32. */
static inline __attribute__((always_inline)) void pack_short(struct quant_form form, const struct lane *lane,
                                                             uint32_t n, uint8_t *chunk)
{
    const char *qblk = lane->qblk;
    struct qblk_fields pair[2];

    for (uint32_t q = 0; q < n; q++, qblk += lane->qblk_bytes) {
        lane->read(qblk, &pair[q % 2]);
        pack_scales(form, &pair[q % 2], (struct scales_place){chunk, n, q, lane->number});
        if (form.bits == 8) {
            spread_words(pair[q % 2].u, FOURS, lane->number, chunk + (size_t)q * FOURS * FOUR_BYTES);
            continue;
        }
        if (q % 2 == 0 && q + 1 < n)
            continue;
        if (q % 2 == 0)
            memset(pair[1].u, 0, QBLK_WEIGHTS);
        pack_pair(form.bits, pair[0].u, pair[1].u, lane->number,
                  chunk + (size_t)(q / 2) * 2 * form.bits * FOUR_BYTES);
    }
}

/* Packs one row's part of qblks of 64 columns, which have a 16-bit scale for each 16; n: qblks of 32.
 * all: multiplies all of them. */
static inline __attribute__((always_inline)) void
pack_quarters(struct quant_form form, const struct lane *lane, uint32_t n, float all, uint8_t *chunk)
{
    const struct quant_chunk parts = quant_chunk(form, n);
    uint8_t *scales = chunk + parts.scale;
    const char *qblk = lane->qblk;
    struct qblk_fields four;

    for (uint32_t q = 0; q < n; q += 2, qblk += lane->qblk_bytes) {
        lane->read(qblk, &four);
        for (uint32_t sub = 0; sub < 2 * form.n_subs; sub++)
            quant_put_half(scales + (size_t)(q * form.n_subs + sub) * PANEL_ROWS * 2, lane->number,
                           four.sub_halves[sub]);
        pack_pair(form.bits, four.u, four.u + QBLK_WEIGHTS, lane->number,
                  chunk + (size_t)q * form.bits * FOUR_BYTES);
    }
    memcpy(chunk + parts.d + lane->number * sizeof(all), &all, sizeof(all));
}

/* Packs one row's part of qblks that have one 16-bit scale for 64 or 128 columns; n: qblks of 32. */
static inline __attribute__((always_inline)) void pack_common(struct quant_form form, const struct lane *lane,
                                                              uint32_t n, uint8_t *chunk)
{
    uint8_t *scales = chunk + quant_chunk(form, n).scale;
    const uint32_t common = quant_common_qblks(form);
    const char *qblk = lane->qblk;
    struct qblk_fields all;

    for (uint32_t q = 0; q < n; q += 2) {
        const uint8_t *u = all.u + (size_t)(q % common) * QBLK_WEIGHTS;

        if (q % common == 0) {
            lane->read(qblk, &all);
            qblk += lane->qblk_bytes;
            quant_put_half(scales + (size_t)(q / common) * PANEL_ROWS * 2, lane->number, all.scale);
        }
        pack_pair(form.bits, u, u + QBLK_WEIGHTS, lane->number, chunk + (size_t)q * form.bits * FOUR_BYTES);
    }
}

static inline __attribute__((always_inline)) void
pack_lanes(enum dtype type, const struct quant_source *source, uint8_t *chunk)
{
    const struct quant_form form = quant_form(type);
    const struct dtype_info *info = dtype_info(source->type);
    const size_t at = (size_t)source->k / info->qblk_weights * info->qblk_bytes;
    struct lane lane = {.read = qblk_reader_of(source->type), .qblk_bytes = info->qblk_bytes};

    for (; lane.number < PANEL_ROWS; lane.number++) {
        if (source->rows[lane.number] == NULL)
            continue;
        lane.qblk = source->rows[lane.number] + at;
        if (info->qblk_weights == CHUNK_COLS)
            pack_long(form, &lane, chunk);
        else if (info->qblk_weights == QBLK_WEIGHTS)
            pack_short(form, &lane, source->n_qblks, chunk);
        else if (info->qblk_weights == quant_common_qblks(form) * QBLK_WEIGHTS)
            pack_common(form, &lane, source->n_qblks, chunk);
        else if (form.scale == SCALE_HALVES && info->qblk_weights == 2 * QBLK_WEIGHTS)
            pack_quarters(form, &lane, source->n_qblks, source->scales[lane.number], chunk);
        else
            ASSERT(!"a width of qblks that can be packed");
    }
}

static void pack_points(const struct quant_source *source, uint8_t *chunk)
{
    const size_t at = (size_t)source->k / CHUNK_COLS * dtype_info(source->type)->qblk_bytes;

    for (uint32_t lane = 0; lane < PANEL_ROWS; lane++)
        if (source->rows[lane] != NULL)
            points_pack_lane(source->type, source->rows[lane] + at, lane, chunk);
}

void quant_pack_chunk(const struct quant_source *source, uint8_t *chunk)
{
    if (quant_form(source->packed).code != CODE_FIELDS) {
        pack_points(source, chunk);
        return;
    }
    switch ((uint32_t)source->packed) {
#define PACK(type, ...)                                                                                      \
    case type:                                                                                               \
        pack_lanes(type, source, chunk);                                                                     \
        break;
        QUANT_TYPES(PACK)
#undef PACK
    default:
        ASSERT(!"a quantised type");
    }
}

/* ---- unpacking ---- */

/* A piece of u and its place in the rows of two qblks (quant.h). */
struct place {
    uint8_t row, bit; /* place in the rows */
    uint8_t from, n;  /* bits of u */
};
enum { MAX_PLACES = 3 };

/* The pieces of four i, of the sixteen of two qblks; returns their number. */
static uint32_t places_of(uint32_t bits, uint32_t i, struct place places[MAX_PLACES])
{
    const uint8_t f = i % 4, part = (uint8_t)(i / 4), four = i % FOURS;

    if (bits == 8)
        places[0] = (struct place){(uint8_t)i, 0, 0, 8};
    else if (bits == 1)
        places[0] = (struct place){(uint8_t)(i / FOURS), four, 1, 1};
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

static uint8_t weight_quant_mask_of(struct place place)
{
    return (uint8_t)((1u << place.n) - 1);
}

static uint16_t get_lane16(const uint8_t *from, uint32_t lane)
{
    uint16_t value;

    memcpy(&value, from + lane * sizeof(value), sizeof(value));
    return value;
}

struct lane_place { /* one lane of a chunk */
    const uint8_t *chunk;
    struct quant_chunk at;
    uint32_t lane;
};

/* Reads scale and min of a sub in one lane. */
static void sub_of(const struct weight *weight, const struct lane_place *place, size_t sub, float *scale,
                   float *min)
{
    const struct quant_form form = quant_form(weight->type);
    const uint8_t *chunk = place->chunk;
    const struct quant_chunk *at = &place->at;
    const uint32_t lane = place->lane;

    *min = 0;
    if (quant_common_qblks(form) > 0) {
        size_t i = sub / form.n_subs / quant_common_qblks(form);

        *scale = f16_to_f32(get_lane16(chunk + at->scale + i * PANEL_ROWS * 2, lane));
        return;
    }
    if (form.scale <= SCALE_BF16 || form.scale == SCALE_HALVES) {
        uint16_t bits = get_lane16(chunk + at->scale + sub * PANEL_ROWS * 2, lane);
        float all = 1.0f;

        if (form.scale == SCALE_HALVES)
            memcpy(&all, chunk + at->d + lane * sizeof(all), sizeof(all));
        *scale = form.scale == SCALE_BF16 ? bf16_to_f32(bits) : f16_to_f32(bits) * all;
        if (form.has_min)
            *min = f16_to_f32(get_lane16(chunk + at->min + sub * PANEL_ROWS * 2, lane));
        return;
    }
    float d = f16_to_f32(get_lane16(chunk + at->d, lane));
    if (form.scale == SCALE_ONE) {
        *scale = d;
        return;
    }
    if (form.scale == SCALE_ODD) {
        uint32_t s = points_scale_at(form, chunk + at->scale, (uint32_t)sub, lane);

        *scale = d * weight->unit * (float)(2 * s + 1);
        return;
    }
    float dmin = form.has_min ? f16_to_f32(get_lane16(chunk + at->dmin, lane)) : 0;
    const uint8_t *small = chunk + at->scale + small_at(form, sub, lane);

    d *= form.is_table ? weight->unit : 1.0f;
    *scale = d * (float)(form.scale == SCALE_NIBBLES ? small[0] & 15 : small[0] - SMALL_BIAS);
    if (form.has_min)
        *min = dmin * (float)(form.scale == SCALE_NIBBLES ? small[0] >> 4 : small[2]);
}

/* The integer of column i of a chunk. */
static uint32_t u_at(const struct weight *weight, const uint8_t *chunk, uint32_t i, uint32_t lane)
{
    const struct quant_form form = quant_form(weight->type);
    const uint8_t *rows = chunk + (size_t)(i / (2 * QBLK_WEIGHTS)) * 2 * form.bits * FOUR_BYTES;
    struct place places[MAX_PLACES];

    if (form.code != CODE_FIELDS)
        return points_u_at(weight, chunk, i, lane);
    uint32_t n = places_of(form.bits, i % (2 * QBLK_WEIGHTS) / 4, places), u = 0;

    for (uint32_t j = 0; j < n; j++) {
        uint32_t byte = rows[(size_t)places[j].row * FOUR_BYTES + lane * 4 + i % 4];

        u |= (byte >> places[j].bit & weight_quant_mask_of(places[j])) << places[j].from;
    }
    return form.is_table ? weight->lookup[u] : u;
}

void quant_row(const struct weight *weight, const uint8_t *panel, uint32_t lane, float *out)
{
    const struct quant_form form = quant_form(weight->type);
    const uint32_t sub_cols = QBLK_WEIGHTS / form.n_subs;

    for (uint32_t k = 0; k < weight->cols; k += CHUNK_COLS) {
        uint32_t rest = weight->cols - k, n_qblks = rest < CHUNK_COLS ? rest / QBLK_WEIGHTS : CHUNK_QBLKS;
        const struct lane_place place = {panel, quant_chunk(form, n_qblks), lane};

        for (uint32_t sub = 0; sub < n_qblks * form.n_subs; sub++) {
            float scale, min;

            sub_of(weight, &place, sub, &scale, &min);
            for (uint32_t i = sub * sub_cols; i < (sub + 1) * sub_cols; i++) {
                float value = scale * (float)((int32_t)u_at(weight, panel, i, lane) - form.zero);

                out[k + i] = form.has_min ? value - min : value;
            }
        }
        panel += place.at.end;
    }
}
