/* SPDX-License-Identifier: Apache-2.0 */
/* Assertions that stay on in release builds.  ASSERT states a guarantee of the program itself; never use it
 * on outside input.  A failed ASSERT prints its place and aborts. */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#include <stddef.h>

#define ASSERT(claim) ((claim) ? (void)0 : check_failed(#claim, __FILE__, __LINE__))

#define container_of(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))
#define ARRAY_LEN(array)                    (sizeof(array) / sizeof((array)[0]))

/* Fails to compile unless the table, which lists its rows in the order of an enum, has n rows.  n is the enum's number of
 * values.  Where the enum has no name for it, n is one more than the state in which objects end: the last value. */
#define CHECK_ROWS(table, n) _Static_assert(ARRAY_LEN(table) == (n), #table ": one row for each value")

_Noreturn void check_failed(const char *claim, const char *file, int line);

#endif
