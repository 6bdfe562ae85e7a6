/* SPDX-License-Identifier: Apache-2.0 */
/* From conversations to tokens: turns, breakpoints and their accounting; client text stays text. */
#include "serve/prompt/prompt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "serve/api/parse.h"
#include "base/check.h"
#include "base/err.h"
#include "tests/unit/serve/endpoint/sim_model.h"

static void make(const struct gen_model *model, const char *body, struct prompt *out)
{
    struct gen_request request;
    struct api_error error = {0};

    if (api_parse_request(bytes_str(body), API_COUNT_TOKENS, &request, &error) < 0)
        fail_msg("%s", error.message);
    if (prompt_make(model, &request, NULL, out, &error) < 0)
        fail_msg("%s", error.message);
    gen_request_fini(&request);
}

static void spell(const struct gen_model *model, const struct prompt *prompt, size_t n, struct buf *out)
{
    buf_clear(out);
    for (size_t i = 0; i < n; i++) {
        struct bytes piece = tokenizer_piece(model->tokenizer, prompt->ids.ids[i]);

        buf_append(out, piece.data, piece.len_bytes);
    }
}

static bool holds(const struct buf *text, const char *needle)
{
    return bytes_find(buf_view(text), bytes_str(needle), 0) != SIZE_MAX;
}

static void conversations_are_rendered_in_order(void **state)
{
    struct buf text = {0};
    struct prompt prompt;

    make(*state,
         "{\"model\":\"m\",\"system\":\"S\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
         "\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]},"
         "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"look "
         "\\n\"},{\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"f\",\"input\":{\"x\":1}}]},"
         "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"1\",\"content\":\"R\"},"
         "{\"type\":\"text\",\"text\":\"go <|im_end|>\"}]},"
         "{\"role\":\"system\",\"content\":\"mid\"},{\"role\":\"user\",\"content\":\"\"}]}",
         &prompt);
    spell(*state, &prompt, prompt.ids.n, &text);
    assert_true(holds(&text, "system\nS<|im_end|>\n<|im_start|>user\na\n\nb<|im_end|>"));
    assert_true(holds(
        &text, "look\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call><|im_end|>"));
    assert_true(holds(&text, "<tool_response>\nR\n</tool_response>"));
    assert_true(holds(&text, "user\ngo <|im_end|><|im_end|>"));
    assert_true(holds(
        &text, "<|im_start|>system\nmid<|im_end|>\n<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n"));
    /* Control text of the client is ordinary characters: ten tokens, not one. */
    size_t n_ends = 0;

    for (size_t i = 0; i < prompt.ids.n; i++)
        n_ends += prompt.ids.ids[i] ==
                  tokenizer_find(((struct gen_model *)*state)->tokenizer, bytes_str("<|im_end|>"));
    assert_int_equal(n_ends, 7);
    prompt_fini(&prompt);
    buf_fini(&text);
}

static void a_prefill_is_left_open(void **state)
{
    struct buf text = {0};
    struct prompt prompt;

    make(*state,
         "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","
         "\"content\":\"The\"}]}",
         &prompt);
    spell(*state, &prompt, prompt.ids.n, &text);
    assert_memory_equal(text.data + text.len_bytes - 25, "<|im_start|>assistant\nThe", 25);
    prompt_fini(&prompt);
    buf_fini(&text);
}

#define MARK    "\"cache_control\":{\"type\":\"ephemeral\"}"
#define MARK_1H "\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\"}"

static void breakpoints_fall_on_tokens(void **state)
{
    static const struct {
        const char *body;
        const char *end; /* end of the prompt up to the mark */
    } table[] = {
        {"{\"model\":\"m\",\"system\":[{\"type\":\"text\",\"text\":\"SYS\"," MARK
         "}],\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
         "SYS<|im_end|>\n"},
        {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
         "\"aa\"," MARK "},{\"type\":\"text\",\"text\":\"bb\"}]}]}",
         "user\naa"},
        {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
         "\"aa\"," MARK "}]}]}",
         "user\naa<|im_end|>\n"},
        {"{\"model\":\"m\"," MARK ",\"messages\":[{\"role\":\"user\",\"content\":\"aa\"}]}",
         "user\naa<|im_end|>\n"},
        {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
         "\"aa\"," MARK
         "}]},{\"role\":\"assistant\",\"content\":\"b\"},{\"role\":\"user\",\"content\":\"c\"}]}",
         "user\naa<|im_end|>\n"},
        {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
         "\"aa\"," MARK "}]},{\"role\":\"assistant\",\"content\":\"b\"}]}",
         "user\naa<|im_end|>\n"},
    };
    struct buf text = {0};

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct prompt prompt;
        size_t len = strlen(table[i].end);

        make(*state, table[i].body, &prompt);
        assert_true(prompt.mark_tokens[WORK_PIN_5M] > 0 && prompt.mark_tokens[WORK_PIN_5M] < prompt.ids.n);
        spell(*state, &prompt, prompt.mark_tokens[WORK_PIN_5M], &text);
        if (text.len_bytes < len || memcmp(text.data + text.len_bytes - len, table[i].end, len) != 0)
            fail_msg("mark %zu: %s", i, (const char *)text.data);
        prompt_fini(&prompt);
    }
    buf_fini(&text);
}

static void counts_add_up(void **state)
{
    static const struct {
        uint32_t mark, mark_1h, cached, read, in_5m, in_1h;
    } table[] = {{0, 0, 0, 0, 0, 0},      {0, 0, 64, 64, 0, 0},    {90, 0, 0, 0, 90, 0},
                 {90, 40, 0, 0, 50, 40},  {90, 40, 32, 32, 50, 8}, {90, 40, 64, 64, 26, 0},
                 {90, 40, 96, 96, 0, 0},  {20, 20, 0, 0, 0, 0},    {90, 90, 0, 0, 0, 90},
                 {100, 0, 500, 100, 0, 0}};

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct prompt prompt = {.ids = {.n = 100}, .mark_tokens = {table[i].mark, table[i].mark_1h}};
        struct api_usage usage = {0};

        prompt_account(&prompt, table[i].cached, 32, &usage);
        assert_int_equal(usage.cache_read_tokens, table[i].read);
        assert_int_equal(usage.created_tokens[WORK_PIN_5M], table[i].in_5m);
        assert_int_equal(usage.created_tokens[WORK_PIN_1H], table[i].in_1h);
        assert_int_equal(usage.input_tokens + usage.cache_read_tokens + usage.created_tokens[WORK_PIN_5M] +
                             usage.created_tokens[WORK_PIN_1H],
                         100);
    }
}

static void thinking_reaches_the_template(void **state)
{
    static const struct {
        const char *field, *end;
    } table[] = {
        {"", "<|im_start|>assistant\n"},
        {"\"thinking\":{\"type\":\"disabled\"},", "<|im_start|>assistant\n<think>\n\n</think>\n\n"},
        {"\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024},", "<|im_start|>assistant\n"},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct buf text = {0}, body = {0};
        struct prompt prompt;
        size_t len = strlen(table[i].end);

        buf_printf(&body, "{\"model\":\"m\",%s\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
                   table[i].field);
        make(*state, (char *)body.data, &prompt);
        spell(*state, &prompt, prompt.ids.n, &text);
        assert_memory_equal(text.data + text.len_bytes - len, table[i].end, len);
        prompt_fini(&prompt);
        buf_fini(&body);
        buf_fini(&text);
    }
}

/* ---- other templates ---- */

static void expect_refusal(const struct gen_model *model, const char *body, const char *message)
{
    struct gen_request request;
    struct api_error error = {0};
    struct prompt prompt;

    assert_int_equal(api_parse_request(bytes_str(body), API_COUNT_TOKENS, &request, &error), 0);
    assert_true(prompt_make(model, &request, NULL, &prompt, &error) < 0);
    assert_int_equal(error.status, 400);
    assert_string_equal(error.message, message);
    gen_request_fini(&request);
}

static void refusals_reach_the_client(void **state)
{
    static const char source[] =
        "{# [TOOL_CALLS] #}{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}"
        "{% if m.content == 'no' %}{{ raise_exception('Say something else.') }}{% endif %}"
        "{{ m.tool_calls|string if m.tool_calls }}{{ m.content + '' if m.content != 'odd' else m.odd.er }}"
        "{% endfor %}";
    struct gen_model model;

    assert_int_equal(sim_model_open_with(source, 4096, &model), 0);
    expect_refusal(&model, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"no\"}]}",
                   "messages: the model's chat template refuses this conversation: Say something else.");
    expect_refusal(&model, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"odd\"}]}",
                   "messages: chat template line 1: 'odd' is undefined");
    sim_model_close(&model);
}

/* In every format the prompt lists the tools: by the template, or by our own text. */
static void tools_are_shown_in_every_format(void **state)
{
    static const char *const sources[] = {
        "{# [TOOL_CALLS] #}{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}"
        "{{ m.tool_calls|string if m.tool_calls }}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"};
    static const char body[] = "{\"model\":\"m\",\"tools\":[{\"name\":\"find_it\",\"input_schema\":{\"type\":"
                               "\"object\"}}],\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}";

    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        struct gen_model model;
        struct prompt prompt;
        struct buf text = {0};

        assert_int_equal(sim_model_open_with(sources[i], 4096, &model), 0);
        make(&model, body, &prompt);
        spell(&model, &prompt, prompt.ids.n, &text);
        assert_true(holds(&text, "find_it"));
        prompt_fini(&prompt);
        buf_fini(&text);
        sim_model_close(&model);
    }
}

/* If the template itself opens the thinking, the answer begins inside it.  A client cannot imitate that. */
static void the_prompt_knows_that_it_opens_thinking(void **state)
{
    static const char source[] =
        "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
        "{% if add_generation_prompt %}assistant:{{ '<think>\n' if enable_thinking is not "
        "defined or enable_thinking }}{% endif %}";
    static const struct {
        const char *body;
        bool opens;
    } table[] = {
        {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", true},
        {"{\"model\":\"m\",\"thinking\":{\"type\":\"disabled\"},\"messages\":[{\"role\":\"user\",\"content\":"
         "\"<think>\"}]}",
         false},
        {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","
         "\"content\":\"<think>\"}]}",
         false},
    };
    struct gen_model model;

    assert_int_equal(sim_model_open_with(source, 4096, &model), 0);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct prompt prompt;

        make(&model, table[i].body, &prompt);
        assert_int_equal(prompt.opens_thinking, table[i].opens);
        prompt_fini(&prompt);
    }
    sim_model_close(&model);
}

/* A breakpoint is found even where the template would refuse to end. */
static void marks_need_no_rendering_of_their_own(void **state)
{
    static const char source[] =
        "{% if messages[-1].role == 'assistant' %}{{ raise_exception('ask') }}{% endif %}"
        "{% for m in messages %}{{ m.content }};{% endfor %}";
    struct gen_model model;
    struct prompt prompt;

    assert_int_equal(sim_model_open_with(source, 4096, &model), 0);
    make(&model,
         "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","
         "\"content\":"
         "[{\"type\":\"text\",\"text\":\"b\"," MARK "}]},{\"role\":\"user\",\"content\":\"c\"}]}",
         &prompt);
    assert_int_equal(prompt.mark_tokens[WORK_PIN_5M], 3); /* a;b */
    assert_int_equal(prompt.ids.n, 6);
    prompt_fini(&prompt);
    sim_model_close(&model);
}

static int set_up(void **state)
{
    static struct gen_model model;

    *state = &model;
    return sim_model_open(4096, &model);
}

static int tear_down(void **state)
{
    sim_model_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversations_are_rendered_in_order),
        cmocka_unit_test(a_prefill_is_left_open),
        cmocka_unit_test(breakpoints_fall_on_tokens),
        cmocka_unit_test(counts_add_up),
        cmocka_unit_test(thinking_reaches_the_template),
        cmocka_unit_test(refusals_reach_the_client),
        cmocka_unit_test(tools_are_shown_in_every_format),
        cmocka_unit_test(the_prompt_knows_that_it_opens_thinking),
        cmocka_unit_test(marks_need_no_rendering_of_their_own),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
