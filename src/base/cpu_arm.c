/* SPDX-License-Identifier: Apache-2.0 */
/* Features of a 64-bit ARM CPU, as the kernel reports them to every process at its start. */
#include "base/cpu.h"

#include <asm/hwcap.h>
#include <pthread.h>
#include <sys/auxv.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct cpu_features features;

static void cpu_arm_ask(void)
{
    features.has_arm_dot = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
    features.has_arm_i8mm = (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
}

const struct cpu_features *cpu_features_get(void)
{
    pthread_once(&once, cpu_arm_ask);
    return &features;
}

void cpu_relax(void)
{
    __asm__ volatile("isb" ::: "memory"); /* waits longer than yield, which is a no-op on most cores */
}
