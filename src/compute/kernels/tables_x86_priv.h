/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel tables of x86-64, from plain to best.
 *
 *                     floats and halves      integer dots
 *     scalar          plain C                plain C
 *     avx2-madd       AVX2, FMA, F16C        vpmaddubsw, or vpmaddwd
 *     avx2-vnni       "                      AVX-VNNI
 *     avx512-madd     AVX-512 F BW VL DQ     vpmaddubsw, or vpmaddwd
 *     avx512-vnni     "                      AVX-512 VNNI; lattice points by AVX-512 VBMI if the CPU has it
 *
 * tables_all.c has all of them, for every machine. tables_here.c has two: the scalar one and the best one of
 * the machine that builds. Workers linked with it need a quarter of the compile time (./run). */
#ifndef COMPUTE_KERNELS_TABLES_X86_PRIV_H
#define COMPUTE_KERNELS_TABLES_X86_PRIV_H

#include "compute/kernels/kern.h"

extern const struct kern_dots kern_dots_avx512, kern_tiles_amx;
extern const struct kern_points kern_points_scalar, kern_points_vbmi512;
extern const struct kern_vec kern_vec_scalar, kern_vec_avx2, kern_vec_avx512;
extern const struct kern_q8 kern_q8_scalar, kern_q8_madd256, kern_q8_vnni256, kern_q8_madd512,
    kern_q8_vnni512;

/* True if the CPU runs a table. */
bool kern_x86_any(void);
bool kern_x86_avx2(void);
bool kern_x86_avx2_vnni(void);
bool kern_x86_avx512(void);
bool kern_x86_avx512_vnni(void);
bool kern_x86_avx512_vbmi(void);

#define KERN_ROW_SCALAR                                                                                      \
    {                                                                                                        \
        .name = "scalar", .family = "scalar", .vec = &kern_vec_scalar, .q8 = &kern_q8_scalar,                \
        .points = &kern_points_scalar, .is_usable = kern_x86_any,                                            \
    }
#define KERN_ROW_AVX2_MADD                                                                                   \
    {                                                                                                        \
        .name = "avx2-madd", .family = "avx2", .vec = &kern_vec_avx2, .q8 = &kern_q8_madd256,                \
        .is_usable = kern_x86_avx2,                                                                          \
    }
#define KERN_ROW_AVX2_VNNI                                                                                   \
    {                                                                                                        \
        .name = "avx2-vnni", .family = "avx2", .vec = &kern_vec_avx2, .q8 = &kern_q8_vnni256,                \
        .has_int8_dot = true, .is_usable = kern_x86_avx2_vnni,                                               \
    }
#define KERN_ROW_AVX512_MADD                                                                                 \
    {                                                                                                        \
        .name = "avx512-madd", .family = "avx512", .vec = &kern_vec_avx512, .q8 = &kern_q8_madd512,          \
        .dots = &kern_dots_avx512, .tiles = &kern_tiles_amx, .is_usable = kern_x86_avx512,                   \
    }
#define KERN_ROW_AVX512_VNNI                                                                                 \
    {                                                                                                        \
        .name = "avx512-vnni", .family = "avx512", .vec = &kern_vec_avx512, .q8 = &kern_q8_vnni512,          \
        .points = &kern_points_vbmi512, .has_points = kern_x86_avx512_vbmi, .dots = &kern_dots_avx512,       \
        .tiles = &kern_tiles_amx, .has_int8_dot = true, .is_usable = kern_x86_avx512_vnni,                   \
    }

#endif
