/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of memory that this core will not read again soon. */
#ifndef BASE_MEM_COPY_H
#define BASE_MEM_COPY_H

#include <stddef.h>
#include <stdint.h>

/* memcpy() for long runs, by the method that mem_copy_choose() set; before that, by the C library.  Most methods
 * bypass the caches: they do not read the target first and do not evict useful lines.  Any alignment and length;
 * the ranges must not overlap.  When the call returns, the bytes are visible to every thread that synchronises with
 * this one afterwards.  Short runs use memcpy().  Any thread. */
void mem_copy_past_caches(void *restrict to, const void *restrict from, size_t len_bytes);

/* ---- the copy methods; all give the same bytes ---- */

struct mem_copy_method {
    const char *name; /* one word */
    void (*copy)(void *restrict to, const void *restrict from, size_t len_bytes);
};

/* The methods that this processor can execute; the first is the C library's.  NULL beyond the last. */
const struct mem_copy_method *mem_copy_method_at(uint32_t index);
const struct mem_copy_method *mem_copy_method_find(const char *name); /* NULL: no method of this name */
const struct mem_copy_method *mem_copy_chosen(void);
void mem_copy_choose(const struct mem_copy_method *method); /* any thread; running copies go on */

/* Measures all methods in turns under the conditions of a KV transfer: pieces of 512 KiB from memory to
 * memory, with source and target in no cache. gbs_out [MEM_COPY_MAX_METHODS]: bytes per nanosecond of each.
 * Returns the method to choose: the fastest, or the first one unless another is clearly faster.  NULL: no
 * memory to measure in, or the machine was too busy.  Ends soon after limit_ns, or after three times that
 * when the machine is busy. */
enum { MEM_COPY_MAX_METHODS = 8 };
const struct mem_copy_method *mem_copy_measure(uint64_t limit_ns, double *gbs_out);

/* ---- processor-specific (mem_copy_x86.c, mem_copy_other.c) ---- */

const struct mem_copy_method *mem_copy_own_method(uint32_t index); /* in addition to the C library's */
void mem_copy_forget(const void *at, size_t len_bytes);            /* flushes all caches, if possible */

#endif
