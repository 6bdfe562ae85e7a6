/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel tables of 64-bit ARM, from plain to best.
 *
 *                 floats and halves     integer dots
 *     scalar      plain C               plain C
 *     neon        NEON                  plain C
 *     neon-dot    "                     sdot (ARMv8.2 with the dot product extension)
 *     neon-i8mm   "                     usdot (ARMv8.6, or I8MM)
 */
#include "base/cpu.h"
#include "compute/kernels/kern.h"

extern const struct kern_vec kern_vec_scalar, kern_vec_neon;
extern const struct kern_points kern_points_scalar;
extern const struct kern_q8 kern_q8_scalar, kern_q8_sdot, kern_q8_usdot;

static bool tables_arm_always(void)
{
    return true;
}

static bool has_dot(void)
{
    return cpu_features_get()->has_arm_dot;
}

static bool has_i8mm(void)
{
    return cpu_features_get()->has_arm_i8mm;
}

const struct kern_table kern_tables[] = {
    {
        .name = "scalar",
        .family = "scalar",
        .vec = &kern_vec_scalar,
        .q8 = &kern_q8_scalar,
        .points = &kern_points_scalar,
        .is_usable = tables_arm_always,
    },
    {
        .name = "neon",
        .family = "neon",
        .vec = &kern_vec_neon,
        .q8 = &kern_q8_scalar,
        .is_usable = tables_arm_always,
    },
    {
        .name = "neon-dot",
        .family = "neon",
        .vec = &kern_vec_neon,
        .q8 = &kern_q8_sdot,
        .has_int8_dot = true,
        .is_usable = has_dot,
    },
    {
        .name = "neon-i8mm",
        .family = "neon",
        .vec = &kern_vec_neon,
        .q8 = &kern_q8_usdot,
        .has_int8_dot = true,
        .is_usable = has_i8mm,
    },
};
const uint32_t kern_n_tables = sizeof(kern_tables) / sizeof(kern_tables[0]);
