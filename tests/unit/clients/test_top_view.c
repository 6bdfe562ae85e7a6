/* SPDX-License-Identifier: Apache-2.0 */
/* Pools and history of batonctl top. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "clients/ctl/top_recent.h"
#include "clients/ctl/top_view.h"

static struct bytes status_of(char *text, size_t cap, unsigned handed_off)
{
    snprintf(text, cap,
             "{\"daemon\": \"baton-router\", \"queued\": 2, \"handed_off\": %u, \"local\": 5, \"workers\": ["
             "{\"role\": \"prefill\", \"usable\": true, \"running\": 3, \"waiting\": 1, "
             "\"queued_prefill_tokens\": 700, "
             "\"blocks_free\": 25, \"blocks_total\": 100}, {\"role\": \"prefill\", \"usable\": false}]}",
             handed_off);
    return bytes_str(text);
}

static void counters_become_rates(void **state)
{
    struct top_history history = {.n = 0};
    char text[600];

    (void)state;
    assert_true(top_history_take(&history, status_of(text, sizeof(text), 10), 0));
    assert_true(history.values[TOP_HANDED_OFF][TOP_LOOKS - 1] == 0);
    assert_true(top_history_take(&history, status_of(text, sizeof(text), 30), 2));
    assert_true(history.values[TOP_HANDED_OFF][TOP_LOOKS - 1] == 10);
    assert_true(history.values[TOP_PLACED][TOP_LOOKS - 1] == 10);
    assert_true(history.values[TOP_RUNNING][TOP_LOOKS - 1] == 3);
    assert_true(history.values[TOP_WAITING][TOP_LOOKS - 1] == 3);
    assert_true(top_history_take(&history, status_of(text, sizeof(text), 0), 1)); /* it restarted */
    assert_true(history.values[TOP_PLACED][TOP_LOOKS - 1] == 0);
    assert_false(top_history_take(&history, bytes_str("{\"daemon\": \"baton-decode\"}"), 1));
    assert_false(top_history_take(&history, bytes_str("x"), 1));
    for (unsigned i = 0; i < 2 * TOP_LOOKS; i++)
        assert_true(top_history_take(&history, status_of(text, sizeof(text), 40), 1));
    assert_int_equal(history.n, TOP_LOOKS);
}

static void pools_and_bars_fit(void **state)
{
    struct top_history history = {.n = 0};
    const double values[] = {0, 1, 4, 8};
    struct buf out = {0};
    char text[600];

    (void)state;
    for (unsigned i = 0; i < TOP_LOOKS; i++)
        (void)top_history_take(&history, status_of(text, sizeof(text), 1000000 * i), 1);
    assert_int_equal(top_view_render(&history, bytes_str(text), false, &out), 0);
    assert_non_null(strstr((const char *)out.data, "prefill    1 of   2 up"));
    assert_non_null(strstr((const char *)out.data, "KV  75%"));
    for (const char *line = (const char *)out.data; *line != '\0'; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 80);
    buf_clear(&out);
    top_put_bars(values, 4, false, &out);
    assert_string_equal((const char *)out.data, " .-#");
    buf_clear(&out);
    top_put_bars(values, 4, true, &out);
    assert_string_equal((const char *)out.data, " \u2581\u2584\u2588");
    buf_clear(&out);
    assert_int_equal(top_view_render(&history, bytes_str("{}"), true, &out), 0);
    assert_int_equal(out.len_bytes, 0);
    buf_fini(&out);
}

/* Eighty columns and six lines, also with long names; the most frequent row first. */
static void recent_placements_fit(void **state)
{
    struct buf json = {0}, out = {0};
    unsigned n_lines = 0;

    (void)state;
    buf_append_str(&json, "{\"total\": 70, \"placements\": [");
    for (unsigned i = 0; i < 64; i++)
        buf_printf(&json,
                   "%s{\"class\": \"%s\", \"refused\": \"%s\", \"prefix\": \"%08x\", \"over\": true, "
                   "\"prompt_tokens\": 100, \"uncached_tokens\": %u, \"first_ms\": %u, \"ttft_slo_ms\": 50}",
                   i > 0 ? ", " : "",
                   i % 4 == 0   ? "a-class-with-a-name-of-31-chars"
                   : i % 4 == 1 ? "b\\u001b[2J"
                                : "default",
                   i == 63 ? "late" : "", i % 16 == 0 ? i : 0xabc, i % 16 == 0 ? 100 : 25,
                   i % 2 == 0 ? 40 : 60);
    buf_append_str(&json, "]}");
    assert_int_equal(top_recent_render(buf_view(&json), &out), 0);
    buf_append_byte(&out, '\0');
    for (const char *line = (const char *)out.data; *line != '\0'; line += strcspn(line, "\n") + 1, n_lines++)
        assert_true(strcspn(line, "\n") <= 80);
    assert_int_equal(n_lines, 6);
    assert_null(strchr((const char *)out.data, '\033'));
    assert_non_null(strstr((const char *)out.data, "default               32     50%"));
    assert_non_null(strstr((const char *)out.data, "00000abc       60        98      75%"));
    buf_clear(&out);
    assert_int_equal(top_recent_render(bytes_str("{\"placements\": []}"), &out), 0);
    assert_int_equal(top_recent_render(bytes_str("[1, {"), &out), 0);
    assert_int_equal(out.len_bytes, 0);
    buf_fini(&json);
    buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_become_rates),
        cmocka_unit_test(pools_and_bars_fit),
        cmocka_unit_test(recent_placements_fit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
