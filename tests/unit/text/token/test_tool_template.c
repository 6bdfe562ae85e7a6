/* SPDX-License-Identifier: Apache-2.0 */
/* A second template in the file, tokenizer.chat_template.tool_use: prompts with tools use it, others do not. */
#include "tests/unit/text/token/vocabularies.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define EACH "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"

/* A format of two templates. */
static struct chat_format *format_of_both(const char *plain, const char *with_tools)
{
    static const struct token_spec extra[] = {{"<s>", 3, 0}, {"<|im_end|>", 3, 0}, {NULL, 0, 0}};
    struct buf image = {0}, both = {0};
    struct gguf_writer *writer = NULL;
    struct gguf *gguf = NULL;
    struct fault fault = {0};
    struct chat_format *format = NULL;

    byte_level_image("qwen2", NULL, extra, plain, &image);
    assert_int_equal(gguf_open_memory(buf_view(&image), &fault, &gguf), 0);
    assert_int_equal(gguf_writer_new(&writer), 0);
    assert_int_equal(gguf_put_str(writer, "tokenizer.chat_template.tool_use", bytes_str(with_tools)), 0);
    assert_int_equal(gguf_put_keys_of(writer, gguf, ""), 0);
    assert_int_equal(gguf_writer_header(writer, &both), 0);
    gguf_writer_free(writer);
    gguf_close(gguf);
    buf_fini(&image);
    struct tokenizer *tokenizer = tokenizer_of_image(&both);
    if (chat_format_new(tokenizer, &fault, &format) != 0)
        fail_msg("%s", fault.text);
    tokenizer_unref(tokenizer);
    return format;
}

static const struct chat_message question = {.role = CHAT_USER, .text = {(const uint8_t *)"a", 1}};
static const struct chat_tool tool = {.name = {(const uint8_t *)"get", 3}};
static const struct chat_prompt without_tools = {.messages = &question, .n_messages = 1};
static const struct chat_prompt with_a_tool = {
    .messages = &question, .n_messages = 1, .tools = &tool, .n_tools = 1};

static void prompts_with_tools_use_it(void **state)
{
    struct chat_format *format = format_of_both(
        "{# [THINK] #}" EACH,
        "{# <arg_key> <tool_call> #}{% for t in tools %}{{ t.function.name }},{% endfor %}" EACH
        "{{ messages|map(attribute='tool_calls', default='')|list|string }}");

    expect_chat_text(format, &without_tools, "user:a;");
    expect_chat_text(format, &with_a_tool, "get,user:a;['']");
    assert_null(chat_format_warning(format));
    assert_string_equal(chat_format_name(format), "glm");
    assert_true(chat_format_has_tools(format));
    assert_int_equal(chat_format_info(format)->calls, CALLS_GLM);
    assert_string_equal(chat_format_info(format)->think_open, "[THINK]");
    assert_false(chat_format_info(format)->has_think_switch);
    chat_format_free(format);
}

static void a_bad_one_is_left_out(void **state)
{
    static const char *const bad[][2] = {{"\n{{ x|zork }}", "line 2: unknown filter"},
                                         {EACH, "it does not list tools"}};

    for (size_t i = 0; i < 2; i++) {
        struct chat_format *format = format_of_both(
            "{{ tools|string }}" EACH "{{ messages|map(attribute='tool_calls', default='')|list|string }}",
            bad[i][0]);

        assert_non_null(strstr(chat_format_warning(format), "tool_use"));
        assert_non_null(strstr(chat_format_warning(format), bad[i][1]));
        expect_chat_text(format, &without_tools, "Noneuser:a;['']");
        assert_true(chat_format_has_tools(format));
        chat_format_free(format);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_with_tools_use_it),
        cmocka_unit_test(a_bad_one_is_left_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
