/* SPDX-License-Identifier: Apache-2.0 */
/* ChatML, plain and in the two Qwen dialects.
 *
 *     <|im_start|>system\n TEXT [tools] <|im_end|>\n
 *     <|im_start|>user\n TEXT <|im_end|>\n
 *     <|im_start|>assistant\n TEXT \n<tool_call>\n{"name": "N", "arguments": {...}}\n</tool_call>
 * <|im_end|>\n
 *     <|im_start|>user \n<tool_response>\n TEXT \n</tool_response> ... <|im_end|>\n      results of one turn
 * together
 *
 * Where the dialects differ:
 *
 *     2.5   has a default system text, and puts it before the tools, too, with "\n\n" between
 *     3     has none; "\n\n" only after a system text that is there.  An assistant's text may begin with its
 * thoughts in <think> tags: they are kept in turns after the last question (a tool loop goes on thinking) and
 *           dropped before it
 */
#include "token/chat_priv.h"

#include "base/err.h"

#include <string.h>

static bool is_first_system(const struct chat_prompt *prompt)
{
    return chat_is_role(prompt, 0, CHAT_SYSTEM);
}

static void put_tool(const struct chat_tool *tool, struct chat_text *out)
{
    chat_put(out, "\n{\"type\": \"function\", \"function\": {\"name\": ");
    chat_put_client_string(out, tool->name);
    if (tool->description.data != NULL) {
        chat_put(out, ", \"description\": ");
        chat_put_client_string(out, tool->description);
    }
    if (tool->parameters.data != NULL) {
        chat_put(out, ", \"parameters\": ");
        chat_put_client_json(out, tool->parameters);
    }
    chat_put(out, "}}");
}

static void put_tools(const struct chat_prompt *prompt, struct chat_text *out)
{
    chat_put(out, "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
                  "You are provided with function signatures within <tools></tools> XML tags:\n<tools>");
    for (size_t i = 0; i < prompt->n_tools; i++)
        put_tool(&prompt->tools[i], out);
    chat_put(out,
             "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
             "within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, "
             "\"arguments\": <args-json-object>}\n</tool_call>");
}

static void put_first_system(const struct chat_format *format, const struct chat_prompt *prompt,
                             struct chat_text *out)
{
    bool is_given = is_first_system(prompt);

    if (!is_given && prompt->n_tools == 0 && !format->has_default_system)
        return;
    chat_put(out, "<|im_start|>system\n");
    if (is_given)
        chat_put_client(out, prompt->messages[0].text);
    else
        chat_put_own(out, buf_view(&format->default_system));
    if (prompt->n_tools > 0) {
        if (is_given || format->dialect == CHAT_QWEN2_5)
            chat_put(out, "\n\n");
        put_tools(prompt, out);
    }
    chat_put(out, "<|im_end|>\n");
}

static void put_turn(const struct chat_message *message, struct chat_text *out)
{
    chat_put(out, "<|im_start|>");
    chat_put(out, chat_role_name(message->role));
    chat_put(out, "\n");
    chat_put_client(out, message->text);
}

static void put_call(const struct chat_call *call, struct chat_text *out)
{
    chat_put(out, "<tool_call>\n{\"name\": \"");
    chat_put_client(out, call->name);
    chat_put(out, "\", \"arguments\": ");
    chat_put_client_json(out, call->arguments);
    chat_put(out, "}\n</tool_call>");
}

static void put_result(const struct chat_prompt *prompt, size_t i, struct chat_text *out)
{
    if (i == 0 || !chat_is_role(prompt, i - 1, CHAT_TOOL))
        chat_put(out, "<|im_start|>user");
    chat_put(out, "\n<tool_response>\n");
    chat_put_client(out, prompt->messages[i].text);
    chat_put(out, "\n</tool_response>");
    if (!chat_is_role(prompt, i + 1, CHAT_TOOL))
        chat_put(out, "<|im_end|>\n");
}

/* Plain ChatML and Qwen 2.5. */
static void put_answer(const struct chat_message *message, struct chat_text *out)
{
    if (message->n_calls == 0) {
        put_turn(message, out);
        return;
    }
    chat_put(out, "<|im_start|>assistant");
    if (message->text.len_bytes > 0) {
        chat_put(out, "\n");
        chat_put_client(out, message->text);
    }
    for (size_t i = 0; i < message->n_calls; i++) {
        chat_put(out, "\n");
        put_call(&message->calls[i], out);
    }
}

static void put_calls_after(const struct chat_message *message, bool has_text, struct chat_text *out)
{
    for (size_t i = 0; i < message->n_calls; i++) {
        if (i > 0 || has_text)
            chat_put(out, "\n");
        put_call(&message->calls[i], out);
    }
}

/* ---- Qwen 3's thoughts ---- */

static struct bytes without_leading_newlines(struct bytes text)
{
    while (text.len_bytes > 0 && text.data[0] == '\n')
        text = bytes_of(text.data + 1, text.len_bytes - 1);
    return text;
}

static struct bytes without_trailing_newlines(struct bytes text)
{
    while (text.len_bytes > 0 && text.data[text.len_bytes - 1] == '\n')
        text.len_bytes--;
    return text;
}

/* What follows the last tag in text, or all of it. */
static struct bytes after_last(struct bytes text, const char *tag)
{
    size_t at = 0, from = 0;

    while ((at = bytes_find(text, bytes_str(tag), at)) != SIZE_MAX)
        from = at += strlen(tag);
    return bytes_of(text.data + from, text.len_bytes - from);
}

/* "<think>\nT\n</think>\n\nA" -> T and A; without the closing tag all is A. */
static void split_thought(struct bytes text, struct bytes *thought_out, struct bytes *answer_out)
{
    size_t end = bytes_find(text, bytes_str("</think>"), 0);

    *thought_out = (struct bytes){0};
    *answer_out = text;
    if (end == SIZE_MAX)
        return;
    struct bytes before = without_trailing_newlines(bytes_of(text.data, end));
    *thought_out = without_leading_newlines(after_last(before, "<think>"));
    *answer_out = without_leading_newlines(after_last(text, "</think>"));
}

static bool is_tool_response(struct bytes text)
{
    static const char begin[] = "<tool_response>", end[] = "</tool_response>";
    size_t len_bytes = strlen(end);

    return bytes_starts_with(text, begin) && text.len_bytes >= len_bytes &&
           bytes_is(bytes_of(text.data + text.len_bytes - len_bytes, len_bytes), end);
}

/* The last message in which a person asks; the last of all when there is none. */
static size_t last_question(const struct chat_prompt *prompt)
{
    for (size_t i = prompt->n_messages; i-- > 0;) {
        if (chat_is_role(prompt, i, CHAT_USER) && !is_tool_response(prompt->messages[i].text))
            return i;
    }
    return prompt->n_messages - 1;
}

/* has_thoughts: the turn keeps those it has; is_last: also none at all are shown, as an empty pair of tags.
 */
static void put_thinking_answer(const struct chat_message *message, bool has_thoughts, bool is_last,
                                struct chat_text *out)
{
    struct bytes thought, answer;

    split_thought(message->text, &thought, &answer);
    chat_put(out, "<|im_start|>assistant\n");
    if (has_thoughts && (is_last || thought.len_bytes > 0)) {
        chat_put(out, "<think>\n");
        chat_put_client(out, without_trailing_newlines(thought));
        chat_put(out, "\n</think>\n\n");
        chat_put_client(out, without_leading_newlines(answer));
    } else {
        chat_put_client(out, answer);
    }
    put_calls_after(message, answer.len_bytes > 0, out);
}

/* A Qwen 3 that does not think (the 2507 instruct models). */
static void put_thoughtless_answer(const struct chat_message *message, struct chat_text *out)
{
    put_turn(message, out);
    put_calls_after(message, message->text.len_bytes > 0, out);
}

void chatml_render(const struct chat_format *format, const struct chat_prompt *prompt, struct chat_text *out)
{
    size_t question = last_question(prompt);

    put_first_system(format, prompt, out);
    for (size_t i = is_first_system(prompt) ? 1 : 0; i < prompt->n_messages; i++) {
        const struct chat_message *message = &prompt->messages[i];

        if (message->role == CHAT_TOOL) {
            put_result(prompt, i, out);
            continue;
        }
        if (message->role != CHAT_ASSISTANT)
            put_turn(message, out);
        else if (format->drops_thoughts)
            put_thinking_answer(message, i > question, i + 1 == prompt->n_messages, out);
        else if (format->dialect == CHAT_QWEN3)
            put_thoughtless_answer(message, out);
        else
            put_answer(message, out);
        if (!chat_stays_open(prompt, i))
            chat_put(out, "<|im_end|>\n");
    }
}
