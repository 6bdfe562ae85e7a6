/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory a process can have here: the machine's, or what control groups (containers, services) allow. */
#ifndef BASE_MEM_MACHINE_H
#define BASE_MEM_MACHINE_H

#include <stdint.h>

struct mem_machine {
    uint64_t bytes;     /* memory and swap; UINT64_MAX: not known */
    const char *name;   /* for messages: "this machine's memory and swap" */
    const char *remedy; /* how to raise the limit, in parentheses behind a blank; "" for the machine's */
};

/* The memory and swap of this machine, or of the tightest control group around this process. */
struct mem_machine mem_machine_get(void);

/* The same for the machine's own bytes of swap, and files other than the kernel's. UINT64_MAX: no group has a limit. */
uint64_t mem_group_bytes(const char *membership, const char *mount, uint64_t swap_bytes);

/* What the tightest group leaves of its memory, without swap.  Pages of files count as free: they make room. */
uint64_t mem_group_free_bytes(const char *membership, const char *mount);

#endif
