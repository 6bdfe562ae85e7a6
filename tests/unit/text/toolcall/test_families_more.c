/* SPDX-License-Identifier: Apache-2.0 */
/* More formats of calls, as test_families.c: answers and what becomes of them, in pieces of every length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "calls_sink.h"
#include "pieces.h"

#define DSML_ALL(name, calls) "<" DSML name ">\n" calls "</" DSML name ">"
#define DINV(name, pars)      "<" DSML "invoke name=\"" name "\">\n" pars "</" DSML "invoke>\n"
#define DPAR(key, how, v)     "<" DSML "parameter name=\"" key "\" string=\"" how "\">" v "</" DSML "parameter>\n"

static const struct {
    enum calls_format format;
    const char *text;
    bool is_cut;
    const char *out;
} answers[] = {
    /* DeepSeek V4, MiniCPM 5, Functionary 3.1, GigaChat 3.0 */
    {CALLS_DSML_V4,
     "Hm.\n\n" DSML_ALL("tool_calls",
                        DINV("f", DPAR("s", "true", "a") DPAR("n", "false", "3")) DINV("g", "")),
     false, "Hm.\n\n[f:{\"s\": \"a\", \"n\": 3}][g:{}]"},
    {CALLS_DSML_V4, DSML_ALL("function_calls", DINV("f", "")), false,
     DSML_ALL("function_calls", DINV("f", ""))},
    {CALLS_MINICPM,
     "<function name=\"f\"><param name=\"s\">a b</param><param name=\"n\">3</param></function>", false,
     "[f:{\"s\": \"a b\", \"n\": 3}]"},
    {CALLS_MINICPM,
     "Hm.\n<function name=\"g\"></function>\n<function name=\"f\"><param name=\"s\">\n</param></function>",
     false, "Hm.\n[g:{}][f:{\"s\": \"\\n\"}]"},
    {CALLS_MINICPM, "<function name=\"f\"><param name=\"s\"><![CDATA[a <b>\n</param> ]]></param></function>",
     false, "[f:{\"s\": \"a <b>\\n</param> \"}]"},
    {CALLS_MINICPM,
     "<function name=\"f\"><param name=\"n\"><![CDATA[3]]></param><param "
     "name=\"s\"><![CDATA</param></function>",
     false, "[f:{\"n\": 3, \"s\": \"<![CDATA\"}]"},
    {CALLS_MINICPM, "<function name=\"f\"><param name=\"s\"><![CDATA[a]]", true, "[f:{\"s\": \"a!]"},
    {CALLS_MINICPM, "<function name=\"f\"><param name=\"s\"><![C", true, "[f:{\"s\": \"!]"},
    {CALLS_MINICPM, "<function name=\"f\">what</function>", false,
     "[f:{?]<function name=\"f\">what</function>"},
    {CALLS_FUNCTIONARY, "<function=f>{\"a\": \"</function>\"}</function><function=g>{}</function>", false,
     "[f:{\"a\": \"</function>\"}][g:{}]"},
    {CALLS_FUNCTIONARY, "Hm. <function=f>\n{\"a\": 1}</function>", false, "Hm. [f:{\"a\": 1}]"},
    {CALLS_FUNCTIONARY, "<function=f>what</function>", false, "<function=f>what</function>"},
    {CALLS_FUNCTIONARY, "<function=f>{\"a\": 1", true, "[f:{\"a\": 1!]"},
    {CALLS_GIGACHAT_ROLE,
     "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"f\", \"arguments\": {\"a\": \"}\"}}", false,
     "[f:{\"a\": \"}\"}]"},
    {CALLS_GIGACHAT_ROLE,
     "Hm.<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"f\", \"arguments\": "
     "{}}<|message_sep|>\n\n",
     false, "Hm.[f:{}]"},
    {CALLS_GIGACHAT_ROLE, "A function call.<|message_sep|>\n\n", false, "A function call."},
    {CALLS_GIGACHAT_ROLE, "function call<|role_sep|>\nwhat", false, "function call<|role_sep|>\nwhat"},
};

static void answers_split_the_same_in_any_pieces(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        struct calls_tool tool = {.name = bytes_str("f"), .schema = bytes_str(calls_sink_schema)};
        const struct calls_opts opts = {.format = answers[i].format, .tools = &tool, .n_tools = 1};

        for (size_t piece = 0; piece <= strlen(answers[i].text); piece++) {
            struct calls_sink sink = {0};

            calls_sink_run(&sink, &opts, bytes_str(answers[i].text), piece, answers[i].is_cut);
            if (!bytes_is(buf_view(&sink.out), answers[i].out))
                fail_msg("%s in pieces of %zu: %.*s", answers[i].text, piece, (int)sink.out.len_bytes,
                         (const char *)sink.out.data);
            buf_fini(&sink.out);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_split_the_same_in_any_pieces)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
