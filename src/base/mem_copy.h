/* SPDX-License-Identifier: Apache-2.0 */
/* Copying what this core will not look at again. */
#ifndef BASE_MEM_COPY_H
#define BASE_MEM_COPY_H

#include <stddef.h>
#include <stdint.h>

/* memcpy() for long runs, by the way that mem_copy_choose() chose; before that, the C library's.  Most ways
 * go past the caches, so that the target is not read first and nothing useful is pushed out.  Any alignment
 * and length; the ranges do not overlap.  All is in memory, for every thread that is told of it afterwards,
 * when the call returns.  Short runs are copied as always.  Any thread. */
void mem_copy_past_caches(void *restrict to, const void *restrict from, size_t len_bytes);

/* ---- the ways; all give the same bytes ---- */

struct mem_copy_way {
    const char *name; /* a word */
    void (*copy)(void *restrict to, const void *restrict from, size_t len_bytes);
};

/* Those that this processor can execute; the first is the C library's.  NULL past the last. */
const struct mem_copy_way *mem_copy_way_at(uint32_t index);
const struct mem_copy_way *mem_copy_way_find(const char *name); /* NULL: none of them */
const struct mem_copy_way *mem_copy_chosen(void);
void mem_copy_choose(const struct mem_copy_way *way); /* any thread, any time: copies under way go on */

/* Measures all ways by turns, as a hand-off uses them: pieces of 512 KiB from memory to memory, out of and
 * into no cache.  gbs_out: bytes copied per nanosecond by each, [MEM_COPY_MAX_WAYS].  The way to choose: the
 * fastest, or the first one unless another is clearly faster.  NULL when there is no memory to measure in.
 * Ends soon after limit_ns. */
enum { MEM_COPY_MAX_WAYS = 8 };
const struct mem_copy_way *mem_copy_measure(uint64_t limit_ns, double *gbs_out);

/* ---- of the processor (mem_copy_x86.c, mem_copy_other.c) ---- */

const struct mem_copy_way *mem_copy_own_way(uint32_t index); /* besides the C library's */
void mem_copy_forget(const void *at, size_t len_bytes);      /* to memory and out of all caches, if it can */

#endif
