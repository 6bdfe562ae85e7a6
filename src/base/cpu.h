/* SPDX-License-Identifier: Apache-2.0 */
/* CPU features, the CPUs that this process may use, and pinning. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

struct cpu_features {
    uint32_t model;  /* family, model and stepping as the processor packs them; 0: unknown */
    size_t l1_bytes; /* level-1 data cache; 0: unknown */
    bool has_erms;   /* rep movsb is fast (enhanced rep movsb) */
    bool has_avx2;   /* with FMA and F16C */
    bool has_avx512; /* F, BW, VL, DQ */
    bool has_avx512_vnni;
    bool has_avx512_vbmi;
    bool has_avx512_bf16;
    bool has_avx_vnni;
    bool has_amx_int8;
    bool has_amx_bf16;
    bool has_arm_dot;  /* NEON's sdot and udot */
    bool has_arm_i8mm; /* usdot */
};

/* Features that can be used: the CPU has them and the kernel saves their registers.  For AMX the process
 * also asked for permission and got it. */
const struct cpu_features *cpu_features_get(void);
void cpu_relax(void); /* one pause in a spin loop */

unsigned cpu_count_usable(void); /* CPUs in the affinity mask, at most the control group's quota */
bool cpu_is_usable(int cpu);
int cpu_pin_self(int cpu); /* E_INVAL: the CPU is not usable */
/* Lets a thread run on these CPUs only. E_INVAL: none of them is usable. */
int cpu_confine(pthread_t thread, const int *cpus, size_t n);
/* Parses "0-3,8" into cpus_out (at most cap entries).  Returns the number of CPUs, or E_FORMAT for a bad or
 * empty list or one of more than cap CPUs. */
int cpu_list_parse(struct bytes text, int *cpus_out, size_t cap);
const char *cpu_model_name(void); /* from /proc/cpuinfo; "unknown" if hidden */

#endif
