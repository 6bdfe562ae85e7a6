/* SPDX-License-Identifier: Apache-2.0 */
/* Copying what this core will not look at again. */
#ifndef BASE_MEM_COPY_H
#define BASE_MEM_COPY_H

#include <stddef.h>

/* memcpy() for long runs: where the processor has a way, the copy goes past the caches, so that the target is
 * not read first and nothing useful is pushed out.  Any alignment and length; the ranges do not overlap.  All
 * is in memory, for every thread that is told of it afterwards, when the call returns.  Short runs are copied
 * as always.  Any thread. */
void mem_copy_past_caches(void *restrict to, const void *restrict from, size_t len_bytes);

#endif
