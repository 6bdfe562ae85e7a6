/* SPDX-License-Identifier: Apache-2.0 */
/* Opens files whose names come from people (configuration, command line).  Never blocks, even on a named
 * pipe. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stdio.h>

#include "base/bytes.h"
#include "base/fault.h"

/* Opens a regular file for reading.  On failure returns NULL and sets *why_out to the reason without the
 * path: a static string, or one that is valid until the next strerror(). */
FILE *file_open(const char *path, const char **why_out);

/* Opens a regular file that holds a secret. `secret` names the file in the fault ("private key").  Returns a
 * descriptor that the caller closes, or sets the fault and returns E_NOT_FOUND, E_IO, E_INVAL (not a regular file)
 * or E_AUTH (its mode gives other users access). */
int file_open_secret(const char *path, const char *secret, struct fault *fault);

/* Reads the login of a store, "user:password" or "password", from the first line of a secret file.
 * file_open_secret()'s codes; E_FORMAT: the line is empty or too long. */
int file_read_login(const char *path, char *out, size_t out_bytes, struct fault *fault);

/* Reads the first line of a small system file (/proc, /sys) without its newline, cut to fit out. False: the file
 * cannot be read, and out is "". */
bool file_read_line(const char *path, char *out, size_t out_bytes);

/* Appends the rest of file, at most max_bytes.  Returns 0, or E_LIMIT (longer), E_NOMEM, E_IO (errno says why). */
int file_read_rest(FILE *file, size_t max_bytes, struct buf *out);

#endif
