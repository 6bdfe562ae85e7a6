/* SPDX-License-Identifier: Apache-2.0 */
/* Spans and their bounded queue. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/span.h"
#include "base/str.h"

static struct span some_span(void)
{
    struct trace_context context;
    struct span span;

    trace_context_begin(1, &context);
    span_begin(&span, &context, "chat model", 5);
    return span;
}

static void texts_are_cut_to_whole_characters(void **state)
{
    struct span span = some_span();
    char text[2 * SPAN_TEXT_BYTES];

    (void)state;
    memset(text, 'x', sizeof(text));
    memcpy(text + SPAN_TEXT_BYTES - 2, "\xc3\xa9", 2); /* its second byte finds no room */
    text[sizeof(text) - 1] = '\0';
    span_add_text(&span, "key", text);
    assert_int_equal(strlen(span.attributes[0].as.text), SPAN_TEXT_BYTES - 2);
    span_add_text(&span, "key", "");
    assert_int_equal(span.n_attributes, 1);
}

static void attributes_are_bounded(void **state)
{
    struct span span = some_span();

    (void)state;
    for (unsigned i = 0; i < 3 * SPAN_MAX_ATTRIBUTES; i++)
        span_add_count(&span, "key", i);
    span_add_flag(&span, "key", true);
    span_add_real(&span, "key", 1);
    span_add_list(&span, "key", "text");
    assert_int_equal(span.n_attributes, SPAN_MAX_ATTRIBUTES);
}

static void a_full_queue_drops_and_counts(void **state)
{
    struct span span = some_span(), *taken;
    struct span_queue *queue;
    unsigned n = 0;

    (void)state;
    assert_int_equal(span_queue_new(&queue), 0);
    for (unsigned i = 0; i < SPAN_QUEUE_SPANS + 7; i++)
        span_queue_put(queue, &span);
    assert_int_equal(span_queue_n_dropped(queue), 7);
    while ((taken = span_queue_take(queue)) != NULL) {
        assert_string_equal(taken->name, "chat model");
        free(taken);
        n++;
    }
    assert_int_equal(n, SPAN_QUEUE_SPANS);
    span_queue_put(queue, &span); /* freed with the queue */
    span_queue_free(queue);
    span_queue_put(NULL, &span);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_cut_to_whole_characters),
        cmocka_unit_test(attributes_are_bounded),
        cmocka_unit_test(a_full_queue_drops_and_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
