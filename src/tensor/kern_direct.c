/* SPDX-License-Identifier: Apache-2.0 */
/* One token times packed weights: they are taken apart in registers on the way to the dots, since nobody else
 * will use them.  The memory is the limit, so what lies ahead in these panels is fetched, and near their end
 * the beginning of the ones behind them:
 *
 *     panel p    [ chunk | chunk | chunk ]        panels p .. p+3 at once
 *                  ^ read     ^ fetched
 *     panel p+4  [ chunk | ...                    from the last AHEAD_BYTES of panel p on
 *
 * Same steps in the same order as with many tokens (kern_q8.c), so the same bits.
 *
 * Hot path: no allocation, no log, no system call.
 */
#include "tensor/kern_quant_priv.h"

enum { AHEAD_BYTES = 2048, DIRECT_PANELS = Q8_DIRECT_PANELS };

INLINED void direct_group(const struct tile_q8 *tile, struct quant_form form, uint32_t panel,
                          uint32_t n_panels)
{
    const size_t chunk_bytes = quant_chunk(form, CHUNK_QBLKS).end;
    const size_t own_bytes = quant_panel_at(form, tile->n_qblks * QBLK_WEIGHTS);
    const size_t turn = own_bytes > AHEAD_BYTES ? own_bytes - AHEAD_BYTES : 0;
    float *y = tile->y + (size_t)panel * PANEL_ROWS;
    struct chunk chunk = {
        .at = tile->w + panel * tile->panel_step, .panel_step = tile->panel_step, .lookup = tile->lookup};
    struct fetching fetching = {
        .from = chunk.at + AHEAD_BYTES, .panel_step = tile->panel_step, .step = chunk_bytes / CHUNK_QBLKS};
    const uint8_t *x = tile->x, *behind = chunk.at + n_panels * tile->panel_step;
    struct sums sums;

    sums_open(&sums, y, tile->y_step, tile->is_first, n_panels, 1);
    for (uint32_t b = 0; b < tile->n_qblks; b += CHUNK_QBLKS) {
        uint32_t n_qblks = tile->n_qblks - b < CHUNK_QBLKS ? tile->n_qblks - b : CHUNK_QBLKS;

        if (fetching.done >= turn)
            fetching.from = behind - turn;
        x = step_chunk(form, &chunk, x, n_qblks, n_panels, 1, &sums, &fetching);
        chunk.at += chunk.parts.end;
    }
    sums_close(&sums, y, tile->y_step, n_panels, 1);
}

INLINED void direct_form(const struct tile_q8 *tile, struct quant_form form)
{
    uint32_t p = 0;

    for (; p + DIRECT_PANELS <= tile->n_panels; p += DIRECT_PANELS)
        direct_group(tile, form, p, DIRECT_PANELS);
    for (; p < tile->n_panels; p++)
        direct_group(tile, form, p, 1);
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
