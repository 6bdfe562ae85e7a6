/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel tables of x86-64, from plain to best.
 *
 *                     floats and halves      integer dots
 *     scalar          plain C                plain C
 *     avx2-madd       AVX2, FMA, F16C        vpmaddwd
 *     avx2-vnni       "                      AVX-VNNI
 *     avx512-madd     AVX-512 F BW VL DQ     vpmaddwd
 *     avx512-vnni     "                      AVX-512 VNNI
 *
 * Which of them run here is asked of the CPU.  The BF16 peak is the CPU's, whichever table measures it.
 */
#include "base/cpu.h"
#include "tensor/kern_priv.h"

extern const struct kern_vec kern_vec_scalar, kern_vec_avx2, kern_vec_avx512;
extern const struct kern_q8 kern_q8_scalar, kern_q8_madd256, kern_q8_vnni256, kern_q8_madd512,
    kern_q8_vnni512;
float kern_peak_bf16(uint32_t rounds);

static bool always(void)
{
    return true;
}

static bool has_avx2(void)
{
    return cpu_features_get()->has_avx2;
}

static bool has_avx2_vnni(void)
{
    return has_avx2() && cpu_features_get()->has_avx_vnni;
}

static bool has_avx512(void)
{
    return cpu_features_get()->has_avx512;
}

static bool has_avx512_vnni(void)
{
    return has_avx512() && cpu_features_get()->has_avx512_vnni;
}

const struct kern_table kern_tables[] = {
    {
        .name = "scalar",
        .family = "scalar",
        .vec = &kern_vec_scalar,
        .q8 = &kern_q8_scalar,
        .is_usable = always,
    },
    {
        .name = "avx2-madd",
        .family = "avx2",
        .vec = &kern_vec_avx2,
        .q8 = &kern_q8_madd256,
        .is_usable = has_avx2,
    },
    {
        .name = "avx2-vnni",
        .family = "avx2",
        .vec = &kern_vec_avx2,
        .q8 = &kern_q8_vnni256,
        .has_int8_dot = true,
        .is_usable = has_avx2_vnni,
    },
    {
        .name = "avx512-madd",
        .family = "avx512",
        .vec = &kern_vec_avx512,
        .q8 = &kern_q8_madd512,
        .is_usable = has_avx512,
    },
    {
        .name = "avx512-vnni",
        .family = "avx512",
        .vec = &kern_vec_avx512,
        .q8 = &kern_q8_vnni512,
        .has_int8_dot = true,
        .is_usable = has_avx512_vnni,
    },
};
const uint32_t kern_n_tables = sizeof(kern_tables) / sizeof(kern_tables[0]);

kern_peak kern_bf16_peak(void)
{
    return cpu_features_get()->has_avx512_bf16 ? kern_peak_bf16 : NULL;
}
