/* SPDX-License-Identifier: Apache-2.0 */
/* BF16 weights for dots: where column k of a lane lies, and F16 rounded on the way.
 *
 *     paired    [k/2][lane][2]    an element of 32 bits is what the instruction takes (kern_bf16.c)
 *     swapped   [k/2][2][lane]    with the odd column first: FMAs in memory order do what the instruction
 * does neither   [k][lane]         the machine has no dots at all; F16 was rounded, that is all
 *
 * An odd number of columns has a zero behind it, in the weights as in the activations.
 */
#include "tensor/weight_priv.h"

#include <string.h>

/* From lane 0 of column 0, in elements of 16 bits. */
static size_t place_of(const struct weight *weight, uint32_t k, uint32_t lane)
{
    if (weight->is_paired)
        return ((size_t)k / 2 * PANEL_ROWS + lane) * 2 + k % 2;
    return (size_t)(weight->is_dots ? k ^ 1 : k) * PANEL_ROWS + lane;
}

void weight_dots_pack(const struct weight *weight, enum dtype source, const struct weight_lane *to)
{
    uint16_t *panel = (uint16_t *)to->panel;

    for (uint32_t k = to->from; k < to->to; k++) {
        uint16_t half;

        memcpy(&half, (const char *)to->row + (size_t)k * 2, 2);
        if (source == DTYPE_F16)
            half = f32_to_bf16(f16_to_f32(half));
        panel[place_of(weight, k, to->lane)] = half;
    }
}

void weight_dots_row(const struct weight *weight, const void *panel, uint32_t lane, float *out)
{
    for (uint32_t k = 0; k < weight->cols; k++)
        out[k] = bf16_to_f32(((const uint16_t *)panel)[place_of(weight, k, lane)]);
}
