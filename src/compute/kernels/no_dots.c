/* SPDX-License-Identifier: Apache-2.0 */
/* For machines without BF16 dots. Some could flush subnormals, but not as the dots of x86 do. */
#include "compute/kernels/kern.h"

bool kern_can_flush(void)
{
    return false;
}

uint32_t kern_flush_begin(void)
{
    return 0;
}

void kern_flush_end(uint32_t before)
{
    (void)before;
}

kern_peak kern_bf16_peak(void)
{
    return NULL;
}

kern_peak kern_tiles_peak(void)
{
    return NULL;
}
