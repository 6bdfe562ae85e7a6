/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a key file together with their limits. A load replaces both together.
 *
 * A file of 100,000 keys takes a second to read, check and free, so a job thread does both.  The loop only
 * replaces a pointer. */
#ifndef SERVE_ACCESS_ACCESS_KEYS_H
#define SERVE_ACCESS_ACCESS_KEYS_H

#include "serve/access/limits.h"

struct access_keys { /* immutable, but for the usage in limits */
    struct auth_keys *auth;
    struct limits *limits;
};

/* Loads the file.  Keys that are also in `old` keep their usage; `old` may be NULL and stays in use.  Errors as
 * auth_keys_load.  Any thread. */
int access_keys_load(const char *path, const struct access_keys *old, struct fault *fault,
                     struct access_keys **out);
/* False: a running request began under these keys. */
bool access_keys_are_idle(const struct access_keys *keys);
/* Only when idle.  Any thread.  Accepts NULL. */
void access_keys_free(struct access_keys *keys);

#endif
