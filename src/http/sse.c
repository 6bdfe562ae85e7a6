/* SPDX-License-Identifier: Apache-2.0 */
/* Writing server-sent events: one line of data each.
 *
 * The data is JSON, in which line breaks are always escaped, so nothing a model says can end an event early.
 * That is a property of the caller; here it is checked. */
#include "http/sse.h"

#include <string.h>

#include "base/err.h"

static bool is_line(struct bytes text)
{
    return text.len_bytes == 0 || (memchr(text.data, '\n', text.len_bytes) == NULL &&
                                   memchr(text.data, '\r', text.len_bytes) == NULL &&
                                   memchr(text.data, '\0', text.len_bytes) == NULL);
}

int sse_put_event(struct buf *out, const char *name, struct bytes data)
{
    size_t name_len = name == NULL ? 0 : strlen(name);
    int rc;

    if (!is_line(bytes_str(name)) || !is_line(data))
        return E_INVAL;
    rc = buf_reserve(out, name_len + data.len_bytes + 24);
    if (rc < 0)
        return rc;
    if (name != NULL) {
        buf_append_str(out, "event: ");
        buf_append(out, name, name_len);
        buf_append_byte(out, '\n');
    }
    buf_append_str(out, "data: ");
    buf_append(out, data.data, data.len_bytes);
    return buf_append_str(out, "\n\n");
}
