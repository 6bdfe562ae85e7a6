/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's limit: products of whole tiles of bytes, 16 x 16 x 64, which need nothing but registers. */
#include "tensor/amx_priv.h"
#include "tensor/kern_priv.h"

float kern_peak_amx_int8(uint32_t rounds);

float kern_peak_amx_int8(uint32_t rounds)
{
    struct amx_shapes shapes = {0};
    int32_t sums[AMX_ROWS][PANEL_ROWS];

    for (int tile = 0; tile < AMX_TILES; tile++)
        amx_shape(&shapes, tile, AMX_ROWS, AMX_ROW_BYTES);
    amx_configure(&shapes);
    for (uint32_t round = 0; round < rounds; round++) {
        _tile_dpbusd(0, 6, 7);
        _tile_dpbusd(1, 6, 7);
        _tile_dpbusd(2, 6, 7);
        _tile_dpbusd(3, 6, 7);
    }
    _tile_stored(0, sums, AMX_ROW_BYTES);
    amx_release();
    return (float)sums[0][0];
}
