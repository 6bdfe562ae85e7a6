/* SPDX-License-Identifier: Apache-2.0 */
/* For programs without the instructions of AVX-512 BF16 (libkern_here.a): the AVX-512 tables use FMAs. */
#include "compute/kernels/tables_x86_priv.h"

static bool no_bf16_never(void)
{
    return false;
}

const struct kern_dots kern_dots_avx512 = {.is_usable = no_bf16_never};

kern_peak kern_bf16_peak(void)
{
    return NULL;
}
