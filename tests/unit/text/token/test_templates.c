/* SPDX-License-Identifier: Apache-2.0 */
/* Templates of published models, compared with the results of the reference implementation (rendered.json of
 * the shared data). */
#include "tests/unit/text/token/vocabularies.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* The vocabulary needs the template's markers, and the <s> and </s> of the reference. */
static struct chat_format *format_of_file(const char *name)
{
    bool has_markers = strcmp(name, "llama-3.1") != 0 && strcmp(name, "mistral-nemo") != 0;
    struct chat_format *format = NULL;
    struct fault fault = {0};
    struct buf text = {0};
    char path[64];

    snprintf(path, sizeof(path), "templates/%s.jinja", name);
    data_read(path, &text);
    struct tokenizer *tokenizer = has_markers
                                      ? chat_tokenizer((char *)text.data)
                                      : tokenizer_with_template("vocab/llama-spm.gguf", (char *)text.data);
    if (chat_format_new(tokenizer, &fault, &format) != 0)
        fail_msg("%s", fault.text);
    tokenizer_unref(tokenizer);
    buf_fini(&text);
    return format;
}

/* ---- a prompt out of the reference's inputs ---- */

struct prompt { /* with the objects that it borrows from */
    struct chat_prompt chat;
    struct chat_message messages[8];
    struct chat_call calls[8];
    struct chat_tool tools[4];
    char *texts[16];
    size_t n_texts;
};

static struct bytes text_member(const json_t *object, const char *name)
{
    return bytes_str(json_string_value(json_object_get(object, name)));
}

/* Without blanks, as a client might send it. */
static struct bytes dump_member(struct prompt *prompt, const json_t *object, const char *name)
{
    char *text = json_dumps(json_object_get(object, name), JSON_COMPACT);

    assert_non_null(text);
    prompt->texts[prompt->n_texts++] = text;
    return bytes_str(text);
}

static enum chat_role role_of(struct bytes name)
{
    if (bytes_is(name, "system"))
        return CHAT_SYSTEM;
    if (bytes_is(name, "user"))
        return CHAT_USER;
    return bytes_is(name, "tool") ? CHAT_TOOL : CHAT_ASSISTANT;
}

static void read_messages(struct prompt *prompt, const json_t *list)
{
    size_t i, k, n_calls = 0;
    json_t *one, *call;

    json_array_foreach(list, i, one)
    {
        struct chat_message *message = &prompt->messages[i];

        message->role = role_of(text_member(one, "role"));
        message->text = text_member(one, "content");
        message->call_id = text_member(one, "tool_call_id");
        message->calls = &prompt->calls[n_calls];
        json_array_foreach(json_object_get(one, "tool_calls"), k, call)
        {
            const json_t *function = json_object_get(call, "function");
            prompt->calls[n_calls++] =
                (struct chat_call){.name = text_member(function, "name"),
                                   .id = text_member(call, "id"),
                                   .arguments = dump_member(prompt, function, "arguments")};
            message->n_calls++;
        }
    }
    prompt->chat.messages = prompt->messages;
    prompt->chat.n_messages = json_array_size(list);
}

static void read_tools(struct prompt *prompt, const json_t *list)
{
    size_t i;
    json_t *one;

    json_array_foreach(list, i, one)
    {
        const json_t *function = json_object_get(one, "function");
        prompt->tools[i] = (struct chat_tool){.name = text_member(function, "name"),
                                              .description = text_member(function, "description"),
                                              .parameters = dump_member(prompt, function, "parameters")};
    }
    prompt->chat.tools = prompt->tools;
    prompt->chat.n_tools = json_array_size(list);
}

static void prompt_fini(struct prompt *prompt)
{
    for (size_t i = 0; i < prompt->n_texts; i++)
        free(prompt->texts[i]);
}

static void check_template(const json_t *root, const char *name)
{
    const json_t *inputs = json_object_get(root, "inputs");
    const json_t *cases = json_object_get(json_object_get(root, "rendered"), name);
    struct chat_format *format = format_of_file(name);
    const char *key;
    json_t *expected;

    assert_int_equal(json_object_size(cases), 4);
    json_object_foreach((json_t *)cases, key, expected)
    {
        struct prompt prompt = {0};

        read_messages(&prompt, json_object_get(inputs, key));
        if (strncmp(key, "tool", 4) == 0)
            read_tools(&prompt, json_object_get(inputs, "tool_defs"));
        prompt.chat.adds_generation = true;
        expect_chat_text(format, &prompt.chat, json_string_value(expected));
        prompt_fini(&prompt);
    }
    chat_format_free(format);
}

static json_t *read_reference(void)
{
    struct buf text = {0};

    data_read("templates/rendered.json", &text);
    json_t *root = json_loadb((char *)text.data, text.len_bytes, 0, NULL);
    assert_non_null(root);
    buf_fini(&text);
    return root;
}

static void renders_as_the_templates_do(void **state)
{
    json_t *root = read_reference();

    check_template(root, "qwen2.5");
    check_template(root, "qwen3");
    check_template(root, "hermes-3");
    check_template(root, "llama-3.1");
    check_template(root, "mistral-nemo");
    json_decref(root);
}

static void formats_have_names(void **state)
{
    static const char *const names[][2] = {{"qwen2.5", "hermes"},
                                           {"qwen3", "hermes"},
                                           {"hermes-3", "hermes"},
                                           {"llama-3.1", "llama"},
                                           {"mistral-nemo", "mistral"}};
    static const enum calls_format calls[] = {CALLS_HERMES, CALLS_HERMES, CALLS_HERMES, CALLS_LLAMA,
                                              CALLS_MISTRAL};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct chat_format *format = format_of_file(names[i][0]);
        assert_string_equal(chat_format_name(format), names[i][1]);
        assert_true(chat_format_has_tools(format));
        assert_int_equal(chat_format_info(format)->calls, calls[i]);
        chat_format_free(format);
    }
}

/* Conversations of agents that these two templates would refuse unchanged. */
static void agents_turns_are_rendered(void **state)
{
    static const char *const names[] = {"llama-3.1", "mistral-nemo"};
    const struct chat_call calls[] = {{bytes_str("f"), bytes_str("{\"a\": 1}"), bytes_str("toolu_1")},
                                      {bytes_str("g"), bytes_str("{}"), bytes_str("toolu_2")}};
    const struct chat_message messages[] = {
        {.role = CHAT_SYSTEM, .text = bytes_str("S")},
        {.role = CHAT_USER, .text = bytes_str("question")},
        {.role = CHAT_SYSTEM, .text = bytes_str("reminder")},
        {.role = CHAT_ASSISTANT, .calls = calls, .n_calls = 2},
        {.role = CHAT_TOOL, .text = bytes_str("first result"), .call_id = bytes_str("toolu_1")},
        {.role = CHAT_TOOL, .text = bytes_str("second result"), .call_id = bytes_str("toolu_2")},
        {.role = CHAT_USER, .text = bytes_str("go on")},
    };
    static const char *const shown[] = {"question", "reminder", "first result", "second result", "go on"};
    const struct chat_tool tools[] = {{bytes_str("f"), bytes_str("d"), bytes_str("{\"type\": \"object\"}")},
                                      {bytes_str("g"), bytes_str("d"), bytes_str("{\"type\": \"object\"}")}};
    const struct chat_prompt prompt = {
        .messages = messages, .n_messages = 7, .tools = tools, .n_tools = 2, .adds_generation = true};

    for (size_t i = 0; i < 2; i++) {
        struct chat_format *format = format_of_file(names[i]);
        struct fault fault = {0};
        struct buf text = {0};
        size_t at = 0;

        if (chat_render_text(format, &prompt, &fault, &text) != 0)
            fail_msg("%s: %s", names[i], fault.text);
        for (size_t k = 0; k < 5; k++) {
            at = bytes_find(buf_view(&text), bytes_str(shown[k]), at);
            if (at == SIZE_MAX)
                fail_msg("%s, %s: %s", names[i], shown[k], (char *)text.data);
        }
        buf_fini(&text);
        chat_format_free(format);
    }
}

/* Within a tool loop, a prompt begins with the previous one and the model's output after it, thinking
 * included.  After the next question the template drops the thinking. */
static void thinking_stays_within_a_tool_loop(void **state)
{
    const struct chat_call call = {bytes_str("f"), bytes_str("{\"a\": 1}"), bytes_str("toolu_1")};
    const struct chat_message messages[] = {
        {.role = CHAT_USER, .text = bytes_str("question")},
        {.role = CHAT_ASSISTANT, .thinking = bytes_str("First f."), .calls = &call, .n_calls = 1},
        {.role = CHAT_TOOL, .text = bytes_str("result"), .call_id = bytes_str("toolu_1")},
        {.role = CHAT_ASSISTANT, .thinking = bytes_str("Again f."), .calls = &call, .n_calls = 1},
        {.role = CHAT_TOOL, .text = bytes_str("result"), .call_id = bytes_str("toolu_1")},
        {.role = CHAT_ASSISTANT, .text = bytes_str("Done.")},
        {.role = CHAT_USER, .text = bytes_str("next")},
    };
    static const char *const wrote[] = {"<think>\nFirst f.\n</think>\n\n<tool_call>\n{\"name\": \"f\", "
                                        "\"arguments\": {\"a\": 1}}\n</tool_call>",
                                        "<think>\nAgain f.\n</think>\n\n<tool_call>\n{\"name\": \"f\", "
                                        "\"arguments\": {\"a\": 1}}\n</tool_call>"};
    const struct chat_tool tool = {bytes_str("f"), bytes_str("d"), bytes_str("{\"type\": \"object\"}")};
    struct chat_format *format = format_of_file("qwen3");
    struct chat_prompt prompt = {.messages = messages, .tools = &tool, .n_tools = 1, .adds_generation = true};
    struct buf before = {0}, text = {0};

    for (size_t i = 0; i < 3; i++) {
        prompt.n_messages = 1 + 2 * i;
        buf_clear(&text);
        assert_int_equal(chat_render_text(format, &prompt, NULL, &text), 0);
        assert_true(text.len_bytes > before.len_bytes);
        if (i > 0)
            assert_memory_equal(text.data, before.data, before.len_bytes);
        buf_clear(&before);
        buf_append(&before, text.data, text.len_bytes);
        if (i < 2)
            buf_append_str(&before, wrote[i]);
    }
    prompt.n_messages = 7;
    buf_clear(&text);
    assert_int_equal(chat_render_text(format, &prompt, NULL, &text), 0);
    assert_null(strstr((char *)text.data, "First f."));
    buf_fini(&before);
    buf_fini(&text);
    chat_format_free(format);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_as_the_templates_do),
        cmocka_unit_test(formats_have_names),
        cmocka_unit_test(agents_turns_are_rendered),
        cmocka_unit_test(thinking_stays_within_a_tool_loop),
    };

    if (!data_is_here()) {
        printf("the shared templates are not here (BATON_DATA); skipped\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
