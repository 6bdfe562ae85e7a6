/* SPDX-License-Identifier: Apache-2.0 */
/* gzip bodies (RFC 1952), decoded within bounds.  Pure; any thread. */
#ifndef SERVE_ACCESS_UNZIP_H
#define SERVE_ACCESS_UNZIP_H

#include "base/bytes.h"

/* Beyond the first UNZIP_FREE_BYTES a body may not grow more than this many times. */
#define UNZIP_MAX_RATIO  100
#define UNZIP_FREE_BYTES (1 << 20)

/* Appends what in holds, all its members one after another.  E_FORMAT: it is no gzip, is damaged, ends early
 * or goes on behind its end; E_RANGE: more than max_bytes, or more than the ratio allows; E_NOMEM. */
int unzip_body(struct bytes in, size_t max_bytes, struct buf *out);

#endif
