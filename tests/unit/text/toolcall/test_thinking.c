/* SPDX-License-Identifier: Apache-2.0 */
/* Marks around thinking that are more than two tokens: every split of the text gives the same result. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "calls_sink.h"

struct thought_case {
    const char *text, *out;
};

static void expect_in_any_pieces(const struct calls_opts *opts, const struct thought_case *one)
{
    for (size_t piece = 0; piece <= strlen(one->text); piece++) {
        struct calls_sink sink = {0};

        calls_sink_run(&sink, opts, bytes_str(one->text), piece, false);
        if (!bytes_is(buf_view(&sink.out), one->out))
            fail_msg("%s in pieces of %zu: %.*s", one->text, piece, (int)sink.out.len_bytes,
                     (const char *)sink.out.data);
        buf_fini(&sink.out);
    }
}

/* Gemma's thinking is a channel with a name. */
static void names_of_thinking_are_left_out(void **state)
{
    static const struct thought_case CASES[] = {
        {"<|channel>thought\nHm, yes.\n<channel|>Hello.", "~Hm, yes.~Hello."},
        {"<|channel>thought\n<channel|>Hello.", "Hello."},
        {"<|channel>thoughtful<channel|>Hello.", "~thoughtful~Hello."},
        {"<|channel>Hm<channel|>a<|channel>thought\nthought\n<channel|>b", "~Hm~a~thought~b"},
        {"<|channel>thought\nno end", "~no end~"},
    };
    const struct calls_opts opts = {.format = CALLS_GEMMA,
                                    .think_open = "<|channel>",
                                    .think_close = "<channel|>",
                                    .think_name = "thought\n"};

    for (size_t i = 0; i < ARRAY_LEN(CASES); i++)
        expect_in_any_pieces(&opts, &CASES[i]);
}

/* Granite 3.2 opens and closes its thinking by sentences, which count only where an answer begins. */
static void sentences_surround_thinking(void **state)
{
    static const struct thought_case CASES[] = {
        {"Here is my thought process:\nHm, yes.\n\nHere is my response:\nHello.", "~Hm, yes.~Hello."},
        {"\n Here is my thought process: a Here is my response: b", "~a~b"},
        {"Here is my response: b", "Here is my response: b"},
        {"So. Here is my thought process: a Here is my response: b",
         "So. Here is my thought process: a Here is my response: b"},
        {"Here is my thought process: a Here is my response: b Here is my thought process: c",
         "~a~b Here is my thought process: c"},
        {"Here is my thought process: a Here is my response:<|tool_call|>[{\"name\": \"f\", \"arguments\": "
         "{}}]",
         "~a~[f:{}]"},
        {"Here is my thought process: no end. Here is my resp", "~no end. Here is my resp~"},
        {"Here is my thought", "Here is my thought"},
        {"Here's my thought process: a\nHere's my response: b", "~a~b"},
        {"Here's my thought process: a Here is my response: b Here's my response: c",
         "~a~b Here's my response: c"},
        {"\nHere is my thought process: a Here's my response:", "~a~"},
        {"So. Here's my thought process: a Here's my response: b",
         "So. Here's my thought process: a Here's my response: b"},
        {"Here's my thought", "Here's my thought"},
        {"Here's one. Here is my thought process:", "Here's one. Here is my thought process:"},
    };
    const struct calls_opts opts = {.format = CALLS_GRANITE,
                                    .think_open = "Here is my thought process:",
                                    .think_close = "Here is my response:",
                                    .think_open_also = "Here's my thought process:",
                                    .think_close_also = "Here's my response:",
                                    .think_is_words = true};

    for (size_t i = 0; i < ARRAY_LEN(CASES); i++)
        expect_in_any_pieces(&opts, &CASES[i]);
}

/* Apriel: the mark that ends thinking opens the answer, which another mark ends. */
static void one_mark_ends_thinking_and_opens_the_answer(void **state)
{
    static const struct thought_case CASES[] = {
        {"Here are my reasoning steps:\nHm.\n[BEGIN FINAL RESPONSE]\nYes.\n[END FINAL RESPONSE]\n",
         "~Hm.~Yes."},
        {"Here are my reasoning steps:\nHm.\n[BEGIN FINAL RESPONSE]\nYes. [END", "~Hm.~Yes. [END"},
        {"[BEGIN FINAL RESPONSE]Yes.[END FINAL RESPONSE]", "Yes."},
        {"Yes. [BEGIN FINAL RESPONSE] No.[END FINAL RESPONSE]",
         "Yes. [BEGIN FINAL RESPONSE] No.[END FINAL RESPONSE]"},
        {"Here are my reasoning steps: a [BEGIN FINAL RESPONSE]\n<tool_calls>[{\"name\": \"f\", "
         "\"arguments\": "
         "{}, \"id\": \"1\"}]</tool_calls>",
         "~a~[f:{}]"},
    };
    const struct calls_opts opts = {.format = CALLS_TOOL_CALLS,
                                    .think_open = "Here are my reasoning steps:",
                                    .think_close = "[BEGIN FINAL RESPONSE]",
                                    .think_is_words = true};
    struct calls_opts begun = opts;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++)
        expect_in_any_pieces(&opts, &CASES[i]);
    begun.begins_thinking = true;
    expect_in_any_pieces(&begun, &(struct thought_case){
                                     "Hm.\n[BEGIN FINAL RESPONSE]\nYes.\n[END FINAL RESPONSE]", "~Hm.~Yes."});
}

/* Apertus: it is the format of calls, not of answers, whose calls end thinking. */
static void calls_end_thinking_with_any_answers(void **state)
{
    static const struct thought_case CASES[] = {
        {"<think>Hm. <|tools_prefix|>[{\"f\": {}}]<|tools_suffix|>", "~Hm.~[f:{}]"},
        {"<think>Hm.</think><|START_TEXT|>Yes.<|END_TEXT|>", "~Hm.~Yes."}};
    const struct calls_opts opts = {
        .format = CALLS_APERTUS, .answers = CALLS_COHERE, .think_open = "<think>", .think_close = "</think>"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++)
        expect_in_any_pieces(&opts, &CASES[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_thinking_are_left_out),
        cmocka_unit_test(sentences_surround_thinking),
        cmocka_unit_test(one_mark_ends_thinking_and_opens_the_answer),
        cmocka_unit_test(calls_end_thinking_with_any_answers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
