/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: an event stream from an untrusted server.  The events are the same in one piece and in two, and
 * never exceed the bound. */
#include "base/check.h"
#include "net/http/sse_parse.h"

#define MAX_EVENT_BYTES 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct sum {
    uint64_t value;
    unsigned n_events;
};

static int add(void *arg, struct bytes name, struct bytes data)
{
    struct sum *sum = arg;

    ASSERT(name.len_bytes > 0 && data.len_bytes <= MAX_EVENT_BYTES);
    for (size_t i = 0; i < name.len_bytes; i++)
        sum->value = sum->value * 31 + name.data[i] + 1;
    for (size_t i = 0; i < data.len_bytes; i++)
        sum->value = sum->value * 37 + data.data[i] + 1;
    return ++sum->n_events == 1000 ? 7 : 0;
}

static int feed(const uint8_t *data, size_t size, size_t split, struct sum *sum)
{
    struct sse_parser *parser;
    int rc;

    ASSERT(sse_parser_new(MAX_EVENT_BYTES, add, sum, &parser) == 0);
    rc = sse_parser_feed(parser, bytes_of(data, split));
    if (rc == 0)
        rc = sse_parser_feed(parser, bytes_of(data + split, size - split));
    sse_parser_free(parser);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sum whole = {0};
    struct sum parts = {0};
    int whole_rc = feed(data, size, size, &whole);

    ASSERT(whole_rc == feed(data, size, size / 2, &parts));
    ASSERT(whole.value == parts.value && whole.n_events == parts.n_events);
    return 0;
}
