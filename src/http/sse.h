/* SPDX-License-Identifier: Apache-2.0 */
/* Server-sent events: the writer. */
#ifndef HTTP_SSE_H
#define HTTP_SSE_H

#include "base/bytes.h"

/* Appends "event: NAME", "data: TEXT" and an empty line.  name may be NULL.  E_INVAL, nothing appended, when
 * name or data holds a line break or NUL (JSON text never does); E_NOMEM. */
int sse_put_event(struct buf *out, const char *name, struct bytes data);

#endif
