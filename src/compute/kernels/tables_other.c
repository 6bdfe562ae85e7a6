/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel tables of machines without special kernels. */
#include "compute/kernels/kern.h"

extern const struct kern_vec kern_vec_scalar;
extern const struct kern_points kern_points_scalar;
extern const struct kern_q8 kern_q8_scalar;

static bool tables_other_always(void)
{
    return true;
}

const struct kern_table kern_tables[] = {
    {.name = "scalar",
     .family = "scalar",
     .vec = &kern_vec_scalar,
     .q8 = &kern_q8_scalar,
     .points = &kern_points_scalar,
     .is_usable = tables_other_always},
};
const uint32_t kern_n_tables = sizeof(kern_tables) / sizeof(kern_tables[0]);
