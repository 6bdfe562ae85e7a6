/* SPDX-License-Identifier: Apache-2.0 */
/* The variable reasoning_effort of chat templates: words that a template refuses, and templates whose only switch of thinking
 * it is. */
#include "tests/unit/text/token/chat_templates.h"
#include "tests/unit/text/token/vocabularies.h"

#include "base/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static struct chat_prompt hello(struct chat_message *message)
{
    *message = (struct chat_message){.role = CHAT_USER, .text = bytes_str("Hi")};
    return (struct chat_prompt){.messages = message, .n_messages = 1, .adds_generation = true};
}

/* A template may refuse words of reasoning_effort, or all of them. */
static void refused_efforts_are_replaced(void **state)
{
    static const struct {
        const char *known, *expected[3]; /* for "low", "medium", "high" */
    } cases[] = {{"'low', 'medium', 'high'", {"low", "medium", "high"}},
                 {"'no_think', 'low', 'high'", {"low", "high", "high"}},
                 {"'low', 'medium'", {"low", "medium", "medium"}},
                 {"'high'", {"high", "high", "high"}},
                 {"'deep'", {"no_think", "no_think", "no_think"}}};
    static const char *const words[] = {"low", "medium", "high"};
    struct chat_message message;
    struct chat_prompt prompt = hello(&message);

    (void)state;
    for (size_t i = 0; i < 3 * ARRAY_LEN(cases); i++) {
        struct buf source = {0}, expected = {0};
        struct chat_format *format;

        buf_printf(&source,
                   "{%% if not reasoning_effort is defined %%}{%% set reasoning_effort = 'no_think' %%}"
                   "{%% elif reasoning_effort not in [%s] %%}{{ raise_exception('unknown effort') }}"
                   "{%% endif %%}",
                   cases[i / 3].known);
        buf_append_str(&source, "{{ reasoning_effort }};" EACH("", ""));
        buf_printf(&expected, "%s;user:Hi;", cases[i / 3].expected[i % 3]);
        buf_append_byte(&source, '\0');
        buf_append_byte(&expected, '\0');
        format = chat_format_for((const char *)source.data);
        prompt.effort = words[i % 3];
        expect_chat_text(format, &prompt, (const char *)expected.data);
        chat_format_free(format);
        buf_fini(&source);
        buf_fini(&expected);
    }
}

/* Hunyuan 3 has no other switch of thinking: without an effort it closes thinking. */
static void an_effort_may_be_the_switch_of_thinking(void **state)
{
    static const struct {
        const char *begins; /* before the answer, by the effort */
        bool is_switch;
        const char *expected[5]; /* default, on, off, on with "low", off with "high" */
    } cases[] = {
        {"{% if effort == 'no_think' %}<think></think>{% else %}[{{ effort }}]<think>{% endif %}",
         true,
         {"<think></think>", "[high]<think>", "<think></think>", "[low]<think>", "<think></think>"}},
        {"{% if effort == 'no_think' %}<think>\n</think>\n\n{% endif %}{# <think> #}",
         true,
         {"<think>\n</think>\n\n", "", "<think>\n</think>\n\n", "", "<think>\n</think>\n\n"}},
        {"[{{ effort }}]<think>",
         false,
         {"[no_think]<think>", "[no_think]<think>", "[no_think]<think>", "[low]<think>", "[high]<think>"}},
        {"<think></think>",
         false,
         {"<think></think>", "<think></think>", "<think></think>", "<think></think>", "<think></think>"}}};
    static const enum chat_thinking wishes[] = {CHAT_THINKING_DEFAULT, CHAT_THINKING_ON, CHAT_THINKING_OFF,
                                                CHAT_THINKING_ON, CHAT_THINKING_OFF};
    static const char *const efforts[] = {NULL, NULL, NULL, "low", "high"};
    struct chat_message message;
    struct chat_prompt prompt = hello(&message);

    (void)state;
    prompt.adds_generation = true;
    for (size_t i = 0; i < 5 * ARRAY_LEN(cases); i++) {
        struct buf source = {0}, expected = {0};
        struct chat_format *format;

        buf_printf(&source,
                   "{%% set effort = reasoning_effort if reasoning_effort is defined else 'no_think' %%}%s%s",
                   EACH("", ""), "{% if add_generation_prompt %}");
        buf_printf(&source, "%s{%% endif %%}", cases[i / 5].begins);
        buf_printf(&expected, "user:Hi;%s", cases[i / 5].expected[i % 5]);
        format = chat_format_for((const char *)source.data);
        assert_int_equal(chat_format_info(format)->has_think_switch, cases[i / 5].is_switch);
        prompt.thinking = wishes[i % 5];
        prompt.effort = efforts[i % 5];
        expect_chat_text(format, &prompt, (const char *)expected.data);
        chat_format_free(format);
        buf_fini(&source);
        buf_fini(&expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_efforts_are_replaced),
        cmocka_unit_test(an_effort_may_be_the_switch_of_thinking),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
