/* SPDX-License-Identifier: Apache-2.0 */
/* Calls written from the table of formats: the texts of rows whose templates show no calls.  For every
 * format, its own parser reads back the written calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/text/toolcall/calls_sink.h"
#include "text/toolcall/spell.h"

#define BAR       "\xef\xbd\x9c"
#define ARGUMENTS "{\"city\": \"Oslo \\\"x\\\"\", \"days\": 3, \"deep\": {\"a\": [true, null]}}"

#define KIMI_3_VALUE(key, type, text)                                                                        \
    "<|open|>argument key=\"" key "\" type=\"" type "\"<|sep|>" text "<|close|>argument<|sep|>"
#define KIMI_3_CALL(n)                                                                                       \
    "<|open|>call tool=\"get\" index=\"" n "\"<|sep|>" KIMI_3_VALUE("a &quot;&amp;", "string", "x\ny")       \
        KIMI_3_VALUE("b", "array", "[1]") KIMI_3_VALUE("c", "null", "null")                                  \
            KIMI_3_VALUE("d", "boolean", "false") KIMI_3_VALUE("e", "object", "{}")                          \
                KIMI_3_VALUE("f", "number", "-1") "<|close|>call<|sep|>"
#define M "]<]minimax[>["
#define MINIMAX_3_CALL                                                                                       \
    M "<invoke name=\"get\">" M "<a>x\ny" M "</a>" M "<b>" M "<item>1" M "</item>" M "<item>" M "<c>" M      \
      "</c>" M "</item>" M "</b>" M "<d>true" M "</d>" M "</invoke>\n"

static void spell(enum calls_format format, const char *arguments, unsigned n, struct calls_spelling *out)
{
    memset(out, 0, sizeof(*out));
    for (unsigned i = 0; i < n; i++)
        calls_spell(format, bytes_str("get"), bytes_str(arguments), out);
    calls_spell_end(format, out);
    assert_false(out->text.is_bad || out->own.is_bad);
}

static void fini(struct calls_spelling *spelling)
{
    buf_fini(&spelling->text);
    buf_fini(&spelling->own);
}

static const struct {
    enum calls_format format;
    unsigned n;
    const char *arguments, *expected;
} cases[] = {
    {CALLS_GRANITE, 2, "{\"a\":1}",
     "<|tool_call|>[{\"name\": \"get\", \"arguments\": {\"a\": 1}}, {\"name\": \"get\", \"arguments\": "
     "{\"a\": 1}}]"},
    {CALLS_LFM2, 1, ARGUMENTS,
     "<|tool_call_start|>[get(city=\"Oslo \\\"x\\\"\", days=3, deep={\"a\": [true, "
     "null]})]<|tool_call_end|>"},
    {CALLS_LFM2, 2, "{\"my city\": \"Oslo\", \"n\": 1}",
     "<|tool_call_start|>[get(**{\"my city\": \"Oslo\"}, n=1), get(**{\"my city\": \"Oslo\"}, "
     "n=1)]<|tool_call_end|>"},
    {CALLS_LFM2, 1, "{}", "<|tool_call_start|>[get()]<|tool_call_end|>"},
    {CALLS_HERMES, 2, "{}",
     "<tool_call>\n{\"name\": \"get\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": "
     "\"get\", "
     "\"arguments\": {}}\n</tool_call>"},
    {CALLS_XML, 1, "{\"city\":\"a\\nb\",\"days\":3}",
     "<tool_call>\n<function=get>\n<parameter=city>\na\nb\n</parameter>\n<parameter=days>\n3\n</"
     "parameter>\n</function>\n</tool_call>"},
    {CALLS_COHERE, 2, "{}",
     "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get\", \"parameters\": {}},\n    "
     "{\"tool_call_id\": \"1\", \"tool_name\": \"get\", \"parameters\": {}}\n]<|END_ACTION|>"},
    {CALLS_NEMOTRON, 2, "{}",
     "<TOOLCALL>[{\"name\": \"get\", \"arguments\": {}}, {\"name\": \"get\", \"arguments\": "
     "{}}]</TOOLCALL>"},
    {CALLS_HUNYUAN_LIST, 2, "{}",
     "<tool_calls>[{\"name\": \"get\", \"arguments\": {}}, {\"name\": \"get\", \"arguments\": "
     "{}}]</tool_calls>"},
    {CALLS_HUNYUAN, 2, "{}",
     "<tool_calls><tool_call>get\n```json\n{}\n```</tool_call>\n<tool_call>get\n```json\n{}\n```</"
     "tool_call>"
     "</tool_calls>"},
    {CALLS_PHI, 2, "{}",
     "<|tool_call|>{\"name\": \"get\", \"arguments\": {}}<|/tool_call|><|tool_call|>{\"name\": \"get\", "
     "\"arguments\": "
     "{}}<|/tool_call|>"},
    {CALLS_PHI_LIST, 2, "{}",
     "<|tool_call|>[{\"name\": \"get\", \"arguments\": {}}, {\"name\": \"get\", \"arguments\": "
     "{}}]<|/tool_call|>"},
    {CALLS_LLAMA4_PYTHON, 2, "{\"a\": 1}", "[get(a=1), get(a=1)]"},
    {CALLS_LLAMA4, 1, "{}", "{\"name\": \"get\", \"parameters\": {}}"},
    {CALLS_OLMO, 2, "{\"a\": \"x\"}", "<function_calls>get(a=\"x\")\nget(a=\"x\")</function_calls>"},
    {CALLS_ERNIE, 1, "{}", "<tool_call>\n{\"name\": \"get\", \"arguments\": {}}\n</tool_call>"},
    {CALLS_KIMI, 2, "{}",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.get:0<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_call_begin|>functions.get:1<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_calls_section_end|>"},
    {CALLS_MINIMAX, 2, "{\"city\":\"a\\nb\",\"days\":[3]}",
     "<minimax:tool_call>\n<invoke name=\"get\">\n<parameter name=\"city\">a\nb</parameter>\n<parameter "
     "name=\"days\">[3]</parameter>\n</invoke>\n<invoke name=\"get\">\n<parameter "
     "name=\"city\">a\nb</parameter>\n<parameter name=\"days\">[3]</parameter>\n</invoke>\n"
     "</minimax:tool_call>"},
    {CALLS_SEED, 2, "{\"city\":\"a\\nb\",\"days\":3}",
     "<seed:tool_call>\n<function=get>\n<parameter=city>a\nb</parameter>\n<parameter=days>3</parameter>\n"
     "</function>\n</seed:tool_call>\n"
     "<seed:tool_call>\n<function=get>\n<parameter=city>a\nb</parameter>\n<parameter=days>3</parameter>\n"
     "</function>\n</seed:tool_call>"},
    {CALLS_GEMMA, 2, "{\"city\":\"a\\nb\",\"my days\":[3,\"x\"],\"o\":{\"k:\":null,\"l\":\"<|\\\"|>\"}}",
     "<|tool_call>call:get{city:<|\"|>a\nb<|\"|>,my "
     "days:[3,<|\"|>x<|\"|>],o:{\"k:\":null,l:\"<|\\\"|>\"}}<tool_call|>"
     "<|tool_call>call:get{city:<|\"|>a\nb<|\"|>,my "
     "days:[3,<|\"|>x<|\"|>],o:{\"k:\":null,l:\"<|\\\"|>\"}}<tool_call|>"},
    {CALLS_FUNCTION_GEMMA, 1, "{\"city\":\"Oslo\"}",
     "<start_function_call>call:get{city:<escape>Oslo<escape>}<end_function_call>"},
    {CALLS_DSML, 2, "{\"city\":\"a\\nb\",\"days\":[3]}",
     "<" BAR "DSML" BAR "function_calls>\n<" BAR "DSML" BAR "invoke name=\"get\">\n<" BAR "DSML" BAR
     "parameter name=\"city\" string=\"true\">a\nb</" BAR "DSML" BAR "parameter>\n<" BAR "DSML" BAR
     "parameter name=\"days\" string=\"false\">[3]</" BAR "DSML" BAR "parameter>\n</" BAR "DSML" BAR
     "invoke>\n<" BAR "DSML" BAR "invoke name=\"get\">\n<" BAR "DSML" BAR
     "parameter name=\"city\" string=\"true\">a\nb</" BAR "DSML" BAR "parameter>\n<" BAR "DSML" BAR
     "parameter name=\"days\" string=\"false\">[3]</" BAR "DSML" BAR "parameter>\n</" BAR "DSML" BAR
     "invoke>\n</" BAR "DSML" BAR "function_calls>"},
    {CALLS_GLM_TIGHT, 2, "{\"city\":\"a\\nb\",\"days\":3}",
     "<tool_call>get<arg_key>city</arg_key><arg_value>a\nb</arg_value><arg_key>days</arg_key><arg_value>3</"
     "arg_value></tool_call>"
     "<tool_call>get<arg_key>city</arg_key><arg_value>a\nb</arg_value><arg_key>days</arg_key><arg_value>3</"
     "arg_value></tool_call>"},
    {CALLS_GIGACHAT_ROLE, 1, "{\"a\":1}",
     "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"get\", \"arguments\": {\"a\": 1}}"},
    {CALLS_FUNCTIONARY, 2, "{\"a\":1}",
     "<function=get>{\"a\": 1}</function><function=get>{\"a\": 1}</function>"},
    {CALLS_MINICPM, 2, "{\"a\":\"x\",\"b\":[1]}",
     "<function name=\"get\"><param name=\"a\">x</param><param name=\"b\">[1]</param></function>\n"
     "<function name=\"get\"><param name=\"a\">x</param><param name=\"b\">[1]</param></function>"},
    {CALLS_MINICPM, 1, "{\"a\":\"x\\ny\",\"b\":\"<\"}",
     "<function name=\"get\"><param name=\"a\"><![CDATA[x\ny]]></param><param "
     "name=\"b\"><![CDATA[<]]></param>"
     "</function>"},
    {CALLS_GIGACHAT, 1, "{\"a\":1}", "<|function_call|>{\"name\": \"get\", \"arguments\": {\"a\": 1}}"},
    {CALLS_HY3, 2, "{\"city\":\"a\\nb\",\"days\":3}",
     "<tool_calls>\n<tool_call>get<tool_sep>\n<arg_key>city</arg_key>\n<arg_value>a\nb</"
     "arg_value>\n<arg_key>days</arg_key>\n"
     "<arg_value>3</arg_value>\n</tool_call>\n<tool_call>get<tool_sep>\n<arg_key>city</"
     "arg_key>\n<arg_value>a\nb</arg_value>\n"
     "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n</tool_calls>"},
    {CALLS_HY3_OPEN, 1, "{\"city\":\"a\"}",
     "<tool_calls:opensource>\n<tool_call:opensource>get<tool_sep:opensource>\n"
     "<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>a</arg_value:opensource>\n"
     "</tool_call:opensource>\n</tool_calls:opensource>"},
    {CALLS_APERTUS, 2, "{\"a\":1}",
     "<|tools_prefix|>[{\"get\": {\"a\": 1}}, {\"get\": {\"a\": 1}}]<|tools_suffix|>"},
    {CALLS_MINIMAX_M1, 2, "{}",
     "<tool_calls>\n{\"name\": \"get\", \"arguments\": {}}\n{\"name\": \"get\", \"arguments\": "
     "{}}\n</tool_calls>"},
    {CALLS_COMMAND, 2, "{}",
     "Action:\n```json\n[\n    {\n        \"tool_name\": \"get\",\n        \"parameters\": {}\n    },\n    "
     "{\n"
     "        \"tool_name\": \"get\",\n        \"parameters\": {}\n    }\n]```"},
    {CALLS_SOLAR, 2, "{\"a\":1}",
     "<|tool_calls|><|tool_call:begin|>call000001<|tool_call:name|>get<|tool_call:args|>{\"a\": 1}"
     "<|tool_call:end|><|tool_call:begin|>call000002<|tool_call:name|>get<|tool_call:args|>{\"a\": 1}"
     "<|tool_call:end|>"},
    {CALLS_SOLAR_2, 2, "{\"city\":\"a\\nb\",\"days\":3}",
     "<|tool_call:start|>get\n<|tool_arg:start|>city<|tool_arg:value|>a\nb<|tool_arg:end|>\n<|tool_arg:start|"
     ">days"
     "<|tool_arg:value|>3<|tool_arg:end|>\n<|tool_call:end|>\n<|tool_call:start|>get\n<|tool_arg:start|>city"
     "<|tool_arg:value|>a\nb<|tool_arg:end|>\n<|tool_arg:start|>days<|tool_arg:value|>3<|tool_arg:end|>\n"
     "<|tool_call:end|>"},
    {CALLS_FUNCTIONARY_ALL, 2, "{\"a\":1}", ">>>get\n{\"a\": 1}>>>get\n{\"a\": 1}"},
    {CALLS_KIMI_3, 2, "{\"a \\\"&\":\"x\\ny\",\"b\":[1],\"c\":null,\"d\":false,\"e\":{},\"f\":-1}",
     "<|open|>tools<|sep|>" KIMI_3_CALL("1") KIMI_3_CALL("2") "<|close|>tools<|sep|>"},
    {CALLS_MINIMAX_3, 2, "{\"a\":\"x\\ny\",\"b\":[1,{\"c\":\"\"}],\"d\":true}",
     M "<tool_call>\n" MINIMAX_3_CALL MINIMAX_3_CALL M "</tool_call>"},
    {CALLS_GRANITE, 1, "no object", "<|tool_call|>[{\"name\": \"get\", \"arguments\": no object}]"},
};

static void texts_are_the_formats_own(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct calls_spelling spelling;

        spell(cases[i].format, cases[i].arguments, cases[i].n, &spelling);
        buf_append_byte(&spelling.text, '\0');
        assert_string_equal((const char *)spelling.text.data, cases[i].expected);
        fini(&spelling);
    }
}

/* The client's names and values are outside of the format's own bytes, its marks inside. */
static void own_bytes_are_the_formats(void **state)
{
    struct calls_spelling spelling;
    char shown[512] = "";
    size_t n = 0, from = 0;

    (void)state;
    spell(CALLS_LFM2, "{\"a\": \"<|tool_call_end|>\"}", 1, &spelling);
    for (size_t i = 0; i < spelling.own.len_bytes / sizeof(struct calls_span); i++) {
        struct calls_span span;

        memcpy(&span, spelling.own.data + i * sizeof(span), sizeof(span));
        assert_true(span.from >= from && span.to > span.from && span.to <= spelling.text.len_bytes);
        n += (size_t)snprintf(shown + n, sizeof(shown) - n, "%.*s#", (int)(span.to - span.from),
                              (const char *)spelling.text.data + span.from);
        from = span.to;
    }
    assert_string_equal(shown, "<|tool_call_start|>[#(#=#)]<|tool_call_end|>#");
    fini(&spelling);
}

static void every_parser_reads_its_own_calls(void **state)
{
    static const char expected[] = "[get:" ARGUMENTS "]";

    (void)state;
    for (unsigned format = CALLS_PLAIN + 1; format < CALLS_FORMAT_COUNT; format++) {
        struct calls_sink sink = {0};
        struct calls_opts opts = {.format = (enum calls_format)format};
        struct calls_spelling spelling;

        spell((enum calls_format)format, ARGUMENTS, 1, &spelling);
        calls_sink_run(&sink, &opts, buf_view(&spelling.text), 7, false);
        buf_append_byte(&sink.out, '\0');
        print_message("%u %s\n", format, (const char *)sink.out.data);
        assert_string_equal((const char *)sink.out.data, expected);
        buf_fini(&sink.out);
        fini(&spelling);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_the_formats_own),
        cmocka_unit_test(own_bytes_are_the_formats),
        cmocka_unit_test(every_parser_reads_its_own_calls),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
