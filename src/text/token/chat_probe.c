/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out by trial renderings which features a template has.
 *
 * Templates were written for different callers. Some accept malformed tools, others fail on them. Some accept a
 * system message, others refuse it. Some want the arguments of a call as an object, others as text. The source of a
 * template does not show this.
 *
 * So the probe renders small conversations with made-up words and searches the output for those words. It
 * decides each property before it tries the next. It needs at most sixty renderings of a few words, once,
 * when a model is opened. */
#include "text/token/chat_priv.h"

#include "base/err.h"

#include <stdio.h>

#define SYSTEM_WORD   "probe-system-7q"
#define TOOL_WORD     "probe_tool_7q"
#define ARGUMENT_WORD "probe-argument-7q"
#define RESULT_WORD   "probe-result-7q"
#define ANSWER_WORD   "probe-answer-7q"
#define NOON          1735732800 /* an arbitrary day */

/* Renders and searches for the words; a failed rendering counts as "not shown". */
static bool chat_probe_shows(const struct chat_format *format, const struct chat_prompt *prompt,
                             const char *const *words, size_t n_words, struct fault *fault)
{
    struct chat_run run;
    bool is_shown = chat_run(format, prompt, NULL, fault, &run) == 0;

    for (size_t i = 0; i < n_words && is_shown; i++)
        is_shown =
            bytes_find(bytes_of(run.text.data, run.text.len_bytes), bytes_str(words[i]), 0) != SIZE_MAX;
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
        if (chat_probe_shows(format, &prompt, NULL, 0, &last))
            return 0;
    }
    return fault_set(fault, last.code, "not even one question renders: %s", last.text);
}

static void probe_system(struct chat_format *format)
{
    const struct chat_message messages[] = {{.role = CHAT_SYSTEM, .text = bytes_str(SYSTEM_WORD)}, question};
    const struct chat_prompt prompt = {.messages = messages, .n_messages = 2, .now_unix_s = NOON};
    static const char *const words[] = {SYSTEM_WORD};

    format->has_no_system = !chat_probe_shows(format, &prompt, words, 1, NULL);
}

static bool shows_tool(const struct chat_format *format, const char *parameters)
{
    const struct chat_message messages[] = {{.role = CHAT_SYSTEM, .text = bytes_str(SYSTEM_WORD)}, question};
    size_t n = format->wants_system_tools ? 2 : 1;
    struct chat_tool tool = {.name = bytes_str(TOOL_WORD)};
    const struct chat_prompt prompt = {.messages = messages + 2 - n,
                                       .n_messages = n,
                                       .tools = &tool,
                                       .n_tools = 1,
                                       .adds_generation = true,
                                       .now_unix_s = NOON};
    static const char *const words[] = {TOOL_WORD};

    if (parameters != NULL)
        tool.parameters = bytes_str(parameters);
    return chat_probe_shows(format, &prompt, words, 1, NULL);
}

/* Tries a tool that has only a name, and one whose parameter has no description; then the same in the system message
 * (Phi 4 mini). */
static bool probe_tools(struct chat_format *format)
{
    static const char bare[] = "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"string\"}}, "
                               "\"required\": [\"a\"]}";

    for (int how = 0; how < CHAT_DESCRIBE_COUNT; how++) {
        format->describes = (enum chat_describe)how;
        if (shows_tool(format, NULL) && shows_tool(format, bare))
            return true;
    }
    format->describes = CHAT_DESCRIBE_NOTHING;
    format->wants_system_tools = true;
    if (shows_tool(format, NULL) && shows_tool(format, bare))
        return true;
    format->wants_system_tools = false;
    return false;
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
        if (chat_probe_shows(format, &prompt, words, 3, NULL))
            return true;
    }
    return false;
}

/* ---- turns that the template cannot show ---- */

static const struct chat_message answer = {.role = CHAT_ASSISTANT, .text = {(const uint8_t *)"y", 1}};

static bool shows_turns(const struct chat_format *format, const struct chat_message *messages, size_t n,
                        const char *word)
{
    const struct chat_tool tool = {.name = bytes_str(TOOL_WORD), .description = bytes_str("d")};
    const struct chat_prompt prompt = {.messages = messages,
                                       .n_messages = n,
                                       .tools = &tool,
                                       .n_tools = format->lists_tools ? 1 : 0,
                                       .now_unix_s = NOON};

    return chat_probe_shows(format, &prompt, &word, 1, NULL);
}

static void probe_turns(struct chat_format *format)
{
    const struct chat_message late_system[] = {{.role = CHAT_SYSTEM, .text = bytes_str("first-system-7q")},
                                               question,
                                               answer,
                                               {.role = CHAT_SYSTEM, .text = bytes_str(SYSTEM_WORD)},
                                               question};
    const struct chat_message questions[] = {question, {.role = CHAT_USER, .text = bytes_str(ARGUMENT_WORD)}};

    format->has_no_late_system = !shows_turns(format, late_system, 5, SYSTEM_WORD) ||
                                 !shows_turns(format, late_system, 5, "first-system-7q");
    format->wants_turns = !shows_turns(format, questions, 2, ARGUMENT_WORD);
}

/* Tries answers: any answer, an empty one, one before any question. */
static void probe_answers(struct chat_format *format)
{
    const struct chat_message next = {.role = CHAT_USER, .text = bytes_str(ARGUMENT_WORD)};
    const struct chat_message plain[] = {
        question, {.role = CHAT_ASSISTANT, .text = bytes_str(ANSWER_WORD)}, next};
    const struct chat_message empty[] = {question, {.role = CHAT_ASSISTANT}, next};
    struct fault fault = {0};
    const struct chat_prompt prompt = {.messages = plain, .n_messages = 3, .now_unix_s = NOON};

    if (!chat_probe_shows(format, &prompt, NULL, 0, &fault))
        snprintf(format->warning, sizeof(format->warning),
                 "it fails on every turn of the assistant, so only first questions can be answered: %.160s",
                 fault.text);
    else if (!shows_turns(format, plain, 3, ANSWER_WORD))
        snprintf(format->warning, sizeof(format->warning), "it does not show the assistant's earlier turns");
    if (format->warning[0] != '\0')
        return;
    format->has_no_empty_answer = !shows_turns(format, empty, 3, ARGUMENT_WORD);
    format->has_no_first_answer =
        !shows_turns(format, plain + 1, 2, ARGUMENT_WORD) || !shows_turns(format, plain + 1, 2, ANSWER_WORD);
}

/* Tries text beside a call. Where the template refuses or drops the text, tries a turn of its own before the
 * call. */
static void probe_call_text(struct chat_format *format)
{
    const struct chat_call call = {bytes_str(TOOL_WORD), bytes_str("{}"), bytes_str("probe0001")};
    const struct chat_message turns[] = {
        question,
        {.role = CHAT_ASSISTANT, .text = bytes_str(ANSWER_WORD), .calls = &call, .n_calls = 1},
        {.role = CHAT_TOOL, .text = bytes_str(RESULT_WORD), .call_id = call.id},
        answer,
        {.role = CHAT_USER, .text = bytes_str(ARGUMENT_WORD)}};
    bool is_shown = shows_turns(format, turns, 3, ANSWER_WORD);
    bool is_taken =
        shows_turns(format, turns, 3, RESULT_WORD) && shows_turns(format, turns, 5, ARGUMENT_WORD);

    if (is_shown && is_taken)
        return;
    format->call_text = CHAT_TEXT_BEFORE;
    if (shows_turns(format, turns, 3, ANSWER_WORD) && shows_turns(format, turns, 3, TOOL_WORD) &&
        shows_turns(format, turns, 5, ANSWER_WORD) && shows_turns(format, turns, 5, ARGUMENT_WORD))
        return;
    format->call_text = CHAT_TEXT_DROPPED;
    if (is_taken || !shows_turns(format, turns, 5, ARGUMENT_WORD))
        format->call_text = CHAT_TEXT_BESIDE;
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

/* Tests whether "no thinking" changes the text that opens the answer. */
static void probe_switch(struct chat_format *format)
{
    static const enum chat_thinking wishes[] = {CHAT_THINKING_DEFAULT, CHAT_THINKING_ON, CHAT_THINKING_OFF};
    struct chat_run runs[3];
    bool are_same[2];
    int rc[3];

    for (size_t i = 0; i < 3; i++) {
        const struct chat_prompt prompt = {.messages = &question,
                                           .n_messages = 1,
                                           .adds_generation = true,
                                           .thinking = wishes[i],
                                           .now_unix_s = NOON};

        rc[i] = chat_run(format, &prompt, NULL, NULL, &runs[i]);
    }
    for (size_t i = 0; i < 2; i++)
        are_same[i] = rc[i] == 0 && rc[2] == 0 &&
                      bytes_equal(bytes_of(runs[i].text.data, runs[i].text.len_bytes),
                                  bytes_of(runs[2].text.data, runs[2].text.len_bytes));
    format->info.has_think_switch = !are_same[0] || !are_same[1];
    for (size_t i = 0; i < 3; i++)
        chat_run_fini(&runs[i]);
}

const char *const chat_efforts[CHAT_N_EFFORTS] = {"low", "medium", "high"};

/* Tries the words of reasoning_effort.  For a word that the template refuses, it gets the nearest that it takes
 * (Hunyuan 3 has no "medium"); of two that are as near, the higher one, because less thinking spoils answers. */
static void probe_efforts(struct chat_format *format)
{
    static const uint8_t nearest[CHAT_N_EFFORTS][CHAT_N_EFFORTS] = {{0, 1, 2}, {1, 2, 0}, {2, 1, 0}};
    bool takes[CHAT_N_EFFORTS];

    for (size_t i = 0; i < CHAT_N_EFFORTS; i++) {
        const struct chat_prompt prompt = {.messages = &question,
                                           .n_messages = 1,
                                           .adds_generation = true,
                                           .effort = chat_efforts[i],
                                           .now_unix_s = NOON};

        format->efforts[i] = chat_efforts[i];
        takes[i] = chat_probe_shows(format, &prompt, NULL, 0, NULL);
    }
    for (size_t i = 0; i < CHAT_N_EFFORTS; i++) {
        size_t k = 0;

        while (k < CHAT_N_EFFORTS && !takes[nearest[i][k]])
            k++;
        format->efforts[i] = k < CHAT_N_EFFORTS ? chat_efforts[nearest[i][k]] : NULL;
    }
}

/* True if the answer's turn begins behind closed thinking. *is_rendered_out: there is a turn at all. */
static bool closes_thinking(const struct chat_format *format, const char *effort, bool *is_rendered_out)
{
    const struct chat_prompt prompt = {.messages = &question,
                                       .n_messages = 1,
                                       .adds_generation = true,
                                       .effort = effort,
                                       .now_unix_s = NOON};
    struct chat_run run;
    bool is_closed;

    *is_rendered_out = chat_run(format, &prompt, NULL, NULL, &run) == 0;
    struct bytes text = bytes_of(run.text.data, run.text.len_bytes);
    while (*is_rendered_out && text.len_bytes > 0 && strchr(" \n", text.data[text.len_bytes - 1]) != NULL)
        text.len_bytes--;
    is_closed = *is_rendered_out && bytes_ends_with(text, format->info.think_close);
    chat_run_fini(&run);
    return is_closed;
}

void chat_probe_effort_switch(struct chat_format *format)
{
    const char *most = format->efforts[CHAT_N_EFFORTS - 1];
    bool is_rendered;

    if (format->info.has_think_switch || format->info.think_close == NULL || most == NULL ||
        !closes_thinking(format, NULL, &is_rendered) ||
        closes_thinking(format, chat_efforts[CHAT_N_EFFORTS - 1], &is_rendered) || !is_rendered)
        return;
    format->effort_that_thinks = most;
    format->info.has_think_switch = true;
}

/* True if the template writes these marks around an answer, or takes them off. */
static bool handles_marks(const struct chat_format *format, const char *open, const char *close)
{
    char marked[128], opened[2][64];
    const char *const begins[] = {opened[0], opened[1], open};
    struct chat_message turns[] = {
        question, {.role = CHAT_ASSISTANT, .text = bytes_str(ANSWER_WORD)}, question};

    snprintf(opened[0], sizeof(opened[0]), "%s" ANSWER_WORD, open);
    snprintf(opened[1], sizeof(opened[1]), "%s\n" ANSWER_WORD, open);
    snprintf(marked, sizeof(marked), "%s\n" ANSWER_WORD "\n%s", open, close);
    for (size_t i = 0; i < 2; i++)
        if (shows_turns(format, turns, 3, begins[i]))
            return true;
    turns[1].text = bytes_str(marked);
    return shows_turns(format, turns, 3, ANSWER_WORD) && !shows_turns(format, turns, 3, open);
}

enum calls_format chat_probe_marks(const struct chat_format *format, struct bytes source)
{
    for (unsigned i = CALLS_PLAIN + 1; i < CALLS_FORMAT_COUNT; i++) {
        const struct calls_row *row = calls_row_of((enum calls_format)i);

        if (row->has_text_marks && row->answer[2] != NULL &&
            bytes_find(source, bytes_str(row->answer[0]), 0) != SIZE_MAX &&
            handles_marks(format, row->answer[0], row->answer[2]))
            return (enum calls_format)i;
    }
    return CALLS_PLAIN;
}

int chat_probe(struct chat_format *format, struct fault *fault)
{
    int rc;

    format->lists_tools = format->has_tools = true; /* nothing is reshaped during these trials */
    rc = probe_question(format, fault);
    if (rc != 0)
        return rc;
    probe_system(format);
    format->lists_tools = probe_tools(format);
    format->has_tools = format->lists_tools && probe_calls(format);
    probe_turns(format);
    probe_answers(format);
    probe_switch(format);
    probe_efforts(format);
    if (format->has_tools) {
        probe_call_turns(format);
        probe_call_text(format);
    }
    return 0;
}
