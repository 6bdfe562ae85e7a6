/* SPDX-License-Identifier: Apache-2.0 */
/* Chat formats: the marks around answers and around thinking, as they are found in a template. */
#include "tests/unit/text/token/chat_templates.h"
#include "tests/unit/text/token/vocabularies.h"

#include "base/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define WRAPPED(open, close)                                                                                 \
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ '" open "' + m.content + '" close               \
    "' }}{% else %}{{ m.content }};{% endif %}{% endfor %}"
#define UNWRAPPED                                                                                            \
    "{% for m in messages %}{{ m.content.split('<answer>')[-1].split('</answer>')[0] }};{% endfor %}"

/* Without tools in the template, calls are as in Hermes.  Answers have the marks that it writes or takes off. */
static void marks_around_answers_are_found(void **state)
{
    static const struct token_spec extra[] = {{"<|START_RESPONSE|>", 3, 0}, {NULL, 0, 0}};
    static const struct {
        const struct token_spec *extra;
        const char *source;
        enum calls_format answers;
    } cases[] = {{NULL, EACH("{# <|START_ACTION|> #}", ""), CALLS_COHERE},
                 {NULL, EACH("{# <tool_calls>[ <answer> #}", ""), CALLS_HUNYUAN_LIST},
                 {NULL, EACH("{# <tool_calls>[ #}", ""), CALLS_TOOL_CALLS},
                 {NULL, EACH("{# <TOOLCALL> #}", ""), CALLS_HERMES},
                 {NULL, EACH("{# <response></response> #}", ""), CALLS_ERNIE},
                 {extra, EACH("", ""), CALLS_COHERE},
                 {NULL, EACH("", ""), CALLS_HERMES},
                 {NULL, EACH("{# <|tool_call:begin|> #}", ""), CALLS_SOLAR},
                 {NULL, EACH("{# ']<]minimax[>[' #}", ""), CALLS_MINIMAX_3},
                 {NULL, EACH("{{ '' if true else '>>>all\\n' }}", ""), CALLS_FUNCTIONARY_ALL},
                 {NULL, WRAPPED("<response>\\n", "\\n</response>\\n"), CALLS_ERNIE},
                 {NULL, UNWRAPPED, CALLS_HUNYUAN_LIST},
                 {NULL, EACH("Write <answer> text </answer>.", ""), CALLS_HERMES}};

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct chat_format *format = NULL;
        struct tokenizer *tokenizer;
        struct buf image = {0};

        byte_level_image("qwen2", NULL, cases[i].extra, cases[i].source, &image);
        tokenizer = tokenizer_of_image(&image);
        assert_int_equal(chat_format_new(tokenizer, NULL, &format), 0);
        assert_int_equal(chat_format_info(format)->calls, CALLS_HERMES);
        assert_int_equal(chat_format_info(format)->answers, cases[i].answers);
        chat_format_free(format);
        tokenizer_unref(tokenizer);
    }
}

static void marks_around_thinking_are_found(void **state)
{
    static const char *const cases[][3] = {
        {"{# <think> #}", "<think>", "</think>"},
        {"{# </think:opensource> #}", "<think:opensource>", "</think:opensource>"},
        {"{# [/THINK] #}", "[THINK]", "[/THINK]"},
        {"{# <seed:think> #}", "<seed:think>", "</seed:think>"},
        {"{# <|START_THINKING|> #}", "<|START_THINKING|>", "<|END_THINKING|>"},
        {"{# <|inner_prefix|> #}", "<|inner_prefix|>", "<|inner_suffix|>"},
        {"{# 'Here is my response:' #}", "Here is my thought process:", "Here is my response:"},
        {"{# '</mm:think>' #}", "<mm:think>", "</mm:think>"},
        {"{# <|end|> <|think|> <|tool_call:begin|> #}", "<|think|>", "<|end|><|begin|>assistant"},
        {"{# <|think:start|> #}", "<|think:start|>", "<|think:end|>"},
        {"{# '<|open|>' + tag + '<|sep|>' #}", "<|open|>think<|sep|>", "<|close|>think<|sep|>"},
        {"{# [BEGIN FINAL RESPONSE] #}", "Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"},
        {"{# Here's my response: #}", "Here's my thought process:", "Here's my response:"}};

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct chat_format *format = NULL;
        struct buf image = {0}, source = {0};
        struct tokenizer *tokenizer;

        buf_printf(&source, "%s%s", cases[i][0], EACH("", ""));
        byte_level_image("qwen2", NULL, NULL, (const char *)source.data, &image);
        tokenizer = tokenizer_of_image(&image);
        assert_int_equal(chat_format_new(tokenizer, NULL, &format), 0);
        assert_string_equal(chat_format_info(format)->think_open, cases[i][1]);
        assert_string_equal(chat_format_info(format)->think_close, cases[i][2]);
        assert_int_equal(chat_format_info(format)->think_is_words, cases[i][1][0] == 'H');
        chat_format_free(format);
        tokenizer_unref(tokenizer);
        buf_fini(&source);
    }
}

/* Hunyuan 3's template puts its marks together; its vocabulary has the whole ones as tokens. */
static void marks_that_a_template_builds_are_tokens(void **state)
{
    static const struct token_spec extra[] = {{"<think:opensource>", 3, 0},
                                              {"</think:opensource>", 3, 0},
                                              {"<tool_sep:opensource>", 3, 0},
                                              {NULL, 0, 0}};
    static const char source[] = "{% set HYTK = ':opensource' %}{% set sep = '<tool_sep{}>'.format(HYTK) %}"
                                 "{{ sep + '<think{}>'.format(HYTK) }}" EACH("", "");
    struct chat_message message = {.role = CHAT_USER, .text = bytes_str("<think:opensource>")};
    struct chat_prompt prompt = {.messages = &message, .n_messages = 1, .adds_generation = true};
    struct chat_format *format = NULL;
    struct tokenizer *tokenizer;
    struct token_ids ids = {0};
    struct buf image = {0};

    (void)state;
    byte_level_image("qwen2", NULL, extra, source, &image);
    tokenizer = tokenizer_of_image(&image);
    assert_int_equal(chat_format_new(tokenizer, NULL, &format), 0);
    assert_string_equal(chat_format_info(format)->think_open, "<think:opensource>");
    assert_string_equal(chat_format_info(format)->think_close, "</think:opensource>");
    assert_int_equal(chat_render(format, &prompt, 100, NULL, &ids), 0);
    assert_int_equal(ids.n, 2 + strlen("user:<think:opensource>;"));
    assert_int_equal(ids.ids[0], tokenizer_find(tokenizer, bytes_str("<tool_sep:opensource>")));
    assert_int_equal(ids.ids[1], tokenizer_find(tokenizer, bytes_str("<think:opensource>")));
    token_ids_fini(&ids);
    chat_format_free(format);
    tokenizer_unref(tokenizer);
}

/* Solar Open wants ids of ten lower-case letters and digits, and thinking under a name of its own. */
static void solar_reads_ids_and_thinking_as_its_own(void **state)
{
    const struct chat_call calls[] = {{bytes_str("get"), bytes_str("{}"), bytes_str("toolu_01")},
                                      {bytes_str("get"), bytes_str("{}"), bytes_str("a1b2c3d4e5")},
                                      {bytes_str("get"), bytes_str("{}"), bytes_str("A1B2C3D4E5")}};
    const struct chat_message messages[] = {
        {.role = CHAT_USER, .text = bytes_str("Q")},
        {.role = CHAT_ASSISTANT, .thinking = bytes_str("Hm."), .calls = calls, .n_calls = 3},
        {.role = CHAT_TOOL, .text = bytes_str("R"), .call_id = calls[0].id},
        {.role = CHAT_TOOL, .text = bytes_str("R"), .call_id = calls[1].id},
        {.role = CHAT_TOOL, .text = bytes_str("R"), .call_id = calls[2].id}};
    const struct chat_tool tool = {.name = bytes_str("get")};
    const struct chat_prompt prompt = {.messages = messages, .n_messages = 5, .tools = &tool, .n_tools = 1};
    struct chat_format *format = NULL;
    struct tokenizer *tokenizer;
    struct buf image = {0}, text = {0};
    const char *ids[6];

    (void)state;
    byte_level_image("qwen2", NULL, NULL,
                     "{# <|tool_call:begin|> #}{% for t in tools or [] %}{{ t.function.name }}{% endfor %}"
                     "{% for m in messages %}{{ m.reasoning }}{% for c in m.tool_calls or [] %}id={{ c.id }};"
                     "{{ c.function.name ~ c.function.arguments }}{% endfor %}"
                     "{{ 'id=' ~ m.tool_call_id ~ ';' if m.role == 'tool' }}{{ m.content }}{% endfor %}",
                     &image);
    tokenizer = tokenizer_of_image(&image);
    assert_int_equal(chat_format_new(tokenizer, NULL, &format), 0);
    assert_int_equal(chat_render_text(format, &prompt, NULL, &text), 0);
    assert_non_null(strstr((const char *)text.data, "Hm.id="));
    for (size_t i = 0; i < 6; i++) {
        ids[i] = strstr(i == 0 ? (const char *)text.data : ids[i - 1], "id=");
        assert_non_null(ids[i]);
        ids[i] += 3;
        assert_int_equal(strspn(ids[i], "abcdefghijklmnopqrstuvwxyz0123456789"), 10);
    }
    for (size_t i = 0; i < 3; i++)
        assert_memory_equal(ids[i], ids[i + 3], 10); /* results have those of their calls */
    assert_memory_equal(ids[1], "a1b2c3d4e5", 10);
    assert_memory_not_equal(ids[0], ids[2], 10);
    buf_fini(&text);
    chat_format_free(format);
    tokenizer_unref(tokenizer);
}

/* MiniMax M3 and Kimi K3 have other names for the switch of thinking and for its effort. */
static void thinking_has_more_than_one_name(void **state)
{
    static const struct {
        enum chat_thinking thinking;
        const char *effort, *text;
    } cases[] = {{CHAT_THINKING_DEFAULT, NULL, "none none Q"},
                 {CHAT_THINKING_ON, NULL, "enabled none Q"},
                 {CHAT_THINKING_OFF, "low", "disabled low Q"},
                 {CHAT_THINKING_DEFAULT, "high", "none high Q"}};
    const struct chat_message message = {.role = CHAT_USER, .text = bytes_str("Q")};
    struct chat_format *format = NULL;
    struct tokenizer *tokenizer;
    struct buf image = {0};

    (void)state;
    byte_level_image("qwen2", NULL, NULL,
                     "{{ thinking_mode|default('none') ~ ' ' ~ thinking_effort|default('none') ~ ' ' }}"
                     "{% for m in messages %}{{ m.content }}{% endfor %}",
                     &image);
    tokenizer = tokenizer_of_image(&image);
    assert_int_equal(chat_format_new(tokenizer, NULL, &format), 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct chat_prompt prompt = {
            .messages = &message, .n_messages = 1, .thinking = cases[i].thinking, .effort = cases[i].effort};
        struct buf text = {0};

        assert_int_equal(chat_render_text(format, &prompt, NULL, &text), 0);
        assert_true(bytes_is(buf_view(&text), cases[i].text));
        buf_fini(&text);
    }
    chat_format_free(format);
    tokenizer_unref(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks_around_answers_are_found),
        cmocka_unit_test(marks_around_thinking_are_found),
        cmocka_unit_test(marks_that_a_template_builds_are_tokens),
        cmocka_unit_test(solar_reads_ids_and_thinking_as_its_own),
        cmocka_unit_test(thinking_has_more_than_one_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
