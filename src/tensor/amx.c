/* SPDX-License-Identifier: Apache-2.0 */
/* Whether this process may use AMX tiles: the CPU has them and the kernel, asked once, said yes. */
#include "base/cpu.h"
#include "tensor/kern_priv.h"

bool kern_has_amx_int8(void)
{
    return cpu_features_get()->has_amx_int8;
}

bool kern_has_amx_bf16(void)
{
    return cpu_features_get()->has_amx_bf16;
}
