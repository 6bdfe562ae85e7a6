/* SPDX-License-Identifier: Apache-2.0 */
/* Expands chunks for AMX: as kern_expand.c, but into BF16 numbers, exactly u - zero, in pairs of columns.
 * Bit fields of up to five bits use a table of all their numbers in one register. Bytes use the bits of
 * 2^23: an integer is placed beside them and 2^23 is subtracted again.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/kernels/amx_priv.h"
#include "compute/kernels/kern_chunk_priv.h"
#include "compute/kernels/tile_block.h"

void kern_tiles_quant_expand(const struct expand *expand);

/* ---- numbers ---- */

/* BF16 of i - zero, for i < 32. */
INLINED __m512i table_of(uint32_t zero)
{
    _Alignas(64) uint16_t numbers[32];

    for (uint32_t i = 0; i < 32; i++) {
        float number = (float)i - (float)zero;
        uint32_t bits;

        memcpy(&bits, &number, sizeof(bits));
        numbers[i] = (uint16_t)(bits >> 16);
    }
    return _mm512_load_si512(numbers);
}

/* Converts one byte of each lane's four to a float, minus zero. */
INLINED __m512i float_of_byte(__m512i fours, unsigned right, uint32_t zero)
{
    const __m512i magic = _mm512_set1_epi32(0x4b000000);
    __m512i moved = right > 0 ? _mm512_srli_epi32(fours, right) : fours;
    __m512i number = _mm512_ternarylogic_epi32(moved, _mm512_set1_epi32(0xff), magic, 0xea);

    return _mm512_castps_si512(
        _mm512_sub_ps(_mm512_castsi512_ps(number), _mm512_set1_ps(0x1p23f + (float)zero)));
}

/* Converts a pair of columns to BF16: the upper halves of two floats. */
INLINED __m512i pair_of_bytes(__m512i fours, int pair, uint32_t zero)
{
    __m512i first = float_of_byte(fours, 8 * (unsigned)pair, zero);
    __m512i second = float_of_byte(fours, 8 * (unsigned)pair + 16, zero);

    return _mm512_or_si512(_mm512_srli_epi32(first, 16), second);
}

/* ---- chunks ---- */

INLINED void amx_expand_qblk(struct quant_form form, const struct chunk *chunk, struct sub_at at,
                             __m512i table, uint8_t *out)
{
    const bool is_field = form.bits <= 5 && !form.is_table && form.code == CODE_FIELDS;
    const uint32_t shift = field_shift(form, at.parity, 0);
    float *floats = (float *)(out + TILES_B_BYTES);
    b64 fours[FOURS]; /* before the first store: see kern_expand.c */

#pragma GCC unroll 8
    for (uint32_t four = 0; four < FOURS; four++)
        fours[four] = chunk_four(form, chunk, 0, at.qblk, at.parity, four);
#pragma GCC unroll 8
    for (uint32_t four = 0; four < FOURS; four++) {
        b64 u = fours[four];

#pragma GCC unroll 2
        for (int pair = 0; pair < 2; pair++) {
            __m512i numbers;

            if (is_field)
                numbers = _mm512_permutexvar_epi16(_mm512_srli_epi16(u, shift + 8 * (unsigned)pair), table);
            else
                numbers = pair_of_bytes(u, pair, form.zero);
            _mm512_store_si512(out + (2 * four + (uint32_t)pair) * AMX_ROW_BYTES, numbers);
        }
    }
    v16_store(floats, chunk_scale(form, chunk, 0, at));
    if (form.has_min)
        v16_store(floats + PANEL_ROWS, chunk_min(form, chunk, 0, at));
}

INLINED void amx_expand_form(const struct expand *expand, struct quant_form form)
{
    struct chunk chunk = {
        .at = expand->chunk, .lookup = expand->lookup, .points = expand->points, .unit = expand->unit};
    const __m512i table = table_of(form.zero);
    uint8_t *out = expand->out;

    chunk_open(form, expand->n_qblks, 1, &chunk);
    for (uint32_t qblk = 0; qblk < expand->n_qblks; qblk++, out += quant_tiles_bytes(form.has_min)) {
        amx_expand_qblk(form, &chunk, (struct sub_at){qblk, 0, 0}, table, out);
        if (++qblk == expand->n_qblks)
            break;
        out += quant_tiles_bytes(form.has_min);
        amx_expand_qblk(form, &chunk, (struct sub_at){qblk, 1, 0}, table, out);
    }
}

void kern_tiles_quant_expand(const struct expand *expand)
{
    switch ((uint32_t)expand->type) {
#define CASE(type, ...)                                                                                      \
    case type:                                                                                               \
        if (quant_form(type).n_subs == 1)                                                                    \
            amx_expand_form(expand, quant_form(type));                                                       \
        break;
        KERN_TYPES(CASE)
#undef CASE
    }
}
