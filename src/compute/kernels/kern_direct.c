/* SPDX-License-Identifier: Apache-2.0 */
/* A few tokens times packed weights: they are taken apart in registers on the way to the dots, since hardly
 * anybody else will use them.  The memory is the limit, so what lies ahead in these panels is fetched, and
 * near their end the beginning of the ones behind them:
 *
 *     panel p    [ chunk | chunk | chunk ]        panels p .. p+3 at once
 *                  ^ read     ^ fetched
 *     panel p+4  [ chunk | ...                    from the last bytes of panel p on
 *
 * They may go by one panel after the other instead, which makes a unit one stream, and lines may be fetched
 * twice, from two distances (struct fetch_ahead): what pays is a matter of the processor.
 *
 * Tens of tokens, where tiles are wide (Q8_WIDE_HEIGHTS), go by one panel at a time: all registers hold sums,
 * so that what is taken apart meets eight tokens instead of three.
 *
 * Otherwise whole groups of Q8_DIRECT_PANELS only; others go the way of many tokens.  Same steps in the same
 * order (kern_q8.c), so the same bits.
 *
 * Hot path: no allocation, no log, no system call.
 */
#include "compute/kernels/kern_quant_priv.h"

INLINED void direct_form(const struct tile_q8 *tile, struct quant_form form)
{
    switch (tile->n_tokens) {
#define CASE(height)                                                                                         \
    case height:                                                                                             \
        if (tile->direct_panels == 1)                                                                        \
            tile_groups(tile, form, 0, 1, height);                                                           \
        else                                                                                                 \
            tile_groups(tile, form, 0, Q8_DIRECT_PANELS, height);                                            \
        break;
        Q8_HEIGHTS(CASE)
#undef CASE
#define CASE(height)                                                                                         \
    case height:                                                                                             \
        tile_groups(tile, form, 0, 1, height);                                                               \
        break;
        Q8_WIDE_HEIGHTS(CASE)
#undef CASE
    }
}

void Q8(direct_q8)(const struct tile_q8 *tile)
{
    switch ((uint32_t)tile->type) {
#define CASE(type)                                                                                           \
    case type:                                                                                               \
        direct_form(tile, quant_form(type));                                                                 \
        break;
        QUANT_TYPES(CASE)
#undef CASE
    }
}
