/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel tables of the machine that builds: the scalar one, and KERN_HERE, which configure found. A
 * machine that cannot run KERN_HERE uses the scalar one. */
#include "compute/kernels/tables_x86_priv.h"

const struct kern_table kern_tables[] = {KERN_ROW_SCALAR, KERN_HERE};
const uint32_t kern_n_tables = sizeof(kern_tables) / sizeof(kern_tables[0]);
