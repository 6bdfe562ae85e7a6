/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any model output, in every format of calls.
 *
 * The first byte chooses the format.  The second chooses whether the model thinks, where the text is cut in
 * two, and whether the answer is cut.  Passed-on arguments are a prefix of valid JSON; complete ones are an
 * object; cut ones can be closed.  Blocks do not overlap, and an open block is closed at the end. */
#include <stdlib.h>
#include <string.h>

#include "text/toolcall/calls.h"
#include "text/json/json_walk.h"
#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct sink {
    struct buf arguments;
    struct json_walk walk;
    enum json_walk_result result;
    bool is_in_call, is_thinking;
};

static int on_text(void *arg, struct bytes text)
{
    struct sink *sink = arg;

    ASSERT(!sink->is_in_call && !sink->is_thinking && text.len_bytes > 0);
    return 0;
}

static int on_thinking(void *arg, struct bytes text)
{
    struct sink *sink = arg;

    ASSERT(!sink->is_in_call && text.len_bytes > 0);
    sink->is_thinking = true;
    return 0;
}

static int on_thought(void *arg)
{
    struct sink *sink = arg;

    ASSERT(sink->is_thinking);
    sink->is_thinking = false;
    return 0;
}

static int on_begin(void *arg, struct bytes name)
{
    struct sink *sink = arg;

    ASSERT(!sink->is_in_call && !sink->is_thinking && name.len_bytes > 0);
    sink->is_in_call = true;
    memset(&sink->walk, 0, sizeof(sink->walk));
    buf_clear(&sink->arguments);
    return 0;
}

static int on_arguments(void *arg, struct bytes piece)
{
    struct sink *sink = arg;

    ASSERT(sink->is_in_call);
    for (size_t i = 0; i < piece.len_bytes; i++) {
        sink->result = json_walk_byte(&sink->walk, piece.data[i]);
        ASSERT(sink->result <= JSON_WALK_DONE);
    }
    return buf_append(&sink->arguments, piece.data, piece.len_bytes);
}

static int on_end(void *arg, enum calls_end how)
{
    struct sink *sink = arg;
    struct buf closed = {0};

    ASSERT(sink->is_in_call);
    sink->is_in_call = false;
    if (how == CALLS_WHOLE) {
        ASSERT(sink->result == JSON_WALK_DONE && sink->arguments.data[0] == '{');
    } else if (json_walk_close(&sink->walk, buf_view(&sink->arguments), &closed) == 0) {
        struct json_walk walk = {0};
        enum json_walk_result result = JSON_WALK_MORE;

        for (size_t i = 0; i < closed.len_bytes; i++)
            result = json_walk_byte(&walk, closed.data[i]);
        ASSERT(result == JSON_WALK_DONE);
    }
    buf_fini(&closed);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct calls_events events = {on_text,  on_thinking,  on_thought,
                                               on_begin, on_arguments, on_end};
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\"},\"n\":{\"$ref\":"
        "\"#/properties/n\"},\"e\":{\"enum\":[1,null,\"x\"]}}}";
    struct calls_opts opts = {.n_tools = 1};
    struct sink sink = {0};
    struct calls *calls;
    struct bytes text;
    size_t cut;

    if (size < 2)
        return 0;
    opts.format = (enum calls_format)(data[0] % CALLS_FORMAT_COUNT);
    opts.think_open = (data[1] & 8) != 0 ? "<think>" : NULL;
    opts.think_close = (data[1] & 8) != 0 ? "</think>" : NULL;
    opts.begins_thinking = (data[1] & 16) != 0;
    opts.think_is_words = (data[1] & 4) != 0;
    opts.tools = calloc(1, sizeof(*opts.tools));
    ASSERT(opts.tools != NULL);
    opts.tools[0] = (struct calls_tool){bytes_str("f"), bytes_str(schema)};
    text = bytes_of(data + 2, size - 2);
    cut = text.len_bytes * (data[1] >> 6) / 4;
    ASSERT(calls_new(&opts, &events, &sink, &calls) == 0);
    ASSERT(calls_feed(calls, bytes_of(text.data, cut)) == 0);
    ASSERT(calls_feed(calls, bytes_of(text.data + cut, text.len_bytes - cut)) == 0);
    ASSERT(calls_finish(calls, (data[1] & 32) != 0) == 0);
    ASSERT(!sink.is_in_call && !sink.is_thinking);
    calls_free(calls);
    buf_fini(&sink.arguments);
    return 0;
}
