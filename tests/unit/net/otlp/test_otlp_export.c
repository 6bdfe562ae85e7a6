/* SPDX-License-Identifier: Apache-2.0 */
/* The exporter against collectors that take spans, refuse them, or are not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "net/otlp/otlp_export.h"
#include "tests/unit/net/http/script.h"

#define PATIENCE_NS (60 * NS_PER_S)

struct otlp_rig {
    struct script script;
    struct metrics *metrics;
    struct otlp_exporter *exporter;
};

static void rig_open(struct otlp_rig *rig, const char *answer)
{
    char url[64];
    struct otlp_opts opts = {.url = url, .source = {.service = "baton-test", .node = "n", .version = "1"}};

    rig->script.lines[0] = (struct line){.answer = answer, .after = STAY};
    for (unsigned i = 1; i < 8; i++)
        rig->script.lines[i] = rig->script.lines[0];
    script_listen(&rig->script);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u", rig->script.port);
    assert_int_equal(metrics_new(&rig->metrics), 0);
    opts.metrics = rig->metrics;
    assert_int_equal(otlp_exporter_new(&opts, NULL, &rig->exporter), 0);
}

static void rig_put(const struct otlp_rig *rig, unsigned n)
{
    struct trace_context context;
    struct span span;

    trace_context_begin(1, &context);
    span_begin(&span, &context, "chat m", clock_now_ns());
    for (unsigned i = 0; i < n; i++)
        span_queue_put(otlp_exporter_queue(rig->exporter), &span);
}

static double rig_value(const struct otlp_rig *rig, const char *reason)
{
    struct metric_family *dropped =
        metric_family(rig->metrics, METRIC_COUNTER, "baton_trace_spans_dropped_total", "", "reason");

    return reason != NULL ? metric_value(metric_series(dropped, &reason))
                          : metric_value(metric_single(rig->metrics, METRIC_COUNTER,
                                                       "baton_trace_spans_sent_total", ""));
}

static void rig_await(const struct otlp_rig *rig, const char *reason, double value)
{
    uint64_t began_ns = clock_now_ns();

    while (rig_value(rig, reason) < value && clock_now_ns() - began_ns < PATIENCE_NS)
        clock_sleep_ns(10 * NS_PER_MS);
    assert_true(rig_value(rig, reason) == value);
}

static void rig_close(struct otlp_rig *rig)
{
    otlp_exporter_free(rig->exporter);
    metrics_free(rig->metrics);
}

static void spans_arrive(void **state)
{
    struct otlp_rig rig = {0};

    (void)state;
    rig_open(&rig, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    script_serve(&rig.script);
    rig_put(&rig, 2);
    rig_await(&rig, NULL, 2);
    assert_non_null(strstr(rig.script.request, "POST /v1/traces HTTP/1.1\r\n"));
    assert_non_null(strstr(rig.script.request, "content-type: application/x-protobuf\r\n"));
    rig_put(&rig, 1); /* sent before the exporter ends */
    otlp_exporter_free(rig.exporter);
    rig.exporter = NULL;
    assert_true(rig_value(&rig, NULL) == 3);
    script_end(&rig.script);
    rig_close(&rig);
}

static void refused_spans_are_counted(void **state)
{
    struct otlp_rig rig = {0};

    (void)state;
    rig_open(&rig, "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n\x0a\x02\x08\x01");
    script_serve(&rig.script);
    rig_put(&rig, 2);
    rig_await(&rig, NULL, 1);
    rig_await(&rig, "rejected", 1);
    otlp_exporter_free(rig.exporter);
    rig.exporter = NULL;
    script_end(&rig.script);
    rig_close(&rig);
}

static void a_refused_batch_is_not_sent_again(void **state)
{
    struct otlp_rig rig = {0};

    (void)state;
    rig_open(&rig, "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
    script_serve(&rig.script);
    rig_put(&rig, 3);
    rig_await(&rig, "failed", 3);
    assert_int_equal(rig.script.at, 1);
    otlp_exporter_free(rig.exporter);
    rig.exporter = NULL;
    script_end(&rig.script);
    rig_close(&rig);
}

/* It listens and never answers: memory stays bounded, puts return at once, and the end does not wait for it. */
static void a_silent_collector_costs_the_queue(void **state)
{
    struct otlp_rig rig = {0};
    uint64_t began_ns;

    (void)state;
    rig_open(&rig, NULL);
    rig_put(&rig, 4 * SPAN_QUEUE_SPANS);
    rig_await(&rig, "queue_full", (double)span_queue_n_dropped(otlp_exporter_queue(rig.exporter)));
    assert_in_range(span_queue_n_dropped(otlp_exporter_queue(rig.exporter)), 2 * SPAN_QUEUE_SPANS,
                    3 * SPAN_QUEUE_SPANS);
    began_ns = clock_now_ns();
    rig_close(&rig);
    assert_true(clock_now_ns() - began_ns < PATIENCE_NS / 4);
}

static void without_an_address_there_is_none(void **state)
{
    struct otlp_opts opts = {.url = ""};
    struct otlp_exporter *exporter;

    (void)state;
    assert_int_equal(otlp_exporter_new(&opts, NULL, &exporter), 0);
    assert_null(exporter);
    assert_null(otlp_exporter_queue(exporter));
    otlp_exporter_free(exporter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_arrive),
        cmocka_unit_test(refused_spans_are_counted),
        cmocka_unit_test(a_refused_batch_is_not_sent_again),
        cmocka_unit_test(a_silent_collector_costs_the_queue),
        cmocka_unit_test(without_an_address_there_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
