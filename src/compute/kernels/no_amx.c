/* SPDX-License-Identifier: Apache-2.0 */
/* For compilers without AMX, and for programs of machines without it (libkern_here.a): the AMX functions exist but
 * are not usable. */
#include "compute/kernels/kern.h"

extern const struct kern_dots kern_tiles_amx;

bool kern_has_amx_bf16(void)
{
    return false;
}

static bool no_amx_never(void)
{
    return false;
}

const struct kern_dots kern_tiles_amx = {.is_usable = no_amx_never};

kern_peak kern_tiles_peak(void)
{
    return NULL;
}
