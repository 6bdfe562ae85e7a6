/* SPDX-License-Identifier: Apache-2.0 */
/* Chat formats: how a template is classified, the facts found about it, refusals and their texts, and the
 * time of a long conversation. */
#include "tests/unit/text/token/chat_templates.h"
#include "tests/unit/text/token/vocabularies.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct chat_prompt hello(struct chat_message *message)
{
    *message = (struct chat_message){.role = CHAT_USER, .text = bytes_str("Hi")};
    return (struct chat_prompt){.messages = message, .n_messages = 1, .adds_generation = true};
}

/* ---- detection from the template's text ---- */

#define SHOWN "{{ tools|string }}{{ messages|map(attribute='tool_calls', default='')|list|string }}"
#define DEEPSEEK                                                                                             \
    "<\xef\xbd\x9ctool\xe2\x96\x81"                                                                          \
    "calls\xe2\x96\x81"                                                                                      \
    "begin\xef\xbd\x9c>"

/* What in a template shows its family. */
static const struct {
    const char *source, *name;
    enum calls_format calls;
} shown_families[] = {
    {hermes_template, "hermes", CALLS_HERMES},
    {EACH("", ""), "plain", CALLS_HERMES},
    {EACH("{# <tool_call> <function=x> #}", SHOWN), "xml", CALLS_XML},
    {EACH("{# <tool_call> <arg_key> #}", SHOWN), "glm", CALLS_GLM},
    {EACH("{# [TOOL_CALLS] #}", SHOWN), "mistral", CALLS_MISTRAL},
    {EACH("{# [TOOL_CALLS] [ARGS] #}", SHOWN), "mistral", CALLS_MISTRAL_NAMED},
    {EACH("{# " DEEPSEEK "```json #}", SHOWN), "deepseek", CALLS_DEEPSEEK},
    {EACH("{# " DEEPSEEK "#}", SHOWN), "deepseek", CALLS_DEEPSEEK_V31},
    {EACH("{# <|python_tag|> #}", SHOWN), "llama", CALLS_LLAMA},
    {EACH("{# <|eot_id|> \"parameters\": #}", SHOWN), "llama", CALLS_LLAMA},
    {EACH("{# <|channel|> #}", SHOWN), "harmony", CALLS_HARMONY},
    {EACH("{# <|tool_call|> #}", SHOWN), "granite", CALLS_GRANITE},
    {EACH("{# <|tool_list_start|> #}", SHOWN), "lfm2", CALLS_LFM2},
    {EACH("{# List of tools: [ <|im_start|> #}", SHOWN), "lfm2", CALLS_LFM2},
    {EACH("{# <|START_ACTION|> #}", SHOWN), "cohere", CALLS_COHERE},
    {EACH("{# <|eot_id|> \"parameters\": <TOOLCALL> #}", SHOWN), "nemotron", CALLS_NEMOTRON},
    {EACH("{# <tool_call> <tool_calls>[ <answer> #}", SHOWN), "hunyuan", CALLS_HUNYUAN_LIST},
    {EACH("{# <tool_call> <tool_calls>[ #}", SHOWN), "tool-calls", CALLS_TOOL_CALLS},
    {EACH("{# <tool_calls><tool_call> ```json #}", SHOWN), "hunyuan", CALLS_HUNYUAN},
    {EACH("{# <|tool_call|> <|/tool_call|> <|/tool|> #}", SHOWN), "phi", CALLS_PHI},
    {EACH("{# <|/tool|> #}", SHOWN), "phi", CALLS_PHI_LIST},
    {EACH("{# <|header_start|> [func_name1(param1=value1, #}", SHOWN), "llama4", CALLS_LLAMA4_PYTHON},
    {EACH("{# <|header_start|> \"parameters\": #}", SHOWN), "llama4", CALLS_LLAMA4},
    {EACH("{# <function_calls> #}", SHOWN), "olmo", CALLS_OLMO},
    {EACH("{# <tool_call> <response> #}", SHOWN), "ernie", CALLS_ERNIE},
    {EACH("{# <|tool_calls_section_begin|> #}", SHOWN), "kimi", CALLS_KIMI},
    {EACH("{# <minimax:tool_call> #}", SHOWN), "minimax", CALLS_MINIMAX},
    {EACH("{# <seed:tool_call> <function=x> #}", SHOWN), "seed", CALLS_SEED},
    {EACH("{# <|tool_call> #}", SHOWN), "gemma", CALLS_GEMMA},
    {EACH("{# <start_function_call> #}", SHOWN), "function-gemma", CALLS_FUNCTION_GEMMA},
    {EACH("{# \xef\xbd\x9c"
          "DSML\xef\xbd\x9c function_calls> #}",
          SHOWN),
     "dsml", CALLS_DSML},
    {EACH("{# <|tools_prefix|> #}", SHOWN), "apertus", CALLS_APERTUS},
    {EACH("{# <tool_call> <arg_key></arg_key><arg_value> #}", SHOWN), "glm", CALLS_GLM_TIGHT},
    {EACH("{# function call <|role_sep|> #}", SHOWN), "gigachat", CALLS_GIGACHAT_ROLE},
    {EACH("{# function call <|role_sep|> <|function_call|> #}", SHOWN), "gigachat", CALLS_GIGACHAT},
    {EACH("{# <|python_tag|> <function=example_function_name>{ </function> #}", SHOWN), "functionary",
     CALLS_FUNCTIONARY},
    {EACH("{# <|python_tag|> <function= </function> #}", SHOWN), "llama", CALLS_LLAMA},
    {EACH("{# \xef\xbd\x9c"
          "DSML\xef\xbd\x9c tool_calls> #}",
          SHOWN),
     "dsml", CALLS_DSML_V4},
    {EACH("{# <function name=\" <param name=\" <tool_sep> #}", SHOWN), "minicpm", CALLS_MINICPM},
    {EACH("{# <|function_call|> #}", SHOWN), "gigachat", CALLS_GIGACHAT},
    {EACH("{# <tool_calls><tool_call> <tool_sep> <arg_key> #}", SHOWN), "hunyuan-3", CALLS_HY3},
    {EACH("{% set HYTK = ':opensource' %}{# '<tool_sep{}>'.format(HYTK) '<tool_call{}>' #}", SHOWN),
     "hunyuan-3", CALLS_HY3_OPEN},
    {EACH("{# <tool_call:opensource> <tool_sep:opensource> #}", SHOWN), "hunyuan-3", CALLS_HY3_OPEN},
    {EACH("{# <tool_call> <beginning_of_sentence>ai <tool_calls> #}", SHOWN), "minimax-m1", CALLS_MINIMAX_M1},
    {EACH("{{ '' if true else 'Action:\\n```json\\n \"tool_name\"' }}", SHOWN), "command", CALLS_COMMAND},
    {EACH("{# Action:\n```json \"tool_name\" #}", SHOWN), "command", CALLS_COMMAND},
    {EACH("{# Action: ```json \"tool_name\" #}", SHOWN), "command", CALLS_COMMAND},
    {EACH("{# <|tool_call:begin|> #}", SHOWN), "solar", CALLS_SOLAR},
    {EACH("{# <|tool_call:start|> <|tool_arg:start|> #}", SHOWN), "solar-2", CALLS_SOLAR_2},
    {EACH("{# <|eot_id|> \"parameters\": #}{{ '' if true else '>>>all\\n' }}", SHOWN), "functionary",
     CALLS_FUNCTIONARY_ALL},
    {EACH("{# <|eot_id|> \"parameters\": >>>all\n #}", SHOWN), "functionary", CALLS_FUNCTIONARY_ALL},
    {EACH("{# <tool_call> '<|open|>' + tag '<|close|>' + tag #}", SHOWN), "kimi-3", CALLS_KIMI_3},
    {EACH("{# ']<]minimax[>[' ~ '<tool_call>' '<response>' #}", SHOWN), "minimax-3", CALLS_MINIMAX_3},
    /* detected, but not shown: calls use our format then */
    {EACH("{# [TOOL_CALLS] #}", ""), "mistral", CALLS_HERMES},
};

static void families_are_recognised(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(shown_families); i++) {
        struct chat_format *format = chat_format_for(shown_families[i].source);

        assert_string_equal(chat_format_name(format), shown_families[i].name);
        assert_int_equal(chat_format_info(format)->calls, shown_families[i].calls);
        assert_int_equal(chat_format_has_tools(format),
                         strstr(shown_families[i].source, "tool_calls") != NULL);
        chat_format_free(format);
    }
    chat_format_free(NULL);
}

static void bad_templates_are_refused(void **state)
{
    expect_chat_refusal("a\nb{{ x|zork }}", "chat template line 2: unknown filter \"zork\"");
    expect_chat_refusal("{% for m in messages %}", "chat template line 1: {% endfor %} is missing");
    expect_chat_refusal("\n\n{{ 1 + }}", "chat template line 3: expected an expression, found '}}'");
    expect_chat_refusal("{% include 'x' %}", "chat template line 1: unknown statement 'include'");
    expect_chat_refusal("{{ messages[0].nothing.more }}",
                        "not even one question renders: line 1: 'nothing' is undefined");
    expect_chat_refusal(
        "{% set x = range(90000)|list %}{% for a in x %}{% for b in x %}{% endfor %}{% endfor %}",
        "too many steps");
    expect_chat_refusal("{{ '<|im_start|>' }}{{ 'x' * 99999999 }}", "not even one question renders");
}

/* A base model's file loads and says so; only a conversation fails. */
static void a_file_without_a_template_renders_no_conversation(void **state)
{
    struct chat_format *format = chat_format_for(NULL);
    struct chat_message message = {.role = CHAT_USER, .text = bytes_str("Q")};
    struct chat_prompt prompt = {.messages = &message, .n_messages = 1, .adds_generation = true};
    struct fault fault = {0};
    struct token_ids ids = {0};
    struct buf text = {0};

    assert_false(chat_format_has_template(format));
    assert_string_equal(chat_format_name(format), "none");
    assert_false(chat_format_has_tools(format));
    assert_non_null(strstr(chat_format_warning(format), "no chat template"));
    assert_int_equal(chat_format_info(format)->calls, CALLS_PLAIN);
    assert_int_equal(chat_render(format, &prompt, 100, &fault, &ids), E_UNSUPPORTED);
    assert_non_null(strstr(fault.text, "no chat template"));
    assert_int_equal(chat_render_text(format, &prompt, &fault, &text), E_UNSUPPORTED);
    assert_int_equal(ids.n + text.len_bytes, 0);
    chat_format_free(format);
}

static void markers_must_be_tokens(void **state)
{
    struct buf image = {0};
    struct fault fault = {0};
    struct chat_format *format = NULL;

    byte_level_image("qwen2", NULL, NULL, EACH("<|im_start|>", ""), &image);
    struct tokenizer *tokenizer = tokenizer_of_image(&image);
    assert_int_equal(chat_format_new(tokenizer, &fault, &format), E_UNSUPPORTED);
    assert_non_null(strstr(fault.text, "<|im_start|>, which is not a control token"));
    tokenizer_unref(tokenizer);
}

/* ---- a whole conversation ---- */

#define BYTES(literal)                                                                                       \
    {                                                                                                        \
        (const uint8_t *)(literal), sizeof(literal) - 1                                                      \
    }

static const struct chat_call get_call = {.name = BYTES("get"),
                                          .arguments = BYTES("{ \"a\":[1.50,2e3, 18446744073709551616 ]}"),
                                          .id = BYTES("call-1")};
static const struct chat_message tool_loop[] = {
    {.role = CHAT_SYSTEM, .text = BYTES("S")},
    {.role = CHAT_USER, .text = BYTES("Q")},
    {.role = CHAT_ASSISTANT, .text = BYTES("Wait."), .calls = &get_call, .n_calls = 1},
    {.role = CHAT_TOOL, .text = BYTES("R"), .call_id = BYTES("call-1")},
};

static void tools_calls_and_results_are_shown(void **state)
{
    struct chat_format *format = chat_format_for(hermes_template);
    struct chat_tool tool = {.name = bytes_str("get"),
                             .description = bytes_str("Gets \"it\""),
                             .parameters = bytes_str("{\"type\":\"object\"}")};
    struct chat_prompt prompt = {
        .messages = tool_loop, .n_messages = 4, .tools = &tool, .n_tools = 1, .adds_generation = true};

    expect_chat_text(
        format, &prompt,
        "<|im_start|>system\nS\n\nYou have these tools:\n<tools>\n{\"type\": \"function\", "
        "\"function\": {\"name\": \"get\", \"description\": \"Gets \\\"it\\\"\", \"parameters\": "
        "{\"type\": \"object\"}}}\n</tools>\nTo use one, write <tool_call> with a JSON object of "
        "name and arguments.<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
        "Wait.\n<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": [1.5, 2000.0, "
        "18446744073709551616]}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nR\n"
        "</tool_response><|im_end|>\n<|im_start|>assistant\n");
    prompt.tools = NULL;
    prompt.n_tools = 0;
    prompt.n_messages = 2;
    prompt.thinking = CHAT_THINKING_OFF;
    expect_chat_text(format, &prompt,
                     "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
                     "<think>\n\n</think>\n\n");
    prompt.thinking = CHAT_THINKING_ON;
    prompt.adds_generation = false;
    expect_chat_text(format, &prompt, "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n");
    chat_format_free(format);
}

/* A template without tools gets them in the system text, calls in answers and results in questions. */
static void tools_are_described_where_there_are_none(void **state)
{
    struct chat_format *format = chat_format_for(EACH("", ""));
    struct chat_tool tool = {.name = bytes_str("get"),
                             .description = bytes_str("Gets \"it\""),
                             .parameters = bytes_str("{\"type\":\"object\"}")};
    const struct chat_message messages[] = {
        tool_loop[0], tool_loop[1], tool_loop[2], tool_loop[3], {.role = CHAT_USER, .text = BYTES("Go on.")},
    };
    struct chat_prompt prompt = {.messages = messages, .n_messages = 5, .tools = &tool, .n_tools = 1};

#define DESCRIBED                                                                                            \
    "These tools can be called, one JSON object a line:\n<tools>\n{\"name\": \"get\", \"description\": "     \
    "\"Gets \\\"it\\\"\", \"parameters\": {\"type\":\"object\"}}\n</tools>\nA call is written like this, "   \
    "each in marks of its own, and its result comes with the next message:\n<tool_call>\n{\"name\": "        \
    "\"NAME\", \"arguments\": {...}}\n</tool_call>;"
#define CALLED                                                                                               \
    "assistant:Wait.\n<tool_call>\n{\"name\": \"get\", \"arguments\": { \"a\":[1.50,2e3, "                   \
    "18446744073709551616 ]}}\n</tool_call>;user:<tool_response>\nR\n</tool_response>"
    assert_false(chat_format_has_tools(format));
    expect_chat_text(format, &prompt, "system:S\n\n" DESCRIBED "user:Q;" CALLED "\n\nGo on.;");
    prompt.n_tools = 0; /* only a history of tools */
    prompt.n_messages = 4;
    expect_chat_text(format, &prompt, "system:S;user:Q;" CALLED ";");
    prompt.messages = messages + 1; /* no system text before */
    prompt.n_messages = 1;
    prompt.n_tools = 1;
    expect_chat_text(format, &prompt, "system:" DESCRIBED "user:Q;");
    prompt.n_tools = 0;
    expect_chat_text(format, &prompt, "user:Q;");
    chat_format_free(format);
}

static void turns_take_the_shape_a_template_wants(void **state)
{
    /* Alternating turns, one call each, results only before answers, a system text only at the start. */
    struct chat_format *format = chat_format_for(
        "{{ tools|string|length > 4 }}{% for m in messages %}"
        "{% if m.role == 'system' and not loop.first %}{{ raise_exception('late system') }}{% endif %}"
        "{% if m.tool_calls and m.tool_calls|length != 1 %}{{ raise_exception('one call') }}{% endif %}"
        "{% if not loop.first and m.role == 'user' and loop.previtem.role in ['user', 'tool'] %}"
        "{{ raise_exception('turns') }}{% endif %}"
        "{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %};"
        "{% endfor %}{{ tools|string if tools }}{{ messages|map(attribute='tool_calls', default='')|list|"
        "string if tools }}");
    const struct chat_call calls[] = {{BYTES("f"), BYTES("{}"), BYTES("1")},
                                      {BYTES("g"), BYTES("{}"), BYTES("2")}};
    const struct chat_message messages[] = {
        {.role = CHAT_SYSTEM, .text = BYTES("S")},
        {.role = CHAT_USER, .text = BYTES("a")},
        {.role = CHAT_SYSTEM, .text = BYTES("late")},
        {.role = CHAT_USER, .text = BYTES("b")},
        {.role = CHAT_ASSISTANT, .text = BYTES("hm"), .calls = calls, .n_calls = 2},
        {.role = CHAT_TOOL, .text = BYTES("R2"), .call_id = BYTES("2")},
        {.role = CHAT_TOOL, .text = BYTES("R1"), .call_id = BYTES("1")},
        {.role = CHAT_USER, .text = BYTES("c")},
    };
    struct chat_prompt prompt = {.messages = messages, .n_messages = 8};

    assert_true(chat_format_has_tools(format));
    expect_chat_text(format, &prompt,
                     "Falsesystem:S;user:a\n\n<system-reminder>\nlate\n</system-reminder>\n\nb;"
                     "assistant:hmf;tool:R1;assistant:g;tool:R2\n\nc;");
    chat_format_free(format);
}

static void thinking_is_given_to_those_who_ask(void **state)
{
    const struct chat_message messages[] = {
        {.role = CHAT_USER, .text = BYTES("a")},
        {.role = CHAT_ASSISTANT, .text = BYTES("b"), .thinking = BYTES("t")},
    };
    struct chat_prompt prompt = {
        .messages = messages, .n_messages = 2, .thinking = CHAT_THINKING_ON, .effort = "high"};
    struct chat_format *format =
        chat_format_for(EACH("{{ enable_thinking }}{{ thinking }}{{ reasoning_effort }};",
                             "{{ messages[-1].reasoning_content }}"));

    expect_chat_text(format, &prompt, "TrueTruehigh;user:a;assistant:b;t");
    chat_format_free(format);
    format = chat_format_for(EACH("</think>", "{{ messages[-1].thinking }}"));
    expect_chat_text(format, &prompt, "</think>user:a;assistant:b;");
    assert_string_equal(chat_format_info(format)->think_open, "<think>");
    assert_null(chat_format_info(format)->think_name);
    chat_format_free(format);
    format = chat_format_for(EACH("{# <|channel>thought<channel|> #}", ""));
    assert_string_equal(chat_format_info(format)->think_open, "<|channel>");
    assert_string_equal(chat_format_info(format)->think_close, "<channel|>");
    assert_string_equal(chat_format_info(format)->think_name, "thought\n");
    chat_format_free(format);
    format = chat_format_for(EACH("{# <|channel|> #}", "{{ messages[-1].thinking }}"));
    expect_chat_text(format, &prompt, "user:a;assistant:b;t");
    chat_format_free(format);
}

static void an_open_answer_stays_open(void **state)
{
    struct chat_format *format = chat_format_for(hermes_template);
    struct chat_message messages[] = {{.role = CHAT_USER, .text = bytes_str("Hi")},
                                      {.role = CHAT_ASSISTANT, .text = bytes_str("Hi")}};
    struct chat_prompt prompt = {
        .messages = messages, .n_messages = 2, .adds_generation = true, .continues_last = true};
    struct fault fault = {0};
    struct buf text = {0};

    expect_chat_text(format, &prompt, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHi");
    messages[1].text = bytes_str(""); /* continuing an empty answer begins one */
    expect_chat_text(format, &prompt, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    prompt.n_messages = 1; /* nothing to continue: a new turn begins */
    expect_chat_text(format, &prompt, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    chat_format_free(format);

    format = chat_format_for("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}");
    messages[1].text = bytes_str("Well");
    prompt.n_messages = 2;
    assert_int_equal(chat_render_text(format, &prompt, &fault, &text), E_UNSUPPORTED);
    assert_non_null(strstr(fault.text, "cannot be continued"));
    chat_format_free(format);
}

/* ---- detection by trial ---- */

static void a_system_text_goes_where_it_can(void **state)
{
    struct chat_format *format = chat_format_for(
        EACH("{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}", ""));
    struct chat_prompt prompt = {.messages = tool_loop, .n_messages = 2};

    expect_chat_text(format, &prompt, "user:S\n\nQ;");
    chat_format_free(format);
}

static void calls_are_given_as_the_template_wants_them(void **state)
{
    static const struct {
        const char *call, *text;
    } cases[] = {
        {"{{ m.tool_calls[0].function.arguments|tojson }}", "{\"a\": [1.5, 2000.0, 18446744073709551616]}"},
        {"{{ m.tool_calls[0].function.name + m.tool_calls[0]['function']['arguments'] }}",
         "get{ \"a\":[1.50,2e3, 18446744073709551616 ]}"},
        {"{% if m.content is none %}{{ m.tool_calls[0].function }}{% endif %}",
         "{'name': 'get', 'arguments': {'a': [1.5, 2000.0, 18446744073709551616]}}"},
        {"{% if m.content is none %}{{ m.tool_calls[0].function.name + m.tool_calls[0].function.arguments "
         "}}{% endif %}",
         "get{ \"a\":[1.50,2e3, 18446744073709551616 ]}"},
    };
    struct chat_message messages[] = {tool_loop[1], tool_loop[2], tool_loop[3]};
    struct chat_tool tool = {.name = bytes_str("get")};
    struct chat_prompt prompt = {.messages = messages, .n_messages = 3, .tools = &tool, .n_tools = 1};

    messages[1].text = bytes_str("");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf source = {0}, expected = {0};

        /* The name of the result's call, too. */
        buf_printf(
            &source,
            "{%% if tools %%}{{ tools[0].function.name + tools[0].function.description }}{%% endif %%}"
            "{%% for m in messages %%}{%% if m.tool_calls %%}%s{{ m.tool_calls[0].function.name }}{%% elif "
            "m.role == 'tool' %%}{{ m.name ~ m.tool_call_id ~ m.content }}{%% endif %%}{%% endfor %%}",
            cases[i].call);
        buf_printf(&expected, "get%sgetgetcall-1R", cases[i].text);
        struct chat_format *format = chat_format_for((char *)source.data);
        assert_true(chat_format_has_tools(format));
        expect_chat_text(format, &prompt, (char *)expected.data);
        chat_format_free(format);
        buf_fini(&expected);
        buf_fini(&source);
    }
}

static void ids_take_the_shape_a_family_wants(void **state)
{
    struct chat_format *format = chat_format_for(
        "{# [TOOL_CALLS] #}{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}"
        "{% for c in m.tool_calls or [] %}{{ c|tojson }}{% if c.id|length != 9 %}{{ raise_exception('9') }}"
        "{% endif %}{% endfor %}{{ m.tool_call_id }}{{ m.content }}{% endfor %}");
    struct chat_prompt prompt = {.messages = tool_loop, .n_messages = 4};
    struct buf text = {0};
    const char *first, *second;

    assert_int_equal(chat_render_text(format, &prompt, NULL, &text), 0);
    first = strstr((char *)text.data, "\"id\": \"");
    assert_non_null(first);
    second = strstr(first + 16, "Wait.");
    assert_non_null(second);
    assert_memory_equal(first + 7, second + 5, 9); /* the result has the same */
    buf_fini(&text);
    chat_format_free(format);
}

/* The index counts the calls of the whole conversation; results name the id of their call.  An id that has this
 * form already stays. */
static void kimi_ids_have_a_name_and_an_index(void **state)
{
    const struct chat_call first = {bytes_str("get"), bytes_str("{}"), bytes_str("call-1")};
    const struct chat_call later[] = {{bytes_str("get"), bytes_str("{}"), bytes_str("call-2")},
                                      {bytes_str("put"), bytes_str("{}"), bytes_str("call-3")},
                                      {bytes_str("put"), bytes_str("{}"), bytes_str("functions.put:77")},
                                      {bytes_str("put"), bytes_str("{}"), bytes_str("functions.get:78")}};
    const struct chat_message messages[] = {
        {.role = CHAT_USER, .text = bytes_str("Q")},
        {.role = CHAT_ASSISTANT, .calls = &first, .n_calls = 1},
        {.role = CHAT_TOOL, .text = bytes_str("R"), .call_id = bytes_str("call-1")},
        {.role = CHAT_ASSISTANT, .calls = later, .n_calls = 4},
        {.role = CHAT_TOOL, .text = bytes_str("R"), .call_id = bytes_str("call-2")},
        {.role = CHAT_TOOL, .text = bytes_str("R"), .call_id = bytes_str("call-3")},
        {.role = CHAT_TOOL, .text = bytes_str("R"), .call_id = bytes_str("functions.put:77")},
        {.role = CHAT_TOOL, .text = bytes_str("R"), .call_id = bytes_str("functions.get:78")},
        {.role = CHAT_TOOL, .text = bytes_str("R"), .call_id = bytes_str("unknown")}};
    const struct chat_prompt prompt = {.messages = messages, .n_messages = ARRAY_LEN(messages)};
    struct chat_format *format = chat_format_for(
        "{# <|tool_calls_section_begin|> #}{% for t in tools or [] %}{{ t.function.name }}{% endfor %}"
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.arguments }};{% "
        "endfor %}"
        "{% if m.tool_call_id %}{{ m.tool_call_id }}={{ m.content }};{% endif %}{% endfor %}");

    expect_chat_text(
        format, &prompt,
        "functions.get:0{};functions.get:0=R;functions.get:1{};functions.put:2{};functions.put:77{};"
        "functions.put:4{};functions.get:1=R;functions.put:2=R;functions.put:77=R;functions.put:4=R;"
        "unknown=R;");
    chat_format_free(format);
}

/* Cohere's templates read the thinking of a turn with calls from tool_plan. */
static void cohere_thinking_is_a_plan(void **state)
{
    const struct chat_call call = {bytes_str("get"), bytes_str("{}"), bytes_str("call-1")};
    const struct chat_message messages[] = {
        {.role = CHAT_USER, .text = bytes_str("Q")},
        {.role = CHAT_ASSISTANT, .calls = &call, .n_calls = 1, .thinking = bytes_str("T")},
        {.role = CHAT_TOOL, .text = bytes_str("R"), .call_id = bytes_str("call-1")}};
    const struct chat_prompt prompt = {.messages = messages, .n_messages = ARRAY_LEN(messages)};
    struct chat_format *format = chat_format_for(
        "{# <|START_ACTION|> <|END_THINKING|> #}{% for t in tools or [] %}{{ t.function.name }}{% endfor %}"
        "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}"
        "<|START_THINKING|>{{ m.tool_plan }}<|END_THINKING|>{{ c.function.name }}{{ c.function.arguments "
        "}}{% endfor %};"
        "{% endfor %}");

    expect_chat_text(format, &prompt, "user:Q;assistant:<|START_THINKING|>T<|END_THINKING|>get{};tool:R;");
    chat_format_free(format);
}

static void templates_that_fail_on_no_tools_get_none(void **state)
{
    struct chat_format *format =
        chat_format_for(EACH("{% for t in tools %}{{ t.function.name }}{% endfor %}", ""));
    struct chat_message message;
    struct chat_prompt prompt = hello(&message);

    expect_chat_text(format, &prompt, "user:Hi;");
    chat_format_free(format);
    format = chat_format_for(EACH("{% if tools is not none %}no{% endif %}", ""));
    expect_chat_text(format, &prompt, "user:Hi;");
    chat_format_free(format);
}

/* ---- refusals of a conversation ---- */

static void a_templates_own_refusal_is_reported(void **state)
{
    struct chat_format *format = chat_format_for(
        EACH("{% if messages|length > 2 %}{{ raise_exception('Two are enough.') }}{% endif %}", ""));
    struct chat_prompt prompt = {.messages = tool_loop, .n_messages = 2};
    struct chat_message messages[] = {tool_loop[0], tool_loop[1], tool_loop[1]};
    struct fault fault = {0};
    struct token_ids ids = {0};

    assert_int_equal(chat_render(format, &prompt, SIZE_MAX, &fault, &ids), 0);
    prompt.messages = messages;
    prompt.n_messages = 3;
    assert_int_equal(chat_render(format, &prompt, SIZE_MAX, &fault, &ids), E_INVAL);
    assert_string_equal(fault.text, "the model's chat template refuses this conversation: Two are enough.");
    token_ids_fini(&ids);
    chat_format_free(format);
}

static void rendering_is_bounded(void **state)
{
    struct chat_format *format = chat_format_for(hermes_template);
    struct chat_message message;
    struct chat_prompt prompt = hello(&message);
    struct chat_tool tool = {.name = bytes_str("f")};
    struct token_ids ids = {0}, few = {0};
    struct fault fault = {0};
    struct buf deep = {0};

    assert_int_equal(chat_render(format, &prompt, SIZE_MAX, &fault, &ids), 0);
    assert_int_equal(chat_render(format, &prompt, ids.n - 1, &fault, &few), E_LIMIT);
    assert_string_equal(fault.text, "the prompt is too long");
    assert_int_equal(few.n, 0);
    assert_int_equal(chat_render(format, &prompt, ids.n, &fault, &few), 0);
    assert_memory_equal(few.ids, ids.ids, ids.n * sizeof(*ids.ids));

    prompt.tools = &tool;
    prompt.n_tools = 1;
    for (int i = 0; i < 100000; i++)
        buf_append_byte(&deep, '[');
    tool.parameters = buf_view(&deep);
    assert_int_equal(chat_render(format, &prompt, SIZE_MAX, &fault, &ids), E_LIMIT);
    assert_string_equal(fault.text, "a tool's parameters: JSON nests too deep");
    tool.parameters = bytes_str("{\"a\":}");
    assert_int_equal(chat_render(format, &prompt, SIZE_MAX, &fault, &ids), E_FORMAT);
    assert_string_equal(fault.text, "a tool's parameters: not JSON");
    buf_fini(&deep);
    token_ids_fini(&few);
    token_ids_fini(&ids);
    chat_format_free(format);
}

/* ---- how long ---- */

static void a_long_conversation_is_quick(void **state)
{
    static struct chat_message messages[100];
    struct chat_format *format = chat_format_for(hermes_template);
    struct chat_tool tool = {.name = bytes_str("get"), .parameters = bytes_str("{\"type\": \"object\"}")};
    struct chat_prompt prompt = {
        .messages = messages, .n_messages = 100, .tools = &tool, .n_tools = 1, .adds_generation = true};
    struct buf paragraph = {0};
    uint64_t best_ns = UINT64_MAX;

    for (int i = 0; i < 20; i++)
        buf_append_str(&paragraph, "Some words of no great meaning, one after the other. ");
    for (size_t i = 0; i < 100; i++) {
        messages[i] = tool_loop[i % 4 == 0 ? 1 : 2 + (i % 4 == 2)];
        messages[i].text = buf_view(&paragraph);
    }
    for (int i = 0; i < 5; i++) {
        struct buf text = {0};
        uint64_t from_ns = clock_now_ns();

        assert_int_equal(chat_render_text(format, &prompt, NULL, &text), 0);
        uint64_t took_ns = clock_now_ns() - from_ns;
        best_ns = took_ns < best_ns ? took_ns : best_ns;
        assert_true(text.len_bytes > 100 * paragraph.len_bytes);
        buf_fini(&text);
    }
    print_message("100 messages of %zu bytes with a tool: rendered in %.2f ms\n", paragraph.len_bytes,
                  (double)best_ns / 1e6);
    buf_fini(&paragraph);
    chat_format_free(format);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_are_recognised),
        cmocka_unit_test(bad_templates_are_refused),
        cmocka_unit_test(a_file_without_a_template_renders_no_conversation),
        cmocka_unit_test(markers_must_be_tokens),
        cmocka_unit_test(tools_calls_and_results_are_shown),
        cmocka_unit_test(tools_are_described_where_there_are_none),
        cmocka_unit_test(turns_take_the_shape_a_template_wants),
        cmocka_unit_test(thinking_is_given_to_those_who_ask),
        cmocka_unit_test(an_open_answer_stays_open),
        cmocka_unit_test(a_system_text_goes_where_it_can),
        cmocka_unit_test(calls_are_given_as_the_template_wants_them),
        cmocka_unit_test(ids_take_the_shape_a_family_wants),
        cmocka_unit_test(kimi_ids_have_a_name_and_an_index),
        cmocka_unit_test(cohere_thinking_is_a_plan),
        cmocka_unit_test(templates_that_fail_on_no_tools_get_none),
        cmocka_unit_test(a_templates_own_refusal_is_reported),
        cmocka_unit_test(rendering_is_bounded),
        cmocka_unit_test(a_long_conversation_is_quick),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
