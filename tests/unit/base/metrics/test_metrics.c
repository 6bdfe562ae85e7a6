/* SPDX-License-Identifier: Apache-2.0 */
/* Values, their text, limits on series, and many threads at once. */
#include "tests/unit/check.h"

#include "base/err.h"
#include "base/str.h"
#include "base/metrics/metrics.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int open_metrics(void **state)
{
    return metrics_new((struct metrics **)state);
}

static int close_metrics(void **state)
{
    metrics_free(*state);
    return 0;
}

static void check_text(const struct metrics *metrics, const char *expected)
{
    struct buf out = {0};

    assert_int_equal(metrics_render(metrics, &out), 0);
    assert_string_equal(out.len_bytes == 0 ? "" : (char *)out.data, expected);
    buf_fini(&out);
}

static void text_is_sorted_and_escaped(void **state)
{
    struct metrics *metrics = *state;
    struct metric_family *z, *a;

    check_text(metrics, "");
    z = metric_family(metrics, METRIC_COUNTER, "z_total", "Back\\slash\nand \"line\".", "model role");
    a = metric_family(metrics, METRIC_GAUGE, "vllm:a", "A.", "");
    metric_family(metrics, METRIC_GAUGE, "unused", "No series, no line.", "");
    metric_add(metric_series(z, (const char *[]){"m2", "x"}), 2);
    metric_add(metric_series(z, (const char *[]){"a\\b\"c\nd\xff", ""}), 1e15);
    metric_add(metric_series(z, (const char *[]){"m2", "x"}), 0.5);
    metric_set(metric_series(a, NULL), -3);
    check_text(metrics, "# HELP vllm:a A.\n# TYPE vllm:a gauge\nvllm:a -3\n"
                        "# HELP z_total Back\\\\slash\\nand \"line\".\n# TYPE z_total counter\n"
                        "z_total{model=\"a\\\\b\\\"c\\nd\xef\xbf\xbd\",role=\"\"} 1000000000000000\n"
                        "z_total{model=\"m2\",role=\"x\"} 2.5\n");
    metric_set(metric_series(a, NULL), INFINITY);
    assert_true(isinf(metric_value(metric_series(a, NULL))));
}

static void a_second_name_shows_the_same_series(void **state)
{
    struct metrics *metrics = *state;
    const double bounds[] = {1};
    struct metric_family *family, *seconds;

    family = metric_family(metrics, METRIC_COUNTER, "a_total", "A.", "model");
    seconds = metric_histogram_family(metrics, "a_seconds", "S.", "", (struct metric_bounds){bounds, 1});
    for (unsigned i = 0; i < 2; i++) { /* declared again, as several loops do */
        metric_family_alias(metrics, family, "b:a_total", "Same as a_total.", "model_name");
        metric_family_alias(metrics, family, "b:c_total", "A, too.", "model_name");
        metric_family_alias(metrics, seconds, "b:seconds", "Same as a_seconds.", "");
    }
    metric_family_alias(metrics, NULL, "b:none", "Without memory.", "");
    check_text(metrics, "");
    metric_add(metric_series(family, (const char *[]){"m"}), 2);
    metric_observe(metric_series(seconds, NULL), 0.5);
    check_text(metrics, "# HELP a_seconds S.\n# TYPE a_seconds histogram\n"
                        "a_seconds_bucket{le=\"1\"} 1\na_seconds_bucket{le=\"+Inf\"} 1\n"
                        "a_seconds_sum 0.5\na_seconds_count 1\n"
                        "# HELP a_total A.\n# TYPE a_total counter\na_total{model=\"m\"} 2\n"
                        "# HELP b:a_total Same as a_total.\n# TYPE b:a_total counter\n"
                        "b:a_total{model_name=\"m\"} 2\n"
                        "# HELP b:c_total A, too.\n# TYPE b:c_total counter\n"
                        "b:c_total{model_name=\"m\"} 2\n"
                        "# HELP b:seconds Same as a_seconds.\n# TYPE b:seconds histogram\n"
                        "b:seconds_bucket{le=\"1\"} 1\nb:seconds_bucket{le=\"+Inf\"} 1\n"
                        "b:seconds_sum 0.5\nb:seconds_count 1\n");
}

static void the_same_is_found_again(void **state)
{
    struct metrics *metrics = *state;
    struct metric_family *family = metric_family(metrics, METRIC_COUNTER, "x_total", "X.", "a");
    const char *bad[] = {"\xc3"};

    assert_ptr_equal(metric_family(metrics, METRIC_COUNTER, "x_total", "X.", "a"), family);
    assert_ptr_equal(metric_series(family, (const char *[]){"1"}),
                     metric_series(family, (const char *[]){"1"}));
    assert_ptr_not_equal(metric_series(family, (const char *[]){"1"}),
                         metric_series(family, (const char *[]){"2"}));
    /* The text is mended, then found. */
    assert_ptr_equal(metric_series(family, bad), metric_series(family, bad));
}

static void counters_do_not_fall(void **state)
{
    struct metric *metric = metric_single(*state, METRIC_COUNTER, "x_total", "X.");

    metric_add(metric, 3);
    metric_add(metric, -1);
    metric_add(metric, NAN);
    assert_true(metric_value(metric) == 3);
}

static void too_many_series_become_other(void **state)
{
    struct metric_family *family = metric_family(*state, METRIC_GAUGE, "x", "X.", "tenant");
    struct metric *other = NULL;
    struct buf out = {0};
    char name[16];

    for (int i = 0; i < METRIC_MAX_SERIES + 50; i++) {
        const char *values[] = {name};

        snprintf(name, sizeof(name), "t%d", i);
        struct metric *metric = metric_series(family, values);
        if (i == METRIC_MAX_SERIES)
            other = metric;
        if (i >= METRIC_MAX_SERIES)
            assert_ptr_equal(metric, other);
        metric_add(metric, 1);
    }
    assert_true(metric_value(other) == 50);
    assert_ptr_equal(metric_series(family, (const char *[]){"other"}), other);
    metrics_render(*state, &out);
    assert_int_not_equal(bytes_find(buf_view(&out), bytes_str("x{tenant=\"other\"} 50\n"), 0), SIZE_MAX);
    assert_int_equal(bytes_find(buf_view(&out), bytes_str("t256"), 0), SIZE_MAX);
    buf_fini(&out);
}

static void histograms_count_and_estimate(void **state)
{
    const double bounds[] = {1, 2, 4};
    struct metric *metric = metric_series(
        metric_histogram_family(*state, "h_seconds", "H.", "", (struct metric_bounds){bounds, 3}), NULL);

    assert_true(metric_quantile(metric, 0.5) == 0);
    metric_observe(metric, 1); /* a bucket includes its upper bound */
    metric_observe(metric, 1.5);
    metric_observe(metric, 2.5);
    metric_observe(metric, 100);
    metric_observe(metric, NAN);
    metric_observe(metric, INFINITY);
    assert_int_equal(metric_count(metric), 4);
    assert_true(metric_value(metric) == 105);
    check_text(*state,
               "# HELP h_seconds H.\n# TYPE h_seconds histogram\n"
               "h_seconds_bucket{le=\"1\"} 1\nh_seconds_bucket{le=\"2\"} 2\nh_seconds_bucket{le=\"4\"} 3\n"
               "h_seconds_bucket{le=\"+Inf\"} 4\nh_seconds_sum 105\nh_seconds_count 4\n");
    assert_true(metric_quantile(metric, 0) == 0);
    assert_true(metric_quantile(metric, 0.25) == 1);
    assert_true(metric_quantile(metric, 0.5) == 2);
    assert_true(metric_quantile(metric, 0.625) == 3); /* half way into 2..4 */
    assert_true(metric_quantile(metric, 1) == 4);
}

static void bounds_are_those_of_the_conventions(void **state)
{
    assert_true(metric_ttft_bounds_s.upper[0] == 0.001 &&
                metric_ttft_bounds_s.upper[metric_ttft_bounds_s.n - 1] == 160);
    assert_true(metric_itl_bounds_s.upper[metric_itl_bounds_s.n - 1] == 2.5);
    metric_histogram_family(*state, "a", "A.", "", metric_ttft_bounds_s);
    metric_histogram_family(*state, "b", "B.", "", metric_itl_bounds_s);
}

static void want_of_memory_gives_a_dummy(void **state)
{
    struct metric *dummy = metric_series(NULL, NULL);

    metric_add(dummy, 1);
    metric_set(dummy, 1);
    metric_observe(dummy, 1);
    assert_int_equal(metric_count(dummy), 0);
    assert_true(metric_quantile(dummy, 0.5) == 0);
}

static void process_facts_are_plausible(void **state)
{
    metrics_read_process(*state);
    metrics_read_process(*state);
    assert_true(metric_value(metric_single(*state, METRIC_GAUGE, "process_open_fds", "")) >= 3);
    assert_true(metric_value(metric_single(*state, METRIC_GAUGE, "process_resident_memory_bytes", "")) >
                100000);
    assert_true(metric_value(metric_single(*state, METRIC_GAUGE, "process_start_time_seconds", "")) > 1.7e9);
}

static void *hammer(void *arg)
{
    static const double bounds[] = {10, 100};
    struct metrics *metrics = arg;

    for (int i = 0; i < 4000; i++) {
        char name[32];

        snprintf(name, sizeof(name), "f%d_total", i % 7);
        struct metric_family *family = metric_family(metrics, METRIC_COUNTER, name, "F.", "k");
        snprintf(name, sizeof(name), "%d", i % 11);
        metric_add(metric_series(family, (const char *[]){name}), 1);
        family = metric_histogram_family(metrics, "h", "H.", "", (struct metric_bounds){bounds, 2});
        metric_observe(metric_series(family, NULL), i % 200);
        if (i % 1000 == 0) {
            struct buf out = {0};

            metrics_render(metrics, &out);
            buf_fini(&out);
        }
    }
    return NULL;
}

static void threads_lose_nothing(void **state)
{
    struct metrics *metrics = *state;
    pthread_t threads[4];
    double sum = 0;

    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hammer, metrics), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int f = 0; f < 7; f++)
        for (int k = 0; k < 11; k++) {
            char name[32], value[8];

            snprintf(name, sizeof(name), "f%d_total", f);
            snprintf(value, sizeof(value), "%d", k);
            sum += metric_value(metric_series(metric_family(metrics, METRIC_COUNTER, name, "F.", "k"),
                                              (const char *[]){value}));
        }
    assert_true(sum == 16000);
    const double bounds[] = {10, 100};
    struct metric *h = metric_series(
        metric_histogram_family(metrics, "h", "H.", "", (struct metric_bounds){bounds, 2}), NULL);
    assert_int_equal(metric_count(h), 16000);
    assert_true(metric_value(h) == 16000 * 99.5);
}

static void openmetrics_has_exemplars(void **state)
{
    struct metrics *metrics = *state;
    const double bounds[] = {1, 10};
    const uint8_t trace_id[TRACE_ID_BYTES] = {0x4b, [15] = 0x36};
    struct metric *h = metric_series(
        metric_histogram_family(metrics, "h", "H \"q\".", "", (struct metric_bounds){bounds, 2}), NULL);
    struct buf out = {0};

    metric_add(metric_single(metrics, METRIC_COUNTER, "c_total", "C."), 2);
    metric_add(metric_single(metrics, METRIC_COUNTER, "odd", "O."), 1);
    metric_observe(h, 0.5);
    metric_observe_traced(h, 5, trace_id);
    metric_observe_traced(h, NAN, trace_id);
    assert_int_equal(metrics_render_as(metrics, METRICS_OPENMETRICS, &out), 0);
    const char *text = (const char *)out.data;
    assert_non_null(strstr(text, "# HELP c C.\n# TYPE c counter\nc_total 2\n"));
    assert_non_null(strstr(text, "# TYPE odd unknown\nodd 1\n"));
    assert_non_null(strstr(text, "# HELP h H \\\"q\\\".\n"));
    assert_non_null(strstr(text, "h_bucket{le=\"1\"} 1\nh_bucket{le=\"10\"} 2 # "
                                 "{trace_id=\"4b000000000000000000000000000036\"} 5 "));
    assert_string_equal(text + out.len_bytes - 6, "# EOF\n");
    buf_fini(&out);
    check_text(metrics, "# HELP c_total C.\n# TYPE c_total counter\nc_total 2\n"
                        "# HELP h H \"q\".\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"10\"} 2\n"
                        "h_bucket{le=\"+Inf\"} 2\nh_sum 5.5\nh_count 2\n"
                        "# HELP odd O.\n# TYPE odd counter\nodd 1\n");
    assert_int_equal(metrics_format_wanted(bytes_str("text/plain")), METRICS_PROMETHEUS);
    assert_int_equal(
        metrics_format_wanted(bytes_str("application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1")),
        METRICS_OPENMETRICS);
}

static void names_are_chosen(void **state)
{
    struct metrics *metrics = *state;

    metric_set(metric_single(metrics, METRIC_GAUGE, "baton_a", "A."), 1);
    metric_set(metric_single(metrics, METRIC_GAUGE, "process_b", "B."), 1);
    metric_set(metric_single(metrics, METRIC_GAUGE, "vllm:c", "C."), 1);
    metrics_set_names(metrics, METRICS_NAMES_BATON);
    check_text(metrics, "# HELP baton_a A.\n# TYPE baton_a gauge\nbaton_a 1\n"
                        "# HELP process_b B.\n# TYPE process_b gauge\nprocess_b 1\n");
    metrics_set_names(metrics, METRICS_NAMES_VLLM);
    check_text(metrics, "# HELP process_b B.\n# TYPE process_b gauge\nprocess_b 1\n"
                        "# HELP vllm:c C.\n# TYPE vllm:c gauge\nvllm:c 1\n");
}

#define METRICS_TEST(name) cmocka_unit_test_setup_teardown(name, open_metrics, close_metrics)

int main(void)
{
    const struct CMUnitTest tests[] = {
        METRICS_TEST(text_is_sorted_and_escaped),
        METRICS_TEST(the_same_is_found_again),
        METRICS_TEST(a_second_name_shows_the_same_series),
        METRICS_TEST(the_same_is_found_again),
        METRICS_TEST(counters_do_not_fall),
        METRICS_TEST(too_many_series_become_other),
        METRICS_TEST(histograms_count_and_estimate),
        METRICS_TEST(bounds_are_those_of_the_conventions),
        METRICS_TEST(want_of_memory_gives_a_dummy),
        METRICS_TEST(process_facts_are_plausible),
        METRICS_TEST(threads_lose_nothing),
        METRICS_TEST(openmetrics_has_exemplars),
        METRICS_TEST(names_are_chosen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
