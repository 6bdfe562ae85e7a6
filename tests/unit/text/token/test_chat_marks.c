/* SPDX-License-Identifier: Apache-2.0 */
/* Chat formats: the marks around answers and around thinking, as they are found in a template. */
#include "tests/unit/text/token/chat_templates.h"
#include "tests/unit/text/token/vocabularies.h"

#include "base/check.h"

#include <setjmp.h>
#include <stdarg.h>
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
                 {NULL, EACH("{# <tool_calls>[ #}", ""), CALLS_HERMES},
                 {NULL, EACH("{# <response></response> #}", ""), CALLS_ERNIE},
                 {extra, EACH("", ""), CALLS_COHERE},
                 {NULL, EACH("", ""), CALLS_HERMES},
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
        {"{# [/THINK] #}", "[THINK]", "[/THINK]"},
        {"{# <seed:think> #}", "<seed:think>", "</seed:think>"},
        {"{# <|START_THINKING|> #}", "<|START_THINKING|>", "<|END_THINKING|>"},
        {"{# <|inner_prefix|> #}", "<|inner_prefix|>", "<|inner_suffix|>"},
        {"{# 'Here is my response:' #}", "Here is my thought process:", "Here is my response:"}};

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks_around_answers_are_found),
        cmocka_unit_test(marks_around_thinking_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
