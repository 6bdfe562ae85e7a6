/* SPDX-License-Identifier: Apache-2.0 */
/* Spans as OTLP messages, and the addresses of collectors.  tests/integration/test_traces.py decodes the same with an
 * independent implementation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"
#include "net/otlp/otlp.pb-c.h"
#include "net/otlp/otlp_encode.h"

static const struct otlp_source source = {.service = "baton-router", .node = "r1", .version = "1.2"};

static void a_span_keeps_its_fields(void **state)
{
    struct trace_context context = {.trace_id = {1, [15] = 2}, .parent_id = {3, [7] = 4}, .is_sampled = true};
    struct span span;
    const struct span *list[] = {&span};
    struct buf out = {0};
    Otlp__TraceRequest *request;
    Otlp__Span *read;

    (void)state;
    span_begin(&span, &context, "chat m", 100);
    span.end_ns = 90; /* clocks never run backwards, and a span does not either */
    span.kind = SPAN_SERVER;
    span_add_count(&span, "n", 7);
    span_add_list(&span, "reasons", "stop");
    span_add_real(&span, "real", 0.5);
    span_add_flag(&span, "flag", true);
    span_add_text(&span, "text", "t");
    span_fail(&span, "lost");
    assert_int_equal(otlp_encode(&source, list, 1, 1000, &out), 0);
    request = otlp__trace_request__unpack(NULL, out.len_bytes, out.data);
    assert_non_null(request);
    assert_string_equal(request->resource_spans[0]->resource->attributes[0]->value->string_value,
                        "baton-router");
    assert_string_equal(request->resource_spans[0]->resource->attributes[2]->value->string_value, "r1");
    read = request->resource_spans[0]->scope_spans[0]->spans[0];
    assert_memory_equal(read->trace_id.data, context.trace_id, 16);
    assert_memory_equal(read->parent_span_id.data, context.parent_id, 8);
    assert_memory_equal(read->span_id.data, span.id, 8);
    assert_int_equal(read->start_time_unix_nano, 1100);
    assert_int_equal(read->end_time_unix_nano, 1100);
    assert_int_equal(read->kind, 2);
    assert_int_equal(read->n_attributes, 5);
    assert_int_equal(read->attributes[0]->value->int_value, 7);
    assert_string_equal(read->attributes[1]->value->array_value->values[0]->string_value, "stop");
    assert_true(read->attributes[2]->value->double_value == 0.5);
    assert_true(read->attributes[3]->value->bool_value);
    assert_string_equal(read->attributes[4]->value->string_value, "t");
    assert_int_equal(read->status->code, 2);
    otlp__trace_request__free_unpacked(request, NULL);
    buf_fini(&out);
}

static void a_first_span_has_no_parent(void **state)
{
    struct trace_context context = {.trace_id = {1}};
    struct span span;
    const struct span *list[] = {&span};
    struct buf out = {0};
    Otlp__TraceRequest *request;

    (void)state;
    span_begin(&span, &context, "x", 1);
    assert_int_equal(otlp_encode(&source, list, 1, 0, &out), 0);
    request = otlp__trace_request__unpack(NULL, out.len_bytes, out.data);
    assert_int_equal(request->resource_spans[0]->scope_spans[0]->spans[0]->parent_span_id.len, 0);
    assert_null(request->resource_spans[0]->scope_spans[0]->spans[0]->status);
    otlp__trace_request__free_unpacked(request, NULL);
    buf_fini(&out);
}

static void answers_are_read(void **state)
{
    (void)state;
    assert_int_equal(otlp_rejected(bytes_str("")), 0);
    assert_int_equal(otlp_rejected(bytes_str("\x0a\x02\x08\x07")), 7);
    assert_int_equal(otlp_rejected(bytes_str("\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")),
                     0); /* -1 */
    assert_int_equal(otlp_rejected(bytes_str("<html>")), 0);
}

static void addresses_are_read(void **state)
{
    static const struct {
        const char *text, *address, *path;
    } good[] = {{"http://127.0.0.1", "127.0.0.1:4318", "/v1/traces"},
                {"http://collector:9/", "collector:9", "/v1/traces"},
                {"http://[::1]/x/y", "[::1]:4318", "/x/y"},
                {"http://[::1]:8/x?a=b", "[::1]:8", "/x?a=b"}};
    static const char *const bad[] = {"collector:4318", "http://",    "http:///x", "http://a b/",
                                      "http://:80/",    "http://h?x", "ftp://h",   "http://user@h/"};
    struct otlp_url url;
    struct fault fault;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_int_equal(otlp_url_read(good[i].text, &fault, &url), 0);
        assert_string_equal(url.address, good[i].address);
        assert_string_equal(url.path, good[i].path);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(otlp_url_read(bad[i], &fault, &url), E_FORMAT);
    assert_int_equal(otlp_url_read("https://h/", &fault, &url), E_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_span_keeps_its_fields),
        cmocka_unit_test(a_first_span_has_no_parent),
        cmocka_unit_test(answers_are_read),
        cmocka_unit_test(addresses_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
