/* SPDX-License-Identifier: Apache-2.0 */
/* What a template can do, found out by trying.
 *
 * Templates were written against different callers: some take tools that are none, others fail on them; some
 * know a system message, others refuse it; some want a call's arguments as an object, others as text.  None
 * of it can be read off the template's source, but all of it shows when a small conversation with made-up
 * words is rendered and the words are looked for.  Each thing is settled before the next is tried, so at most
 * twenty renderings are needed, once, when a model is opened.
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
    struct chat_run run;
    struct text text;
    bool is_shown = chat_run(format, prompt, NULL, fault, &run, &text) == 0;

    for (size_t i = 0; i < n_words && is_shown; i++)
        is_shown = bytes_find(bytes_of(text.data, text.len_bytes), bytes_str(words[i]), 0) != SIZE_MAX;
    chat_run_fini(&run);
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

/* ---- turns that it cannot show ---- */

static const struct chat_message answer = {.role = CHAT_ASSISTANT, .text = {(const uint8_t *)"y", 1}};

static bool shows_turns(const struct chat_format *format, const struct chat_message *messages, size_t n,
                        const char *word)
{
    const struct chat_tool tool = {.name = bytes_str(TOOL_WORD), .description = bytes_str("d")};
    const struct chat_prompt prompt = {.messages = messages,
                                       .n_messages = n,
                                       .tools = &tool,
                                       .n_tools = format->has_tools ? 1 : 0,
                                       .now_unix_s = NOON};

    return shows(format, &prompt, &word, 1, NULL);
}

static void probe_turns(struct chat_format *format)
{
    const struct chat_message late_system[] = {
        question, answer, {.role = CHAT_SYSTEM, .text = bytes_str(SYSTEM_WORD)}, question};
    const struct chat_message questions[] = {question, {.role = CHAT_USER, .text = bytes_str(ARGUMENT_WORD)}};

    format->has_no_late_system = !shows_turns(format, late_system, 4, SYSTEM_WORD);
    format->wants_turns = !shows_turns(format, questions, 2, ARGUMENT_WORD);
}

static void probe_call_turns(struct chat_format *format)
{
    const struct chat_call calls[] = {{bytes_str(TOOL_WORD), bytes_str("{}"), bytes_str("probe0001")},
                                      {bytes_str("second_tool_7q"), bytes_str("{}"), bytes_str("probe0002")}};
    const struct chat_message result = {
        .role = CHAT_TOOL, .text = bytes_str(RESULT_WORD), .call_id = calls[0].id};
    const struct chat_message second = {
        .role = CHAT_TOOL, .text = bytes_str(RESULT_WORD), .call_id = calls[1].id};
    const struct chat_message parallel[] = {
        question, {.role = CHAT_ASSISTANT, .calls = calls, .n_calls = 2}, result, second};
    const struct chat_message late_question[] = {question,
                                                 {.role = CHAT_ASSISTANT, .calls = calls, .n_calls = 1},
                                                 result,
                                                 {.role = CHAT_USER, .text = bytes_str(ARGUMENT_WORD)}};

    format->has_one_call = !shows_turns(format, parallel, 4, "second_tool_7q");
    format->has_no_late_question = !shows_turns(format, late_question, 4, ARGUMENT_WORD);
}

/* Does "no thinking" change what opens the answer? */
static void probe_switch(struct chat_format *format)
{
    static const enum chat_thinking wishes[] = {CHAT_THINKING_DEFAULT, CHAT_THINKING_ON, CHAT_THINKING_OFF};
    struct chat_run runs[3];
    struct text texts[3];
    bool are_same[2];
    int rc[3];

    for (size_t i = 0; i < 3; i++) {
        const struct chat_prompt prompt = {.messages = &question,
                                           .n_messages = 1,
                                           .adds_generation = true,
                                           .thinking = wishes[i],
                                           .now_unix_s = NOON};

        rc[i] = chat_run(format, &prompt, NULL, NULL, &runs[i], &texts[i]);
    }
    for (size_t i = 0; i < 2; i++)
        are_same[i] = rc[i] == 0 && rc[2] == 0 &&
                      bytes_equal(bytes_of(texts[i].data, texts[i].len_bytes),
                                  bytes_of(texts[2].data, texts[2].len_bytes));
    format->manner.has_think_switch = !are_same[0] || !are_same[1];
    for (size_t i = 0; i < 3; i++)
        chat_run_fini(&runs[i]);
}

int chat_probe(struct chat_format *format, struct fault *fault)
{
    int rc;

    format->has_tools = true; /* while that is tried, nothing is reshaped */
    rc = probe_question(format, fault);
    if (rc != 0)
        return rc;
    probe_system(format);
    format->has_tools = probe_tools(format) && probe_calls(format);
    probe_turns(format);
    probe_switch(format);
    if (format->has_tools)
        probe_call_turns(format);
    return 0;
}
