/* SPDX-License-Identifier: Apache-2.0 */
/* What a template can do, found out by trying.
 *
 * Templates were written against different callers: some take tools that are none, others fail on them; some
 * know a system message, others refuse it; some want a call's arguments as an object, others as text.  None
 * of it can be read off the template's source, but all of it shows when a small conversation with made-up
 * words is rendered and the words are looked for.  Each thing is settled before the next is tried, so at most
 * ten renderings are needed, once, when a model is opened.
 */
#include "token/chat_priv.h"

#include "base/err.h"

#define SYSTEM_WORD   "probe-system-7q"
#define TOOL_WORD     "probe_tool_7q"
#define ARGUMENT_WORD "probe-argument-7q"
#define RESULT_WORD   "probe-result-7q"
#define NOON          1735732800 /* some fixed day */

/* Renders and looks for the words; a failure is a no. */
static bool shows(const struct chat_format *format, const struct chat_prompt *prompt,
                  const char *const *words, size_t n_words, struct fault *fault)
{
    struct jinja *jinja;
    struct text text;
    bool is_shown = chat_run(format, prompt, NULL, fault, &jinja, &text) == 0;

    for (size_t i = 0; i < n_words && is_shown; i++)
        is_shown = bytes_find(bytes_of(text.data, text.len_bytes), bytes_str(words[i]), 0) != SIZE_MAX;
    jinja_free(jinja);
    return is_shown;
}

static const struct chat_message question = {.role = CHAT_USER, .text = {(const uint8_t *)"x", 1}};

static int probe_question(struct chat_format *format, struct fault *fault)
{
    struct chat_prompt prompt = {
        .messages = &question, .n_messages = 1, .adds_generation = true, .now_unix_s = NOON};
    struct fault last = {0};

    for (int i = 0; i < 2; i++) {
        format->leaves_tools_out = i > 0;
        if (shows(format, &prompt, NULL, 0, &last))
            return 0;
    }
    return fault_set(fault, last.code, "not even one question renders: %s", last.text);
}

static void probe_system(struct chat_format *format)
{
    const struct chat_message messages[] = {{.role = CHAT_SYSTEM, .text = bytes_str(SYSTEM_WORD)}, question};
    const struct chat_prompt prompt = {.messages = messages, .n_messages = 2, .now_unix_s = NOON};
    static const char *const words[] = {SYSTEM_WORD};

    format->has_no_system = !shows(format, &prompt, words, 1, NULL);
}

static bool probe_tools(struct chat_format *format)
{
    struct chat_tool tool = {.name = bytes_str(TOOL_WORD)};
    const struct chat_prompt prompt = {.messages = &question,
                                       .n_messages = 1,
                                       .tools = &tool,
                                       .n_tools = 1,
                                       .adds_generation = true,
                                       .now_unix_s = NOON};
    static const char *const words[] = {TOOL_WORD};

    format->wants_descriptions = !shows(format, &prompt, words, 1, NULL);
    return !format->wants_descriptions || shows(format, &prompt, words, 1, NULL);
}

static bool probe_calls(struct chat_format *format)
{
    static const char *const words[] = {TOOL_WORD, ARGUMENT_WORD, RESULT_WORD};
    const struct chat_call call = {.name = bytes_str(TOOL_WORD),
                                   .arguments = bytes_str("{\"a\": \"" ARGUMENT_WORD "\"}"),
                                   .id = bytes_str("probe0001")};
    const struct chat_message messages[] = {
        question,
        {.role = CHAT_ASSISTANT, .calls = &call, .n_calls = 1},
        {.role = CHAT_TOOL, .text = bytes_str(RESULT_WORD), .call_id = call.id},
    };
    const struct chat_tool tool = {.name = bytes_str(TOOL_WORD), .description = bytes_str("d")};
    const struct chat_prompt prompt = {
        .messages = messages, .n_messages = 3, .tools = &tool, .n_tools = 1, .now_unix_s = NOON};

    for (unsigned i = 0; i < 4; i++) {
        format->wants_text_calls = (i & 2) != 0;
        format->wants_no_content = (i & 1) != 0;
        if (shows(format, &prompt, words, 3, NULL))
            return true;
    }
    return false;
}

int chat_probe(struct chat_format *format, struct fault *fault)
{
    int rc = probe_question(format, fault);

    if (rc != 0)
        return rc;
    probe_system(format);
    format->has_tools = probe_tools(format) && probe_calls(format);
    return 0;
}
