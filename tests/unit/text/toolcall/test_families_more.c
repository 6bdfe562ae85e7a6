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

#define SOLAR(id, name, arguments)                                                                           \
    "<|tool_call:begin|>" id "<|tool_call:name|>" name "<|tool_call:args|>" arguments "<|tool_call:end|>"
#define SOLAR_2(name, values)    "<|tool_call:start|>" name "\n" values "<|tool_call:end|>"
#define SOLAR_2_VALUE(key, text) "<|tool_arg:start|>" key "<|tool_arg:value|>" text "<|tool_arg:end|>\n"
#define K3_OPEN(tag)             "<|open|>" tag "<|sep|>"
#define K3_CLOSE(tag)            "<|close|>" tag "<|sep|>"
#define K3_CALL(name, n, values) K3_OPEN("call tool=\"" name "\" index=\"" n "\"") values K3_CLOSE("call")
#define K3_VALUE(key, type, text)                                                                            \
    K3_OPEN("argument key=\"" key "\" type=\"" type "\"") text K3_CLOSE("argument")
#define K3_CALLS(calls)   K3_OPEN("tools") calls K3_CLOSE("tools")
#define M                 "]<]minimax[>["
#define M_CALLS(calls)    M "<tool_call>\n" calls M "</tool_call>"
#define M_CALL(name, all) M "<invoke name=\"" name "\">" all M "</invoke>\n"
#define M_IN(key, text)   M "<" key ">" text M "</" key ">"

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

    /* MiniMax M1 */
    {CALLS_MINIMAX_M1,
     "Hm.\n<tool_calls>\n{\"name\": \"f\", \"arguments\": {\"a\": \"</tool_calls>\"}}\n"
     "{\"name\": \"g\", \"arguments\": {}}\n</tool_calls>",
     false, "Hm.\n[f:{\"a\": \"</tool_calls>\"}][g:{}]"},
    {CALLS_MINIMAX_M1,
     "<tool_calls>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n{\"arguments\": {\"b\": 2}, \"name\": "
     "\"g\"}\n"
     "</tool_calls>",
     false, "[f:{\"a\": 1}][g:{\"b\": 2}]"},
    {CALLS_MINIMAX_M1, "<tool_calls>\nwhat\n</tool_calls>", false, "<tool_calls>\nwhat\n</tool_calls>"},
    {CALLS_MINIMAX_M1, "<tool_calls>\n{\"name\": \"f\", \"arguments\": {\"a\": 1", true, "[f:{\"a\": 1!]"},

    /* Command R+ */
    {CALLS_COMMAND,
     "Plan: look.\nAction:\n```json\n[\n    {\n        \"tool_name\": \"f\",\n        \"parameters\": {\n"
     "            \"a\": \"]```\"\n        }\n    },\n    {\n        \"tool_name\": \"g\",\n"
     "        \"parameters\": {}\n    }\n]```\n",
     false, "Plan: look.\n[f:{\n            \"a\": \"]```\"\n        }][g:{}]"},
    {CALLS_COMMAND, "Action: ```json\n[{\"tool_name\": \"f\", \"parameters\": {}}]\n```", false, "[f:{}]"},
    {CALLS_COMMAND, "Action:```json\n[{\"parameters\": {\"a\": 1}, \"tool_name\": \"f\"}]```", false,
     "[f:{\"a\": 1}]"},
    {CALLS_COMMAND, "Action: none", false, "Action: none"},
    {CALLS_COMMAND, "Action: ```json\n{\"a\": 1}\n```", false, "Action: ```json\n{\"a\": 1}\n```"},
    {CALLS_COMMAND, "Action:\n```json\n[{\"tool_name\": \"f\", \"para", true, ""},

    /* Solar Open */
    {CALLS_SOLAR, "<|tool_calls|>" SOLAR("abc012defg", "f", "{\"a\": 1}") SOLAR("z", "g", "{}") "<|calls|>",
     false, "[f:{\"a\": 1}][g:{}]"},
    {CALLS_SOLAR, "<|content|>Hm.<|end|><|begin|>assistant<|tool_calls|>" SOLAR("", "f", "{}"), false,
     "Hm.[f:{}]"},
    {CALLS_SOLAR, "<|tool_calls|>" SOLAR("i", "f", "what"), false, SOLAR("i", "f", "what")},
    {CALLS_SOLAR, "<|tool_calls|><|tool_call:begin|>i<|tool_call:name|>f<|tool_call:args|>{\"a\": [", true,
     "[f:{\"a\": [!]"},

    /* Solar Open 2 */
    {CALLS_SOLAR_2,
     "Hm." SOLAR_2("f", SOLAR_2_VALUE("s", "\n a</b>\n") SOLAR_2_VALUE("n", "3")) "\n" SOLAR_2("g", ""),
     false, "Hm.[f:{\"s\": \"\\n a</b>\\n\", \"n\": 3}][g:{}]"},
    {CALLS_SOLAR_2, "<|tool_call:start|>f\n<|tool_arg:start|>s<|tool_arg:value|>a<|tool_ar", true,
     "[f:{\"s\": \"a!]"},
    {CALLS_SOLAR_2, SOLAR_2("f", "what"), false, "[f:{?]" SOLAR_2("f", "what")},

    /* Functionary 3.2 */
    {CALLS_FUNCTIONARY_ALL, "all\nIt rains.", false, "It rains."},
    {CALLS_FUNCTIONARY_ALL, "f\n{\"a\": \">>>g\\n{}\"}", false, "[f:{\"a\": \">>>g\\n{}\"}]"},
    {CALLS_FUNCTIONARY_ALL, "all\nHm.\n>>>f\n{\"a\": 1}>>>g\n{}\n>>>all\n Well", false,
     "Hm.\n[f:{\"a\": 1}][g:{}] Well"},
    {CALLS_FUNCTIONARY_ALL, "all\nPython: >>> x\n>>>f(1)\n>>>g\n1", false, "Python: >>> x\n>>>f(1)\n>>>g\n1"},
    {CALLS_FUNCTIONARY_ALL, "Sure\n{\"a\": 1}", false, "Sure\n{\"a\": 1}"},
    {CALLS_FUNCTIONARY_ALL, "f\nwhat", false, "f\nwhat"},
    {CALLS_FUNCTIONARY_ALL, "f\n{} Done\nf\n{}", false, "[f:{}]Done\nf\n{}"},
    {CALLS_FUNCTIONARY_ALL, "f\n{\"a\": 1", true, "[f:{\"a\": 1!]"},
    {CALLS_FUNCTIONARY_ALL, "all\nHm.>>>f\n", true, "Hm."},
    {CALLS_FUNCTIONARY_ALL, "all", false, "all"},

    /* Kimi K3 */
    {CALLS_KIMI_3,
     "Hm." K3_CLOSE("response") K3_CALLS(K3_CALL("f", "1",
                                                 K3_VALUE("s", "string", "\na<b") K3_VALUE("n", "number", "3")
                                                     K3_VALUE("l", "array", "[\"<|sep|>\"]"))
                                             K3_CALL("g", "2", "")) K3_CLOSE("message"),
     false, "Hm.[f:{\"s\": \"\\na<b\", \"n\": 3, \"l\": [\"<|sep|>\"]}][g:{}]"},
    {CALLS_KIMI_3,
     K3_OPEN("response") K3_CLOSE("response")
         K3_CALLS(K3_CALL("f", "1", K3_VALUE("a &quot;b&quot; &amp;amp;", "null", "null"))),
     false, "[f:{\"a \\\"b\\\" &amp;\": null}]"},
    {CALLS_KIMI_3,
     K3_CALLS(K3_CALL("f", "1", K3_OPEN("json type=\"object\"") "{\"a\": {}}" K3_CLOSE("json"))), false,
     "[f:{\"a\": {}}]"},
    {CALLS_KIMI_3, K3_CALLS(K3_CALL("f", "1", K3_VALUE("e", "number", "1") K3_VALUE("n", "string", "1"))),
     false, "[f:{\"e\": 1, \"n\": \"1\"}]"},
    {CALLS_KIMI_3, K3_CALLS(K3_CALL("f", "1", "what")), false, "[f:{?]" K3_CALLS(K3_CALL("f", "1", "what"))},
    {CALLS_KIMI_3, "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>arg", true,
     "[f:{!]"},
    {CALLS_KIMI_3, K3_OPEN("response") "<|open|>text", false, "<|open|>text"},

    /* MiniMax M3 */
    {CALLS_MINIMAX_3,
     "</mm:think>Hm." M_CALLS(M_CALL("f", M_IN("s", " 1 ]<] <b>\n") M_IN("n", "3") M_IN("b", "true"))
                                  M_CALL("g", "")),
     false, "Hm.[f:{\"s\": \" 1 ]<] <b>\\n\", \"n\": 3, \"b\": true}][g:{}]"},
    {CALLS_MINIMAX_3,
     M_CALLS(M_CALL("f", M_IN("l", M_IN("item", "1") M_IN("item", M_IN("k", "x") M_IN("item", "")))
                             M_IN("o", "\n" M_IN("item", "2") "\n"))),
     false, "[f:{\"l\": [1, {\"k\": \"x\", \"item\": \"\"}], \"o\": {\"item\": 2}}]"},
    {CALLS_MINIMAX_3, M_CALLS(M_CALL("f", M_IN("l", "") M_IN("o", "") M_IN("s", "") M_IN("l", "[1]"))), false,
     "[f:{\"l\": [], \"o\": {}, \"s\": \"\", \"l\": [1]}]"},
    {CALLS_MINIMAX_3, M_CALLS(M_CALL("f", M_IN("u", "null") M_IN("e", "3") M_IN("a", "{\"x\": 1}"))), false,
     "[f:{\"u\": null, \"e\": \"3\", \"a\": {\"x\": 1}}]"},
    {CALLS_MINIMAX_3, M_CALLS(M_CALL("f", M_IN("s", "a" M_IN("b", "c")))), false,
     "[f:{\"s\": \"a?]" M_CALLS(M_CALL("f", M_IN("s", "a" M_IN("b", "c"))))},
    {CALLS_MINIMAX_3, M_CALLS(M_CALL("f", M "<l>" M "<item>1" M "</item>")), false,
     "[f:{\"l\": [1?]" M_CALLS(M_CALL("f", M "<l>" M "<item>1" M "</item>"))},
    {CALLS_MINIMAX_3, M "<tool_call>\n" M "<invoke name=\"f\">" M "<s>ab]<]mini", true, "[f:{\"s\": \"ab!]"},
    {CALLS_MINIMAX_3, M_CALLS("what"), false, M_CALLS("what")},
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
