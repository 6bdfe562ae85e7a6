/* SPDX-License-Identifier: Apache-2.0 */
/* Writes server-sent events, each with one line of data.
 *
 * The data is JSON, which always escapes control characters, so model output cannot end an event early.
 * The caller guarantees this; these functions check it. */
#include "net/http/sse.h"

#include "base/err.h"

/* True if text has no control character, and so no line break. It checks eight bytes at a time, because
 * every event of every stream passes here. */
static bool is_line(struct bytes text)
{
    size_t at = 0;

    for (; text.len_bytes - at >= 8; at += 8)
        if (bytes_mark_below(bytes_load8(text.data + at), 0x20) != 0)
            return false;
    for (; at < text.len_bytes; at++)
        if (text.data[at] < 0x20)
            return false;
    return true;
}

struct sse_event sse_begin_event(struct buf *out, const char *name)
{
    struct sse_event event = {.at = out->len_bytes};

    if (name != NULL) {
        buf_append_str(out, "event: ");
        buf_append_str(out, name);
        buf_append_str(out, "\ndata: ");
    } else {
        buf_append_str(out, "data: ");
    }
    event.data_at = out->len_bytes;
    return event;
}

int sse_end_event(struct buf *out, struct sse_event event)
{
    if (out->is_bad)
        return E_NOMEM;
    if (!is_line(bytes_of(out->data + event.data_at, out->len_bytes - event.data_at))) {
        out->len_bytes = event.at;
        out->data[event.at] = '\0';
        return E_INVAL;
    }
    return buf_append_str(out, "\n\n");
}

int sse_put_event(struct buf *out, const char *name, struct bytes data)
{
    struct sse_event event;

    if (!is_line(bytes_str(name)) || !is_line(data))
        return E_INVAL;
    event = sse_begin_event(out, name);
    buf_append(out, data.data, data.len_bytes);
    return sse_end_event(out, event);
}
