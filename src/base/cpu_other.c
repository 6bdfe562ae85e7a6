/* SPDX-License-Identifier: Apache-2.0 */
/* CPUs without kernels of their own yet.
 *
 * They report no instruction set, so the scalar reference kernels are chosen, which are right everywhere.
 * There is no portable "pause"; a compiler barrier keeps a spinning loop from being folded away.
 */
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
