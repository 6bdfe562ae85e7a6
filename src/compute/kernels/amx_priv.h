/* SPDX-License-Identifier: Apache-2.0 */
/* AMX tiles: eight registers of up to 16 rows of 64 bytes. A thread sets their shapes before it uses them.
 *
 *     amx_shape(&shapes, tile, rows, row_bytes), ...; amx_configure(&shapes);     all tiles are zero now
 *     ...
 *     amx_release();                                                             at the end of a job
 *
 * A thread that holds tiles makes each context switch save 8 KiB more. So a job releases them at its end
 * (kern_dots.close). cpu_features_get() asks for the permission, once per process. Only tables whose
 * is_usable returned true may use these functions.
 *
 * Compiled with -mamx-tile -mamx-bf16 in addition to AVX-512. */
#ifndef COMPUTE_KERNELS_AMX_PRIV_H
#define COMPUTE_KERNELS_AMX_PRIV_H

#include <immintrin.h>
#include <stdint.h>

enum { AMX_TILES = 8, AMX_ROWS = 16, AMX_ROW_BYTES = 64 };

struct amx_shapes { /* in the CPU's format */
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* A tile without a shape cannot be used. For a product A . B into C, with K in bytes: A is m rows of K
 * bytes, B is K / 4 rows of 4 n bytes, C is m rows of 4 n bytes. */
static inline void amx_shape(struct amx_shapes *shapes, int tile, uint32_t rows, uint32_t row_bytes)
{
    shapes->palette = 1;
    shapes->rows[tile] = (uint8_t)rows;
    shapes->row_bytes[tile] = (uint16_t)row_bytes;
}

/* Some compilers do not know that tile intrinsics read memory, and delay earlier writes to it. */
static inline void amx_memory_is_written(void)
{
    __asm__ volatile("" ::: "memory");
}

static inline void amx_configure(const struct amx_shapes *shapes)
{
    amx_memory_is_written();
    _tile_loadconfig(shapes);
}

static inline void amx_release(void)
{
    _tile_release();
}

/* Sets the shapes of the calling thread's tiles for n tokens, up to 32. They hold until
 * kern_tiles_close(). Up to 16 tokens: C 0 to 3, A 4, B 5 to 7. More: C 0 and 1 and A 4 for the first half
 * of them, C 2 and 3 and A 5 for the second half, B 6 and 7. */
void kern_tiles_shape(uint32_t n_tokens);

#endif
