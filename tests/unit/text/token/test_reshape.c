/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations that templates refuse or do not show.  Tests the facts found when a template is opened, and
 * the turns that it receives instead.  The templates are small, each in the format of a published family. */
#include "tests/unit/text/token/vocabularies.h"

#include "base/check.h"
#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* bytes_str() in a constant */
#define LIT(words)                                                                                           \
    {                                                                                                        \
        (const uint8_t *)(words), sizeof(words) - 1                                                          \
    }
#define ID_0 "toolu_01ABC"
#define ID_1 "toolu_02DEF"

static const struct chat_call calls[] = {
    {LIT("get"), LIT("{\"a\": 1}"), LIT(ID_0)},
    {LIT("put"), LIT("{}"), LIT(ID_1)},
};

#define SYSTEM(words)                                                                                        \
    {                                                                                                        \
        .role = CHAT_SYSTEM, .text = LIT(words)                                                              \
    }
#define USER(words)                                                                                          \
    {                                                                                                        \
        .role = CHAT_USER, .text = LIT(words)                                                                \
    }
#define ANSWER(words)                                                                                        \
    {                                                                                                        \
        .role = CHAT_ASSISTANT, .text = LIT(words)                                                           \
    }
#define CALLS(words, n)                                                                                      \
    {                                                                                                        \
        .role = CHAT_ASSISTANT, .text = LIT(words), .calls = calls, .n_calls = n                             \
    }
#define RESULT(words, number)                                                                                \
    {                                                                                                        \
        .role = CHAT_TOOL, .text = LIT(words), .call_id = LIT(ID_##number)                                   \
    }

static const struct chat_tool tools[] = {
    {LIT("get"), LIT("gets"),
     LIT("{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}, \"required\": []}")},
    {.name = LIT("put")},
};

struct shape { /* a conversation and its changed form */
    struct chat_message messages[8];
    size_t n;
    size_t n_tools;
    const char *expected;
};

static void expect_shapes(const char *chat_template, const struct shape *shapes, size_t n)
{
    struct chat_format *format = chat_format_for(chat_template);

    assert_null(chat_format_warning(format));
    for (size_t i = 0; i < n; i++) {
        const struct chat_prompt prompt = {.messages = shapes[i].messages,
                                           .n_messages = shapes[i].n,
                                           .tools = tools,
                                           .n_tools = shapes[i].n_tools};

        expect_chat_text(format, &prompt, shapes[i].expected);
    }
    chat_format_free(format);
}

/* ---- Mistral's: strict turns, no empty answers ---- */

#define STRICT                                                                                               \
    "{%- if messages[0].role == 'system' %}{{ '<' + messages[0].content + '>' }}"                            \
    "{%- set rest = messages[1:] %}{%- else %}{%- set rest = messages %}{%- endif %}"                        \
    "{%- if tools %}{% for t in tools %}{{ '(' + t.function.name + ')' }}{% endfor %}{%- endif %}"           \
    "{%- set ns = namespace(i=0) %}{%- for m in rest %}"                                                     \
    "{%- if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}"                             \
    "{%- if (m.role == 'user') != (ns.i % 2 == 0) %}{{ raise_exception('alternate') }}{%- endif %}"          \
    "{%- set ns.i = ns.i + 1 %}{%- endif %}{%- endfor %}"
#define STRICT_TURNS(before_answer)                                                                          \
    "{%- for m in rest %}{%- if m.role == 'user' %}{{ '[Q]' + m.content }}"                                  \
    "{%- elif m.role == 'assistant' %}" before_answer "{%- if not m.content and not m.tool_calls %}"         \
    "{{ raise_exception('neither content nor calls') }}{%- endif %}{{ '[A]' + m.content }}"                  \
    "{%- for c in m.tool_calls or [] %}{{ '[C]' + c.function.name }}{{ c.function.arguments|tojson }}"       \
    "{%- if c.id|length != 9 %}{{ raise_exception('nine letters') }}{%- endif %}{%- endfor %}"               \
    "{%- elif m.role == 'tool' %}{{ '[R]' + m.content }}"                                                    \
    "{%- else %}{{ raise_exception('no such role') }}{%- endif %}{%- endfor %}{# [TOOL_CALLS] #}"

static void empty_answers_are_left_out(void **state)
{
    static const struct shape shapes[] = {
        {{USER("a"), ANSWER("b"), USER("c")}, 3, 0, "[Q]a[A]b[Q]c"},
        {{USER("a"), ANSWER(""), USER("c")}, 3, 0, "[Q]a\n\nc"},
        {{SYSTEM("s"), USER("a"), ANSWER(""), USER("c"), ANSWER(""), USER("d")},
         6,
         2,
         "<s>(get)(put)[Q]a\n\nc\n\nd"},
        {{USER("a"), CALLS("", 1), RESULT("r", 0), ANSWER(""), USER("d")},
         5,
         2,
         "(get)(put)[Q]a[A][C]get{\"a\": 1}[R]r\n\nd"},
        {{USER("a"), CALLS("x", 2), RESULT("r", 0), RESULT("s", 1), ANSWER("y"), USER("d")},
         6,
         2,
         "(get)(put)[Q]a[A]x[C]get{\"a\": 1}[C]put{}[R]r[R]s[A]y[Q]d"},
        {{USER("a"), USER("b"), ANSWER("c"), SYSTEM("late"), USER("d")},
         5,
         0,
         "[Q]a\n\nb[A]c[Q]<system-reminder>\nlate\n</system-reminder>\n\nd"},
        {{USER("a"), ANSWER("b"), ANSWER("")}, 3, 0, "[Q]a[A]b"},
    };

    expect_shapes(STRICT STRICT_TURNS(""), shapes, ARRAY_LEN(shapes));
}

/* An answer with thinking only counts as empty. */
static void an_answer_of_thinking_alone_is_empty(void **state)
{
    const struct shape shape = {
        {USER("a"), {.role = CHAT_ASSISTANT, .thinking = LIT("hm")}, USER("c")}, 3, 0, "[Q]a\n\nc"};

    expect_shapes(STRICT STRICT_TURNS(""), &shape, 1);
}

static void an_empty_question_comes_before_a_first_answer(void **state)
{
    static const struct shape shapes[] = {
        {{ANSWER("b"), USER("c")}, 2, 0, "[Q][A]b[Q]c"},
        {{SYSTEM("s"), ANSWER("b"), USER("c")}, 3, 0, "<s>[Q][A]b[Q]c"},
        {{ANSWER(""), USER("c")}, 2, 0, "[Q]\n\nc"},
    };

    expect_shapes(STRICT STRICT_TURNS(""), shapes, ARRAY_LEN(shapes));
}

/* Text beside calls is refused, and so is a separate turn before them: it is dropped. */
static void text_that_no_turn_takes_is_left_out(void **state)
{
    static const struct shape shapes[] = {
        {{USER("a"), CALLS("x", 1), RESULT("r", 0), ANSWER("y"), USER("d")},
         5,
         2,
         "(get)(put)[Q]a[A][C]get{\"a\": 1}[R]r[A]y[Q]d"},
    };

    expect_shapes(STRICT STRICT_TURNS(
                      "{%- if m.content and m.tool_calls %}{{ raise_exception('not both') }}{%- endif %}"),
                  shapes, ARRAY_LEN(shapes));
}

/* ---- text beside calls where turns are free ---- */

#define FREE(body)                                                                                           \
    "{% for t in tools or [] %}{{ '(' + t.function.name + ')' }}{% endfor %}{% for m in messages %}" body    \
    "{% endfor %}"
#define FREE_CALLS                                                                                           \
    "{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments|tojson }}{% endfor %}"

static void text_beside_calls_becomes_a_turn(void **state)
{
    static const char *const templates[] = {
        /* refused */
        FREE("{% if m.content and m.tool_calls %}{{ raise_exception('not both') }}{% endif %}[{{ m.role }}:"
             "{{ m.content }}{% if m.tool_calls %}" FREE_CALLS "{% endif %}]"),
        /* not shown */
        FREE("[{{ m.role }}:{% if m.tool_calls %}" FREE_CALLS "{% else %}{{ m.content }}{% endif %}]"),
        /* not shown, and one call a turn */
        FREE("[{{ m.role }}:{% if m.tool_calls %}{% if m.tool_calls|length > 1 %}{{ raise_exception('one') "
             "}}{% "
             "endif %}" FREE_CALLS "{% else %}{{ m.content }}{% endif %}]"),
    };
    const struct shape shapes[] = {
        {{USER("a"), CALLS("x", 1), RESULT("r", 0), USER("d")},
         4,
         2,
         "(get)(put)[user:a][assistant:x][assistant:get{\"a\": 1}][tool:r][user:d]"},
        {{USER("a"), CALLS("", 1), RESULT("r", 0)},
         3,
         2,
         "(get)(put)[user:a][assistant:get{\"a\": 1}][tool:r]"},
    };
    const struct shape both = {
        {USER("a"), CALLS("x", 2), RESULT("s", 1), RESULT("r", 0)},
        4,
        2,
        "(get)(put)[user:a][assistant:x][assistant:get{\"a\": 1}][tool:r][assistant:put{}]"
        "[tool:s]"};

    for (size_t i = 0; i < ARRAY_LEN(templates); i++)
        expect_shapes(templates[i], shapes, ARRAY_LEN(shapes));
    expect_shapes(templates[2], &both, 1);
}

/* Harmony drops text beside a call once there is an answer; that is the format and not a loss. */
static void text_that_is_shown_for_a_while_stays(void **state)
{
    const struct shape shape = {{USER("a"), CALLS("x", 1), RESULT("r", 0)},
                                3,
                                2,
                                "(get)(put)[user:a][assistant:xget{\"a\": 1}][tool:r]"};

    expect_shapes(
        FREE("[{{ m.role }}:{% if m.tool_calls %}{% if messages[-1].role == 'tool' %}{{ m.content }}{% endif "
             "%}" FREE_CALLS "{% else %}{{ m.content }}{% endif %}]"),
        &shape, 1);
}

/* ---- a listing of its own, and no calls ---- */

#define LISTING                                                                                              \
    "{% if tools %}{{ 'TOOLS ' + tools|map(attribute='function')|map(attribute='name')|join(',') + ';' "     \
    "}}{% endif %}"
#define ROLES "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"

static void a_listing_is_kept_where_calls_are_not_shown(void **state)
{
    const struct shape marked = {
        {USER("a"), CALLS("x", 1), RESULT("r", 0), ANSWER("y")},
        4,
        2,
        "TOOLS get,put;user:a;assistant:x\n<tool_call>\n{\"name\": \"get\", \"arguments\": "
        "{\"a\": 1}}\n</tool_call>;user:<tool_response>\nr\n</tool_response>;assistant:y;"};
    struct chat_format *format = chat_format_for(LISTING ROLES "{# answer in <tool_call> #}");

    assert_false(chat_format_has_tools(format));
    assert_int_equal(chat_format_info(format)->calls, CALLS_HERMES);
    chat_format_free(format);
    expect_shapes(LISTING ROLES "{# answer in <tool_call> #}", &marked, 1);
}

/* The model was trained on calls in its family's format, so its earlier calls use that format too. */
static void listed_tools_are_called_in_the_format_of_the_family(void **state)
{
    static const struct shape granite = {
        {USER("a"), CALLS("x", 2), RESULT("r", 0), ANSWER("y")},
        4,
        2,
        "TOOLS get,put;user:a;assistant:x<|tool_call|>[{\"name\": \"get\", \"arguments\": {\"a\": 1}}, "
        "{\"name\": \"put\", \"arguments\": {}}];user:<tool_response>\nr\n</tool_response>;assistant:y;"};
    static const struct shape lfm2 = {
        {USER("a"), CALLS("", 2), RESULT("r", 0), ANSWER("y")},
        4,
        2,
        "TOOLS get,put;user:a;assistant:<|tool_call_start|>[get(a=1), put()]<|tool_call_end|>;user:"
        "<tool_response>\nr\n</tool_response>;assistant:y;"};

    expect_shapes(LISTING ROLES "{# <|tool_call|> #}", &granite, 1);
    expect_shapes(LISTING ROLES "{# <|tool_list_start|> #}", &lfm2, 1);
}

/* If the template does not describe the format of calls, we do; the template still lists the tools. */
static void the_system_text_states_the_format_of_calls_if_the_listing_does_not(void **state)
{
    struct chat_format *format = chat_format_for(LISTING ROLES);
    const struct chat_message messages[] = {SYSTEM("s"), USER("a"), CALLS("", 1), RESULT("r", 0)};
    const struct chat_prompt prompt = {.messages = messages, .n_messages = 4, .tools = tools, .n_tools = 2};
    struct buf text = {0};

    assert_int_equal(chat_render_text(format, &prompt, NULL, &text), 0);
    buf_append_byte(&text, '\0');
    assert_non_null(strstr((char *)text.data, "TOOLS get,put;system:s\n\nA call is written like this"));
    assert_null(strstr((char *)text.data, "These tools can be called"));
    assert_non_null(strstr((char *)text.data, "<tool_response>\nr\n</tool_response>"));
    buf_fini(&text);
    chat_format_free(format);
}

/* ---- tools that lack something ---- */

static void parameters_get_descriptions_where_they_are_wanted(void **state)
{
    const struct shape shape = {{USER("a")}, 1, 2, "get gets a: ;put ;user:a;"};

    expect_shapes("{% for t in tools or [] %}{{ t.function.name + ' ' + t.function.description }}"
                  "{% for name, field in t.function.parameters.properties|items %}{{ ' ' + name + ': ' + "
                  "field.description "
                  "}}{% endfor %};{% endfor %}" ROLES "{# <tool_call> #}",
                  &shape, 1);
}

/* ---- lists of a template's own ---- */

static void a_queue_of_ids_may_be_appended_to(void **state)
{
    const struct shape shape = {{USER("a"), CALLS("", 2), RESULT("r", 0), RESULT("s", 1)},
                                4,
                                2,
                                "(get)(put)[user:a][assistant:0:get{\"a\": 1}1:put{}][tool 0:r][tool 1:s]"};

    expect_shapes(
        "{% set q = namespace(ids=[], at=0) %}" FREE(
            "[{{ m.role }}{% if m.role == 'tool' %}{{ ' ' + q.ids[q.at]|string + ':' + m.content }}"
            "{% set q.at = q.at + 1 %}{% elif m.tool_calls %}:{{ m.content }}{% for c in m.tool_calls %}"
            "{{ q.ids|length }}:{{ c.function.name }}{{ c.function.arguments|tojson }}"
            "{% set _ = q.ids.append(q.ids|length) %}{% endfor %}{% else %}:{{ m.content }}{% endif %}]"),
        &shape, 1);
}

/* ---- messages that templates drop silently ---- */

static void a_second_system_text_does_not_replace_the_first(void **state)
{
    const struct shape shape = {
        {SYSTEM("s"), USER("a"), ANSWER("b"), SYSTEM("t"), USER("c")},
        5,
        0,
        "<s>user:a;assistant:b;user:<system-reminder>\nt\n</system-reminder>;user:c;"};

    expect_shapes("{% set ns = namespace(s='') %}{% for m in messages %}{% if m.role == 'system' %}{% set "
                  "ns.s = m.content "
                  "%}{% endif %}{% endfor %}<{{ ns.s }}>{% for m in messages %}{% if m.role != 'system' %}"
                  "{{ m.role }}:{{ m.content }};{% endif %}{% endfor %}",
                  &shape, 1);
}

static void templates_that_fail_on_answers_are_reported(void **state)
{
    static const struct {
        const char *source, *words;
    } cases[] = {
        {"{% for m in messages %}{% if m.role == 'assistant' %}{{ m.nothing.more }}{% endif %}{{ m.content "
         "}}{% endfor %}",
         "fails on every turn of the assistant"},
        {"{% for m in messages %}{% if m.role == 'assistant' %}{% set m.seen = 1 %}{% endif %}{{ m.content "
         "}}{% endfor %}",
         "fails on every turn of the assistant"},
        {"{{ messages[-1].content }}", "does not show the assistant's earlier turns"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct chat_format *format = chat_format_for(cases[i].source);

        assert_non_null(chat_format_warning(format));
        assert_non_null(strstr(chat_format_warning(format), cases[i].words));
        chat_format_free(format);
    }
}

/* ---- Phi 4 mini's: the system message has the tools ---- */

#define PHI_TOOLS                                                                                            \
    "{[{\"name\": \"get\", \"description\": \"gets\", \"parameters\": {\"type\": \"object\", "               \
    "\"properties\": "                                                                                       \
    "{\"a\": {\"type\": \"integer\"}}, \"required\": []}}, {\"name\": \"put\"}]};"

static void tools_go_into_the_system_message(void **state)
{
    static const struct shape shapes[] = {
        {{SYSTEM("s"), USER("a")}, 2, 2, "system:s" PHI_TOOLS "user:a;"},
        {{USER("a")}, 1, 2, "system:" PHI_TOOLS "user:a;"},
        {{USER("a"), ANSWER("b"), USER("c")}, 3, 0, "user:a;assistant:b;user:c;"},
        {{SYSTEM("s"), USER("a"), CALLS("b", 1), RESULT("r", 0)},
         4,
         2,
         "system:s" PHI_TOOLS "user:a;assistant:b<|tool_call|>[{\"name\": \"get\", \"arguments\": {\"a\": "
         "1}}]<|/tool_call|>;user:<tool_response>\nr\n</tool_response>;"},
    };

    expect_shapes(
        "{# <|/tool|> #}{% for m in messages %}{{ m.role + ':' + m.content }}"
        "{% if m.role == 'system' and 'tools' in m and m.tools is not none %}{{ '{' + m.tools + '}' }}"
        "{% endif %};{% endfor %}",
        shapes, ARRAY_LEN(shapes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_answers_are_left_out),
        cmocka_unit_test(an_answer_of_thinking_alone_is_empty),
        cmocka_unit_test(an_empty_question_comes_before_a_first_answer),
        cmocka_unit_test(text_that_no_turn_takes_is_left_out),
        cmocka_unit_test(text_beside_calls_becomes_a_turn),
        cmocka_unit_test(text_that_is_shown_for_a_while_stays),
        cmocka_unit_test(a_listing_is_kept_where_calls_are_not_shown),
        cmocka_unit_test(listed_tools_are_called_in_the_format_of_the_family),
        cmocka_unit_test(the_system_text_states_the_format_of_calls_if_the_listing_does_not),
        cmocka_unit_test(parameters_get_descriptions_where_they_are_wanted),
        cmocka_unit_test(a_queue_of_ids_may_be_appended_to),
        cmocka_unit_test(a_second_system_text_does_not_replace_the_first),
        cmocka_unit_test(templates_that_fail_on_answers_are_reported),
        cmocka_unit_test(tools_go_into_the_system_message),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
