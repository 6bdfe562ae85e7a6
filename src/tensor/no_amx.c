/* SPDX-License-Identifier: Apache-2.0 */
/* Built by a compiler without AMX: its tables are there and not usable, whatever the CPU has. */
#include "tensor/kern_priv.h"

bool kern_has_amx_int8(void)
{
    return false;
}

bool kern_has_amx_bf16(void)
{
    return false;
}
