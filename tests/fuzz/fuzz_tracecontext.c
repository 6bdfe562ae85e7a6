/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: what reaches the tracing code from outside.  The first byte chooses: a client's traceparent, a
 * collector's answer, a collector's address. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/otlp/otlp_encode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_parent(struct bytes text)
{
    struct trace_context context, again;
    char written[TRACE_PARENT_TEXT];

    if (!trace_context_read(text, &context))
        return;
    trace_context_write(&context, written);
    ASSERT(trace_context_read(bytes_str(written), &again));
    ASSERT(memcmp(&context, &again, sizeof(context)) == 0);
    ASSERT(memcmp(written + 3, text.data + 3, 49) == 0); /* the ids come back as they were */
}

static void read_url(struct bytes text)
{
    char *copy = strndup((const char *)text.data, text.len_bytes);
    struct otlp_url url;

    if (copy != NULL && otlp_url_read(copy, NULL, &url) == 0)
        ASSERT(url.path[0] == '/' && strchr(url.address, '/') == NULL && strchr(url.address, ':') != NULL);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes rest = bytes_of(data + 1, size - 1);

    if (size < 2)
        return 0;
    if (data[0] % 3 == 0)
        read_parent(rest);
    else if (data[0] % 3 == 1)
        (void)otlp_rejected(rest);
    else
        read_url(rest);
    return 0;
}
