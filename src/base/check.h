/* SPDX-License-Identifier: Apache-2.0 */
/* Assertions that stay on in release builds.  ASSERT states a guarantee of the program itself; never use it
 * on outside input.  A failed ASSERT prints its place and aborts. */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#include <stddef.h>

#define ASSERT(claim) ((claim) ? (void)0 : check_failed(#claim, __FILE__, __LINE__))

#define container_of(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))
#define ARRAY_LEN(array)                    (sizeof(array) / sizeof((array)[0]))

/* Fails to compile unless the table, which lists its rows in the order of an enum, has a row for each value up to last.
 * So a new value of the enum leads to the tables that need a row for it. */
#define CHECK_ROWS(table, last)                                                                              \
    _Static_assert(ARRAY_LEN(table) == (last) + 1, #table ": one row for each value")

_Noreturn void check_failed(const char *claim, const char *file, int line);

#endif
