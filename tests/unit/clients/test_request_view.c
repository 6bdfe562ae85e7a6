/* SPDX-License-Identifier: Apache-2.0 */
/* batonctl why and trace show a router's report of a request, also an odd or damaged one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "clients/ctl/request_view.h"

static const char placed[] =
    "{\"request\": \"req_1\", \"decisions\": [{\"attempt\": 1, \"when\": \"2026-01-01T00:00:00Z\", "
    "\"model\": \"m\", "
    "\"class\": \"default\", \"refused\": \"\", \"error\": \"\", \"over\": true, \"prompt_tokens\": 9, "
    "\"waited_ms\": 2, "
    "\"submitted_us\": 100, \"decided_us\": 2100, \"first_us\": 5000, \"ended_us\": 10000, \"answered\": 3, "
    "\"workers\": [{\"node\": \"d\", \"role\": \"decode\", \"submit_us\": 2200, \"transfer_began_us\": 1000, "
    "\"transfer_ended_us\": 2000, \"first_us\": 2500, \"ended_us\": 7000}], \"candidates\": ["
    "{\"node\": \"slow\", \"role\": \"decode\", \"chosen\": false, \"why_not\": \"\", \"cost_ms\": 9},"
    "{\"node\": \"gone\", \"role\": \"decode\", \"chosen\": false, \"why_not\": \"its link is down\"},"
    "{\"node\": \"d\\u001b[2J\", \"role\": \"decode\", \"chosen\": true, \"why_not\": \"\", \"cost_ms\": 99},"
    "{\"node\": \"p\", \"role\": \"prefill\", \"chosen\": true, \"why_not\": \"\", \"cost_ms\": 5}]}]}";

static void candidates_are_in_order(void **state)
{
    struct buf out = {0};
    const char *text, *p, *d, *slow, *gone;

    (void)state;
    assert_int_equal(request_view_why(bytes_str(placed), &out), 0);
    text = (const char *)out.data;
    p = strstr(text, "> p ");
    d = strstr(text, "> d?[2J");
    slow = strstr(text, "  slow");
    gone = strstr(text, "  gone");
    assert_true(p != NULL && d != NULL && slow != NULL && gone != NULL);
    assert_true(p < d && d < slow && slow < gone);
    assert_non_null(strstr(text, "its link is down"));
    assert_non_null(strstr(text, "it waited 2 ms"));
    assert_null(strchr(text, '\033'));
    buf_fini(&out);
}

static void reads_are_named(void **state)
{
    static const char *const more[] = {
        "\"reads_store\": true, \"read_tokens\": 1216, \"uncached_tokens\": 40, \"prompt_tokens\": 1320",
        "\"reads_store\": false, \"read_tokens\": 32, \"uncached_tokens\": 8, \"prompt_tokens\": 40",
        "\"reads_store\": true, \"read_tokens\": 0, \"uncached_tokens\": 40, \"prompt_tokens\": 40",
        "\"reads_store\": true, \"read_tokens\": 9, \"uncached_tokens\": 40, \"prompt_tokens\": 40",
    };
    static const char *const lines[] = {
        "  tokens 65 to 1280 of the prompt are read from the shared store, in 12.5 ms\n",
        "  tokens 1 to 32 of the prompt are read from its disk, in 12.5 ms\n", NULL, NULL};

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        struct buf json = {0}, out = {0};

        buf_printf(&json, "{\"decisions\": [{\"read_ms\": 12.5, %s}]}", more[i]);
        assert_int_equal(request_view_why(buf_view(&json), &out), 0);
        if (lines[i] != NULL)
            assert_non_null(strstr((const char *)out.data, lines[i]));
        else
            assert_null(strstr((const char *)out.data, "of the prompt are read"));
        assert_int_equal(strstr((const char *)out.data, "to read from the store") != NULL, i != 1);
        buf_fini(&json);
        buf_fini(&out);
    }
}

static void bars_have_one_scale(void **state)
{
    struct buf out = {0};
    const char *text;

    (void)state;
    assert_int_equal(request_view_trace(bytes_str(placed), &out), 0);
    text = (const char *)out.data;
    assert_non_null(strstr(text, "router         queue                2.00 ms |"));
    assert_non_null(strstr(text, "d              KV receive           1.00 ms |"));
    assert_non_null(strstr(text, "d              decode tokens        4.50 ms |"));
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 80);
    buf_fini(&out);
}

static void any_json_is_survived(void **state)
{
    static const char *const bad[] = {"", "[]", "{}", "{\"decisions\": []}", "{\"decisions\": 7}"};
    static const char *const odd[] = {
        "{\"decisions\": [7]}",
        "{\"decisions\": [{\"candidates\": [1, {\"cost_ms\": \"x\"}], \"workers\": [{}, 2]}]}",
        "{\"decisions\": [{\"attempt\": -5, \"ended_us\": -1, \"submitted_us\": 9223372036854775807, "
        "\"workers\": "
        "[{\"submit_us\": 9223372036854775807, \"admitted_us\": 9223372036854775807, \"first_us\": "
        "9223372036854775807}]}]}"};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct buf out = {0};

        assert_int_equal(request_view_why(bytes_str(bad[i]), &out), E_FORMAT);
        assert_int_equal(request_view_trace(bytes_str(bad[i]), &out), E_FORMAT);
        buf_fini(&out);
    }
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        struct buf out = {0};

        assert_int_equal(request_view_why(bytes_str(odd[i]), &out), 0);
        assert_int_equal(request_view_trace(bytes_str(odd[i]), &out), 0);
        buf_fini(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(candidates_are_in_order),
        cmocka_unit_test(reads_are_named),
        cmocka_unit_test(bars_have_one_scale),
        cmocka_unit_test(any_json_is_survived),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
