/* SPDX-License-Identifier: Apache-2.0 */
/* Server-sent events: the writer refuses text that would break framing.  The reader accepts any split and any
 * line ends. Written events read back. */
#include "net/http/sse_parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"
#include "base/str.h"
#include "net/http/sse.h"

/* Collects events as "name=data|". */
static int collect(void *arg, struct bytes name, struct bytes data)
{
    struct buf *out = arg;

    buf_append(out, name.data, name.len_bytes);
    buf_append_byte(out, '=');
    buf_append(out, data.data, data.len_bytes);
    return buf_append_byte(out, '|');
}

static const struct {
    const char *text;
    const char *events;
} streams[] = {
    {"event: a\ndata: 1\n\n", "a=1|"},
    {"event: a\r\ndata: 1\r\n\r\n", "a=1|"},
    {"event: a\rdata: 1\r\r", "a=1|"},
    {"data: 1\n\ndata:2\n\n", "message=1|message=2|"},
    {"data: x\ndata: y\n\n", "message=x\ny|"},
    {"data\n\n", "message=|"},
    {"data:  two blanks\n\n", "message= two blanks|"},
    {": comment\ndata: 1\n: more\n\n", "message=1|"},
    {"event: lost\n\ndata: 1\n\n", "message=1|"},
    {"event: a\nevent: b\ndata: 1\n\n", "b=1|"},
    {"id: 7\nretry: 3\nfoo: bar\ndata: 1\n\n", "message=1|"},
    {"data: unfinished\n", ""},
    {"data: a:b: c\n\n", "message=a:b: c|"},
    {"\xef\xbb\xbf"
     "data: 1\n\n",
     "message=1|"},
    {"\n\n\r\n\r\n", ""},
};

static void streams_read_the_same_in_any_split(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(streams); i++) {
        size_t len = strlen(streams[i].text);

        for (size_t piece = 1; piece <= len; piece++) {
            struct buf events = {0};
            struct sse_parser *parser;

            assert_int_equal(sse_parser_new(1000, collect, &events, &parser), 0);
            for (size_t at = 0; at < len; at += piece)
                assert_int_equal(sse_parser_feed(parser, bytes_of(streams[i].text + at,
                                                                  at + piece > len ? len - at : piece)),
                                 0);
            if (!bytes_is(buf_view(&events), streams[i].events))
                fail_msg("stream %zu in pieces of %zu", i, piece);
            sse_parser_free(parser);
            buf_fini(&events);
        }
    }
}

static void an_event_over_the_bound_is_refused(void **state)
{
    struct buf events = {0};
    struct sse_parser *parser;

    assert_int_equal(sse_parser_new(10, collect, &events, &parser), 0);
    assert_int_equal(sse_parser_feed(parser, bytes_str("data: 12345\ndata: 12345\n")), E_LIMIT);
    assert_int_equal(sse_parser_feed(parser, bytes_str("data: 1\n\n")), E_LIMIT);
    sse_parser_free(parser);

    assert_int_equal(sse_parser_new(10, collect, &events, &parser), 0);
    assert_int_equal(sse_parser_feed(parser, bytes_str(":0123456789012345678901234567890123456789")),
                     E_LIMIT);
    sse_parser_free(parser);
    assert_int_equal(events.len_bytes, 0);
    buf_fini(&events);
}

static int stop_at_once(void *arg, struct bytes name, struct bytes data)
{
    ++*(int *)arg;
    return 5;
}

static void the_call_can_stop_it(void **state)
{
    struct sse_parser *parser;
    int n = 0;

    assert_int_equal(sse_parser_new(100, stop_at_once, &n, &parser), 0);
    assert_int_equal(sse_parser_feed(parser, bytes_str("data: 1\n\ndata: 2\n\n")), 5);
    assert_int_equal(n, 1);
    sse_parser_free(parser);
}

static void every_byte_value_survives_as_json(void **state)
{
    struct buf json = {0};
    struct buf text = {0};
    struct buf events = {0};
    struct sse_parser *parser;

    assert_int_equal(sse_parser_new(10000, collect, &events, &parser), 0);
    for (int c = 0; c < 256; c++) {
        uint8_t raw[3] = {'a', (uint8_t)c, 'b'};

        buf_clear(&json);
        assert_int_equal(json_put_str(&json, bytes_of(raw, 3)), 0);
        assert_int_equal(sse_put_event(&text, "x", buf_view(&json)), 0);
        buf_clear(&events);
        assert_int_equal(sse_parser_feed(parser, buf_view(&text)), 0);
        buf_clear(&text);
        assert_int_equal(events.len_bytes, json.len_bytes + 3);
        assert_memory_equal(events.data + 2, json.data, json.len_bytes);
    }
    sse_parser_free(parser);
    buf_fini(&json);
    buf_fini(&text);
    buf_fini(&events);
}

static void line_breaks_are_refused_by_the_writer(void **state)
{
    struct buf out = {0};

    assert_int_equal(sse_put_event(&out, "a", bytes_str("x\ny")), E_INVAL);
    assert_int_equal(sse_put_event(&out, "a", bytes_str("x\ry")), E_INVAL);
    assert_int_equal(sse_put_event(&out, "a", bytes_of("x\0y", 3)), E_INVAL);
    assert_int_equal(sse_put_event(&out, "a\nb", bytes_str("x")), E_INVAL);
    assert_int_equal(out.len_bytes, 0);
    assert_int_equal(sse_put_event(&out, NULL, bytes_str("x")), 0);
    assert_true(bytes_is(buf_view(&out), "data: x\n\n"));
    buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_read_the_same_in_any_split),
        cmocka_unit_test(an_event_over_the_bound_is_refused),
        cmocka_unit_test(the_call_can_stop_it),
        cmocka_unit_test(every_byte_value_survives_as_json),
        cmocka_unit_test(line_breaks_are_refused_by_the_writer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
