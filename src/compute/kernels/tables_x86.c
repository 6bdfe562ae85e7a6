/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which kernel tables of x86-64 the CPU runs (tables_x86_priv.h lists them): its features decide. */
#include <xmmintrin.h>

#include "base/rng.h"
#include "base/cpu.h"
#include "compute/kernels/tables_x86_priv.h"

bool kern_x86_any(void)
{
    return true;
}

bool kern_x86_avx2(void)
{
    return cpu_features_get()->has_avx2;
}

bool kern_x86_avx2_vnni(void)
{
    return kern_x86_avx2() && cpu_features_get()->has_avx_vnni;
}

bool kern_x86_avx512(void)
{
    return cpu_features_get()->has_avx512;
}

bool kern_x86_avx512_vnni(void)
{
    return kern_x86_avx512() && cpu_features_get()->has_avx512_vnni;
}

bool kern_x86_avx512_vbmi(void)
{
    return kern_x86_avx512_vnni() && cpu_features_get()->has_avx512_vbmi;
}

/* ---- flushed numbers, and those of trials ---- */

enum { MXCSR_FLUSH = 0x8040 /* FTZ, DAZ */ };

bool kern_can_flush(void)
{
    return true;
}

uint32_t kern_flush_begin(void)
{
    uint32_t before = _mm_getcsr();

    _mm_setcsr(before | MXCSR_FLUSH);
    return before;
}

void kern_flush_end(uint32_t before)
{
    _mm_setcsr(before);
}

uint16_t kern_trial_number(struct rng *rng, uint32_t exponent)
{
    uint32_t bits = (uint32_t)rng_u64(rng);
    uint32_t e = exponent - 20 + bits % 41;

    return (uint16_t)((bits >> 16 & 0x807f) | (bits >> 8 & 31 ? e << 7 : 0));
}
