/* SPDX-License-Identifier: Apache-2.0 */
/* Random text in every family's format: the splitter never fails, gives the same result for every split of the text,
 * and loses no word. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "calls_sink.h"
#include "pieces.h"

static const char *const words[] = {"<tool_call>",
                                    "</tool_call>",
                                    "<function=f>",
                                    "</function>",
                                    "<parameter=s>",
                                    "</parameter>",
                                    "<arg_key>",
                                    "</arg_key>",
                                    "<arg_value>",
                                    "</arg_value>",
                                    "[TOOL_CALLS]",
                                    "[ARGS]",
                                    "[CALL_ID]",
                                    "{\"name\": \"f\", \"arguments\": {",
                                    "{\"name\": \"f\", \"parameters\": {",
                                    "}",
                                    "]",
                                    "{",
                                    "[",
                                    "\"",
                                    ",",
                                    ":",
                                    "\"a\": ",
                                    "f",
                                    "\n",
                                    " ",
                                    "<think>",
                                    "</think>",
                                    "word",
                                    "\xe2\x82\xac",
                                    "1",
                                    DS("call", "begin"),
                                    DS("call", "end"),
                                    DS("calls", "begin"),
                                    DS("calls", "end"),
                                    SEP,
                                    "function",
                                    "```json\n",
                                    "\n```",
                                    "<|python_tag|>",
                                    "<|tool_call_start|>",
                                    "<|tool_call_end|>",
                                    "f(",
                                    "a=",
                                    ")",
                                    "'",
                                    "<|tool_call|>",
                                    "<|tool_calls_section_begin|>",
                                    "<|tool_calls_section_end|>",
                                    "<|tool_call_begin|>",
                                    "<|tool_call_argument_begin|>",
                                    "functions.f:0",
                                    "<response>",
                                    "\n</response>",
                                    "</function_calls>",
                                    "<function_calls>",
                                    "[f(a=1",
                                    "<|python_end|>",
                                    "<|python_start|>",
                                    "<|/tool_call|>",
                                    "\n</answer>",
                                    "<answer>",
                                    "</tool_calls>",
                                    "<tool_calls>",
                                    "</TOOLCALL>",
                                    "<TOOLCALL>",
                                    "<tool_sep>",
                                    "</arg_key><arg_value>",
                                    "<|function_call|>",
                                    "<|message_sep|>\n\n",
                                    "function call<|role_sep|>\n",
                                    "<function=f>",
                                    "</function>",
                                    "<function name=\"f\">",
                                    "<param name=\"s\">",
                                    "</param>",
                                    "<![CDATA[",
                                    "]]>",
                                    "<" DSML "tool_calls>",
                                    "</" DSML "tool_calls>",
                                    "<|tools_prefix|>",
                                    "[{\"f\": {",
                                    "<|tools_suffix|>",
                                    "<|START_ACTION|>",
                                    "<|END_ACTION|>",
                                    "<|START_RESPONSE|>",
                                    "<|END_RESPONSE|>",
                                    ACTION("0", "f"),
                                    "<minimax:tool_call>",
                                    "</minimax:tool_call>",
                                    "<invoke name=\"f\">",
                                    "</invoke>",
                                    "<" DSML "function_calls>",
                                    "</" DSML "function_calls>",
                                    "<" DSML "invoke name=\"f\">",
                                    "</" DSML "invoke>",
                                    "<" DSML "parameter name=\"s\"",
                                    " string=\"true\">",
                                    " string=\"false\">",
                                    "</" DSML "parameter>",
                                    "<seed:tool_call>",
                                    "<|tool_call>",
                                    "call:f{",
                                    "<tool_call|>",
                                    Q,
                                    "s:",
                                    "<start_function_call>",
                                    "<end_function_call>",
                                    "<escape>",
                                    "</seed:tool_call>",
                                    "<parameter name=\"s\">",
                                    ";",
                                    "<|channel|>",
                                    "<|message|>",
                                    "<|start|>",
                                    "<|end|>",
                                    "assistant",
                                    "analysis",
                                    "final",
                                    "commentary",
                                    " to=functions.f ",
                                    "<",
                                    "\\",
                                    "<|tool_calls|>",
                                    "<|calls|>",
                                    "<|tool_call:begin|>",
                                    "<|tool_call:name|>",
                                    "<|tool_call:args|>",
                                    "<|tool_call:end|>",
                                    "<|content|>",
                                    "<|begin|>assistant",
                                    "<|tool_call:start|>f\n",
                                    "<|tool_arg:start|>s<|tool_arg:value|>",
                                    "<|tool_arg:end|>\n",
                                    "Action:",
                                    " ```json\n[",
                                    "all\n",
                                    ">>>",
                                    "f\n",
                                    "<|open|>",
                                    "<|close|>",
                                    "<|sep|>",
                                    "tools",
                                    "response",
                                    "call tool=\"f\" index=\"1\"",
                                    "argument key=\"s\" type=\"string\"",
                                    "argument key=\"a\" type=\"number\"",
                                    "json type=\"object\"",
                                    "call",
                                    "argument",
                                    "]<]minimax[>[",
                                    "<invoke name=\"f\">",
                                    "<l>",
                                    "<item>",
                                    "</item>",
                                    "</l>",
                                    "</mm:think>",
                                    "null"};

static void no_text_makes_it_fail(void **state)
{
    srandom(7);
    for (unsigned round = 0; round < 4000; round++) {
        struct calls_tool tool = {.name = bytes_str("f"), .schema = bytes_str(calls_sink_schema)};
        const struct calls_opts opts = {.format = (enum calls_format)(round % CALLS_FORMAT_COUNT),
                                        .think_open = round % 3 == 0 ? NULL : "<think>",
                                        .think_close = round % 3 == 0 ? NULL : "</think>",
                                        .begins_thinking = round % 5 == 0,
                                        .think_is_words = round % 7 == 0,
                                        .tools = &tool,
                                        .n_tools = 1};
        struct calls_sink whole = {0};
        struct calls_sink cut = {0};
        struct buf text = {0};

        for (unsigned n = (unsigned)random() % 24; n > 0; n--)
            buf_append_str(&text, words[(size_t)random() % ARRAY_LEN(words)]);
        calls_sink_run(&whole, &opts, buf_view(&text), text.len_bytes + 1, round % 2 == 0);
        calls_sink_run(&cut, &opts, buf_view(&text), 0, round % 2 == 0);
        if (!bytes_equal(buf_view(&whole.out), buf_view(&cut.out)))
            fail_msg("format %u: %.*s\n whole %.*s\n pieces %.*s", opts.format, (int)text.len_bytes,
                     (const char *)text.data, (int)whole.out.len_bytes, (const char *)whole.out.data,
                     (int)cut.out.len_bytes, (const char *)cut.out.data);
        buf_fini(&text);
        buf_fini(&whole.out);
        buf_fini(&cut.out);
    }
}

/* Appends letters and digits, in their order. */
static void put_letters(struct bytes text, struct buf *out)
{
    for (size_t i = 0; i < text.len_bytes; i++)
        if ((text.data[i] | 0x20) >= 'a' && (text.data[i] | 0x20) <= 'z')
            buf_append_byte(out, text.data[i]);
}

/* Text without a mark comes out unchanged, and text between calls stays between them. */
static void no_text_is_lost(void **state)
{
    static const char *const plain[] = {
        "word", " ", "\n",           "<", "[", "{",  "}",    "|", "TOOL", "\"",
        ":",    "a", "\xe2\x82\xac", ">", "=", "\\", "call", "_"};

    srandom(11);
    for (unsigned round = 0; round < 4000; round++) {
        const struct calls_opts opts = {.format = (enum calls_format)(round % CALLS_FORMAT_COUNT),
                                        .think_open = "<think>",
                                        .think_close = "</think>"};
        struct calls_sink sink = {0};
        struct buf text = {0}, was = {0}, is = {0};

        for (unsigned n = 1 + (unsigned)random() % 24; n > 0; n--)
            buf_append_str(&text, plain[(size_t)random() % ARRAY_LEN(plain)]);
        calls_sink_run(&sink, &opts, buf_view(&text), 0, false);
        put_letters(buf_view(&text), &was);
        put_letters(buf_view(&sink.out), &is);
        if (!bytes_equal(buf_view(&was), buf_view(&is)))
            fail_msg("format %u: %.*s became %.*s", opts.format, (int)text.len_bytes, (const char *)text.data,
                     (int)sink.out.len_bytes, (const char *)sink.out.data);
        buf_fini(&text);
        buf_fini(&was);
        buf_fini(&is);
        buf_fini(&sink.out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_text_makes_it_fail),
        cmocka_unit_test(no_text_is_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
