/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine is: instruction sets, CPUs we may use, pinning. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

struct cpu_features {
    uint32_t model;  /* family, model and stepping as the processor packs them; 0: it does not say */
    size_t l1_bytes; /* first-level cache of data; 0: unknown */
    bool has_erms;   /* rep movsb is meant to be fast */
    bool has_avx2;   /* with FMA and F16C */
    bool has_avx512; /* F, BW, VL, DQ */
    bool has_avx512_vnni;
    bool has_avx512_bf16;
    bool has_avx_vnni;
    bool has_amx_int8;
    bool has_amx_bf16;
    bool has_arm_dot;  /* NEON's sdot and udot */
    bool has_arm_i8mm; /* usdot */
};

/* What may be executed: the CPU has it and the kernel saves its registers (AMX: permission was asked and
 * given). */
const struct cpu_features *cpu_features_get(void);
void cpu_relax(void); /* one step of a spinning wait */

unsigned cpu_count_usable(void); /* in this process's affinity mask, no more than its control group's quota */
bool cpu_is_usable(int cpu);
int cpu_pin_self(int cpu); /* E_INVAL when not usable */
/* "0-3,8" into cpus_out (at most cap); the number of CPUs, or E_FORMAT (also: empty, or more than cap). */
int cpu_list_parse(struct bytes text, int *cpus_out, size_t cap);
const char *cpu_model_name(void); /* from /proc/cpuinfo, "unknown" if hidden */

#endif
