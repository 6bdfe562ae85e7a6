/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints of answers with thinking: its budget, and what may stand behind or within it. */
#include "constraint_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"

#define THINKING(source) "{# <think></think> #}" source
#define BUDGET           "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024},"

static void thinking_is_held_to_its_budget(void **state)
{
    struct gen_model model;
    struct ask thinking;
    struct rng rng;
    struct buf text = {0};

    rng_init(&rng, 8);
    assert_int_equal(
        sim_model_open_with(THINKING("{% for m in messages %}{{ m.content }}{% endfor %}"), 8192, &model), 0);
    ask(&model, BUDGET, false, &thinking);
    /* If the mark is not a single token, its characters count too. */
    for (unsigned n = 1000; n <= 1050; n += 25) {
        buf_clear(&text);
        buf_append_str(&text, "<think>");
        for (unsigned i = 0; i < n; i++)
            buf_append_byte(&text, 'x');
        buf_append_str(&text, "</think>Yes.");
        if (takes(&thinking, (char *)text.data) != (n <= 1024))
            fail_msg("%u tokens: %s", n, (char *)thinking.constraint.data);
    }
    assert_true(takes(&thinking, "Yes."));
    ask_fini(&thinking);
    ask(&model, BUDGET, true, &thinking); /* the prompt has opened the thinking */
    assert_true(takes(&thinking, "hm</think>\n\nYes."));
    buf_consume(&text, 7);
    assert_false(takes(&thinking, (char *)text.data));
    ask_fini(&thinking);

    ask(&model, "\"thinking\":{\"type\":\"disabled\"},", true, &thinking);
    assert_true(takes(&thinking, "</think>\n\nYes."));
    assert_false(takes(&thinking, "hm</think>\n\nYes."));
    ask_fini(&thinking);
    ask(&model, "\"thinking\":{\"type\":\"disabled\"},", false, &thinking);
    assert_true(takes(&thinking, "Yes."));
    assert_false(takes(&thinking, "<think>hm</think>Yes."));
    ask_fini(&thinking);

    ask(&model, FORMAT, false, &thinking);
    assert_true(takes(&thinking, "<think>hm</think>\n\n{\"ok\":true}"));
    assert_true(takes(&thinking, "{\"ok\":true}"));
    assert_false(takes(&thinking, "<think>hm</think>\n\nYes."));
    ask_fini(&thinking);

    ask(&model, TOOLS("true") "\"thinking\":{\"type\":\"adaptive\"}," ANY, true, &thinking);
    assert_true(takes(
        &thinking, "</think>\n\n<tool_call>\n{\"name\": \"get\", \"arguments\": {\"id\":1}}\n</tool_call>"));
    assert_false(
        takes(&thinking,
              "hm</think>\n\n<tool_call>\n{\"name\": \"get\", \"arguments\": {\"id\":1}}\n</tool_call>"));
    ask_fini(&thinking);
    ask(&model, "", false, &thinking);
    assert_int_equal(thinking.constraint.len_bytes, 0);
    ask_fini(&thinking);
    buf_fini(&text);
    sim_model_close(&model);
}

/* Apertus: a call may begin within the thinking, which it ends. */
static void a_call_may_end_thinking(void **state)
{
#define APERTUS "<|tools_prefix|>[{\"set\": " ARGS "}]<|tools_suffix|>"
    static const struct begun_case cases[] = {
        {TOOLS("true"), "<|inner_prefix|>Hm. " APERTUS, false, true},
        {TOOLS("true"), "<|inner_prefix|>Hm. " APERTUS "Yes.", false, true},
        {TOOLS("true"), "Hm. " APERTUS, true, true},
        {TOOLS("true"), "Hm.<|inner_suffix|>" APERTUS, true, true},
        {TOOLS("true"), "<|inner_prefix|>Hm. <|tools_prefix|>[{\"bogus\": 1}]<|inner_suffix|>", false, false},
        {TOOLS("false"), "Hm. <|tools_prefix|>[{\"bogus\": {}}]<|tools_suffix|><|inner_suffix|>", true,
         false},
        {TOOLS("true") CHOICE("\"type\":\"none\""), "Hm. " APERTUS, true, false},
        {TOOLS("true") CHOICE("\"type\":\"none\""), "Hm. " APERTUS "<|inner_suffix|>", true, false},
        {TOOLS("true") FORMAT, "Hm. " APERTUS, true, false},
        {TOOLS("true") FORMAT, "Hm.<|inner_suffix|>" APERTUS, true, true},
        {BUDGET, "Hm. " APERTUS "<|inner_suffix|>Yes.", true, true}};

    (void)state;
    check_begun_cases(FAMILY("<|tools_prefix|> <|inner_prefix|>"), cases, ARRAY_LEN(cases));
}

/* Granite 3.2: a sentence opens thinking where an answer begins; elsewhere it is text. */
static void a_sentence_opens_thinking_once(void **state)
{
#define OPEN  "Here is my thought process:"
#define CLOSE "Here is my response:"
#define OFF   "\"thinking\":{\"type\":\"disabled\"},"
#define CALL  "<|tool_call|>[{\"name\": \"set\", \"arguments\": " ARGS "}]"
    static const struct {
        const char *fields, *text;
        bool is_taken;
    } cases[] = {{TOOLS("true"), "So. " OPEN " a", true},
                 {TOOLS("true"), OPEN " a " CLOSE " b " OPEN " c", true},
                 {TOOLS("true"), "\n" OPEN " a", false},
                 {TOOLS("true"), "\n" OPEN " a " CLOSE " b", true},
                 {TOOLS("true"), OPEN " a " CLOSE CALL, true},
                 {TOOLS("true"), "So. " OPEN CALL, true},
                 {TOOLS("true"), CALL "So. " OPEN, true},
                 {TOOLS("true"), "Here is my", true},
                 {TOOLS("true"), " Here is it. " OPEN, true},
                 {TOOLS("true"), "", true},
                 {TOOLS("true"), "<|tool_call|>[{\"name\": \"bogus\"}]", false},
                 {TOOLS("true"), " Here<|tool_call|>[{\"name\": \"bogus\"}]", false},
                 {TOOLS("true"), "<b>a</b>", true},
                 {OFF, "So. " OPEN " a", true},
                 {OFF, "Here is my thought: " OPEN " a", true},
                 {OFF, OPEN " a " CLOSE " b", false},
                 {OFF, " \n" OPEN " a " CLOSE " b", false},
                 {TOOLS("true"), "Here's my thought process: a Here's my response: b", true},
                 {TOOLS("true"), "Here's my thought process: a " CLOSE " b", true},
                 {TOOLS("true"), OPEN " a Here's my response:" CALL, true},
                 {TOOLS("true"), "Here's my thought process: a", false},
                 {TOOLS("true"), "Here's one. " OPEN " a", true},
                 {TOOLS("true"), "Here's", true},
                 {TOOLS("true"), "Here<|tool_call|>[{\"name\": \"bogus\"}]", false},
                 {OFF, "Here's my thought process: a Here's my response: b", false},
                 {OFF, "Here's my thought: a", true},
                 {OFF, "Hereby", true}};
    struct gen_model model;

    (void)state;
    assert_int_equal(sim_model_open_with(FAMILY("<|tool_call|> 'Here is my response:'"), 8192, &model), 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct ask asked;

        ask(&model, cases[i].fields, false, &asked);
        if (takes(&asked, cases[i].text) != cases[i].is_taken)
            fail_msg("case %zu: %s: %s", i, cases[i].text, (const char *)asked.constraint.data);
        ask_fini(&asked);
    }
    sim_model_close(&model);
}

struct taken_case {
    const char *fields, *text;
    bool is_taken;
};

static void check_cases(const char *chat_template, const struct taken_case *cases, size_t n)
{
    struct gen_model model;

    assert_int_equal(sim_model_open_with(chat_template, 8192, &model), 0);
    for (size_t i = 0; i < n; i++) {
        struct ask asked;

        ask(&model, cases[i].fields, false, &asked);
        if (takes(&asked, cases[i].text) != cases[i].is_taken)
            fail_msg("case %zu: %s: %s", i, cases[i].text, (const char *)asked.constraint.data);
        ask_fini(&asked);
    }
    sim_model_close(&model);
}

/* Apriel: a sentence of one spelling. */
static void a_sentence_may_have_one_spelling(void **state)
{
#define STEPS "Here are my reasoning steps:"
    static const struct taken_case cases[] = {{TOOLS("true"), STEPS " a\n[BEGIN FINAL RESPONSE]\nb", true},
                                              {TOOLS("true"), STEPS " a", false},
                                              {TOOLS("true"), "Here are my", true},
                                              {TOOLS("true"), "Here are two. b", true},
                                              {TOOLS("true"), "b", true},
                                              {OFF, STEPS " a\n[BEGIN FINAL RESPONSE]\nb", false},
                                              {OFF, "Here are my reasons", true}};

    (void)state;
    check_cases(FAMILY("<tool_calls>[ [BEGIN FINAL RESPONSE]"), cases, ARRAY_LEN(cases));
}

/* MiniCPM: a quoted value may contain the closing tag; with a strict schema no value is quoted. */
static void quoted_values_end_at_their_mark(void **state)
{
#define MINI(value)                                                                                          \
    "<function name=\"set\"><param name=\"mode\">" value "<param name=\"n\">5</param></function>"
    static const struct taken_case cases[] = {
        {TOOLS("false"), MINI("on</param>"), true},
        {TOOLS("false"), MINI("<![CDATA[a </param> b]]></param>"), true},
        {TOOLS("false"), MINI("<![CDATA[on]]></param>"), true},
        {TOOLS("false"), MINI("<![CDATA[on</param>"), false},
        {TOOLS("false"), MINI("a <![CDATA[</param>"), false},
        {TOOLS("true"), MINI("on</param>"), true},
        {TOOLS("true"), MINI("<![CDATA[on]]></param>"), false}};

    (void)state;
    check_cases(FAMILY("<function name=\" <param name=\""), cases, ARRAY_LEN(cases));
}

/* GigaChat 3.0: the mark that begins a call also ends an answer. */
static void a_mark_may_end_an_answer(void **state)
{
#define SEP "<|message_sep|>\n\n"
    static const struct taken_case cases[] = {
        {TOOLS("true"), "Hi." SEP, true},
        {TOOLS("true"), "Hi." SEP "function call<|role_sep|>\n{\"name\": \"set\", \"arguments\": " ARGS "}",
         true},
        {TOOLS("true"), "Hi." SEP "function call<|role_sep|>\n{\"name\": \"bogus\"", false}};

    (void)state;
    check_cases(FAMILY("function call<|role_sep|>"), cases, ARRAY_LEN(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sentence_may_have_one_spelling), cmocka_unit_test(quoted_values_end_at_their_mark),
        cmocka_unit_test(a_mark_may_end_an_answer),         cmocka_unit_test(thinking_is_held_to_its_budget),
        cmocka_unit_test(a_call_may_end_thinking),          cmocka_unit_test(a_sentence_opens_thinking_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
