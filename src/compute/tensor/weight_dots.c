/* SPDX-License-Identifier: Apache-2.0 */
/* BF16 weights for dots: the place of column k of a lane, and F16 rounded while it is packed.
 *
 *     paired    [k/2][lane][2]    an element of 32 bits is the instruction's operand (kern_bf16.c)
 *     swapped   [k/2][2][lane]    with the odd column first: FMAs in memory order compute the same
 *                                 as the instruction
 *     neither   [k][lane]         the machine cannot do dots; F16 is rounded, nothing else changes
 *
 * An odd number of columns is followed by a zero, in the weights and in the activations. */
#include "compute/tensor/weight_priv.h"

#include <string.h>

#include "base/check.h"

/* Offset from lane 0 of column 0, in elements of 16 bits. */
static size_t weight_dots_place_of(const struct weight *weight, uint32_t k, uint32_t lane)
{
    if (weight->is_paired)
        return ((size_t)k / 2 * PANEL_ROWS + lane) * 2 + k % 2;
    return (size_t)(weight->is_dots ? k ^ 1 : k) * PANEL_ROWS + lane;
}

static void from_f16(const struct weight *weight, const uint16_t *in, uint32_t n, uint16_t *out)
{
    _Alignas(64) float wide[WEIGHT_LANE_COLS];
    uint32_t whole = n / 16 * 16;

    weight->table->vec->widen_f16(in, wide, whole);
    for (uint32_t i = whole; i < n; i++)
        wide[i] = f16_to_f32(in[i]);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &wide[i], sizeof(bits));
        out[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    for (uint32_t i = 0; i < n; i++)
        if ((in[i] & 0x7fff) > 0x7c00) /* a carry must not run through a NaN */
            out[i] = (uint16_t)((in[i] & 0x8000) | 0x7fc0);
}

void weight_dots_pack(const struct weight *weight, enum dtype source, const struct weight_lane *to)
{
    uint16_t halves[WEIGHT_LANE_COLS], rounded[WEIGHT_LANE_COLS], *panel = (uint16_t *)to->panel;
    const uint16_t *from = halves;
    uint32_t n = to->to - to->from, i = 0;

    ASSERT(n <= WEIGHT_LANE_COLS);
    memcpy(halves, (const char *)to->row + (size_t)to->from * 2,
           (size_t)n * 2); /* may lie at an odd address */
    if (source == DTYPE_F16) {
        from_f16(weight, halves, n, rounded);
        from = rounded;
    }
    for (; weight->is_paired && i + 2 <= n; i += 2)
        memcpy(panel + weight_dots_place_of(weight, to->from + i, to->lane), from + i, 2 * sizeof(*from));
    for (; i < n; i++)
        panel[weight_dots_place_of(weight, to->from + i, to->lane)] = from[i];
}

void weight_dots_row(const struct weight *weight, const void *panel, uint32_t lane, float *out)
{
    for (uint32_t k = 0; k < weight->cols; k++)
        out[k] = bf16_to_f32(((const uint16_t *)panel)[weight_dots_place_of(weight, k, lane)]);
}
