/* SPDX-License-Identifier: Apache-2.0 */
/* Processors for which nothing better than the C library's copy was measured. */
#include <string.h>

#include "base/mem_copy.h"

void mem_copy_past_caches(void *restrict to, const void *restrict from, size_t len_bytes)
{
    memcpy(to, from, len_bytes);
}
