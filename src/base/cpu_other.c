/* SPDX-License-Identifier: Apache-2.0 */
/* CPUs without kernels of their own.
 *
 * They report no instruction set, so the scalar reference kernels are chosen, which work everywhere.  There
 * is no portable "pause" instruction.  A compiler barrier keeps the compiler from removing a spin loop. */
#include "base/cpu.h"

const struct cpu_features *cpu_features_get(void)
{
    static const struct cpu_features none;

    return &none;
}

void cpu_relax(void)
{
    __asm__ volatile("" ::: "memory");
}
