/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory this machine has. */
#ifndef BASE_MEM_MACHINE_H
#define BASE_MEM_MACHINE_H

#include <stdint.h>

/* This machine's memory and swap; UINT64_MAX when it is not known. */
uint64_t mem_machine_bytes(void);

#endif
