/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that arguments are a prefix of JSON at every moment, and that blocks do not overlap. */
#include "calls_sink.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int on_text(void *arg, struct bytes text)
{
    struct calls_sink *sink = arg;

    assert_true(text.len_bytes > 0);
    assert_false(sink->is_in_call || sink->is_thinking);
    return buf_append(&sink->out, text.data, text.len_bytes);
}

static int on_thinking(void *arg, struct bytes text)
{
    struct calls_sink *sink = arg;

    assert_true(text.len_bytes > 0);
    assert_false(sink->is_in_call);
    if (!sink->is_thinking)
        buf_append_byte(&sink->out, '~');
    sink->is_thinking = true;
    return buf_append(&sink->out, text.data, text.len_bytes);
}

static int on_thought(void *arg)
{
    struct calls_sink *sink = arg;

    assert_true(sink->is_thinking);
    sink->is_thinking = false;
    return buf_append_byte(&sink->out, '~');
}

static int on_begin(void *arg, struct bytes name)
{
    struct calls_sink *sink = arg;

    assert_true(name.len_bytes > 0);
    assert_false(sink->is_in_call || sink->is_thinking);
    sink->is_in_call = true;
    memset(&sink->walk, 0, sizeof(sink->walk));
    return buf_printf(&sink->out, "[%.*s:", (int)name.len_bytes, (const char *)name.data);
}

static int on_arguments(void *arg, struct bytes piece)
{
    struct calls_sink *sink = arg;

    assert_true(sink->is_in_call);
    sink->n_argument_pieces++;
    for (size_t i = 0; i < piece.len_bytes; i++)
        assert_true(json_walk_byte(&sink->walk, piece.data[i]) <= JSON_WALK_DONE);
    return buf_append(&sink->out, piece.data, piece.len_bytes);
}

static int on_end(void *arg, enum calls_end how)
{
    struct calls_sink *sink = arg;

    assert_true(sink->is_in_call);
    sink->is_in_call = false;
    if (how == CALLS_WHOLE)
        assert_int_equal(sink->walk.depth, 0);
    buf_append_str(&sink->out, how == CALLS_WHOLE ? "]" : how == CALLS_CUT ? "!]" : "?]");
    return sink->stop_at_end;
}

const char calls_sink_schema[] =
    "{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},"
    "\"b\":{\"type\":\"boolean\"},\"l\":{\"type\":\"array\"},\"o\":{\"$ref\":\"#/$defs/O\"},"
    "\"u\":{\"type\":[\"string\",\"null\"]},\"e\":{\"enum\":[\"on\",\"off\"]},\"a\":{},"
    "\"r\":{\"$ref\":\"#/properties/r\"}},\"$defs\":{\"O\":{\"type\":\"object\"}}}";

const struct calls_events calls_sink_events = {on_text,  on_thinking,  on_thought,
                                               on_begin, on_arguments, on_end};

void calls_sink_run(struct calls_sink *sink, const struct calls_opts *opts, struct bytes text, size_t piece,
                    bool is_cut)
{
    struct calls_opts own = *opts;
    struct calls *calls;
    size_t at = 0;

    own.tools = calloc(opts->n_tools + 1, sizeof(*own.tools));
    assert_non_null(own.tools);
    if (opts->n_tools > 0)
        memcpy(own.tools, opts->tools, opts->n_tools * sizeof(*own.tools));
    assert_int_equal(calls_new(&own, &calls_sink_events, sink, &calls), 0);
    while (at < text.len_bytes) {
        size_t n = piece > 0 ? piece : 1 + (size_t)(random() % 12);
        size_t end = at + n < text.len_bytes ? at + n : text.len_bytes;

        while (end < text.len_bytes && (text.data[end] & 0xc0) == 0x80)
            end++;
        assert_int_equal(calls_feed(calls, bytes_of(text.data + at, end - at)), 0);
        at = end;
    }
    assert_int_equal(calls_finish(calls, is_cut), 0);
    assert_false(sink->is_in_call || sink->is_thinking);
    calls_free(calls);
}
