/* SPDX-License-Identifier: Apache-2.0 */
/* A few tokens times packed weights. The weights are expanded in registers, right before the dots, because
 * few tokens use them.  Memory is the limit.  So the kernel prefetches data ahead in these panels, and near
 * their end the start of the next panels:
 *
 *     panel p    [ chunk | chunk | chunk ]        panels p .. p+3 at once
 *                  ^ read     ^ prefetched
 *     panel p+4  [ chunk | ...                    from the last bytes of panel p on
 *
 * Alternatively panels are read one after another, which makes a unit one stream. Lines may also be
 * prefetched twice, from two distances (struct fetch_ahead). The fastest choice depends on the processor.
 *
 * Tens of tokens, where tiles are wide (Q8_WIDE_HEIGHTS), are computed one panel at a time: all registers
 * hold sums, so expanded weights serve eight tokens instead of three.
 *
 * Otherwise this file takes only whole groups of Q8_DIRECT_PANELS; the rest is computed like many tokens. The
 * steps and their order are those of kern_q8.c, so the bits are the same.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/kernels/kern_quant_priv.h"

INLINED void direct_form(const struct tile_q8 *tile, struct quant_form form)
{
    switch (tile->n_tokens) {
#define CASE(height)                                                                                         \
    case height:                                                                                             \
        if (Q8_DIRECT_PANELS == 1 || tile->direct_panels == 1)                                               \
            tile_groups(tile, form_for(form, height), 0, 1, height);                                         \
        else                                                                                                 \
            tile_groups(tile, form_for(form, height), 0, Q8_DIRECT_PANELS, height);                          \
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

/* Each type has its own function, because compile time grows faster than the size of a function. */
#define FUNCTION(type, ...)                                                                                  \
    static __attribute__((noinline)) void direct_##type(const struct tile_q8 *tile)                          \
    {                                                                                                        \
        direct_form(tile, quant_form(type));                                                                 \
    }
KERN_TYPES(FUNCTION)
#undef FUNCTION

void Q8(direct_q8)(const struct tile_q8 *tile)
{
    switch ((uint32_t)tile->type) {
#define CASE(type, ...)                                                                                      \
    case type:                                                                                               \
        direct_##type(tile);                                                                                 \
        break;
        KERN_TYPES(CASE)
#undef CASE
    }
}
