/* SPDX-License-Identifier: Apache-2.0 */
/* Writer of server-sent events. */
#ifndef NET_HTTP_SSE_H
#define NET_HTTP_SSE_H

#include "base/bytes.h"

struct sse_event { /* an event under construction: offsets of its start and of its data */
    size_t at, data_at;
};

/* Appends the first line of an event and the start of its data line; name may be NULL. The caller then
 * appends the data and calls sse_end_event(). */
struct sse_event sse_begin_event(struct buf *out, const char *name);
/* Ends the event. E_INVAL: the data holds a control character (JSON text never does), and the event is
 * removed again. E_NOMEM. */
int sse_end_event(struct buf *out, struct sse_event event);

/* Appends "event: NAME", "data: TEXT" and an empty line. name may be NULL. E_INVAL: name or data holds a
 * control character, and nothing is appended. E_NOMEM. */
int sse_put_event(struct buf *out, const char *name, struct bytes data);

#endif
