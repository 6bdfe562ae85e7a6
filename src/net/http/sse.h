/* SPDX-License-Identifier: Apache-2.0 */
/* Server-sent events: the writer. */
#ifndef NET_HTTP_SSE_H
#define NET_HTTP_SSE_H

#include "base/bytes.h"

struct sse_event { /* one being written: where it and its data begin */
    size_t at, data_at;
};

/* Appends an event's first line and the beginning of its data; name may be NULL.  The data is then appended
 * by the caller, and the event ended. */
struct sse_event sse_begin_event(struct buf *out, const char *name);
/* E_INVAL, the event taken out again, when the data holds a control character (JSON text never does);
 * E_NOMEM. */
int sse_end_event(struct buf *out, struct sse_event event);

/* Appends "event: NAME", "data: TEXT" and an empty line.  name may be NULL.  E_INVAL, nothing appended, when
 * name or data holds a control character; E_NOMEM. */
int sse_put_event(struct buf *out, const char *name, struct bytes data);

#endif
