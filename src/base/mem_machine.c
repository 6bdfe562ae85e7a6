/* SPDX-License-Identifier: Apache-2.0 */
/* The size of this machine, for checks before memory is taken. The kernel gives a process more than there is, and ends it
 * when it uses that. */
#include "base/mem_machine.h"

#include <sys/sysinfo.h>

uint64_t mem_machine_bytes(void)
{
    struct sysinfo info;

    return sysinfo(&info) == 0 ? ((uint64_t)info.totalram + info.totalswap) * info.mem_unit : UINT64_MAX;
}
