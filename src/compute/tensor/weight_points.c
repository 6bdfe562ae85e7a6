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
    SIGNED = 4,         /* tables of u by level and sign */
    MOST_POINTS = 1024, /* of IQ2_S */
    NO_NUMBER = UINT16_MAX,
    MOST_TABLES = 5 + MOST_POINTS / 64 + SIGNED,
    FOURS_OF_PAIR = 2 * FOURS,
    DIGIT_ROWS = 3,  /* of a pair of qblks */
    ROW_DIGITS = 5,  /* of a byte */
    MORE_FOURS = 17, /* numbers of four digits from 64 on */
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

/* Bits of an index to u, by c and code: of a level and its sign. */
static const struct {
    uint8_t level, sign;
} places[CODE_POINTS4 + 1][SIGNED] = {
    [CODE_POINTS8] = {{2, 0}, {4, 1}, {0, 4}, {2, 5}},
    [CODE_POINTS4] = {{3, 1}, {3, 2}, {0, 3}, {0, 4}},
};

/* ---- tables ---- */

static uint8_t point_tables[DTYPE_COUNT][MOST_TABLES * POINTS_TABLE];
static uint16_t point_numbers[DTYPE_COUNT][MOST_POINTS]; /* of the packed points, by that in the file */
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

/* Column c of a part of a point of 8 is bits part_bit(c) and the next. */
static uint32_t part_bit(uint32_t c)
{
    return 2 * ((c + 2) % 4);
}

/* A part of a point. */
static uint8_t part_of(struct quant_form form, uint16_t point, uint32_t part)
{
    if (form.code == CODE_POINTS8) {
        const uint8_t levels = (uint8_t)(point >> 8 * part);

        return (uint8_t)(levels << 4 | levels >> 4);
    }
    return (uint8_t)((point >> 3 * part & 7) << 3 | (point >> 3 * (part + 2) & 7));
}

/* Up to n points with this first part and no number yet, in the file's order; returns how many. */
static uint32_t points_without_number(enum dtype type, const struct qblk_grid *grid, uint8_t first,
                                      uint32_t n, uint16_t *found)
{
    uint32_t n_found = 0;

    for (uint32_t i = 0; i < grid->n && n_found < n; i++)
        if (point_numbers[type][i] == NO_NUMBER && part_of(quant_form(type), grid->points[i], 0) == first)
            found[n_found++] = (uint16_t)i;
    return n_found;
}

/* Orders points as kern_points_priv.h draws: the first half of all tables has one table of first parts, and so on. */
static void fill_points(enum dtype type)
{
    const struct qblk_grid grid = qblk_grid(type);
    const struct quant_form form = quant_form(type);
    const uint32_t n_tables = grid.n / POINTS_TABLE;
    uint8_t *first = point_tables[type], *second = first + points_second_at(form);
    uint16_t *numbers = point_numbers[type], same[MOST_POINTS / POINTS_TABLE];

    memset(numbers, 0xff, sizeof(point_numbers[type]));
    for (uint32_t table = 0, n = 0; table < n_tables; table += n, first += POINTS_TABLE) {
        uint32_t place = 0;

        n = (n_tables - table + 1) / 2;
        for (uint32_t part = 0; part <= UINT8_MAX && place < POINTS_TABLE;) {
            if (points_without_number(type, &grid, (uint8_t)part, n, same) < n) {
                part++;
                continue;
            }
            first[place] = (uint8_t)part;
            for (uint32_t i = 0; i < n; i++) {
                numbers[same[i]] = (uint16_t)((table + i) * POINTS_TABLE + place);
                second[numbers[same[i]]] = part_of(form, grid.points[same[i]], 1);
            }
            place++;
        }
        ASSERT(place == POINTS_TABLE);
    }
}

/* u of each level with its sign, for each place of their bits. */
static void fill_signed(enum dtype type)
{
    const struct quant_form form = quant_form(type);
    const int8_t *levels = qblk_table(type);
    const uint32_t mask = form.code == CODE_POINTS8 ? 3 : 7;
    uint8_t *out = point_tables[type] + points_signed_at(form);

    for (uint32_t c = 0; c < SIGNED; c++)
        for (uint32_t i = 0; i < POINTS_TABLE; i++) {
            int level = levels[i >> places[form.code][c].level & mask];

            *out++ = (uint8_t)(form.zero + (i >> places[form.code][c].sign & 1 ? -level : level));
        }
}

/* Numbers above 242 do not occur. */
static void fill_digits(enum dtype type)
{
    uint8_t *tables = point_tables[type];

    for (uint32_t i = 0; i < POINTS_TABLE; i++) {
        for (uint32_t s = 0, rest = i, more = POINTS_TABLE + i % MORE_FOURS; s < ROW_DIGITS - 1; s++) {
            tables[i] |= (uint8_t)(rest % 3 << 2 * s);
            tables[POINTS_TABLE + i] |= (uint8_t)(more % 3 << 2 * s);
            rest /= 3;
            more /= 3;
        }
        tables[2 * POINTS_TABLE + i] =
            (uint8_t)(i / MORE_FOURS * (quant_has_shifts(quant_form(type)) ? 8 : 0x55));
    }
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

static uint32_t lane_rotated(uint32_t lane, uint32_t bits)
{
    return lane << bits | lane >> (32 - bits);
}

/* Signs of a qblk, a bit for each column, at the places of kern_points_priv.h. */
static uint32_t signs_in_place(struct quant_form form, const uint8_t *signs)
{
    const uint32_t all = wide_load4(signs);
    const uint32_t lowest = form.code == CODE_POINTS8 ? 2 : 1;
    uint32_t low, high; /* four bits in a byte */

    if (form.n_subs == 1) {
        low = all & 0x0f0f0f0f;
        high = all >> 4 & 0x0f0f0f0f;
    } else {
        low = bytes_of_halves(all & 0xffff);
        high = lane_rotated(bytes_of_halves(all >> 16), 8);
    }
    return low << lowest | lane_rotated(high << lowest, 28);
}

/* The points of a row of four, by byte. */
static const uint8_t *points_order(struct quant_form form, uint32_t row)
{
    static const uint8_t in_turn[] = {0, 1, 2, 3}, by_sub[] = {0, 2, 1, 3},
                         fours[2][4] = {{0, 2, 4, 6}, {1, 3, 5, 7}};

    return form.code == CODE_POINTS4 ? fours[row] : form.n_subs == 2 ? by_sub : in_turn;
}

/* Rows of numbers of a qblk: one of points of 8, two of points of 4. */
static inline __attribute__((always_inline)) void
pack_numbers(enum dtype type, const struct qblk_points *points, uint32_t lane, uint8_t *chunk)
{
    const struct quant_form form = quant_form(type);
    const uint32_t n_rows = form.code == CODE_POINTS8 ? 1 : 2;
    const uint16_t *number_of = point_numbers[type], *numbers = points->numbers;
    uint32_t tops[2][2] = {{0}}; /* [top][row]: a byte for each point, a bit for each qblk */

    for (uint32_t qblk = 0; qblk < CHUNK_QBLKS; qblk++, numbers += 4 * n_rows) {
        uint8_t *rows = lane_byte(chunk, (size_t)qblk * (n_rows + 1), lane, 0);

        for (uint32_t row = 0; row < n_rows; row++) {
            const uint8_t *order = points_order(form, row);
            const uint32_t a = number_of[numbers[order[0]]], b = number_of[numbers[order[1]]],
                           c = number_of[numbers[order[2]]], d = number_of[numbers[order[3]]];

            wide_store4((a & 255) | (b & 255) << 8 | (c & 255) << 16 | (d & 255) << 24,
                        rows + row * FOUR_BYTES);
            for (uint32_t top = 0; top < form.n_tops; top++)
                tops[top][row] |= ((a >> (8 + top) & 1) | (b >> (8 + top) & 1) << 8 |
                                   (c >> (8 + top) & 1) << 16 | (d >> (8 + top) & 1) << 24)
                                  << qblk;
        }
        wide_store4(signs_in_place(form, points->signs + (size_t)qblk * 4), rows + n_rows * FOUR_BYTES);
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
        const uint32_t fifths = wide_load4(digits + (4 * (size_t)j + 3) * 4);
        uint32_t numbers = 0; /* of the first four digits, at most 80 in each byte */

        for (uint32_t s = ROW_DIGITS - 1; s-- > 0;)
            numbers = 3 * numbers + wide_load4(digits + (4 * (size_t)s + j) * 4);
        const uint32_t is_more = (numbers >> 6 & 0x01010101) * UINT8_MAX;
        numbers += (fifths * POINTS_TABLE & ~is_more) |
                   ((fifths * MORE_FOURS + 0x01010101u * (TRITS_MORE - POINTS_TABLE)) & is_more);
        wide_store4(numbers, lane_byte(chunk, (size_t)pair * DIGIT_ROWS + j, lane, 0));
    }
    wide_store4(wide_load4(last) | wide_load4(digits + (FOURS_OF_PAIR - 1) * 4) << 2 * pair, last);
}

/* Bit of a point of IQ1 in a lane's shifts. */
static uint32_t up_bit(struct quant_form form, uint32_t point)
{
    return form.n_subs == 1 ? point : point % 2 * 16 + point / 2;
}

/* The place of a column among the fours of a chunk. */
static uint32_t digit_place(struct quant_form form, uint32_t column)
{
    return quant_has_order(form) ? column / 16 * 16 + column % 4 * 4 + column % 16 / 4 : column;
}

static void pack_trits(enum dtype type, const void *qblk, uint32_t lane, uint8_t *chunk)
{
    const struct quant_form form = quant_form(type);
    uint8_t halves[QBLK_MAX_SUBS], digits[CHUNK_COLS];
    struct qblk_fields all;
    uint32_t up = 0; /* the points that are shifted up */

    qblk_reader_of(type)(qblk, &all);
    for (uint32_t i = 0; i < CHUNK_COLS; i += 16)
        wide_store16(wide_load16(all.u + i) & bytes_each(3), digits + i); /* without shifts (IQ1) */
    for (uint32_t i = 0; quant_has_order(form) && i < CHUNK_COLS; i++)
        digits[digit_place(form, i)] = all.u[i] & 3;
    wide_store4(0, lane_byte(chunk, LAST_ROW, lane, 0));
    for (uint32_t pair = 0; pair < CHUNK_QBLKS / 2; pair++)
        pack_digits(digits + (size_t)pair * 2 * QBLK_WEIGHTS, pair, lane, chunk);
    if (!quant_has_shifts(form)) {
        quant_put_half(chunk + quant_chunk(form, CHUNK_QBLKS).d, lane, all.scale);
        return;
    }
    for (uint32_t i = 0; i < CHUNK_COLS / 8; i++)
        up |= (uint32_t)(all.u[(size_t)i * 8] >> 2 == 0) << up_bit(form, i);
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
        pack_numbers(of, &points, lane, chunk);                                                              \
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

/* The fours of a column: c, half and byte as in kern_points_priv.h. */
struct point_place {
    uint32_t c, half, byte;
};

static struct point_place point_place_of(struct quant_form form, uint32_t column)
{
    if (form.n_subs == 1)
        return (struct point_place){column % 4, column / 4 % 2, column / 8};
    return (struct point_place){column % 4, column / 16, (column / 4 + column / 16) % 4};
}

static uint32_t points_sign_at(struct quant_form form, const uint8_t *chunk, size_t row,
                               struct point_place place, uint32_t lane)
{
    uint32_t bit = place.c + (form.code == CODE_POINTS8 ? 2 : 1);

    if (place.half == 0)
        return lane_get(chunk, row, lane, place.byte) >> bit & 1;
    return bit < 4 ? lane_get(chunk, row, lane, (place.byte + 3) % 4) >> (bit + 4) & 1
                   : lane_get(chunk, row, lane, place.byte) >> (bit - 4) & 1;
}

/* The first part of a packed point. */
static uint8_t first_part(const struct weight *weight, uint32_t number)
{
    const uint32_t n_uppers = 2 + quant_form(weight->type).n_tops;
    uint32_t table = 0;

    while (table < n_uppers && number >> (5 + n_uppers - table) & 1)
        table++;
    return weight->points[table * POINTS_TABLE + number % POINTS_TABLE];
}

/* Column i of a chunk of points. */
static uint32_t point_u_at(const struct weight *weight, const uint8_t *chunk, uint32_t i, uint32_t lane)
{
    const struct quant_form form = quant_form(weight->type);
    const uint32_t each = form.code == CODE_POINTS8 ? 8 : 4, n_rows = 8 / each, qblk = i / QBLK_WEIGHTS;
    const uint32_t column = i % QBLK_WEIGHTS, c = column % 4;
    const uint32_t point = column / each, row = each == 8 ? 0 : point % 2;
    const uint8_t *order = points_order(form, row), *second = weight->points + points_second_at(form);
    uint32_t at = 0, number, level;

    while (order[at] != point)
        at++;
    number = lane_get(chunk, qblk * (n_rows + 1) + row, lane, at);
    for (uint32_t top = 0; top < form.n_tops; top++)
        number |= (lane_get(chunk, CHUNK_QBLKS * (n_rows + 1) + top * n_rows + row, lane, at) >> qblk & 1u)
                  << (8 + top);
    if (each == 8)
        level = (i % 8 < 4 ? first_part(weight, number) : second[number]) >> part_bit(c) & 3;
    else
        level = (c % 2 == 0 ? first_part(weight, number) : second[number]) >> (c < 2 ? 3 : 0) & 7;
    return points_sign_at(form, chunk, qblk * (n_rows + 1) + n_rows, point_place_of(form, column), lane) != 0
               ? 2u * form.zero - weight->lookup[level]
               : weight->lookup[level];
}

static uint32_t digit_at(const uint8_t *chunk, uint32_t i, uint32_t lane)
{
    static const uint32_t powers[ROW_DIGITS - 1] = {1, 3, 9, 27};
    const uint32_t pair = i / (2 * QBLK_WEIGHTS), four = i / 4 % FOURS_OF_PAIR, s = four / 4, j = four % 4;

    if (four == FOURS_OF_PAIR - 1)
        return lane_get(chunk, LAST_ROW, lane, i % 4) >> 2 * pair & 3;
    const uint32_t number = lane_get(chunk, (size_t)pair * DIGIT_ROWS + (j == 3 ? s : j), lane, i % 4);
    const bool is_more = number >= TRITS_MORE;

    if (j == 3)
        return is_more ? (number - TRITS_MORE) / MORE_FOURS : number / POINTS_TABLE;
    return (is_more ? POINTS_TABLE + (number - TRITS_MORE) % MORE_FOURS : number % POINTS_TABLE) / powers[s] %
           3;
}

uint32_t points_u_at(const struct weight *weight, const uint8_t *chunk, uint32_t i, uint32_t lane)
{
    const struct quant_form form = quant_form(weight->type);
    const uint8_t *scales = chunk + quant_chunk(form, CHUNK_QBLKS).scale;
    bool is_up;

    if (form.code != CODE_TRITS)
        return point_u_at(weight, chunk, i, lane);
    const uint32_t digit = digit_at(chunk, digit_place(form, i), lane), bit = up_bit(form, i / 8);

    if (!quant_has_shifts(form))
        return digit;
    if (form.n_subs == 1)
        is_up = lane_get(scales, 0, lane, i / 64) >> i / 32 % 2 * 4 & 8;
    else
        is_up = lane_get(chunk, SHIFTS_ROW, lane, bit / 8) >> bit % 8 & 1;
    return 8 * digit + (is_up ? TRITS_UP : 0);
}
