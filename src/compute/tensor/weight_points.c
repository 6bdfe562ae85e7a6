/* SPDX-License-Identifier: Apache-2.0 */
/* Packs rows of lattice points and digits as kern_points_priv.h describes, and reads them back.
 *
 * A lane has four bytes in each line of a chunk.  Points keep their numbers, so a chunk is hardly larger than the file.
 * Points of IQ1 have numbers of eleven bits, too many for look-ups in registers.  So their digits are packed, five in a byte,
 * as those of TQ1_0. */
#include "compute/tensor/weight_priv.h"

#include <pthread.h>
#include <string.h>

#include "base/bytes.h"
#include "base/wide.h"
#include "gguf/qblk.h"

enum {
    SIGNED = 4,                                         /* tables of u by level and sign */
    MOST_ENTRIES = (2 << 10) + SIGNED * POINTS_INDEXES, /* of IQ2_S */
    FOURS_OF_PAIR = 2 * FOURS,
    DIGIT_ROWS = 3, /* of a pair of qblks */
    ROW_DIGITS = 5, /* of a byte */
    LAST_ROW = CHUNK_QBLKS / 2 * DIGIT_ROWS,
    SHIFTS_ROW = LAST_ROW + 1,
};

/* Byte i of a lane's four in a row. */
static uint8_t *lane_byte(uint8_t *chunk, size_t row, uint32_t lane, uint32_t i)
{
    return chunk + row * FOUR_BYTES + (size_t)lane * 4 + i;
}

static uint8_t lane_get(const uint8_t *chunk, size_t row, uint32_t lane, uint32_t i)
{
    return chunk[row * FOUR_BYTES + (size_t)lane * 4 + i];
}

/* Bits of an index to u, by c and code: of a level, its third bit and its sign. */
static const struct {
    uint8_t level, third, sign;
} places[CODE_POINTS4 + 1][SIGNED] = {
    [CODE_POINTS8] = {{0, 0, 4}, {2, 0, 5}, {2, 0, 0}, {4, 0, 1}},
    [CODE_POINTS4] = {{0, 3, 4}, {2, 0, 5}, {4, 1, 2}, {4, 0, 1}},
};
static const uint8_t third_bits[] = {3, 0, 1, 2}; /* in the second part of a table, by column */

/* ---- tables ---- */

static uint8_t point_tables[DTYPE_COUNT][MOST_ENTRIES];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void fill_points(enum dtype type)
{
    const struct qblk_grid grid = qblk_grid(type);
    uint8_t *first = point_tables[type], *second = first + grid.n;

    for (uint32_t i = 0; i < grid.n; i++)
        if (grid.n_weights == 8) {
            first[i] = (uint8_t)grid.points[i];
            second[i] = (uint8_t)(grid.points[i] >> 8);
        } else
            for (uint32_t c = 0; c < 4; c++) {
                uint32_t level = grid.points[i] >> 3 * c & 7;

                first[i] |= (uint8_t)((level & 3) << 2 * c);
                second[i % POINTS_PART] |= (uint8_t)(level >> 2 << (third_bits[c] + 4 * (i / POINTS_PART)));
            }
}

/* u of each level with its sign, for each place of their bits. */
static void fill_signed(enum dtype type)
{
    const struct quant_form form = quant_form(type);
    const int8_t *levels = qblk_table(type);
    uint8_t *out = point_tables[type] + points_signed_at(form);

    for (uint32_t c = 0; c < SIGNED; c++)
        for (uint32_t i = 0; i < POINTS_INDEXES; i++) {
            uint32_t third = form.bits == 3 ? i >> places[form.code][c].third & 1 : 0;
            int level = levels[(i >> places[form.code][c].level & 3) | third << 2];

            *out++ = (uint8_t)(form.zero + (i >> places[form.code][c].sign & 1 ? -level : level));
        }
}

/* Bytes above 242 do not occur. */
static void fill_digits(enum dtype type)
{
    for (uint32_t i = 0; i < POINTS_PART; i++)
        for (uint32_t s = 0, rest = i; s < ROW_DIGITS - 1; s++, rest /= 3)
            point_tables[type][i] |= (uint8_t)(rest % 3 << 2 * s);
}

static void fill_tables(void)
{
#define FILL(type, ...)                                                                                      \
    if (quant_form(type).code == CODE_TRITS)                                                                 \
        fill_digits(type);                                                                                   \
    else                                                                                                     \
        fill_points(type), fill_signed(type);
    POINT_TYPES(FILL)
#undef FILL
}

const uint8_t *points_table(enum dtype type)
{
    if (quant_form(type).code == CODE_FIELDS)
        return NULL;
    pthread_once(&tables_once, fill_tables);
    return point_tables[type];
}

/* ---- packing ---- */

/* Writes the half float and the half bytes of the scales. */
static void pack_odd_scales(struct quant_form form, uint16_t d, const uint8_t *halves, uint32_t lane,
                            uint8_t *chunk)
{
    const struct quant_chunk at = quant_chunk(form, CHUNK_QBLKS);

    quant_put_half(chunk + at.d, lane, d);
    for (uint32_t i = 0; i < CHUNK_QBLKS * form.n_subs / 2; i++)
        *lane_byte(chunk + at.scale, i / 4, lane, i % 4) = (uint8_t)(halves[2 * i] | halves[2 * i + 1] << 4);
}

/* Each half byte of 16 bits in a byte of its own. */
static uint32_t bytes_of_halves(uint32_t halves)
{
    halves = (halves | halves << 8) & 0x00ff00ff;
    return (halves | halves << 4) & 0x0f0f0f0f;
}

/* Signs of a qblk, a bit for each column, at the places of kern_points_priv.h. */
static uint32_t signs_in_place(const uint8_t *signs)
{
    const uint32_t all = wide_load4(signs);
    const uint32_t low = bytes_of_halves(all & 0xffff), high = bytes_of_halves(all >> 16);
    const uint32_t turned = high & 0x03030303;

    return (low & 0x0c0c0c0c) | (low & 0x03030303) << 4 | (high & 0x0c0c0c0c) << 4 | turned << 8 |
           turned >> 24;
}

/* The points of a row of four, by byte. */
static const uint8_t *points_order(struct quant_form form, uint32_t row)
{
    static const uint8_t eights[] = {0, 2, 1, 3}, fours[2][4] = {{0, 1, 2, 3}, {3, 0, 1, 2}};

    return form.code == CODE_POINTS8 ? eights : fours[row];
}

/* Rows of numbers of a qblk: one of points of 8, two of points of 4. */
static inline __attribute__((always_inline)) void
pack_numbers(struct quant_form form, const struct qblk_points *points, uint32_t lane, uint8_t *chunk)
{
    const uint32_t n_rows = form.code == CODE_POINTS8 ? 1 : 2;
    const uint16_t *numbers = points->numbers;
    uint32_t tops[2][2] = {{0}}; /* [top][row]: a byte for each point, a bit for each qblk */

    for (uint32_t qblk = 0; qblk < CHUNK_QBLKS; qblk++) {
        uint8_t *rows = lane_byte(chunk, (size_t)qblk * (n_rows + 1), lane, 0);

        for (uint32_t row = 0; row < n_rows; row++, numbers += 4) {
            const uint8_t *order = points_order(form, row);
            const uint16_t a = numbers[order[0]], b = numbers[order[1]], c = numbers[order[2]],
                           d = numbers[order[3]];

            wide_store4((a & 255u) | (b & 255u) << 8 | (c & 255u) << 16 | (d & 255u) << 24,
                        rows + row * FOUR_BYTES);
            for (uint32_t top = 0; top < form.n_tops; top++)
                tops[top][row] |= ((a >> (8 + top) & 1u) | (b >> (8 + top) & 1u) << 8 |
                                   (c >> (8 + top) & 1u) << 16 | (d >> (8 + top) & 1u) << 24)
                                  << qblk;
        }
        wide_store4(signs_in_place(points->signs + (size_t)qblk * 4), rows + n_rows * FOUR_BYTES);
    }
    for (uint32_t top = 0; top < form.n_tops; top++)
        for (uint32_t row = 0; row < n_rows; row++)
            wide_store4(tops[top][row],
                        lane_byte(chunk, CHUNK_QBLKS * (n_rows + 1) + top * n_rows + row, lane, 0));
}

/* Packs the digits of a pair of qblks, one for each column: four columns at once, as bytes of a word. */
static void pack_digits(const uint8_t *digits, uint32_t pair, uint32_t lane, uint8_t *chunk)
{
    uint8_t *last = lane_byte(chunk, LAST_ROW, lane, 0);

    for (uint32_t j = 0; j < DIGIT_ROWS; j++) {
        uint32_t numbers = wide_load4(digits + (4 * (size_t)j + 3) * 4); /* at most 242 in each byte */

        for (uint32_t s = ROW_DIGITS - 1; s-- > 0;)
            numbers = 3 * numbers + wide_load4(digits + (4 * (size_t)s + j) * 4);
        wide_store4(numbers, lane_byte(chunk, (size_t)pair * DIGIT_ROWS + j, lane, 0));
    }
    wide_store4(wide_load4(last) | wide_load4(digits + (FOURS_OF_PAIR - 1) * 4) << 2 * pair, last);
}

static void pack_trits(enum dtype type, const void *qblk, uint32_t lane, uint8_t *chunk)
{
    const struct quant_form form = quant_form(type);
    uint8_t halves[QBLK_MAX_SUBS], digits[CHUNK_COLS];
    struct qblk_fields all;
    uint32_t up = 0; /* bit i: point i is shifted up */

    qblk_reader_of(type)(qblk, &all);
    for (uint32_t i = 0; i < CHUNK_COLS; i += 16)
        wide_store16(wide_load16(all.u + i) & bytes_each(3), digits + i); /* without shifts (IQ1) */
    wide_store4(0, lane_byte(chunk, LAST_ROW, lane, 0));
    for (uint32_t pair = 0; pair < CHUNK_QBLKS / 2; pair++)
        pack_digits(digits + (size_t)pair * 2 * QBLK_WEIGHTS, pair, lane, chunk);
    if (!quant_has_shifts(form)) {
        quant_put_half(chunk + quant_chunk(form, CHUNK_QBLKS).d, lane, all.scale);
        return;
    }
    for (uint32_t i = 0; i < CHUNK_COLS / 8; i++)
        up |= (uint32_t)(all.u[(size_t)i * 8] >> 2 == 0) << i;
    for (uint32_t s = 0; s < CHUNK_QBLKS * form.n_subs; s++)
        halves[s] = (uint8_t)(all.sub_scales[s] / 2 | (form.n_subs == 1 ? (up >> 4 * s & 1) << 3 : 0));
    if (form.n_subs == 2)
        memcpy(lane_byte(chunk, SHIFTS_ROW, lane, 0), &up, sizeof(up));
    pack_odd_scales(form, all.scale, halves, lane, chunk);
}

void points_pack_lane(enum dtype type, const void *qblk, uint32_t lane, uint8_t *chunk)
{
    struct qblk_points points;

    if (quant_form(type).code == CODE_TRITS) {
        pack_trits(type, qblk, lane, chunk);
        return;
    }
    qblk_points_reader_of(type)(qblk, &points);
    switch ((uint32_t)type) {
#define PACK(of, ...)                                                                                        \
    case of:                                                                                                 \
        pack_numbers(quant_form(of), &points, lane, chunk);                                                  \
        break;
        POINT_TYPES(PACK)
#undef PACK
    }
    pack_odd_scales(quant_form(type), points.scale, points.sub_scales, lane, chunk);
}

/* ---- reading ---- */

uint32_t points_scale_at(struct quant_form form, const uint8_t *scales, uint32_t sub, uint32_t lane)
{
    uint32_t half = lane_get(scales, sub / 8, lane, sub % 8 / 2) >> sub % 2 * 4;

    return half & (quant_has_shifts(form) ? 7 : 15);
}

static uint32_t points_sign_at(const uint8_t *chunk, size_t row, uint32_t column, uint32_t lane)
{
    const uint32_t c = column % 4, four = column / 4 % 4;

    if (column < 16)
        return lane_get(chunk, row, lane, four) >> (c < 2 ? 4 + c : c) & 1;
    return lane_get(chunk, row, lane, c < 2 ? (four + 1) % 4 : four) >> (c < 2 ? c : 4 + c) & 1;
}

/* Column i of a chunk of points. */
static uint32_t point_u_at(const struct weight *weight, const uint8_t *chunk, uint32_t i, uint32_t lane)
{
    const struct quant_form form = quant_form(weight->type);
    const uint32_t each = form.code == CODE_POINTS8 ? 8 : 4, n_rows = 8 / each, qblk = i / QBLK_WEIGHTS;
    const uint32_t column = i % QBLK_WEIGHTS, c = column % 4;
    const uint32_t point = column / each, row = point / 4;
    const uint8_t *second = weight->points + ((size_t)POINTS_PART << form.n_tops);
    const uint8_t *order = points_order(form, row);
    uint32_t at = 0, number, level;

    while (order[at] != point % 4)
        at++;
    number = lane_get(chunk, qblk * (n_rows + 1) + row, lane, at);
    for (uint32_t top = 0; top < form.n_tops; top++)
        number |= (lane_get(chunk, CHUNK_QBLKS * (n_rows + 1) + top * n_rows + row, lane, at) >> qblk & 1u)
                  << (8 + top);
    if (each == 8)
        level = (i % 8 < 4 ? weight->points : second)[number] >> 2 * c & 3;
    else
        level = (weight->points[number] >> 2 * c & 3) |
                (second[number % POINTS_PART] >> (third_bits[c] + 4 * (number / POINTS_PART)) & 1) << 2;
    return points_sign_at(chunk, qblk * (n_rows + 1) + n_rows, column, lane) != 0
               ? 2u * form.zero - weight->lookup[level]
               : weight->lookup[level];
}

static uint32_t digit_at(const uint8_t *chunk, uint32_t i, uint32_t lane)
{
    static const uint32_t powers[ROW_DIGITS] = {1, 3, 9, 27, 81};
    const uint32_t pair = i / (2 * QBLK_WEIGHTS), four = i / 4 % FOURS_OF_PAIR, s = four / 4, j = four % 4;

    if (four == FOURS_OF_PAIR - 1)
        return lane_get(chunk, LAST_ROW, lane, i % 4) >> 2 * pair & 3;
    return lane_get(chunk, (size_t)pair * DIGIT_ROWS + (j == 3 ? s : j), lane, i % 4) /
           powers[j == 3 ? ROW_DIGITS - 1 : s] % 3;
}

uint32_t points_u_at(const struct weight *weight, const uint8_t *chunk, uint32_t i, uint32_t lane)
{
    const struct quant_form form = quant_form(weight->type);
    const uint8_t *scales = chunk + quant_chunk(form, CHUNK_QBLKS).scale;
    bool is_up;

    if (form.code != CODE_TRITS)
        return point_u_at(weight, chunk, i, lane);
    if (!quant_has_shifts(form))
        return digit_at(chunk, i, lane);
    if (form.n_subs == 1)
        is_up = lane_get(scales, 0, lane, i / 64) >> i / 32 % 2 * 4 & 8;
    else
        is_up = lane_get(chunk, SHIFTS_ROW, lane, i / 64) >> i / 8 % 8 & 1;
    return 8 * digit_at(chunk, i, lane) + (is_up ? TRITS_UP : 0);
}
