/* SPDX-License-Identifier: Apache-2.0 */
/* A folder that paths cannot leave: no absolute paths, no "..", no symbolic links on the way.
 *
 * Paths come from a model, so they are untrusted.  The fault of a failure is text for the model.  Any thread,
 * one at a time. */
#ifndef CLIENTS_CHAT_FOLDER_H
#define CLIENTS_CHAT_FOLDER_H

#include "base/bytes.h"
#include "base/fault.h"

#define FOLDER_MAX_FILE_BYTES (1u << 20)

struct folder {
    int fd;         /* -1: closed */
    char path[512]; /* for people */
};

int folder_open(const char *path, struct fault *fault, struct folder *out); /* E_IO, E_RANGE */
void folder_close(struct folder *folder);                                   /* a closed one is fine */

/* A regular file's text.  E_FORMAT (path), E_NOT_FOUND, E_LIMIT (larger than FOLDER_MAX_FILE_BYTES), E_IO,
 * E_NOMEM. */
int folder_read(const struct folder *folder, struct bytes path, struct fault *fault, struct buf *out);
/* The file appears whole or not at all; folders on the way are made.  A file that is there keeps its permissions. */
int folder_write(const struct folder *folder, struct bytes path, struct bytes text, struct fault *fault);

/* Calls each for every regular file under path ("" or ".": all of it), in order of names.  Skips names that
 * begin with a dot.  At most 1000 files, eight folders deep.  A result other than 0 ends the walk and is
 * returned. */
typedef int (*folder_call)(void *arg, struct bytes path);
int folder_walk(const struct folder *folder, struct bytes path, struct fault *fault, folder_call each,
                void *arg);

#endif
