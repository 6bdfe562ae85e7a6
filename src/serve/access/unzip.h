/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes gzip bodies (RFC 1952) within bounds.  Pure; any thread. */
#ifndef SERVE_ACCESS_UNZIP_H
#define SERVE_ACCESS_UNZIP_H

#include "base/bytes.h"

/* Past the first UNZIP_FREE_BYTES a body may not expand more than this many times. */
#define UNZIP_MAX_RATIO  100
#define UNZIP_FREE_BYTES (1 << 20)

/* Appends the decoded members of in, one after another.  E_FORMAT: in is not gzip, is damaged, ends early
 * or continues past its end; E_RANGE: the output exceeds max_bytes or the allowed ratio; E_NOMEM. */
int unzip_body(struct bytes in, size_t max_bytes, struct buf *out);

#endif
