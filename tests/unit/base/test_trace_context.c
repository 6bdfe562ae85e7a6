/* SPDX-License-Identifier: Apache-2.0 */
/* The traceparent of W3C Trace Context, and the decision to sample. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/trace_context.h"

#define IDS "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"

static void good_ones_are_read(void **state)
{
    struct trace_context context;
    char text[TRACE_PARENT_TEXT];

    (void)state;
    assert_true(trace_context_read(bytes_str("00-" IDS "-01"), &context));
    assert_true(context.is_known && context.is_sampled);
    assert_int_equal(context.trace_id[0], 0x4b);
    assert_int_equal(context.parent_id[7], 0xb7);
    trace_context_write(&context, text);
    assert_string_equal(text, "00-" IDS "-01");
    assert_true(trace_context_read(bytes_str("00-" IDS "-02"), &context));
    assert_false(context.is_sampled);
    /* A later version may have more flags and more fields. */
    assert_true(trace_context_read(bytes_str("cc-" IDS "-09"), &context));
    assert_true(context.is_sampled);
    assert_true(trace_context_read(bytes_str("cc-" IDS "-01-more"), &context));
}

static void bad_ones_are_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "00-" IDS,
                                      "00-" IDS "-1",
                                      "00-" IDS "-0x",
                                      "00-" IDS "-01x",
                                      "00-" IDS "-01-more",
                                      "ff-" IDS "-01",
                                      "0G-" IDS "-01",
                                      "cc-" IDS "-01.more",
                                      "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
                                      "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                                      "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
                                      "00 4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"};
    struct trace_context context = {.is_sampled = true};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(trace_context_read(bytes_str(bad[i]), &context));
    assert_true(context.is_sampled && !context.is_known); /* unchanged */
}

static void a_ratio_is_kept(void **state)
{
    unsigned n = 0;

    (void)state;
    for (unsigned i = 0; i < 4000; i++) {
        struct trace_context context;

        trace_context_begin(0.25, &context);
        assert_true(context.is_known);
        n += context.is_sampled;
        assert_true(trace_context_is_chosen(context.trace_id, 1));
        assert_false(trace_context_is_chosen(context.trace_id, 0));
        assert_int_equal(context.is_sampled, trace_context_is_chosen(context.trace_id, 0.25));
    }
    assert_in_range(n, 800, 1200); /* seven standard deviations */
}

static void span_ids_differ(void **state)
{
    uint8_t a[SPAN_ID_BYTES], b[SPAN_ID_BYTES];

    (void)state;
    trace_span_id_make(a);
    trace_span_id_make(b);
    assert_memory_not_equal(a, b, SPAN_ID_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_ones_are_read),
        cmocka_unit_test(bad_ones_are_refused),
        cmocka_unit_test(a_ratio_is_kept),
        cmocka_unit_test(span_ids_differ),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
