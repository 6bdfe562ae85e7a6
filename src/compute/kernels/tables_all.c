/* SPDX-License-Identifier: Apache-2.0 */
/* All kernel tables of x86-64, for packages and for tests. */
#include "compute/kernels/tables_x86_priv.h"

const struct kern_table kern_tables[] = {
    KERN_ROW_SCALAR, KERN_ROW_AVX2_MADD, KERN_ROW_AVX2_VNNI, KERN_ROW_AVX512_MADD, KERN_ROW_AVX512_VNNI,
};
const uint32_t kern_n_tables = sizeof(kern_tables) / sizeof(kern_tables[0]);
