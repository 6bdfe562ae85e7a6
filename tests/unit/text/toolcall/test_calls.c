/* SPDX-License-Identifier: Apache-2.0 */
/* The splitter: for every split of the text the same text and calls come out, and arguments are always a
 * prefix of JSON. */
#include "text/toolcall/calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"
#include "calls_sink.h"

static const struct calls_opts hermes = {.format = CALLS_HERMES};

#define CALL(name, arguments)                                                                                \
    "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"

static const struct {
    const char *text;
    bool is_cut;
    const char *out;
} answers[] = {
    {"hello", false, "hello"},
    {"  hello \n", false, "  hello \n"},
    {" \n", false, " \n"},
    {"a < b <tool and <tool_cal", false, "a < b <tool and <tool_cal"},
    {CALL("f", "{\"a\": 1}"), false, "[f:{\"a\": 1}]"},
    {"Let me see.\n" CALL("f", "{}"), false, "Let me see.\n[f:{}]"},
    {"\n" CALL("f", "{}") "\n" CALL("g", "{\"x\": \"</tool_call>\"}") "\n", false,
     "[f:{}][g:{\"x\": \"</tool_call>\"}]"},
    {CALL("f", "{}") "\n\nDone.", false, "[f:{}]Done."},
    {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":{\"b\":[1,\"}\"]}}}</tool_call>", false,
     "[f:{\"a\":{\"b\":[1,\"}\"]}}]"},
    /* the model omitted the marker, or the outer brace */
    {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}", false, "[f:{\"a\": 1}]"},
    {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}</tool_call>x", false, "[f:{\"a\": 1}]x"},
    {"<tool_call>{\"name\": \"f\", \"arguments\": {}}\nThen text", false, "[f:{}]Then text"},
    {"<tool_call>{\"name\": \"f\", \"arguments\": {}, \"id\": 1}</tool_call>x", false, "[f:{}]x"},
    /* unusual forms are parsed as a whole */
    {"<tool_call>{\"arguments\": {\"a\":1}, \"name\": \"f\"}</tool_call>", false, "[f:{\"a\": 1}]"},
    {"<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>", false, "[f:{\"a\": 1}]"},
    {"<tool_call>{\"name\": \"f\", \"parameters\": {\"a\": 1}}</tool_call>", false, "[f:{\"a\": 1}]"},
    {"<tool_call>{\"name\": \"f\\u0061\", \"arguments\": {}}</tool_call>", false, "[fa:{}]"},
    /* line ends in strings are corrected */
    {CALL("f", "{\"a\": \"x\ny\tz\"}"), false, "[f:{\"a\": \"x\\u000ay\\u0009z\"}]"},
    /* text that is not a call stays text */
    {"<tool_call>nonsense</tool_call> more", false, "<tool_call>nonsense</tool_call> more"},
    {"<tool_call>{\"name\": \"f\"}</tool_call>", false, "<tool_call>{\"name\": \"f\"}</tool_call>"},
    {"<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>", false,
     "<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>"},
    {"<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>", false,
     "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>"},
    {"<tool_call>{\"name\": \"f\", \"argum", false, "<tool_call>{\"name\": \"f\", \"argum"},
    {"<tool_call>", false, "<tool_call>"},
    /* broken in the middle */
    {CALL("f", "{\"a\": oops}") "x", false, "[f:{\"a\": ?]" CALL("f", "{\"a\": oops}") "x"},
    /* cut */
    {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"xy", true, "[f:{\"a\": \"xy!]"},
    {"<tool_call>{\"name\": \"f\", \"argum", true, ""},
    {"text <tool_c", true, "text <tool_c"},
    /* ended in the middle, but not by a limit */
    {"a <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"xy", false,
     "a [f:{\"a\": \"xy?]<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"xy"},
    {"\xc3\xa9 " CALL("f", "{\"\xc3\xa9\": \"\xe2\x82\xac\"}"), false,
     "\xc3\xa9 [f:{\"\xc3\xa9\": \"\xe2\x82\xac\"}]"},
};

static void answers_split_the_same_in_any_pieces(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        for (size_t piece = 1; piece <= strlen(answers[i].text); piece++) {
            struct calls_sink sink = {0};

            calls_sink_run(&sink, &hermes, bytes_str(answers[i].text), piece, answers[i].is_cut);
            if (!bytes_is(buf_view(&sink.out), answers[i].out))
                fail_msg("answer %zu in pieces of %zu: %s", i, piece, (const char *)sink.out.data);
            buf_fini(&sink.out);
        }
    }
}

static void arguments_stream(void **state)
{
    struct calls_sink sink = {0};

    calls_sink_run(&sink, &hermes,
                   bytes_str(CALL("write", "{\"text\": \"0123456789012345678901234567890123456789\"}")), 4,
                   false);
    assert_true(sink.n_argument_pieces >= 10);
    buf_fini(&sink.out);
}

static void a_callback_can_end_it(void **state)
{
    struct calls_sink sink = {.stop_at_end = E_CANCELLED};
    struct calls *calls;

    assert_int_equal(calls_new(&hermes, &calls_sink_events, &sink, &calls), 0);
    assert_int_equal(calls_feed(calls, bytes_str(CALL("f", "{}") CALL("g", "{}"))), E_CANCELLED);
    assert_true(bytes_is(buf_view(&sink.out), "[f:{}]"));
    calls_free(calls);
    buf_fini(&sink.out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_split_the_same_in_any_pieces),
        cmocka_unit_test(arguments_stream),
        cmocka_unit_test(a_callback_can_end_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
