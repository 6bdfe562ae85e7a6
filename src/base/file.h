/* SPDX-License-Identifier: Apache-2.0 */
/* Opens files whose names come from people (configuration, command line). */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdio.h>

/* Opens a regular file for reading.  Never blocks, even on a named pipe.  On failure returns NULL and sets
 * *why_out to the reason without the path: a static string, or one that is valid until the next
 * strerror(). */
FILE *file_open(const char *path, const char **why_out);

#endif
