/* SPDX-License-Identifier: Apache-2.0 */
/* Opening files whose names people wrote. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdio.h>

/* A regular file for reading; never waits, as opening a named pipe would.  NULL: *why_out says why, without
 * the path (static, or valid until errno is next put into words). */
FILE *file_open(const char *path, const char **why_out);

#endif
