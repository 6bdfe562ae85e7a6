/* SPDX-License-Identifier: Apache-2.0 */
/* Assertions that stay on in release builds.  ASSERT states a guarantee of the program itself; never use it
 * on outside input.  A failed ASSERT prints its place and aborts. */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#include <stddef.h>

#define ASSERT(claim) ((claim) ? (void)0 : check_failed(#claim, __FILE__, __LINE__))

#define container_of(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))
#define ARRAY_LEN(array)                    (sizeof(array) / sizeof((array)[0]))

_Noreturn void check_failed(const char *claim, const char *file, int line);

#endif
